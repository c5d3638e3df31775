//! A recording as stored on disk: every launch and every sample with its stack, frame by frame.

use std::{collections::HashMap, fs::File, io::BufReader};

use model::{
    event::{Event, Frame, FrameKind, NamedFrame, ProcessId, SessionId, StackEnd, StackId, Work},
    recording::Reader,
    symbols::Symbols,
};

use super::Scene;

/// The user part of a stack.
#[derive(Debug)]
pub struct Stack {
    /// Outermost first, without the probe's own.
    pub frames: Vec<NamedFrame>,
    /// The number of frames with the probe's own, inlined functions not counted.
    pub walked: usize,
    /// The reason why there are no more frames.
    pub end: StackEnd,
}

/// The events of a recording that the tests need.
#[derive(Default)]
pub struct Recording {
    stacks: HashMap<StackId, Stack>,
    launches: HashMap<(SessionId, u32), StackId>,
    names: HashMap<(SessionId, u32), String>,
    kernels: Vec<(SessionId, u32, u32)>,
    samples: Vec<(ProcessId, StackId)>,
    execs: Vec<ProcessId>,
}

impl Recording {
    /// Reads the whole recording.
    pub fn read(scene: &Scene, name: &str) -> Self {
        let file = File::open(scene.path(name)).expect("the recording can be opened");
        let mut recording = Self::default();
        let (mut stacks, mut symbols) = (Vec::new(), Symbols::default());
        for event in Reader::new(BufReader::new(file)).expect("it is a recording") {
            match event {
                Event::Stack(stack) => stacks.push(stack),
                Event::Symbol(symbol) => symbols.add(symbol),
                Event::Launch(launch) => {
                    recording.launches.insert((launch.session, launch.correlation), launch.stack);
                }
                Event::KernelName(name) => {
                    recording.names.insert((name.session, name.id), name.name);
                }
                Event::Activity(activity) => {
                    if let Work::Kernel { name, .. } = activity.work {
                        recording.kernels.push((activity.session, activity.correlation, name));
                    }
                }
                Event::Sample(sample) => recording.samples.push((sample.process, sample.stack)),
                Event::Process(process) if process.origin == model::event::Origin::Exec => {
                    recording.execs.push(process.id);
                }
                _ => {}
            }
        }
        for stack in stacks {
            let named = |frame: &Frame| {
                let names = symbols.at(frame.named_in(stack.process), *frame, stack.time);
                names.map(|names| names.to_vec()).unwrap_or_default()
            };
            let user = stack.frames.iter().rev().filter(|frame| !matches!(frame, Frame::Kernel(_)));
            let walked = user.clone().count();
            let frames = user.flat_map(named).filter(|name| name.kind != FrameKind::Probe).collect();
            recording.stacks.insert(stack.id, Stack { frames, walked, end: stack.end });
        }
        recording
    }

    /// Every kernel that ran: its name and the stack that launched it.
    pub fn kernels(&self) -> impl Iterator<Item = (&str, &Stack)> {
        self.kernels.iter().map(|(session, correlation, name)| {
            let launch = self.launches.get(&(*session, *correlation)).expect("a kernel was launched");
            (self.names[&(*session, *name)].as_str(), &self.stacks[launch])
        })
    }

    /// The stack of every launch.
    pub fn launches(&self) -> impl Iterator<Item = &Stack> {
        self.launches.values().map(|stack| &self.stacks[stack])
    }

    /// The stack of every sample of a program, from its exec on.
    pub fn samples(&self) -> impl Iterator<Item = &Stack> {
        let own = self.samples.iter().filter(|(process, _)| self.execs.contains(process));
        own.map(|(_, stack)| &self.stacks[stack])
    }

    /// The number of samples of all processes.
    pub fn all_samples(&self) -> usize {
        self.samples.len()
    }
}

/// A stack as one line.
pub fn line(stack: &Stack) -> String {
    let names: Vec<&str> = stack.frames.iter().map(|frame| &*frame.name).collect();
    format!("{} ({:?})", names.join(";"), stack.end)
}
