//! Why warps wait.

use super::entry::{Entry, Kind};
use crate::stalls::REASONS;

/// Returns an entry for each reason.
pub(super) fn all() -> impl Iterator<Item = Entry> {
    REASONS
        .into_iter()
        .map(|(name, meaning)| Entry::of(Kind::Stall, (name, also(name)), [meaning, MEASURED, EXACT, ACT]))
}

const MEASURED: &str = "The hardware samples the program counter of a warp on each multiprocessor, and why it did not issue \
                        (record --stalls).";
const EXACT: &str =
    "Statistical. The reason is that of the instruction that waits, which is after the one that caused it.";
const ACT: &str = "Look at the line with most of it: `warpscope report --by stalls`. docs/stalls.md has advice.";

/// Returns its frame, where that has another name.
fn also(name: &str) -> &'static [&'static str] {
    match name {
        "selected" => &["[issuing]"],
        "long_scoreboard" => &["[stall: long scoreboard]"],
        "short_scoreboard" => &["[stall: short scoreboard]"],
        _ => &[],
    }
}
