//! The test vectors of the account: sequences of calls, and the expected account.

use std::collections::BTreeMap;

/// A sequence of calls and its account.
#[derive(Clone, Debug)]
pub struct Vector {
    /// What it tests.
    pub name: &'static str,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The account, by the name of the space and the counter; missing counters are 0.
    pub account: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
}

/// The entry of a call, or its return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A thread enters a function.
    Enter {
        /// Which thread.
        thread: u32,
        /// The function.
        function: &'static str,
        /// Its arguments; if it has a result, the first is the pointer to it, and is 0 here.
        words: Vec<u64>,
    },
    /// The thread returns from the function that it entered last.
    Return {
        /// Which thread.
        thread: u32,
        /// The value written to the first argument's target.
        answer: Option<u64>,
        /// The return value.
        result: u32,
    },
}

/// All vectors.
///
/// # Panics
/// If the text does not have the documented format.
pub fn all() -> Vec<Vector> {
    let mut vectors: Vec<Vector> = Vec::new();
    let text = include_str!("vectors.txt");
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("case ") {
            vectors.push(Vector { name, steps: Vec::new(), account: BTreeMap::new() });
            continue;
        }
        let vector = vectors.last_mut().expect("a case comes first");
        match line.strip_prefix("= ") {
            Some(account) => {
                let mut words = account.split(' ');
                let space = words.next().expect("a space");
                let counters = vector.account.entry(space).or_default();
                while let Some(counter) = words.next() {
                    counters.insert(counter, number(words.next().expect("a number")));
                }
            }
            None => step(line, &mut vector.steps),
        }
    }
    vectors
}

fn step(line: &'static str, steps: &mut Vec<Step>) {
    let mut words: Vec<&'static str> = line.split(' ').collect();
    let thread = words.remove(0).parse().expect("a thread");
    let open = words.last() == Some(&"{");
    let mut option = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        let value = number(words[at + 1]);
        words.drain(at..at + 2);
        Some(value)
    };
    let (result, answer) = (option("fails").unwrap_or(0) as u32, option("->"));
    if words[0] != "}" {
        let function = words[0];
        let given = words[1..].iter().filter(|word| **word != "{").map(|word| number(word));
        let has_answer = crate::call(function).expect("a known function").capture().out.is_some();
        let words = has_answer.then_some(0).into_iter().chain(given).collect();
        steps.push(Step::Enter { thread, function, words });
    }
    if !open {
        steps.push(Step::Return { thread, answer, result });
    }
}

/// Parses a number, or a letter that stands for an address.
fn number(word: &str) -> u64 {
    match word.as_bytes() {
        [letter @ b'a'..=b'z'] => 0x7f00_0000_0000 + (u64::from(*letter) << 20),
        _ => word.parse().expect("a number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Action;

    /// Check that every vector's numbers add up, that every entry returns, and that every action has a vector.
    #[test]
    fn vectors_are_consistent() {
        let mut actions = Vec::new();
        for vector in all() {
            let mut depths = BTreeMap::<u32, u32>::new();
            for step in &vector.steps {
                match step {
                    Step::Enter { thread, function, .. } => {
                        *depths.entry(*thread).or_default() += 1;
                        actions.push(crate::call(function).and_then(crate::Call::action).expect("accounted for"));
                    }
                    Step::Return { thread, .. } => *depths.get_mut(thread).expect("entered") -= 1,
                }
            }
            assert!(depths.values().all(|depth| *depth == 0), "{}", vector.name);
            for (space, counters) in &vector.account {
                let of = |counter: &str| counters.get(counter).copied().unwrap_or(0);
                let ended = of("frees") - of("unknown_frees") + of("missed_frees") + of("released");
                // An allocation without an address is not tracked.
                let nothing = u64::from(vector.name == "an allocation of nothing");
                assert_eq!(of("allocations") - nothing, ended + of("live"), "{}: {space}", vector.name);
            }
        }
        let all = [
            Action::Alloc,
            Action::Free,
            Action::SetDevice,
            Action::SetContext,
            Action::PushContext,
            Action::PopContext,
            Action::CreateContext,
            Action::DestroyContext,
            Action::RetainPrimary,
            Action::ReleasePrimary,
            Action::ResetPrimary,
            Action::ResetDevice,
        ];
        for action in all {
            assert!(actions.contains(&action), "no vector has {action:?}");
        }
    }
}
