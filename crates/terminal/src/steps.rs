//! The steps: one line in the summary, and what precedes their table.

use analysis::{steps::StepSummary, summary::Summary};
use model::profile::Profile;
use text::{
    short::short,
    units::{count, time},
};

use crate::page::{Page, TextStyle};

/// The length of a place, where it can be shortened to that.
const PLACE: usize = 60;
/// A smaller change over the recording is not mentioned.
const LEAST_TREND: f64 = 0.05;

impl Page {
    pub(super) fn steps(&mut self, s: &Summary) {
        if let Some(steps) = &s.steps {
            self.paragraph(TextStyle::Bold, "", &steps.sentence());
        }
    }
}

/// Returns what precedes the table of steps: how long they take, why the slowest one did, and which other loops there are.
pub fn steps(profile: &Profile, reasons: Option<&str>, colour: bool, width: usize) -> String {
    let mut page = Page::new(colour, width.max(60));
    let Some(steps) = profile.steps.as_ref().and_then(|steps| StepSummary::of(steps, profile)) else {
        return page.text;
    };
    page.paragraph(TextStyle::Bold, "", &steps.sentence());
    let mut parts = vec![format!("p90 {}", time(steps.p90_ns)), format!("median idle {}", time(steps.idle_ns))];
    if steps.trend.abs() >= LEAST_TREND {
        let (percent, how) = (steps.trend.abs() * 100.0, if steps.trend > 0.0 { "slower" } else { "faster" });
        parts.push(format!("{percent:.0} % {how} at the end than at the beginning"));
    }
    page.paragraph(TextStyle::Dim, "", &parts.join(", "));
    if let Some(reasons) = reasons {
        page.paragraph(TextStyle::Yellow, "", reasons);
    }
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
