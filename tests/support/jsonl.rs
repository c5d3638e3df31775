//! Reads events, and joins them independently: by session and correlation id alone, all in memory.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use super::{
    oracle::{Counts, Kind, check_stack},
    scene::number,
};

/// A launch's session and correlation id.
type Key = (u64, u64);

/// All events of a recording.
pub struct Events {
    pub all: Vec<Value>,
    pub stacks: HashMap<u64, Vec<String>>,
    launches: HashMap<Key, Value>,
}

fn key(event: &Value) -> Key {
    (number(event, "session"), number(event, "correlation"))
}

fn kind(event: &Value) -> Option<Kind> {
    Some(match event["type"].as_str()? {
        "kernel" => Kind::Kernel,
        "copy" => Kind::Copy,
        "memset" => Kind::Memset,
        _ => return None,
    })
}

impl Events {
    /// Reads a `.jsonl` file.
    pub fn read(text: &str) -> Self {
        let all: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect();
        let mut events = Self { all: Vec::new(), stacks: HashMap::new(), launches: HashMap::new() };
        for event in &all {
            match event["type"].as_str() {
                Some("stack") => {
                    let frames = event["frames"].as_array().expect("frames");
                    let frames = frames.iter().map(|frame| frame.as_str().expect("a name").to_owned()).collect();
                    events.stacks.insert(number(event, "stack"), frames);
                }
                Some("launch") => {
                    let twice = events.launches.insert(key(event), event.clone());
                    assert_eq!(twice, None, "a correlation id was used twice");
                }
                _ => {}
            }
        }
        Self { all, ..events }
    }

    /// Events of one type.
    pub fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.all.iter().filter(move |event| event["type"] == kind)
    }

    /// Pids of all processes seen.
    pub fn pids(&self) -> HashSet<u64> {
        self.of("process").map(|process| number(process, "pid")).collect()
    }

    /// The frames of a launch, outermost first.
    pub fn stack(&self, launch: &Value) -> Vec<&str> {
        self.frames(number(launch, "stack"))
    }

    /// The frames of a stack by its number.
    pub fn frames(&self, stack: u64) -> Vec<&str> {
        self.stacks.get(&stack).expect("a stack comes before its use").iter().map(String::as_str).collect()
    }

    /// The launch of a kernel, copy or memset.
    pub fn launch_of(&self, event: &Value) -> &Value {
        self.launches.get(&key(event)).unwrap_or_else(|| panic!("no launch for {event}"))
    }

    /// Checks that every kernel, copy and memset was launched from the path in its name, and counts them. `copies` is what the
    /// program wrote to `TRUTH_COPIES`: the path for each size.
    pub fn counts(&self, copies: &str) -> Counts {
        let by_size: BTreeMap<(&str, u64), &str> = copies.lines().map(size_and_path).collect();
        let mut counts = Counts::new();
        for event in &self.all {
            let Some(kind) = kind(event) else { continue };
            let path = match kind {
                Kind::Kernel => event["name"].as_str().expect("a name"),
                Kind::Copy => by_size[&("copy", number(event, "bytes"))],
                Kind::Memset => by_size[&("memset", number(event, "bytes"))],
            };
            let path = path.strip_prefix("truth:").unwrap_or_else(|| panic!("an unknown kernel: {path}"));
            let launch = self.launch_of(event);
            assert_eq!(launch["pid"], event["pid"], "launched by one process, run by another");
            let launched = launch["kind"].as_str().expect("a kind");
            let same = matches!(
                (kind, launched),
                (Kind::Kernel, "kernel" | "graph") | (Kind::Copy, "copy") | (Kind::Memset, "memset")
            );
            assert!(same, "{launch} is not a launch of {event}");
            assert!(number(launch, "ts_ns") <= number(event, "ts_ns"), "{event} ran before {launch}");
            check_stack(&self.stack(launch), path).unwrap_or_else(|wrong| panic!("{wrong}"));
            let device = u32::try_from(number(event, "device")).expect("a small number");
            *counts.entry((kind, device, path.to_owned())).or_default() += 1;
        }
        counts
    }
}

/// A line `copy BYTES PATH`.
fn size_and_path(line: &str) -> ((&str, u64), &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let [kind, bytes, path] = words[..] else { panic!("not three words: {line}") };
    ((kind, bytes.parse().expect("a number")), path)
}

/// Whether a frame is a Python function: `name (file:line)`.
pub fn is_python(frame: &str) -> bool {
    let place = frame.strip_suffix(')').and_then(|frame| frame.rsplit_once(" ("));
    let line = place.and_then(|(_, place)| place.rsplit_once(':'));
    line.is_some_and(|(_, line)| line.parse::<u32>().is_ok())
}
