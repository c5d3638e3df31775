//! Everything that is explained: the texts of `analysis`, and the metrics of `monitor`.

use analysis::explain::{self, Entry, Kind};
use monitor::openmetrics::{Definition, definitions, measured};

/// Returns all explanations.
pub fn entries() -> Vec<Entry> {
    let metric = |definition: &Definition| {
        let Definition { name, help, .. } = *definition;
        let measured = measured(definition);
        Entry {
            kind: Kind::Metric,
            name,
            also: &[],
            means: help,
            measured: measured.how,
            exact: measured.exact,
            act: measured.act,
        }
    };
    explain::all().chain(definitions().map(metric)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each metric is explained by its own name and by those of its series, and that nothing hides another.
    #[test]
    fn every_metric_is_explained() {
        let entries = entries();
        for definition in definitions() {
            for name in definition.series().iter().map(String::as_str).chain([definition.name]) {
                let found = explain::find(&entries, name);
                assert!(found.iter().any(|entry| entry.name == definition.name), "{name}: {found:?}");
            }
        }
        for entry in &entries {
            assert!(explain::find(&entries, entry.name).contains(entry), "{} is not found", entry.name);
        }
    }
}
