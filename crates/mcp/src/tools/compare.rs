//! `diff`.

use analysis::diff::{Change, Diff, Run, Unit};
use serde::Deserialize;
use serde_json::{Value, json};

use super::tool::{Tool, arguments, bytes, cursor, properties};
use crate::{
    answer::{Answer, text},
    library::Selection,
};

/// Rows of each table, if not given.
const ROWS: usize = 10;

#[derive(Deserialize)]
struct Asked {
    before: Vec<String>,
    after: Vec<String>,
    #[serde(default)]
    filter: Selection,
    rows: Option<usize>,
    cursor: Option<String>,
    max_bytes: Option<usize>,
}

pub fn tool() -> Tool {
    let mut all = properties(json!({
        "before": {"type": "array", "items": {"type": "string"}, "description": "recordings before the change"},
        "after": {"type": "array", "items": {"type": "string"}, "description": "recordings after it"},
        "rows": {"type": "integer", "description": "rows of each table; 10 if not given"},
        "cursor": {"type": "string"},
    }));
    if let Value::Object(all) = &mut all {
        all.remove("recording");
    }
    Tool::new(
        "diff",
        "Compares recordings of a program before and after a change: totals, which change explains the difference of the wall time, \
         and what changed most by subject. With several recordings on each side `is_significant` is Welch's t-test at 95 %; with one \
         on each side a difference of some percent may be chance.",
        all,
        &["before", "after"],
        |library, given, _| {
            let asked: Asked = arguments(given, &["before", "after", "filter", "rows", "cursor", "max_bytes"])?;
            if asked.before.is_empty() || asked.after.is_empty() || asked.before.len() + asked.after.len() > 20 {
                return Err("give one recording or more in `before` and in `after`, 20 in all at most".to_owned());
            }
            let mut runs = |names: &[String]| -> Result<Vec<Run>, String> {
                names.iter().map(|name| Ok(Run::of(&library.open(name, &asked.filter)?.profile))).collect()
            };
            let (before, after) = (runs(&asked.before)?, runs(&asked.after)?);
            let diff = Diff::of(&before, &after);
            let mut answer = Answer::default();
            answer.say("recordings", json!({"before": before.len(), "after": after.len()}));
            answer.say("has_significance", before.len() > 1 && after.len() > 1);
            answer.tell("part", text(&diff.filters.join(" ")));
            answer.tell("totals", diff.totals.iter().map(change).collect());
            answer.tell("explained", diff.explained().map_or(Value::Null, |sentence| text(&sentence)));
            if diff.explanation.is_none() {
                answer.say("explained", "the wall time differs by less than 1 %, or not significantly");
            }
            let from = cursor(asked.cursor.as_deref())?;
            let mut rows = Vec::new();
            for (subject, changes) in &diff.changes {
                let shown = changes.iter().filter(|row| row.before != row.after && diff.is_beyond_noise(*subject, row));
                for row in shown.take(asked.rows.unwrap_or(ROWS)) {
                    let mut value = change(row);
                    value["subject"] = json!(subject);
                    rows.push(value);
                }
            }
            let all = rows.len();
            answer.rows("changes", rows.into_iter().skip(from).collect(), (from, all));
            Ok(answer.text(bytes(asked.max_bytes)))
        },
    )
}

fn change(row: &Change) -> Value {
    let unit = match row.unit {
        Unit::Ns => "ns",
        Unit::Bytes => "bytes",
    };
    let mut value = json!({
        "name": text(&row.name),
        format!("before_{unit}"): row.before,
        format!("after_{unit}"): row.after,
        "change_share_of_before": row.change.map(|change| (change * 1e4).round() / 1e4),
    });
    if row.before_count + row.after_count > 0 {
        value["before_count"] = json!(row.before_count);
        value["after_count"] = json!(row.after_count);
    }
    if let Some(significant) = row.significant {
        value["is_significant"] = json!(significant);
    }
    value
}
