//! `.cpu.txt`: `timestamp_ns comm pid tid cpu a;b;c`, one line per CPU sample: extended folded.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use model::{
    event::{Event, StackId},
    profile::Profile,
};

use crate::{events::Events, names};

/// Writes each sample in order of arrival. The name is the thread's last name with blanks as `_`, or otherwise the name
/// of the process.
pub fn write(profile: &Profile, events: Events<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut stacks = StackTexts::new(profile);
    for event in events {
        let Event::Sample(sample) = event else { continue };
        let comm = match profile.threads.get(&(sample.process, sample.tid)) {
            Some(comm) => names::word(comm),
            None => names::process(profile, sample.process),
        };
        let pid = profile.processes.get(&sample.process).map_or(0, |p| p.pid);
        let stack = stacks.get(sample.stack);
        writeln!(out, "{} {comm} {pid} {} {} {stack}", sample.time, sample.tid, sample.cpu)?;
    }
    out.flush()
}

/// Stacks as text, `a;b;c`, outermost first, each formatted once.
pub(crate) struct StackTexts<'a> {
    profile: &'a Profile,
    texts: HashMap<StackId, String>,
}

impl<'a> StackTexts<'a> {
    pub(crate) fn new(profile: &'a Profile) -> Self {
        Self { profile, texts: HashMap::new() }
    }

    pub(crate) fn get(&mut self, stack: StackId) -> &str {
        self.texts.entry(stack).or_insert_with(|| {
            let frames = self.profile.frames(stack);
            match frames.as_slice() {
                [] => "[no frames]".to_owned(),
                frames => frames.iter().map(names::frame).collect::<Vec<_>>().join(";"),
            }
        })
    }
}
