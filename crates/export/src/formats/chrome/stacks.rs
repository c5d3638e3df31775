//! The stacks of the timeline: each frame is written once, at the end of the file, and refers to the one outside it
//! (`stackFrames`). Events refer to their innermost frame (`sf`).

use std::{
    io::{self, Write},
    sync::Arc,
};

use analysis::names;
use model::{event::StackId, profile::Profile};
use rustc_hash::FxHashMap;
use serde::Serialize;

/// The frames that events refer to.
pub(super) struct Stacks<'a> {
    profile: &'a Profile,
    innermost: FxHashMap<StackId, u32>,
    known: FxHashMap<(u32, Arc<str>), u32>,
    /// The first is number 1.
    frames: Vec<Frame>,
}

struct Frame {
    name: Arc<str>,
    module: Arc<str>,
    /// 0 for the outermost.
    parent: u32,
}

/// A frame in the file.
#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    category: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<u32>,
}

impl<'a> Stacks<'a> {
    pub fn new(profile: &'a Profile) -> Self {
        Self { profile, innermost: FxHashMap::default(), known: FxHashMap::default(), frames: Vec::new() }
    }

    /// Returns the number of a stack's innermost frame.
    pub fn get(&mut self, stack: StackId) -> u32 {
        if let Some(&known) = self.innermost.get(&stack) {
            return known;
        }
        let mut innermost = 0;
        for frame in self.profile.frames(stack) {
            innermost = self.frame(innermost, names::raw_frame(&frame).into(), frame.module);
        }
        if innermost == 0 {
            innermost = self.frame(0, "[no frames]".into(), "".into());
        }
        self.innermost.insert(stack, innermost);
        innermost
    }

    /// Returns the name of a frame.
    pub fn name(&self, frame: u32) -> Arc<str> {
        self.frames[frame as usize - 1].name.clone()
    }

    fn frame(&mut self, parent: u32, name: Arc<str>, module: Arc<str>) -> u32 {
        let next = self.frames.len() as u32 + 1;
        let number = *self.known.entry((parent, name.clone())).or_insert(next);
        if number == next {
            self.frames.push(Frame { name, module, parent });
        }
        number
    }

    /// Writes the object of all frames.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"{")?;
        for (frame, number) in self.frames.iter().zip(1..) {
            write!(out, "{}\n\"{number}\":", if number == 1 { "" } else { "," })?;
            let parent = (frame.parent != 0).then_some(frame.parent);
            serde_json::to_writer(&mut *out, &Entry { name: &frame.name, category: &frame.module, parent })?;
        }
        out.write_all(b"}")
    }
}
