//! The text format: families of samples in OpenMetrics 1.0 or Prometheus 0.0.4.
//!
//! ```text
//!   # HELP warpscope_copied_bytes Bytes copied.            family: name, help, type, unit
//!   # TYPE warpscope_copied_bytes counter
//!   # UNIT warpscope_copied_bytes bytes                    OpenMetrics only
//!   warpscope_copied_bytes_total{pid="7"} 4096             samples: labels and value
//! ```
//!
//! In the older format a counter's family has the name of its samples, and there are no units and no info families. No
//! two samples of a family have the same labels: names are sanitised while writing, and samples that become equal are
//! merged, by their sum or, where a sum is meaningless (an age, a temperature), by their maximum.

use std::{collections::HashMap, fmt::Write as _};

use text::names::printable;

use super::Format;
use crate::snapshot::site::fnv;

/// The maximum length of a label value, in characters; template names can have any length.
const MAX_VALUE_LENGTH: usize = 400;

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Increases and decreases; merged samples are summed.
    Gauge,
    /// A gauge whose merged samples keep the maximum, such as an age.
    Maximum,
    /// Only grows.
    Counter,
    /// Counts by size.
    Histogram,
    /// Always 1: the labels hold the information.
    Info,
}

/// The definition of a family of metrics.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Without `_total`, `_bucket` and the like; ends in the unit.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// The unit; empty for counts.
    pub unit: &'static str,
    /// One sentence.
    pub help: &'static str,
}

impl Definition {
    /// Returns the names of its series.
    pub fn series(&self) -> Vec<String> {
        let endings: &[&str] = match self.kind {
            Kind::Gauge | Kind::Maximum => &[""],
            Kind::Counter => &["_total"],
            Kind::Info => &["_info"],
            Kind::Histogram => &["_bucket", "_sum", "_count"],
        };
        endings.iter().map(|ending| format!("{}{ending}", self.name)).collect()
    }
}

/// Formatted labels, `pid="7",comm="train"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels(String);

impl Labels {
    /// Returns these labels and one more. The value may be any text; an empty value is omitted.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut text = self.0.clone();
        let value = printable(value);
        if !value.is_empty() {
            if !text.is_empty() {
                text.push(',');
            }
            let _ = write!(text, "{name}=\"");
            escape(&bounded(&value), &mut text);
            text.push('"');
        }
        Self(text)
    }
}

/// Truncates to [`MAX_VALUE_LENGTH`]; a truncated value ends in a hash of the whole, so that different values stay different.
fn bounded(value: &str) -> std::borrow::Cow<'_, str> {
    match value.char_indices().nth(MAX_VALUE_LENGTH) {
        None => value.into(),
        Some((end, _)) => format!("{}…{:08x}", &value[..end], fnv(value.bytes()) as u32).into(),
    }
}

fn escape(value: &str, text: &mut String) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            _ => text.push(c),
        }
    }
}

/// A number that is formatted without loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A count.
    Whole(u64),
    /// A measurement.
    Real(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl Number {
    fn add(self, other: Self) -> Self {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => Self::Whole(a.saturating_add(b)),
            (a, b) => Self::Real(a.real() + b.real()),
        }
    }

    fn greatest(self, other: Self) -> Self {
        if other.real() > self.real() { other } else { self }
    }

    fn real(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Real(value) => value,
        }
    }

    fn write(self, text: &mut String) {
        let _ = match self {
            Self::Whole(value) => write!(text, "{value}"),
            Self::Real(value) => write!(text, "{value}"),
        };
    }
}

/// A histogram's counts: not cumulative, one for each bound and one for values above the last.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    /// The count of each bucket.
    pub counts: Vec<u64>,
    /// The sum of all measurements.
    pub sum: Number,
}

impl Buckets {
    /// Sorts counts by bound (`(at most, how many)`, bounds in any unit) into buckets with these bounds. A count goes
    /// into the first bucket that certainly contains all of it.
    pub fn sort(counts: &[(u64, u64)], bounds: &[u64], sum: Number) -> Self {
        let mut sorted = vec![0_u64; bounds.len() + 1];
        for &(at_most, count) in counts {
            let place = bounds.partition_point(|bound| *bound < at_most);
            sorted[place] = sorted[place].saturating_add(count);
        }
        Self { counts: sorted, sum }
    }

    /// Adds another's numbers.
    pub fn add(&mut self, other: &Self) {
        for (mine, more) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*more);
        }
        self.sum = self.sum.add(other.sum);
    }
}

enum Value {
    One(Number),
    Buckets(Buckets),
}

/// Samples of one family.
pub struct Family {
    definition: &'static Definition,
    /// A histogram's bounds as text.
    bounds: Vec<String>,
    samples: Vec<(Labels, Value)>,
    places: HashMap<Labels, usize>,
}

impl Family {
    /// Creates a family without samples.
    pub fn new(definition: &'static Definition) -> Self {
        Self { definition, bounds: Vec::new(), samples: Vec::new(), places: HashMap::new() }
    }

    /// Creates a histogram with these bounds.
    pub fn with_bounds(definition: &'static Definition, bounds: impl Iterator<Item = f64>) -> Self {
        // OpenMetrics requires `1.0`, and both formats should have the same label.
        let bounds = bounds.map(|bound| if bound.fract() == 0.0 { format!("{bound:.1}") } else { format!("{bound}") });
        Self { bounds: bounds.collect(), ..Self::new(definition) }
    }

    /// Adds a sample. NaN is ignored.
    pub fn push(&mut self, labels: Labels, value: impl Into<Number>) {
        let value = value.into();
        if value.real().is_finite() {
            self.put(labels, Value::One(value));
        }
    }

    /// Adds the sample, if there is one.
    pub fn push_some(&mut self, labels: &Labels, value: Option<impl Into<Number>>) {
        if let Some(value) = value {
            self.push(labels.clone(), value);
        }
    }

    /// Adds a histogram.
    pub fn push_buckets(&mut self, labels: Labels, buckets: Buckets) {
        debug_assert_eq!(buckets.counts.len(), self.bounds.len() + 1);
        self.put(labels, Value::Buckets(buckets));
    }

    fn put(&mut self, labels: Labels, value: Value) {
        match self.places.get(&labels) {
            None => {
                self.places.insert(labels.clone(), self.samples.len());
                self.samples.push((labels, value));
            }
            Some(place) => match (&mut self.samples[*place].1, value) {
                (Value::One(mine), Value::One(more)) => {
                    *mine = match self.definition.kind {
                        Kind::Maximum => mine.greatest(more),
                        Kind::Info => *mine,
                        Kind::Gauge | Kind::Counter | Kind::Histogram => mine.add(more),
                    }
                }
                (Value::Buckets(mine), Value::Buckets(more)) => mine.add(&more),
                _ => {}
            },
        }
    }

    /// Writes the family; nothing if it has no samples.
    pub fn write(&self, format: Format, text: &mut String) {
        let Definition { name, kind, unit, help } = *self.definition;
        if self.samples.is_empty() {
            return;
        }
        let ending = match kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Maximum | Kind::Histogram => "",
        };
        let (family, kind_name) = match (format, kind) {
            (_, Kind::Gauge | Kind::Maximum) => (name.to_owned(), "gauge"),
            (_, Kind::Histogram) => (name.to_owned(), "histogram"),
            (Format::OpenMetrics, Kind::Counter) => (name.to_owned(), "counter"),
            (Format::OpenMetrics, Kind::Info) => (name.to_owned(), "info"),
            (Format::Prometheus, Kind::Counter) => (format!("{name}{ending}"), "counter"),
            (Format::Prometheus, Kind::Info) => (format!("{name}{ending}"), "gauge"),
        };
        let _ = writeln!(text, "# HELP {family} {help}");
        let _ = writeln!(text, "# TYPE {family} {kind_name}");
        if format == Format::OpenMetrics && !unit.is_empty() {
            let _ = writeln!(text, "# UNIT {family} {unit}");
        }
        for (labels, value) in &self.samples {
            match value {
                Value::One(value) => line(text, name, ending, labels, *value),
                Value::Buckets(buckets) => self.write_buckets(text, labels, buckets),
            }
        }
    }

    fn write_buckets(&self, text: &mut String, labels: &Labels, buckets: &Buckets) {
        let name = self.definition.name;
        let mut so_far = 0_u64;
        let bounds = self.bounds.iter().map(String::as_str).chain(["+Inf"]);
        for (bound, count) in bounds.zip(&buckets.counts) {
            so_far = so_far.saturating_add(*count);
            // Most lines of a scrape are buckets, so no label is allocated for each.
            let comma = if labels.0.is_empty() { "" } else { "," };
            let _ = writeln!(text, "{name}_bucket{{{}{comma}le=\"{bound}\"}} {so_far}", labels.0);
        }
        line(text, name, "_sum", labels, buckets.sum);
        line(text, name, "_count", labels, Number::Whole(so_far));
    }
}

fn line(text: &mut String, name: &str, ending: &str, labels: &Labels, value: Number) {
    text.push_str(name);
    text.push_str(ending);
    if !labels.0.is_empty() {
        text.push('{');
        text.push_str(&labels.0);
        text.push('}');
    }
    text.push(' ');
    value.write(text);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    static BYTES: Definition =
        Definition { name: "w_moved_bytes", kind: Kind::Counter, unit: "bytes", help: "Bytes moved." };
    static SIZES: Definition =
        Definition { name: "w_size_bytes", kind: Kind::Histogram, unit: "bytes", help: "Sizes." };

    fn written(family: &Family, format: Format) -> String {
        let mut text = String::new();
        family.write(format, &mut text);
        text
    }

    /// Check that a counter's family is named differently in the two formats, and its samples are not.
    #[test]
    fn counter_names_depend_on_the_format() {
        let mut family = Family::new(&BYTES);
        assert_eq!(written(&family, Format::OpenMetrics), "");
        family.push(Labels::default(), u64::MAX);
        family.push(Labels::default().with("a", ""), f64::NAN);
        assert_eq!(
            written(&family, Format::OpenMetrics),
            "# HELP w_moved_bytes Bytes moved.\n# TYPE w_moved_bytes counter\n# UNIT w_moved_bytes bytes\nw_moved_bytes_total 18446744073709551615\n"
        );
        assert_eq!(
            written(&family, Format::Prometheus),
            "# HELP w_moved_bytes_total Bytes moved.\n# TYPE w_moved_bytes_total counter\nw_moved_bytes_total 18446744073709551615\n"
        );
    }

    /// Check that labels survive quotes, backslashes, control characters and very long names, and that equal ones are
    /// merged.
    #[test]
    fn labels_are_escaped_and_merged() {
        let labels = Labels::default().with("a", "x\"y\\z\n\u{1b}[0m\0").with("b", "").with("c", "ü");
        assert_eq!(labels.0, r#"a="x\"y\\z  [0m ",c="ü""#);
        let (one, two) = ("k".repeat(900) + "1", "k".repeat(900) + "2");
        let (one, two) = (Labels::default().with("k", &one), Labels::default().with("k", &two));
        assert_ne!(one, two);
        assert!(one.0.chars().count() < MAX_VALUE_LENGTH + 20);

        let mut family = Family::new(&BYTES);
        family.push(Labels::default().with("k", "a\nb"), 1_u64);
        family.push(Labels::default().with("k", "a b"), 2_u64);
        assert!(written(&family, Format::Prometheus).ends_with("w_moved_bytes_total{k=\"a b\"} 3\n"));
    }

    /// Check that buckets add up, and that a count goes into the bucket that certainly contains it.
    #[test]
    fn counts_are_sorted_into_buckets() {
        let mut family = Family::with_bounds(&SIZES, [256.0, 4096.0].into_iter());
        let counts = [(128, 1), (256, 2), (512, 4), (4096, 8), (8192, 16), (u64::MAX, 32)];
        family.push_buckets(Labels::default(), Buckets::sort(&counts, &[256, 4096], Number::Whole(99)));
        let text = written(&family, Format::OpenMetrics);
        let expected = "w_size_bytes_bucket{le=\"256.0\"} 3\nw_size_bytes_bucket{le=\"4096.0\"} 15\n\
                        w_size_bytes_bucket{le=\"+Inf\"} 63\nw_size_bytes_sum 99\nw_size_bytes_count 63\n";
        assert!(text.ends_with(expected), "{text}");
    }
}
