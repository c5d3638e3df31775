//! `record`: runs the command that the user has configured.

use serde::Deserialize;
use serde_json::json;

use super::tool::{Tool, arguments};
use crate::answer::{Answer, BYTES, text};

#[derive(Deserialize)]
struct Nothing {}

pub fn tool(command: String) -> Tool {
    let description = format!(
        "Runs and records the command that the user has configured, and no other: `{command}`. Returns the name of the new recording."
    );
    let tool = Tool::new("record", description, json!({}), &[], |library, given, cancel| {
        let Nothing {} = arguments(given, &[])?;
        let (name, printed) = library.record(cancel)?;
        let mut answer = Answer::default();
        answer.tell("recording", text(&name));
        answer.tell("printed", printed.lines().map(text).collect());
        Ok(answer.text(BYTES))
    });
    tool.writing()
}
