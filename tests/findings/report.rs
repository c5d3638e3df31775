//! Reports as JSON.

use serde_json::Value;

use crate::support::{Ended, Scene};

/// The findings of a report.
pub fn findings(report: &Value) -> impl Iterator<Item = &Value> {
    report["findings"].as_array().into_iter().flatten()
}

/// A text in a report; empty if there is none.
pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// What `warpscope` prints as JSON.
#[track_caller]
pub fn json(scene: &Scene, arguments: &[&str]) -> Value {
    let run = Ended::of(&mut scene.warpscope(arguments)).exits(0);
    serde_json::from_str(run.out()).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}
