//! The table in docs/findings.md: how often each finding is said where it must be.
//!
//! Every scenario is a test of its own, which fails if a finding is missing or false. So the scores follow from what they
//! require.

use std::collections::{BTreeMap, BTreeSet};

use super::{copies, devices, healthy, host, kernels, launches, python, scenario::Scenario, threads};
use crate::support::programs::sources;

/// All programs, by name.
fn all() -> Vec<(&'static str, Scenario)> {
    [
        healthy::all(),
        host::all(),
        threads::all(),
        launches::all(),
        copies::all(),
        kernels::all(),
        devices::all(),
        python::all(),
    ]
    .concat()
}

/// Check that the table has a row for each finding, that each is required of at least one program, and that the scores are
/// those of the programs.
#[test]
fn docs_have_the_scores() {
    let scenarios = all();
    let names: BTreeSet<&str> = scenarios.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), scenarios.len(), "names are used twice");
    assert!(scenarios.len() >= 40, "{}", scenarios.len());
    let lines = scenarios.iter().filter(|(_, scenario)| scenario.has_line()).count();
    assert!(lines >= 20, "agents must get the line of 20 programs or more, not {lines}");
    let mut right: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, scenario) in &scenarios {
        for kind in scenario.kinds().collect::<BTreeSet<_>>() {
            *right.entry(kind).or_default() += 1;
        }
    }
    let docs = std::fs::read_to_string(sources().join("../docs/findings.md")).expect("it is there");
    let formats = std::fs::read_to_string(sources().join("../docs/formats.md")).expect("it is there");
    let listed =
        formats.split("what costs time: kind (").nth(1).and_then(|rest| rest.split(';').next()).expect("kinds");
    let mut wrong = Vec::new();
    for kind in listed.split(", ").map(|kind| kind.trim_matches('`')) {
        let right = right.remove(kind).unwrap_or_else(|| panic!("no program must have {kind}"));
        let score = format!(" | {right} | 0 | 0 |");
        let is_right = |line: &str| line.starts_with(&format!("| `{kind}`")) && line.ends_with(&score);
        if !docs.lines().any(is_right) {
            wrong.push(format!("the row of `{kind}` must end in{score}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(right.is_empty(), "not in docs/formats.md: {right:?}");
    let healthy = scenarios.iter().filter(|(_, scenario)| scenario.kinds().next().is_none()).count();
    let sentence = format!("Of {} programs, {healthy} of them without a bottleneck, {0} are right", scenarios.len());
    assert!(docs.contains(&sentence), "docs/findings.md must say: {sentence}");
}
