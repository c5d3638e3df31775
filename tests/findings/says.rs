//! A finding that must be said.

use serde_json::Value;

use super::report::text;

/// A finding: its kind, and what it must contain.
#[derive(Clone, Debug, Default)]
pub struct Says {
    pub kind: &'static str,
    words: Vec<&'static str>,
    /// What the title names with its share of the GPU's time, and the function in which the program was as long.
    pub places: Vec<(&'static str, &'static str)>,
    /// Its place: the function, or the whole frame.
    at: Option<String>,
    /// A function that takes the share of the recording that the finding states.
    pub takes: Option<&'static str>,
    /// The same in nanoseconds, where the simulated GPU gives it exactly.
    pub ns: Option<u64>,
    /// The GPU that it is about, as an index of those that worked.
    pub gpu: usize,
    /// The only thread or rank whose time counts.
    pub thread: Option<u64>,
}

/// A finding of this kind.
pub fn says(kind: &'static str) -> Says {
    Says { kind, ..Says::default() }
}

/// An idle GPU, because of a function.
pub fn idle(function: &'static str) -> Says {
    says("gpu-idle").place(function)
}

impl Says {
    /// Words of the title or the advice.
    pub fn words(self, words: &[&'static str]) -> Self {
        Self { words: words.to_vec(), ..self }
    }

    /// A function that the title names, with the share of the GPU's time that the program was in it.
    pub fn place(self, function: &'static str) -> Self {
        self.named(function, function)
    }

    /// The same by another name.
    pub fn named(mut self, name: &'static str, function: &'static str) -> Self {
        self.places.push((name, function));
        self
    }

    /// The function, or line, that the finding is about.
    pub fn at(self, place: impl Into<String>) -> Self {
        Self { at: Some(place.into()), ..self }
    }

    /// The function in which the program spends the share of the recording that the finding states.
    pub fn takes(self, function: &'static str) -> Self {
        Self { takes: Some(function), ..self }
    }

    /// The time that is the share of the recording that the finding states.
    pub fn ns(self, ns: u64) -> Self {
        Self { ns: Some(ns), ..self }
    }

    /// The GPU and the thread or rank that it is about.
    pub fn of(self, gpu: usize, thread: u64) -> Self {
        Self { gpu, thread: Some(thread), ..self }
    }

    /// Whether it names a function or line of the program.
    pub fn has_line(&self) -> bool {
        self.at.is_some() || !self.places.is_empty()
    }

    /// Whether a finding is this one.
    pub fn matches(&self, finding: &Value) -> bool {
        let text = format!("{} {}", text(finding, "title"), text(finding, "advice"));
        let frame = finding["place"]["frame"].as_str().unwrap_or_default();
        finding["kind"] == self.kind
            && self.words.iter().all(|words| text.contains(words))
            && self.places.iter().all(|(name, _)| stated(finding, name).is_some())
            && self.at.as_ref().is_none_or(|at| frame == at || function(frame) == at)
    }
}

/// A frame without its line.
fn function(frame: &str) -> &str {
    frame.split(" (").next().unwrap_or(frame)
}

/// The share that a title gives for a function: `23 % load`, or `23 % load (data.py:88)`.
pub fn stated(finding: &Value, name: &str) -> Option<f64> {
    let title = text(finding, "title").replace(": ", ", ");
    let share = |part: &str| {
        let (share, of) = part.split_once(" % ")?;
        (of == name || function(of) == name).then(|| share.rsplit(' ').next()?.parse().ok())?
    };
    title.split(", ").find_map(share)
}
