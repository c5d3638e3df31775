//! `explain`.

use analysis::explain::{find, similar};
use serde::Deserialize;
use serde_json::json;

use super::tool::{Tool, arguments};
use crate::answer::{Answer, BYTES};

#[derive(Deserialize)]
struct Asked {
    term: String,
}

pub fn tool() -> Tool {
    Tool::new(
        "explain",
        "Says what a finding, frame in brackets, metric, stall reason, table or word means, how it is measured, how exact it is, \
         and what to do.",
        json!({"term": {"type": "string"}}),
        &["term"],
        |library, given, _| {
            let asked: Asked = arguments(given, &["term"])?;
            let entries = library.explanations();
            let found = find(entries, &asked.term);
            if found.is_empty() {
                return Err(format!(
                    "there is no explanation of this term{}",
                    text::did_you_mean(&similar(entries, &asked.term))
                ));
            }
            let mut answer = Answer::default();
            answer.say("explanations", serde_json::to_value(found).map_err(|error| error.to_string())?);
            Ok(answer.text(BYTES))
        },
    )
}
