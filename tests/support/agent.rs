//! An agent that asks `warpscope mcp`, over its standard input and output.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

use super::Scene;

/// A session of the protocol 2026-07-28.
pub struct Agent {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    last: u64,
}

impl Agent {
    /// Starts a server with these arguments.
    pub fn new(scene: &Scene, arguments: &[&str]) -> Self {
        Self::of(&mut scene.warpscope(&[&["mcp"], arguments].concat()))
    }

    /// Starts this server.
    pub fn of(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("warpscope starts");
        let (requests, answers) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        Self { child, requests, answers: BufReader::new(answers), last: 0 }
    }

    /// Sends a request, and returns its number.
    pub fn send(&mut self, method: &str, mut params: Value) -> u64 {
        self.last += 1;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        self.line(&json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}));
        self.last
    }

    /// Sends a line.
    pub fn line(&mut self, line: &Value) {
        writeln!(self.requests.as_mut().expect("it is open"), "{line}").expect("the server reads");
    }

    /// Returns the next answer.
    pub fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the server answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Calls a tool that must succeed, and returns its answer.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let (is_error, text) = self.called(tool, arguments);
        assert!(!is_error, "{tool}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Calls a tool. Returns whether it failed, and its text.
    pub fn called(&mut self, tool: &str, arguments: Value) -> (bool, String) {
        self.send("tools/call", json!({"name": tool, "arguments": arguments}));
        let answer = self.answer();
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{tool}: {answer}"));
        (answer["result"]["isError"] == true, text.to_owned())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The end of its input ends the server.
        drop(self.requests.take());
        let status = self.child.wait().expect("it is our child");
        assert!(status.success() || std::thread::panicking(), "the server ended with {status}");
    }
}
