//! One round of the loop: reads every source, and follows processes.

use std::collections::HashMap;

use bpf::{MapEvent, Record};
use model::event::{self, Event, Loss, LossCause, Mapping, Note, Process, ProcessId};

use super::{parts::Collector, records};
use crate::{
    calls::{
        handles::{Handles, MOST_SEEN},
        objects::Question,
        tracer::Mapped,
    },
    process::procfs,
    sessions::Recognition,
    sink::Sink,
};

/// The note on processes that ended before their library was watched.
const MISSED: &str = "a process exited before its CUDA library was probed: its calls are missing";

impl<S: Sink> Collector<S> {
    /// Reads from every source; returns `true` if there may be more.
    ///
    /// The order matters. Connections are accepted before the probes' records are read, so that these include the fork
    /// and exec that led to a connection. Mappings are read last, so that everything mapped before one of the records
    /// is known. A mapping may be newer than all of them; [`Images`] keeps it until its process is known.
    pub fn gather(&mut self) -> bool {
        self.take_attached();
        let mut waiting = match &mut self.sessions {
            Some(sessions) => {
                sessions.accept();
                sessions.waiting()
            }
            None => Vec::new(),
        };
        if let Some(callbacks) = self.trace.as_mut().and_then(|trace| trace.callbacks.as_mut()) {
            callbacks.note_written();
        }
        let mut any = self.read_reported();
        let mut taken = Vec::new();
        let more = self.recorder.drain(|record| taken.push(record));
        any |= !taken.is_empty();
        self.take_mappings();
        // Calls are classified by their caller. Everything that happened on one thread keeps its order.
        let mut calls = Vec::new();
        if self.trace.is_some() {
            let on_a_thread = |record: &mut Record| {
                matches!(
                    record,
                    Record::Call(_) | Record::Syscall(_) | Record::Switch(_) | Record::Point(_) | Record::Tensor(_)
                )
            };
            calls.extend(taken.extract_if(.., on_a_thread));
        }
        for record in taken {
            self.read_last_reported(&record);
            self.take_reported(record.time());
            for (pid, mapping) in self.images.up_to(record.time()) {
                self.mapped_by_record(&mapping, pid);
            }
            self.scans.suspect(&record);
            self.take(record);
        }
        if !more {
            self.take_reported(u64::MAX);
        }
        let mut settled = Vec::new();
        self.images.settle(|pid, mapping| settled.push((pid, mapping)));
        for (pid, mapping) in settled {
            self.mapped_by_record(&mapping, pid);
        }
        any |= self.rescan(&waiting);
        for call in calls {
            self.take(call);
        }
        let sink = &mut self.sink;
        if let Some(trace) = &mut self.trace {
            any |= trace.read_reported(&self.thread_ids, &mut |event| sink.push(&event));
        }
        if let Some(trace) = &mut self.trace {
            trace.forget_gone();
        }
        let (sink, unwinding, pythons) = (&mut self.sink, &mut self.unwinding, &mut self.pythons);
        let (reused, mut published) = (&self.reused, Vec::new());
        let files = &self.kept.files;
        unwinding.settle(
            files,
            !more,
            &mut |walked| sink.push(&Event::Stack(records::walked(walked, reused))),
            &mut |image| {
                published.push(image);
            },
        );
        for text in unwinding.notes() {
            sink.push(&Event::Note(Note { text }));
        }
        for image in published {
            self.reused.published(image, bpf::now());
        }
        if let Some(pythons) = pythons.as_mut() {
            pythons.settle(sink);
        }
        if let Some(handovers) = &mut self.handovers {
            handovers.settle(sink, &|number| pythons.as_ref()?.named(number).cloned());
            if let Some(error) = handovers.watch_work(&mut self.recorder) {
                let text = format!("some work of PyTorch's autograd appears under its own threads: {error}");
                sink.push(&Event::Note(Note { text }));
            }
        }
        // Before the sessions: most kernels then find the reading that ends their interval.
        self.gpu_counters.take(&mut |event| sink.push(&event));
        let images = &self.images;
        if let Some(sessions) = &mut self.sessions {
            // The walker now has everything that they had mapped when they sent their hello.
            if !more {
                sessions.keep_ready(&mut waiting, &|image| !unwinding.is_compiling(image));
                let mut calls = HashMap::new();
                for announced in sessions.announced(&waiting) {
                    let socket = announced.socket;
                    let trace = self.trace.as_mut();
                    let memory = trace.and_then(|t| t.announced(announced, &mut self.recorder, &mut |e| sink.push(&e)));
                    calls.extend(memory.map(|memory| (socket, memory)));
                }
                // A trace does not take Python frames at launches.
                let probed = self.trace.is_some();
                let traced = self.trace.as_ref().is_some_and(|trace| !trace.beside_profile);
                let recognition_of = |pid| {
                    let pythons = pythons.as_ref().filter(|_| !traced).zip(images.current(pid));
                    let python = pythons.and_then(|(pythons, image)| pythons.shared_layout(image));
                    let has_python = pythons.is_some_and(|(pythons, image)| pythons.is_run_by(image));
                    Recognition { python, without_probe: !probed && (python.is_some() || !has_python) }
                };
                sessions.welcome(&waiting, &calls, &recognition_of);
            }
            // A connection without a hello waits until the record of its process has been read. The others must not
            // wait for a ring that never empties: their queues are short, and their exits wait for us.
            let accept_hellos = !more;
            let of_peer = |pid| images.of_peer(pid);
            any |= sessions.read(accept_hellos, &of_peer, &self.thread_ids, &mut |event| sink.push(&event));
        }
        if !more {
            let was_seen = |pid| self.images.of_peer(pid).is_some();
            if self.trace.as_mut().is_some_and(|trace| trace.late.settle(was_seen)) {
                sink.push(&Event::Note(Note { text: MISSED.to_owned() }));
            }
            self.images.forget_ended();
        }
        sink.show();
        any || more
    }

    fn take_mappings(&mut self) {
        let Some(mappings) = &mut self.mappings else { return };
        let events = mappings.drain();
        if let Some(trace) = self.trace.as_mut().filter(|trace| trace.all) {
            let sink = &mut self.sink;
            for mapped in events.iter().filter_map(MapEvent::mapped) {
                let bpf::Mapped { pid, start, length, path, time, .. } = mapped;
                if let Some(pythons) = &mut self.pythons {
                    // The interpreter is mapped long before CUDA. Processes whose first record was lost are found by the second.
                    if trace.libraries.wanted.wants(path) {
                        pythons.loaded(*pid);
                    }
                    pythons.found(mapped);
                }
                let mapped = Mapped { pid: *pid, start: *start, end: start + length, path, time: *time };
                trace.mapped(&mapped, &mut self.recorder, &mut |event| sink.push(&event));
            }
            trace.watch_deferred(&mut self.recorder, &mut |event| sink.push(&event));
        }
        self.images.take(events);
    }

    /// Looks for the names of kernels that processes launch by handles without a name: they got these handles before their
    /// calls were traced. `last`: there will be no other time.
    pub(super) fn name_handles(&mut self, last: bool) {
        for symbol in self.handles.as_mut().map(Handles::take).unwrap_or_default() {
            self.sink.push(&Event::Symbol(symbol));
        }
        let Some(calls) = self.sink.calls() else { return };
        let mut unnamed = HashMap::<ProcessId, Vec<u64>>::new();
        for (image, handle) in calls.unnamed_handles() {
            unnamed.entry(image).or_default().push(handle);
        }
        let ask = |(pid, image)| {
            let (unnamed, seen) = (unnamed.remove(&image)?, calls.seen_handles(image, MOST_SEEN));
            Some(Question { pid, image, seen, unnamed })
        };
        let questions: Vec<_> = self.images.all().into_iter().filter_map(ask).collect();
        if !questions.is_empty() {
            // Without a thread they stay unnamed.
            self.handles = self.handles.take().or_else(|| Handles::start().ok());
        }
        if let Some(handles) = &mut self.handles {
            handles.request(questions, last);
        }
    }

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
        self.unwinding.born(image, None);
        self.reused.born(image, None);
        if let Some(pythons) = &mut self.pythons {
            pythons.born(image, None);
        }
        for (inner, outer) in procfs::inner_threads(pid) {
            self.thread_ids.began(image, inner, outer, 0);
        }
        procfs::describe(pid, image, time, comm, |event| self.sink.push(&event));
        for mapping in procfs::mappings(pid, image) {
            self.mapped(&mapping, pid);
        }
    }

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
        let sink = &mut self.sink;
        if let Some(sessions) = &mut self.sessions {
            sessions.mapped(mapping, pid);
        }
        if let Some(text) = unwatched {
            sink.push(&Event::Note(Note { text }));
        }
        if let Some(why) = unsupported {
            sink.push(&Event::Note(Note { text: format!("{}: {why}", mapping.path) }));
        }
        if let Some(trace) = &mut self.trace {
            let Mapping { start, end, path, time, .. } = mapping;
            let mapped = Mapped { pid, start: *start, end: *end, path, time: *time };
            trace.mapped(&mapped, &mut self.recorder, &mut |event| sink.push(&event));
            trace.mapped_by(mapping);
        }
        if let Some(events) = &mut self.events {
            events.mapped(mapping, procfs::in_proc(pid), &mut self.recorder, &mut |event| sink.push(&event));
        }
        if let Some(memory) = &mut self.memory {
            memory.mapped(mapping, procfs::in_proc(pid), &mut self.recorder, &mut |event| sink.push(&event));
        }
        sink.push(&Event::Mapping(numbered));
    }

    pub(super) fn died(&mut self, image: ProcessId) {
        self.scans.died(image);
        if let Some(trace) = &mut self.trace {
            trace.died(image);
        }
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
