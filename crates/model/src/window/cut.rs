//! The events of a recording of the window.
//!
//! ```text
//!           from                    to
//!   ---------|----------------------|-----
//!    L  K    |  L  KKK        L     |  KK     launches in the window, with their work: kept
//!         L  |  KKK                 |         a launch before it with work in it: kept
//!     L KKK  |                      |  L K    neither: left out
//! ```

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::{
    base::{Before, Sums},
    facts::All,
};
use crate::{
    event::{Activity, Dump, End, Event, Frame, SessionId, StackId, Start, Symbol},
    memory::GpuMemory,
    recording,
};

/// A copy of the window that can be written while events continue to arrive.
pub struct Cut {
    /// The start of the window.
    pub start: Start,
    /// Why it was written.
    pub dump: Dump,
    /// The end of the window.
    pub end: End,
    pub(super) facts: All,
    pub(super) base: Before,
    /// Who held memory at the end.
    pub(super) memory: GpuMemory,
    pub(super) chunks: Vec<Arc<[u8]>>,
}

type Id = (SessionId, u32);

/// Which launches belong to the window.
#[derive(Default)]
struct Launches {
    kept: FxHashSet<Id>,
    /// Those after the window, whose work does not belong to it either.
    later: FxHashSet<Id>,
}

impl Cut {
    /// The same with who held memory when the reason occurred.
    pub fn with(self, memory: GpuMemory) -> Self {
        Self { memory, ..self }
    }

    /// Calls back with every event, except the end and the names of native frames.
    pub fn events(&self, mut on: impl FnMut(&Event)) {
        let launches = self.launches();
        on(&Event::Start(self.start.clone()));
        on(&Event::Dump(self.dump.clone()));
        let is_python = |event: &Event| matches!(event, Event::Symbol(Symbol { frame: Frame::Python(_), .. }));
        let described = self.facts.events.iter().filter(|event| !is_python(event) && self.overlaps(event));
        described.for_each(|event| on(event));
        let mut used = FxHashSet::<StackId>::default();
        let mut sums = Sums::default();
        let mut refer = |event: &Event| {
            used.extend(event.stack());
            on(event);
        };
        self.base.nodes.iter().for_each(&mut refer);
        for launch in self.base.launches.iter().filter(|l| launches.kept.contains(&(l.session, l.correlation))) {
            refer(&Event::Launch(*launch));
        }
        for ranged in self.base.ranged.iter().filter(|r| launches.kept.contains(&(r.session, r.correlation))) {
            refer(&Event::RangedLaunch(*ranged));
        }
        for event in self.recorded() {
            if !sums.add(&event) && self.contains(&event, &launches) {
                refer(&event);
            }
        }
        sums.since(&self.base.sums).iter().for_each(&mut refer);
        self.memory.events().iter().for_each(&mut refer);
        let mut lines = FxHashSet::<Frame>::default();
        for stack in self.facts.stacks.iter().filter(|stack| used.contains(&stack.id)) {
            lines.extend(stack.frames.iter().filter(|frame| matches!(frame, Frame::Python(_))));
            on(&Event::Stack(stack.as_ref().clone()));
        }
        for event in self.facts.events.iter().filter(|event| is_python(event)) {
            if matches!(event.as_ref(), Event::Symbol(symbol) if lines.contains(&symbol.frame)) {
                on(event);
            }
        }
    }

    fn recorded(&self) -> impl Iterator<Item = Event> + '_ {
        self.chunks.iter().flat_map(|payload| recording::events(payload))
    }

    fn launches(&self) -> Launches {
        let mut launches = Launches::default();
        let mut older: FxHashSet<Id> = self.base.launches.iter().map(|l| (l.session, l.correlation)).collect();
        let mut needed = FxHashSet::<Id>::default();
        for event in self.recorded() {
            match event {
                Event::Launch(launch) => {
                    let id = (launch.session, launch.correlation);
                    let to = match launch.time {
                        time if time < self.dump.from => &mut older,
                        time if time <= self.dump.time => &mut launches.kept,
                        _ => &mut launches.later,
                    };
                    to.insert(id);
                }
                Event::Activity(activity) if self.has_time(&activity) => {
                    let id = (activity.session, activity.correlation);
                    if !launches.kept.contains(&id) {
                        needed.insert(id);
                    }
                }
                // The stack of a node is that of its launch.
                Event::NodeCreated(node) if !node.own => {
                    needed.insert((node.session, node.mark));
                }
                _ => {}
            }
        }
        launches.kept.extend(older.intersection(&needed));
        launches
    }

    /// Whether work ran in the window.
    fn has_time(&self, activity: &Activity) -> bool {
        activity.start != 0 && activity.start <= self.dump.time && activity.end.max(activity.start) >= self.dump.from
    }

    fn contains(&self, event: &Event, launches: &Launches) -> bool {
        match (event, event.launch()) {
            (Event::Activity(e), _) => {
                let (id, ended_before) =
                    ((e.session, e.correlation), e.start != 0 && e.end.max(e.start) < self.dump.from);
                match launches.kept.contains(&id) {
                    true => !ended_before,
                    false => self.has_time(e) && !launches.later.contains(&id),
                }
            }
            (_, Some(id)) => launches.kept.contains(&id),
            (other, None) => self.overlaps(other),
        }
    }

    /// Whether an event has no time, or a time in the window.
    fn overlaps(&self, event: &Event) -> bool {
        event.span().is_none_or(|(start, end)| start <= self.dump.time && end >= self.dump.from)
    }
}
