//! Folds helper programs for drawing: shells and launchers that use no GPU and hardly any time do not crowd the picture.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use analysis::{
    family::Family,
    flame_tree::{Flame, Frames, Line, Weight},
    names,
};

/// Programs below this share of the whole, as 1 part in this many, are folded.
const SMALL: u64 = 100;

/// Returns the same stacks, with small programs without GPU work below one frame, `[3 other programs]`, if there are at
/// least two. Nothing is folded in a picture without GPU work.
pub fn folded(flame: &Flame) -> Option<Flame> {
    let mut programs: BTreeMap<&Arc<str>, Weight> = BTreeMap::new();
    let mut total = Weight::default();
    for line in &flame.lines {
        total.add(line.weight);
        if let Some(first) = line.frames.first().filter(|name| !names::is_rank(name)) {
            programs.entry(first).or_default().add(line.weight);
        }
    }
    let is_small = |weight: &Weight| weight.operations == 0 && weight.amount.saturating_mul(SMALL) < total.amount;
    let small: BTreeSet<&Arc<str>> =
        programs.iter().filter(|(_, weight)| is_small(weight)).map(|(name, _)| *name).collect();
    if total.operations == 0 || small.len() < 2 {
        return None;
    }
    let others: Arc<str> = format!("[{} other programs]", small.len()).into();
    let mut lines: BTreeMap<Frames, Weight> = BTreeMap::new();
    for line in &flame.lines {
        let folds = line.frames.first().is_some_and(|name| small.contains(name));
        let frames = folds.then(|| others.clone()).into_iter().chain(line.frames.iter().cloned()).collect();
        lines.entry(frames).or_default().add(line.weight);
    }
    let mut families = flame.families.clone();
    families.insert(others, Family::Process);
    let lines = lines.into_iter().map(|(frames, weight)| Line { frames, weight }).collect();
    // Only GPU work has launches.
    Some(Flame { lines, families, own: flame.own, measure: flame.measure, launches: flame.launches.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flame(lines: &[(&str, u64, u64)]) -> Flame {
        let line = |(frames, amount, operations): &(&str, u64, u64)| Line {
            frames: frames.split(';').map(Arc::from).collect(),
            weight: Weight { amount: *amount, operations: *operations, ..Weight::default() },
        };
        Flame { lines: lines.iter().map(line).collect(), ..Flame::default() }
    }

    fn text(flame: &Flame) -> Vec<(String, u64)> {
        flame.lines.iter().map(|line| (line.frames.join(";"), line.weight.amount)).collect()
    }

    /// Check that small programs without GPU work are folded, and that all weights are kept.
    #[test]
    fn small_programs_are_folded() {
        let all = [
            ("bash;main", 3, 0),
            ("env;main", 2, 0),
            ("idle;main;[GPU_Kernel] k", 1, 1),
            ("loader;main", 300, 0),
            ("python3;main;[GPU_Kernel] k", 1_000, 9),
        ];
        let expected = [
            ("[2 other programs];bash;main", 3),
            ("[2 other programs];env;main", 2),
            ("idle;main;[GPU_Kernel] k", 1),
            ("loader;main", 300),
            ("python3;main;[GPU_Kernel] k", 1_000),
        ];
        let folded = folded(&flame(&all)).expect("folded");
        assert_eq!(text(&folded), expected.map(|(frames, weight)| (frames.to_owned(), weight)));
    }

    /// Check that neither a single helper nor a picture without GPU work is changed.
    #[test]
    fn nothing_else_is_folded() {
        assert_eq!(folded(&flame(&[("bash;main", 3, 0), ("python3;main;[GPU_Kernel] k", 1_000, 9)])), None);
        assert_eq!(folded(&flame(&[("bash;a", 3, 0), ("env;b", 3, 0), ("cc;main", 1_000, 0)])), None);
    }
}
