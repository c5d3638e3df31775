//! `list_recordings`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::tool::{Tool, arguments, bytes, cursor};
use crate::answer::{Answer, text};

#[derive(Deserialize)]
struct Asked {
    cursor: Option<String>,
    max_bytes: Option<usize>,
}

pub fn tool() -> Tool {
    Tool::new(
        "list_recordings",
        "Lists the recordings (.wscope) that can be opened, the newest first.",
        json!({"cursor": {"type": "string"}, "max_bytes": {"type": "integer"}}),
        &[],
        |library, given, _| {
            let asked: Asked = arguments(given, &["cursor", "max_bytes"])?;
            let (all, is_complete) = library.recordings()?;
            let from = cursor(asked.cursor.as_deref())?;
            let row = |one: &crate::Listed| json!({"recording": text(&one.name), "bytes": one.bytes, "written_unix_s": one.written_s});
            let rows: Vec<Value> = all.iter().skip(from).map(row).collect();
            let mut answer = Answer::default();
            answer.say("is_complete", is_complete);
            answer.rows("recordings", rows, (from, all.len()));
            Ok(answer.text(bytes(asked.max_bytes)))
        },
    )
}
