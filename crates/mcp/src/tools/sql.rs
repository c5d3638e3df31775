//! `sql`: a query over the tables of a recording.

use std::fmt::Write;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::tool::{About, Tool, arguments, cursor, properties};
use crate::{
    answer::{Answer, text},
    library::Query,
};

/// The longest query, in bytes.
const LONGEST: usize = 64 << 10;
/// The most rows of an answer.
const ROWS: usize = 2_000;
/// What names and texts in rows may be nested in.
const DEPTH: usize = 8;

#[derive(Deserialize)]
struct Asked {
    query: String,
    cursor: Option<String>,
}

pub fn tool(tables: &[&str]) -> Tool {
    let description = format!(
        "Runs one SELECT statement of DuckDB over the tables of a recording: {}. DESCRIBE kernels returns the columns of one. Times \
         are ns of CLOCK_MONOTONIC. stacks has a row per stack (line: the innermost line of user code), frames one per frame; join \
         USING (recording, stack). A query has 20 s and reads nothing else. The first one of a recording takes longer. Use `table` \
         if it has the answer: it counts as `report` does.",
        tables.join(", ")
    );
    Tool::new(
        "sql",
        description,
        properties(json!({
            "query": {"type": "string", "description": "such as SELECT name, sum(end_ns - start_ns) AS ns FROM kernels GROUP BY name ORDER BY ns DESC"},
            "cursor": {"type": "string"},
        })),
        &["recording", "query"],
        |library, given, cancel| {
            let asked: About<Asked> = arguments(given, &["recording", "filter", "max_bytes", "query", "cursor"])?;
            let wanted = &asked.more;
            let from = cursor(wanted.cursor.as_deref())?;
            if wanted.query.len() > LONGEST || wanted.query.contains('\0') {
                return Err(format!("query: at most {LONGEST} bytes of text"));
            }
            let query = Query { text: wanted.query.clone(), from, rows: ROWS + 1, bytes: asked.most() * 2 };
            let (opened, found) = asked.query(library, &query, cancel)?;
            let mut rows = found.lines.iter().map(|line| row(line)).collect::<Result<Vec<Value>, String>>()?;
            let is_all = found.is_all && rows.len() <= ROWS;
            rows.truncate(ROWS);
            let mut answer = Answer::about(&opened.profile);
            match is_all {
                true => {
                    let all = from + rows.len();
                    answer.rows("rows", rows, (from, all));
                }
                false => answer.first_rows("rows", rows, from),
            }
            Ok(answer.text(asked.most()))
        },
    )
}

/// Returns a row: an object of JSON, with text from the recording as data.
fn row(line: &str) -> Result<Value, String> {
    let row: Map<String, Value> =
        serde_json::from_str(&finite(line)).map_err(|_| "a row is too long: select less".to_owned())?;
    Ok(object(row, DEPTH))
}

fn object(values: Map<String, Value>, depth: usize) -> Value {
    let name = |name: &str| match text(name) {
        Value::String(name) => name,
        _ => String::new(),
    };
    values.into_iter().map(|(key, value)| (name(&key), data(value, depth - 1))).collect()
}

/// Returns a value whose texts are bounded and in one line, as all text from recordings.
fn data(value: Value, depth: usize) -> Value {
    match value {
        Value::String(long) => text(&long),
        Value::Array(_) | Value::Object(_) if depth == 0 => text(&value.to_string()),
        Value::Array(values) => values.into_iter().map(|value| data(value, depth - 1)).collect(),
        Value::Object(values) => object(values, depth),
        other => other,
    }
}

/// Replaces the numbers that JSON lacks, which DuckDB prints nevertheless, by texts.
fn finite(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let (mut rest, mut is_text) = (line, false);
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '\\' if is_text => rest.chars().take(2).map(char::len_utf8).sum(),
            '"' => {
                is_text = !is_text;
                1
            }
            _ if is_text => first.len_utf8(),
            _ => match ["-Infinity", "Infinity", "NaN"].into_iter().find(|number| rest.starts_with(number)) {
                Some(number) => {
                    let _ = write!(out, "\"{number}\"");
                    rest = &rest[number.len()..];
                    continue;
                }
                None => first.len_utf8(),
            },
        };
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that rows are read as DuckDB prints them, and that their texts cannot be more than data.
    #[test]
    fn rows_are_data() {
        let line =
            r#"{"a":1,"z":Infinity,"m":[-Infinity,NaN],"t":"NaN \" Infinity","s":{"k":"a\nb"},"n":null,"é":"ü"}"#;
        let expected = json!({"a": 1, "z": "Infinity", "m": ["-Infinity", "NaN"], "t": "NaN \" Infinity", "s": {"k": text("a\nb")},
            "n": null, "é": "ü"});
        assert_eq!(row(line), Ok(expected));
        let long = format!("{{\"{0}\\u001b\":\"{0}\"}}", "x".repeat(5_000));
        let read = row(&long).expect("a row").to_string();
        assert!(read.len() < 1_000 && !read.contains("001b"), "{read}");
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(50), "]".repeat(50));
        assert!(row(&deep).expect("a row").to_string().len() < 200);
        assert!(row("{\"a\":\"trunca").is_err() && row("[1]").is_err());
    }
}
