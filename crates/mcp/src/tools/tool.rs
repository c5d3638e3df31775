//! What a tool is, and what all have in common.

use std::rc::Rc;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::{
    answer::{BYTES, MOST_BYTES},
    inbox::Cancel,
    library::{Library, Opened, Query, Rows, Selection},
};

/// What a tool does: an answer, or one sentence why there is none.
pub type Run = fn(&mut dyn Library, Map<String, Value>, &Cancel) -> Result<String, String>;

/// A tool.
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    description: String,
    properties: Value,
    required: &'static [&'static str],
    is_read_only: bool,
    run: Run,
}

impl Tool {
    /// A tool that only reads.
    pub fn new(
        name: &'static str,
        description: impl Into<String>,
        properties: Value,
        required: &'static [&'static str],
        run: Run,
    ) -> Self {
        Self { name, description: description.into(), properties, required, is_read_only: true, run }
    }

    /// The same tool, if it also writes.
    pub fn writing(self) -> Self {
        Self { is_read_only: false, ..self }
    }

    /// Returns its declaration.
    pub fn json(&self) -> Value {
        json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": {
                "type": "object",
                "properties": self.properties,
                "required": self.required,
                "additionalProperties": false,
            },
            "annotations": {
                "readOnlyHint": self.is_read_only,
                "openWorldHint": false,
            },
        })
    }

    /// Calls it.
    pub fn call(
        &self,
        library: &mut dyn Library,
        arguments: Map<String, Value>,
        cancel: &Cancel,
    ) -> Result<String, String> {
        (self.run)(library, arguments, cancel)
    }
}

/// What most tools are asked for.
#[derive(Debug, Deserialize)]
pub struct About<T> {
    recording: String,
    #[serde(default)]
    filter: Selection,
    max_bytes: Option<usize>,
    /// The arguments of the tool itself.
    #[serde(flatten)]
    pub more: T,
}

impl<T> About<T> {
    /// Opens the recording, or the part of it.
    pub fn open(&self, library: &mut dyn Library) -> Result<Rc<Opened>, String> {
        library.open(&self.recording, &self.filter)
    }

    /// Opens the recording, and runs a query over its tables.
    pub fn query(
        &self,
        library: &mut dyn Library,
        query: &Query,
        cancel: &Cancel,
    ) -> Result<(Rc<Opened>, Rows), String> {
        let opened = self.open(library)?;
        Ok((opened, library.query(&self.recording, &self.filter, query, cancel)?))
    }

    /// Returns the length of the answer.
    pub fn most(&self) -> usize {
        bytes(self.max_bytes)
    }
}

/// Returns the length of an answer, within the limits.
pub fn bytes(given: Option<usize>) -> usize {
    given.unwrap_or(BYTES).clamp(2 << 10, MOST_BYTES)
}

/// Reads the arguments of a tool. `known` are their names.
pub fn arguments<T: DeserializeOwned>(arguments: Map<String, Value>, known: &[&str]) -> Result<T, String> {
    if let Some(unknown) = arguments.keys().find(|key| !known.contains(&key.as_str())) {
        let unknown: String = text::names::printable(unknown).chars().take(40).collect();
        return Err(format!("there is no argument `{unknown}`; there are: {}", known.join(", ")));
    }
    serde_json::from_value(Value::Object(arguments)).map_err(|error| format!("wrong arguments: {error}"))
}

/// Returns the declarations of the arguments that most tools have, and more.
pub fn properties(more: Value) -> Value {
    let mut all = json!({
        "recording": {"type": "string", "description": "a name from list_recordings"},
        "filter": {
            "type": "object",
            "description": "show a part; findings that need the whole are not drawn then",
            "properties": {
                "pid": {"type": "integer"},
                "rank": {"type": "integer"},
                "device": {"type": "string", "description": "a GPU, such as 0"},
                "kernel": {"type": "string", "description": "a part of the name of kernels, or a glob"},
                "path": {"type": "string", "description": "a part of the name of a frame, or a glob"},
                "step": {"type": "string", "description": "a number, or slowest"},
                "from": {"type": "string", "description": "a time after the start, such as 1.5s"},
                "to": {"type": "string"},
            },
            "additionalProperties": false,
        },
        "max_bytes": {"type": "integer", "description": "the length of the answer; 16384 if not given"},
    });
    merge(&mut all, more);
    all
}

fn merge(all: &mut Value, more: Value) {
    if let (Value::Object(all), Value::Object(more)) = (all, more) {
        all.extend(more);
    }
}

/// Reads a cursor: the number of the first row.
pub fn cursor(given: Option<&str>) -> Result<usize, String> {
    given.map_or(Ok(0), |text| text.parse().map_err(|_| "cursor: give next_cursor of an earlier answer".to_owned()))
}
