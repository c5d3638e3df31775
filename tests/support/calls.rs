//! Reads traces, and the accounts that traced programs write of their own calls: lines of JSON with the same names.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::scene::number;

/// A call as both the trace and the account describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub name: String,
    pub args: Value,
    pub ret: Value,
}

/// The calls of each thread, by pid and tid, in their order.
pub type ByThread = BTreeMap<(u64, u64), Vec<Call>>;

/// All events of a trace.
pub struct Trace {
    pub all: Vec<Value>,
    /// Texts of the notes.
    pub notes: Vec<String>,
}

/// Parses lines of JSON.
#[track_caller]
pub fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// Reads the account that a program wrote of its calls.
pub fn account(text: &str) -> ByThread {
    let mut calls = ByThread::new();
    for line in lines(text) {
        calls.entry(thread(&line)).or_default().push(call(&line));
    }
    calls
}

fn thread(event: &Value) -> (u64, u64) {
    (number(event, "pid"), number(event, "tid"))
}

fn call(event: &Value) -> Call {
    let mut args = event["args"].clone();
    // A float has fewer digits than JSON's numbers, and several representations.
    if let Some(ms) = args.get_mut("ms") {
        *ms = Value::from(f64::from(ms.as_f64().expect("a number") as f32));
    }
    Call { name: event["name"].as_str().expect("a name").to_owned(), args, ret: event["ret"].clone() }
}

/// When an event began, in nanoseconds since the start of the trace.
pub fn start(event: &Value) -> i64 {
    (event["ts"].as_f64().unwrap_or_else(|| panic!("no time: {event}")) * 1e9).round() as i64
}

/// When an event ended.
pub fn end(event: &Value) -> i64 {
    start(event)
        + (event["duration_us"].as_f64().unwrap_or_else(|| panic!("no duration: {event}")) * 1e3).round() as i64
}

impl Trace {
    /// Reads a `.jsonl` file.
    #[track_caller]
    pub fn read(text: &str) -> Self {
        let (all, about): (Vec<Value>, Vec<Value>) =
            lines(text).into_iter().partition(|line| line.get("event_id").is_some());
        let by_id: BTreeMap<u64, &Value> = all.iter().map(|event| (number(event, "event_id"), event)).collect();
        assert!(by_id.keys().copied().eq(1..=all.len() as u64), "events are numbered");
        for event in &all {
            let Some(parent) = event["parent_id"].as_u64() else { continue };
            let parent = by_id.get(&parent).unwrap_or_else(|| panic!("the parent of {event} is not there"));
            assert_eq!(event["pid"], parent["pid"], "{event} in {parent}");
            if event["type"] == "gpu" {
                assert_eq!(event["correlation"], parent["correlation"], "{event} of {parent}");
            } else {
                assert_eq!(event["tid"], parent["tid"], "{event} in {parent}");
                let over = event["phase"] == "X" && parent["phase"] == "X";
                assert!(start(parent) <= start(event) && (!over || end(event) <= end(parent)), "{event} in {parent}");
            }
        }
        let notes = about.iter().filter(|line| line["type"] == "note");
        let notes = notes.map(|note| note["text"].as_str().expect("text").to_owned()).collect();
        Self { all, notes }
    }

    /// Events of one type: `userspace`, `kernel`, `gpu`, `scheduler`.
    pub fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.all.iter().filter(move |event| event["type"] == kind)
    }

    /// Calls of one function.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Value> {
        self.all.iter().filter(move |event| event["name"] == name)
    }

    /// Calls that did not return.
    pub fn unfinished(&self) -> Vec<&str> {
        self.all
            .iter()
            .filter(|event| event["phase"] == "B")
            .map(|event| event["name"].as_str().expect("a name"))
            .collect()
    }

    /// The calls that the programs made themselves: the outermost calls that returned, in order.
    pub fn outermost(&self) -> ByThread {
        self.returned("userspace", 0)
    }

    /// Events of a type that returned, at a depth.
    pub fn returned(&self, kind: &str, depth: u64) -> ByThread {
        let mut calls: Vec<&Value> =
            self.of(kind).filter(|event| event["phase"] == "X" && event["depth"] == depth).collect();
        calls.sort_by_key(|event| start(event));
        let mut by_thread = ByThread::new();
        for call in calls {
            by_thread.entry(thread(call)).or_default().push(self::call(call));
        }
        by_thread
    }

    /// Asserts that every call is within the call around it, one level deeper, and is `nested` if both are the same operation on
    /// different layers.
    #[track_caller]
    pub fn check_nesting(&self) {
        let mut threads: HashMap<(u64, u64), Vec<&Value>> = HashMap::new();
        for event in self.of("userspace").filter(|event| event["phase"] == "X") {
            threads.entry(thread(event)).or_default().push(event);
        }
        for mut calls in threads.into_values() {
            calls.sort_by_key(|event| (start(event), number(event, "depth")));
            let mut around: Vec<&Value> = Vec::new();
            for call in calls {
                let depth = number(call, "depth") as usize;
                assert!(depth <= around.len(), "nothing is around {call}");
                around.truncate(depth);
                let within = around.last().is_none_or(|outer| start(outer) <= start(call) && end(call) <= end(outer));
                assert!(within, "{call} is not within {:?}", around.last());
                assert_eq!(call["parent_id"].as_u64(), around.last().map(|outer| number(outer, "event_id")), "{call}");
                let nested = around.iter().any(|outer| role(outer).is_some() && role(outer) == role(call));
                assert_eq!(call.get("nested").is_some(), nested, "{call} in {around:?}");
                let launched = around.iter().find(|outer| role(outer).is_some()).map(|outer| &outer["correlation"]);
                if role(call) == Some("launch") {
                    assert!(launched.is_none_or(|outer| *outer == call["correlation"]), "{call} in {around:?}");
                }
                around.push(call);
            }
        }
    }

    /// Asserts that all GPU work belongs to one outermost call each, of its process, and matches that call's arguments. Returns the
    /// number of kernels, copies and memsets.
    #[track_caller]
    pub fn check_gpu(&self) -> [usize; 3] {
        let mut launches = HashMap::new();
        for call in self.of("userspace").filter(|event| event["depth"] == 0 && !event["correlation"].is_null()) {
            let twice = launches.insert((number(call, "pid"), number(call, "correlation")), call);
            assert_eq!(twice, None, "two calls with one correlation id");
        }
        let mut counts = [0; 3];
        for work in self.of("gpu") {
            let key = (number(work, "pid"), number(work, "correlation"));
            let call = launches.get(&key).unwrap_or_else(|| panic!("no call for {work}"));
            let (requested, done) = (&call["args"], &work["args"]);
            assert!(start(call) <= start(work), "{work} ran before {call}");
            assert_eq!(work["parent_id"], call["event_id"], "{work} of {call}");
            match work["name"].as_str().expect("a name") {
                "Memset" => {
                    let size = if requested["size"].is_null() { &requested["count"] } else { &requested["size"] };
                    assert_eq!(size, &done["bytes"], "{work} of {call}");
                    counts[2] += 1;
                }
                name if name.starts_with("Memcpy ") => {
                    let rows = requested["height"].as_u64().unwrap_or(1);
                    let bytes = requested["size"].as_u64().or_else(|| Some(requested["width"].as_u64()? * rows));
                    assert_eq!(bytes, done["bytes"].as_u64(), "{work} of {call}");
                    counts[1] += 1;
                }
                name => {
                    if call["name"] != "cudaGraphLaunch" {
                        assert_eq!(
                            (&requested["grid"], &requested["block"]),
                            (&done["grid"], &done["block"]),
                            "{work}, {call}"
                        );
                        assert_eq!(requested["kernel"], name, "{work} of {call}");
                    }
                    counts[0] += 1;
                }
            }
        }
        counts
    }
}

/// The operation of a call, by its name; none if repeating it on the layer below means nothing.
fn role(call: &Value) -> Option<&'static str> {
    let name = call["name"].as_str()?;
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    Some(match name {
        _ if !name.starts_with("cu") => return None,
        _ if has(&["Synchronize"]) => "synchronize",
        _ if has(&["GraphLaunch"]) => "graph launch",
        _ if has(&["LaunchKernel"]) => "launch",
        _ if has(&["MemGetInfo", "LastError", "ErrorName", "GetProcAddress", "GetExportTable"]) => return None,
        _ if has(&["Memcpy"]) => "copy",
        _ if has(&["Memset"]) => "set",
        _ if has(&["Malloc", "MemAlloc", "HostAlloc"]) => "alloc",
        _ if has(&["Free"]) => "free",
        _ if has(&["Graph"]) => "graph",
        _ if has(&["Stream"]) => "stream",
        _ if has(&["Event"]) => "event",
        _ if has(&["Module"]) => "module",
        _ => "context",
    })
}
