//! A browser under test: headless Chromium, driven over a pipe by the DevTools protocol.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::defaults;

/// Only a hanging browser takes as long as this for one answer.
const LIMIT: Duration = Duration::from_secs(120);

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    calls: u64,
    events: Vec<Value>,
    // Removed after the browser has ended.
    _directory: TempDir,
}

impl Browser {
    /// Starts a browser whose page has this size.
    pub fn start(width: u32, height: u32) -> Self {
        let directory = TempDir::with_prefix_in("browser-", defaults::temporary()).expect("a temporary directory");
        // The protocol uses descriptors 3 and 4.
        let script = "for name in chromium chromium-browser google-chrome; do
             command -v $name >/dev/null && break
             done
             exec $name --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
             --user-data-dir=\"$0\" --remote-debugging-pipe about:blank 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(directory.path()).env("TMPDIR", directory.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().expect("sh can be started");
        let to = child.stdin.take().expect("a pipe");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (send, from) = mpsc::channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                if send.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let mut browser = Self { child, to, from, session: None, calls: 0, events: Vec::new(), _directory: directory };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached =
            browser.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        browser.call("Emulation.setDeviceMetricsOverride", size);
        browser
    }

    /// Calls a method of the protocol.
    #[track_caller]
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut text = message.to_string().into_bytes();
        text.push(0);
        self.to.write_all(&text).expect("chromium is installed and runs");
        loop {
            let mut answer = self.next(method);
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    #[track_caller]
    fn next(&self, what: &str) -> Value {
        self.from.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("no answer from chromium to {what}: {error}"))
    }

    /// Opens a report, and waits until it is drawn.
    #[track_caller]
    pub fn open(&mut self, url: &str) {
        self.load(url);
        self.js("ready");
    }

    /// Opens a page, and waits until its scripts have run.
    #[track_caller]
    pub fn load(&mut self, url: &str) {
        // A change of the fragment alone would not load the page again.
        for url in ["about:blank", url] {
            self.events.retain(|event| event["method"] != "Page.loadEventFired");
            self.call("Page.navigate", json!({ "url": url }));
            while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
                let event = self.next("Page.navigate");
                self.events.push(event);
            }
        }
    }

    /// Evaluates an expression in the page, waits if it is a promise, and returns its value.
    #[track_caller]
    pub fn js(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].take()
    }

    /// Evaluates an expression whose value is text.
    #[track_caller]
    pub fn text(&mut self, expression: &str) -> String {
        let value = self.js(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression} is {value}")).to_owned()
    }

    /// Evaluates an expression whose value is a number.
    #[track_caller]
    pub fn number(&mut self, expression: &str) -> f64 {
        let value = self.js(expression);
        value.as_f64().unwrap_or_else(|| panic!("{expression} is {value}"))
    }

    /// Moves the mouse from one point to another with the button pressed. Equal points are a click.
    #[track_caller]
    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        for (kind, (x, y), buttons) in
            [("mouseMoved", from, 0), ("mousePressed", from, 1), ("mouseMoved", to, 1), ("mouseReleased", to, 0)]
        {
            let button = if kind == "mouseMoved" && buttons == 0 { "none" } else { "left" };
            let params = json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", params);
        }
    }

    /// Clicks a point.
    #[track_caller]
    pub fn click(&mut self, point: (f64, f64)) {
        self.drag(point, point);
    }

    /// Clicks the middle of the element that an expression returns.
    #[track_caller]
    pub fn click_on(&mut self, element: &str) {
        let point = self.js(&format!(
            "(() => {{ const box = ({element}).getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        ));
        self.click((point[0].as_f64().expect("x"), point[1].as_f64().expect("y")));
    }

    /// Presses a key.
    #[track_caller]
    pub fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            key if key.chars().count() == 1 => key,
            _ => "",
        };
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyDown", "key": key, "text": text }));
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key }));
    }

    /// Returns the errors that the page has caused so far.
    pub fn errors(&mut self) -> Vec<String> {
        // Events that precede this call have arrived with its answer.
        self.js("0");
        let is_error = |event: &&Value| {
            let params = &event["params"];
            event["method"] == "Runtime.exceptionThrown"
                || (event["method"] == "Log.entryAdded" && params["entry"]["level"] == "error")
                || (event["method"] == "Runtime.consoleAPICalled" && params["type"] == "error")
        };
        self.events.iter().filter(is_error).map(|event| event["params"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // SAFETY: the group is the browser's own; it is not reused before the leader has been waited for.
        unsafe {
            libc::kill(-self.child.id().cast_signed(), libc::SIGKILL);
        }
        let _ = self.child.wait();
    }
}
