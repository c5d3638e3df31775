//! One line of JSON-RPC 2.0.

use serde_json::{Map, Value, json};

/// The longest line that is read, in bytes.
pub const LONGEST: usize = 1 << 20;
/// The longest id, in bytes.
const LONGEST_ID: usize = 256;

/// The id of a request: a string or an integer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Id {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

impl Id {
    /// Reads an id.
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => number.as_i64().map(Self::Number),
            Value::String(text) if text.len() <= LONGEST_ID => Some(Self::Text(text.clone())),
            _ => None,
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Number(number) => json!(number),
            Self::Text(text) => json!(text),
        }
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Its id.
    pub id: Id,
    /// The method.
    pub method: String,
    /// Its parameters.
    pub params: Map<String, Value>,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// It needs an answer.
    Request(Request),
    /// It needs none.
    Notification(String, Map<String, Value>),
    /// An answer to a request of the server, which sends none.
    Answer,
    /// It is wrong.
    Wrong(Option<Id>, Error),
}

/// An error of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// Its number.
    pub code: i32,
    /// One sentence.
    pub message: String,
    /// More.
    pub data: Option<Value>,
}

impl Error {
    /// The line is no JSON.
    pub const PARSE: i32 = -32700;
    /// The message is no request.
    pub const REQUEST: i32 = -32600;
    /// There is no such method.
    pub const METHOD: i32 = -32601;
    /// The parameters are wrong.
    pub const PARAMS: i32 = -32602;
    /// Something failed here.
    pub const INTERNAL: i32 = -32603;
    /// Too many requests wait for their answers.
    pub const BUSY: i32 = -32000;
    /// There is no such resource, in versions up to 2025-11-25.
    pub const RESOURCE: i32 = -32002;
    /// The protocol version is not supported.
    pub const VERSION: i32 = -32022;

    /// An error with a message.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

/// Reads a line.
pub fn parse(line: &[u8]) -> Message {
    let value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(error) => {
            let place = format!("the line is no JSON: column {}", error.column());
            return Message::Wrong(None, Error::new(Error::PARSE, place));
        }
    };
    let Value::Object(mut object) = value else {
        return Message::Wrong(None, Error::new(Error::REQUEST, "a message is an object; batches are not supported"));
    };
    let given = object.remove("id");
    let id = given.as_ref().and_then(Id::of);
    let wrong = |id: Option<Id>, message: &str| Message::Wrong(id, Error::new(Error::REQUEST, message));
    if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return wrong(id, "jsonrpc must be \"2.0\"");
    }
    if !object.contains_key("method") && (object.contains_key("result") || object.contains_key("error")) {
        return Message::Answer;
    }
    let Some(Value::String(method)) = object.remove("method") else {
        return wrong(id, "method must be a string");
    };
    let params = match object.remove("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Message::Wrong(id, Error::new(Error::PARAMS, "params must be an object")),
    };
    match (given, id) {
        (None, _) => Message::Notification(method, params),
        (Some(_), Some(id)) => Message::Request(Request { id, method, params }),
        (Some(_), None) => wrong(None, "id must be an integer, or a string of at most 256 bytes"),
    }
}

/// Returns the line of a result.
pub fn result(id: &Id, result: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id.json(), "result": result}).to_string()
}

/// Returns the line of an error.
pub fn failure(id: Option<&Id>, error: &Error) -> String {
    let mut object = json!({"code": error.code, "message": error.message});
    if let Some(data) = &error.data {
        object["data"] = data.clone();
    }
    json!({"jsonrpc": "2.0", "id": id.map_or(Value::Null, Id::json), "error": object}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check which lines are requests, and with which error the others are answered.
    #[test]
    fn lines_are_requests_or_errors() {
        let code = |line: &str| match parse(line.as_bytes()) {
            Message::Wrong(_, error) => error.code,
            _ => 0,
        };
        for (line, expected) in [
            ("", Error::PARSE),
            ("{", Error::PARSE),
            ("[]", Error::REQUEST),
            ("1", Error::REQUEST),
            (r#"{"id":1,"method":"ping"}"#, Error::REQUEST),
            (r#"{"jsonrpc":"2.0","id":1}"#, Error::REQUEST),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Error::REQUEST),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, Error::REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, Error::REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, Error::PARAMS),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, 0),
        ] {
            assert_eq!(code(line), expected, "{line}");
        }
        assert_eq!(code(&"[".repeat(100_000)), Error::PARSE, "deep nesting is no stack overflow");
        let ping = parse(br#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#);
        let id = Id::Text("a".into());
        assert_eq!(ping, Message::Request(Request { id: id.clone(), method: "ping".into(), params: Map::new() }));
        assert_eq!(result(&id, json!({})), r#"{"id":"a","jsonrpc":"2.0","result":{}}"#);
    }
}
