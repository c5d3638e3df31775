//! `.cpu.txt`: `timestamp_ns comm pid tid cpu a;b;c`, one line per CPU sample and launch: extended folded.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use analysis::{Events, flame_tree::View, names};
use model::{
    event::{Event, LaunchKind, ProcessId, StackId},
    profile::Profile,
};

/// Writes each sample and launch in order of arrival. The name is the thread's last name with blanks as `_`, or otherwise
/// the name of the process.
pub fn write(profile: &Profile, view: View, events: Events<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut stacks = StackTexts::new(profile);
    for event in events {
        let (time, process, tid, cpu, stack, last) = match event {
            Event::Sample(e) if view.cpu => (e.time, e.process, e.tid, e.cpu, e.stack, ""),
            Event::Launch(e) if view.gpu => (e.time, e.process, e.tid, e.cpu, e.stack, launch(e.kind)),
            _ => continue,
        };
        let (comm, pid) = (comm(profile, process, tid), profile.processes.get(&process).map_or(0, |info| info.pid));
        writeln!(out, "{time} {comm} {pid} {tid} {cpu} {}{last}", stacks.get(stack))?;
    }
    out.flush()
}

/// The innermost frame of a launch.
fn launch(kind: LaunchKind) -> &'static str {
    match kind {
        LaunchKind::Kernel => ";[GPU_Launch_Kernel]",
        LaunchKind::Copy => ";[GPU_Launch_Memcpy]",
        LaunchKind::Memset => ";[GPU_Launch_Memset]",
        LaunchKind::Graph => ";[GPU_Launch_Graph]",
    }
}

fn comm(profile: &Profile, process: ProcessId, tid: u32) -> String {
    match profile.threads.get(&(process, tid)) {
        Some(comm) => names::word(comm),
        None => names::process(profile, process),
    }
}

/// Stacks as text, `a;b;c`, outermost first, each formatted once.
struct StackTexts<'a> {
    profile: &'a Profile,
    texts: HashMap<StackId, String>,
}

impl<'a> StackTexts<'a> {
    fn new(profile: &'a Profile) -> Self {
        Self { profile, texts: HashMap::new() }
    }

    fn get(&mut self, stack: StackId) -> &str {
        self.texts.entry(stack).or_insert_with(|| {
            let frames = self.profile.frames(stack);
            match frames.as_slice() {
                [] => "[no frames]".to_owned(),
                frames => frames.iter().map(names::frame).collect::<Vec<_>>().join(";"),
            }
        })
    }
}
