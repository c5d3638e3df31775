//! Follows processes: adds them, what they map, and removes them.

use bpf::{NewImage, Origin};
use model::event::{self, Event, Loss, LossCause, Mapping, Process, ProcessId};

use super::parts::Collector;
use crate::{process::procfs, sink::Sink};

impl<S: Sink> Collector<S> {
    /// Adds a process that was running before it was followed, as of `since`.
    pub fn adopt(&mut self, pid: u32, image: ProcessId, since: u64, comm: &str) {
        let time = bpf::now();
        if pid == 0 {
            // It runs outside our pid namespace: nothing about it can be read here.
            let (parent, origin, comm) = (ProcessId(0), event::Origin::Found, comm.to_owned());
            self.sink.push(&Event::Process(Process { id: image, parent, origin, pid, time, comm }));
            self.sink.push(&Event::Loss(Loss { cause: LossCause::ForeignProcesses, count: 1 }));
            return;
        }
        self.images.found(pid, image, since);
        self.began(image, None);
        for (inner, outer) in procfs::inner_threads(pid) {
            self.thread_ids.began(image, inner, outer, 0);
        }
        procfs::describe(pid, image, time, comm, |event| self.sink.push(&event));
        for mapping in procfs::mappings(pid, image) {
            self.mapped(&mapping, pid);
        }
    }

    /// Adds an image that a fork or an exec has created.
    pub(super) fn born(&mut self, NewImage { image, parent, origin, time, pid, inner, comm }: NewImage) -> Event {
        let (id, parent) = (ProcessId(image), ProcessId(parent));
        self.thread_ids.began(id, inner, pid, time);
        self.images.born(pid, id, time, origin == Origin::Exec);
        let forked_from = (origin == Origin::Fork).then_some(parent);
        self.began(id, forked_from);
        if let Some(parent) = forked_from {
            self.each_source(|source, _| source.forked(id, parent));
            self.kept.forked(id, procfs::in_proc(pid), parent);
        }
        if origin == Origin::Exec {
            self.died(parent);
            self.sink.push(&Event::Exit(event::Exit { process: parent, time }));
        }
        let origin = match origin {
            Origin::Fork => event::Origin::Fork,
            Origin::Exec => event::Origin::Exec,
            Origin::Found => event::Origin::Found,
        };
        Event::Process(Process { id, parent, origin, pid, time, comm })
    }

    fn began(&mut self, image: ProcessId, forked_from: Option<ProcessId>) {
        self.unwinding.born(image, forked_from);
        self.reused.born(image, forked_from);
        if let Some(pythons) = &mut self.pythons {
            pythons.born(image, forked_from);
        }
        if let Some(handovers) = &mut self.handovers {
            handovers.born(image, forked_from);
        }
    }

    /// Adds a mapping of a process that is followed.
    pub(super) fn mapped(&mut self, mapping: &Mapping, pid: u32) {
        if !self.sink.takes_mapping(mapping) {
            return;
        }
        let (numbered, takes_over) = self.reused.mapped(mapping);
        let file = self.kept.mapped(&numbered, procfs::in_proc(pid));
        self.unwinding.mapped(mapping, file, &self.kept.files);
        if takes_over {
            if let Some(sessions) = &mut self.sessions {
                sessions.forget_known();
            }
            self.unwinding.wait_for(file);
        }
        let pythons = self.pythons.as_mut();
        let unsupported = pythons.and_then(|pythons| pythons.mapped(mapping, file, &self.kept.files));
        if let (Some(pythons), Some(sessions)) = (&self.pythons, &self.sessions)
            && pythons.is_run_by(mapping.process)
        {
            sessions.found_python(mapping.process);
        }
        let handovers = self.handovers.as_mut();
        let unwatched = handovers.and_then(|h| h.mapped(mapping, file, &self.kept.files, &mut self.recorder));
        if let Some(sessions) = &mut self.sessions {
            sessions.mapped(mapping, pid);
        }
        for text in unwatched.into_iter().chain(unsupported.map(|why| format!("{}: {why}", mapping.path))) {
            self.note(text);
        }
        self.each_source(|source, around| source.mapped(mapping, pid, around));
        self.sink.push(&Event::Mapping(numbered));
    }

    /// Removes an image that has ended. Records about it may follow.
    pub(super) fn died(&mut self, image: ProcessId) {
        self.scans.died(image);
        self.each_source(|source, _| source.died(image));
        self.unwinding.died(image);
        self.reused.died(image);
        self.kept.died(image);
        self.thread_ids.died(image);
        if let Some(pythons) = &mut self.pythons {
            pythons.died(image);
        }
        if let Some(handovers) = &mut self.handovers {
            handovers.died(image);
        }
    }
}
