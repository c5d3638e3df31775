//! How much a recording keeps of processes: a process can have ever new stacks, mappings, threads and children.
//!
//! Together the limits keep a recording, with its outputs, below 400 MiB. Programs rarely reach them: a process has room for
//! some 50,000 distinct stacks. What is beyond them is counted, and the rest of the recording is not affected.

use std::collections::HashSet;

use model::{
    budget::Budget,
    event::{Event, Frame, Loss, LossCause, Mapping, ProcessId, Stack},
    stacks::Stacks,
};

/// The most bytes of stacks and of the names of their frames, for each process and in all.
const STACKS: (u64, u64) = (96 << 20, 128 << 20);
/// The most bytes of mappings.
const MAPPINGS: (u64, u64) = (24 << 20, 48 << 20);
/// The most processes and threads.
const PROCESSES: (u64, u64) = (1 << 17, 1 << 18);

/// What each costs, in bytes of memory: with the indexes that find it, with its weights, and with what the outputs make of it.
const STACK: u64 = 160;
const FRAME: u64 = 24;
const NODE: u64 = 48;
const ADDRESS: u64 = 320;
const MAPPING: u64 = 192;

/// What processes have used of the limits.
pub struct Room {
    stacks: Budget,
    /// The frames that will be named.
    frames: HashSet<(ProcessId, Frame)>,
    /// Processes of which no further stacks are kept.
    full: HashSet<ProcessId>,
    mappings: Budget,
    processes: Budget,
}

impl Default for Room {
    fn default() -> Self {
        let budget = |(of_one, in_all)| Budget::new(of_one, in_all);
        Self {
            stacks: budget(STACKS),
            frames: HashSet::default(),
            full: HashSet::default(),
            mappings: budget(MAPPINGS),
            processes: budget(PROCESSES),
        }
    }
}

impl Room {
    /// Whether an event is kept; counts it if not. Mappings are decided on by [`Self::takes_mapping`].
    pub fn takes(&mut self, event: &Event, known: &Stacks) -> bool {
        match event {
            Event::Stack(stack) => known.contains(stack.id) || self.takes_stack(stack, known),
            Event::Process(process) => self.processes.take(process.id, 1),
            Event::Thread(thread) => self.processes.take(thread.process, 1),
            _ => true,
        }
    }

    /// Whether a mapping is kept.
    pub fn takes_mapping(&mut self, mapping: &Mapping) -> bool {
        self.mappings.take(mapping.process, MAPPING + 2 * mapping.path.len() as u64)
    }

    /// Whether no further stacks of a process are kept.
    pub fn is_full(&self, process: ProcessId) -> bool {
        self.full.contains(&process)
    }

    /// Returns what was left out.
    pub fn losses(&self) -> impl Iterator<Item = Loss> {
        let causes = [
            (LossCause::MappingsRefused, self.mappings.refused()),
            (LossCause::ProcessesRefused, self.processes.refused()),
        ];
        causes.into_iter().filter(|(_, count)| *count > 0).map(|(cause, count)| Loss { cause, count })
    }

    fn takes_stack(&mut self, stack: &Stack, known: &Stacks) -> bool {
        if self.is_full(stack.process) {
            return false;
        }
        let native = stack.frames.iter().filter(|frame| !matches!(frame, Frame::Python(_)));
        let named = native.map(|frame| (frame.named_in(stack.process), *frame));
        let new: Vec<_> = named.filter(|frame| !self.frames.contains(frame)).collect();
        let (frames, nodes) = (stack.frames.len() as u64, known.new_nodes(&stack.frames) as u64);
        let taken = self.stacks.take(stack.process, STACK + FRAME * frames + NODE * nodes + ADDRESS * new.len() as u64);
        if taken {
            self.frames.extend(new);
        } else {
            self.full.insert(stack.process);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use model::event::{Origin, Process, StackEnd, StackId};

    use super::*;

    fn stack(process: u32, id: u64, frames: Vec<Frame>) -> Stack {
        Stack { id: StackId(id), process: ProcessId(process), time: 0, frames, end: StackEnd::Whole }
    }

    /// Pushes stacks until one is refused; returns how many were kept.
    fn fill(room: &mut Room, stacks: &mut Stacks, process: u32, frames: impl Fn(u64) -> Vec<Frame>) -> u64 {
        let kept = (0..).take_while(|number| {
            let stack = stack(process, u64::from(process) << 32 | number, frames(*number));
            let taken = room.takes(&Event::Stack(stack.clone()), stacks);
            if taken {
                stacks.insert(&stack);
            }
            taken
        });
        kept.count() as u64
    }

    /// Check that a process that walks the same code in ever new ways has room for many stacks; that one with ever new code
    /// has less, and takes nothing from others; and that known stacks are not refused.
    #[test]
    fn stacks_are_limited() {
        let (mut room, mut stacks) = (Room::default(), Stacks::default());
        let user = |address: u64| Frame::User(address);
        let same_code = fill(&mut room, &mut stacks, 1, |number| {
            (0..40).map(|depth| user(if depth < 12 { depth << 8 | number >> depth & 3 } else { depth })).collect()
        });
        assert!(same_code > 40_000, "{same_code}");
        assert!(room.is_full(ProcessId(1)) && !room.is_full(ProcessId(2)));
        let new_code =
            fill(&mut room, &mut stacks, 2, |number| (0..100).map(|depth| user(number << 8 | depth)).collect());
        assert!(new_code < 3_000, "{new_code}");
        assert!(fill(&mut room, &mut stacks, 3, |number| vec![user(number)]) > 1_000, "a modest one");
        let first = stacks.get(StackId(1 << 32)).map(|known| known.to_stack()).expect("kept");
        assert!(room.takes(&Event::Stack(first), &stacks));
        assert_eq!(room.losses().count(), 0, "the collector counts what refers to them");
    }

    /// Check that processes, threads and mappings are limited in all.
    #[test]
    fn processes_and_mappings_are_limited() {
        let (mut room, stacks) = (Room::default(), Stacks::default());
        let process = |id: u32| {
            let (parent, origin) = (ProcessId(0), Origin::Fork);
            Event::Process(Process { id: ProcessId(id), parent, origin, pid: id, time: 0, comm: "sh".into() })
        };
        let processes = (1..400_000).filter(|id| room.takes(&process(*id), &stacks)).count();
        assert_eq!(processes, 1 << 18);
        let mapping = |process: u32| {
            let (path, build_id) = ("/a".repeat(50), Vec::new());
            Mapping { process: ProcessId(process), time: 0, start: 0, end: 1, offset: 0, path, build_id }
        };
        let mappings = (0..1_000_000_u32).filter(|number| room.takes_mapping(&mapping(number % 8))).count();
        assert!((90_000..150_000).contains(&mappings), "{mappings}");
        assert_eq!(room.losses().count(), 2);
    }
}
