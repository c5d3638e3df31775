//! The steps: one line in the summary, and what precedes their table.

use analysis::{
    steps::{StepOutlier, StepSummary},
    summary::Summary,
};
use model::profile::Profile;
use text::{
    short::short,
    units::{bytes, count, time},
};

use crate::page::{Page, TextStyle};

/// The length of a place, where it can be shortened to that.
const PLACE: usize = 60;
/// The most slow steps that the summary explains.
const MOST_OUTLIERS: usize = 2;
/// A smaller change over the recording is not mentioned.
const LEAST_TREND: f64 = 0.05;

impl Page {
    pub(super) fn steps(&mut self, s: &Summary) {
        if let Some(steps) = &s.steps {
            self.paragraph(TextStyle::Bold, "", &steps.sentence());
            self.outliers(steps, MOST_OUTLIERS);
        }
    }

    /// Says why the slowest steps took longer than others.
    fn outliers(&mut self, steps: &StepSummary, most: usize) {
        for sentence in steps.outliers.iter().filter_map(StepOutlier::sentence).take(most) {
            self.paragraph(TextStyle::Yellow, "", &sentence);
        }
    }
}

/// Returns what precedes the table of steps: how long they take, why the slowest ones took longer, and which other loops there are.
pub fn steps(profile: &Profile, colour: bool, width: usize) -> String {
    let mut page = Page::new(colour, width.max(60));
    let Some(steps) = profile.steps.as_ref().and_then(|steps| StepSummary::of(steps, profile)) else {
        return page.text;
    };
    page.paragraph(TextStyle::Bold, "", &steps.sentence());
    let mut parts = vec![format!("p90 {}", time(steps.p90_ns)), format!("median idle {}", time(steps.idle_ns))];
    let named = [("launching_ns", "launching"), ("waiting_ns", "waiting"), ("communication_ns", "communication")];
    let known = named.iter().filter_map(|(part, name)| steps.made_of.get(part).map(|ns| (name, *ns)));
    parts.extend(known.map(|(name, ns)| format!("{name} {}", time(ns))));
    parts.extend(steps.memory_bytes.map(|most| format!("at most {} of GPU memory", bytes(most))));
    if steps.trend.abs() >= LEAST_TREND {
        let (percent, how) = (steps.trend.abs() * 100.0, if steps.trend > 0.0 { "slower" } else { "faster" });
        parts.push(format!("{percent:.0} % {how} at the end than at the beginning"));
    }
    page.paragraph(TextStyle::Dim, "", &parts.join(", "));
    page.outliers(&steps, usize::MAX);
    for level in &steps.levels {
        page.paragraph(
            TextStyle::Dim,
            "",
            &format!("also a loop: {}, {} times", short(&level.place, PLACE), count(level.count)),
        );
    }
    page.line("");
    page.text
}
