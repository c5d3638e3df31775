//! One round of the loop: reads everything that reports.

use std::{collections::HashMap, os::fd::RawFd};

use bpf::{MapEvent, Record};
use model::event::{Event, Note};

use super::{parts::Collector, records};
use crate::{calls::tracer::Mapped, sessions::Recognition, sink::Sink};

impl<S: Sink> Collector<S> {
    /// Reads from everything that reports; returns `true` if there may be more.
    ///
    /// The order matters. Connections are accepted before the probes' records are read, so that these include the fork
    /// and exec that led to a connection. Mappings are read last, so that everything mapped before one of the records
    /// is known. A mapping may be newer than all of them; [`Images`] keeps it until its process is known.
    pub fn gather(&mut self) -> bool {
        self.take_attached();
        let waiting = self.sessions.as_mut().map_or_else(Vec::new, |sessions| {
            sessions.accept();
            sessions.waiting()
        });
        self.each_source(|source, _| source.begin());
        let mut any = self.read_reported();
        let mut taken = Vec::new();
        let more = self.recorder.drain(|record| taken.push(record));
        any |= !taken.is_empty();
        self.take_mappings();
        // Calls are classified by their caller. Everything that happened on one thread keeps its order.
        let on_a_thread = |record: &mut Record| {
            matches!(
                record,
                Record::Call(_) | Record::Syscall(_) | Record::Switch(_) | Record::Point(_) | Record::Tensor(_)
            )
        };
        let calls: Vec<Record> = taken.extract_if(.., on_a_thread).collect();
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
        self.images.settle(!more, |pid, mapping| settled.push((pid, mapping)));
        for (pid, mapping) in settled {
            self.mapped_by_record(&mapping, pid);
        }
        any |= self.rescan(&waiting);
        for call in calls {
            self.take(call);
        }
        self.settle_stacks(!more);
        self.each_source(|source, around| any |= source.gather(around));
        any |= self.serve_sessions(waiting, !more);
        if !more {
            self.each_source(|source, around| source.caught_up(around));
            self.images.forget_ended();
        }
        self.sink.show();
        any || more
    }

    /// Passes on the stacks whose tables or names are there now. `all_read`: no record is left in the rings.
    fn settle_stacks(&mut self, all_read: bool) {
        let (sink, pythons, reused, mut published) = (&mut self.sink, &mut self.pythons, &self.reused, Vec::new());
        self.unwinding.settle(
            &self.kept.files,
            all_read,
            &mut |walked| sink.push(&Event::Stack(records::walked(walked, reused))),
            &mut |image| published.push(image),
        );
        for text in self.unwinding.notes() {
            sink.push(&Event::Note(Note { text }));
        }
        for image in published {
            self.reused.published(image, bpf::now());
        }
        if let Some(pythons) = pythons {
            pythons.settle(sink);
        }
        if let Some(handovers) = &mut self.handovers {
            handovers.settle(sink, &|number| pythons.as_ref()?.named(number).cloned());
            if let Some(error) = handovers.watch_work(&mut self.recorder) {
                self.note(format!("some work of PyTorch's autograd appears under its own threads: {error}"));
            }
        }
    }

    /// Answers the injected libraries, and reads what they have sent; returns `true` if there may be more.
    fn serve_sessions(&mut self, mut waiting: Vec<RawFd>, all_read: bool) -> bool {
        let Self { sessions: Some(sessions), recorder, sink, images, thread_ids, .. } = self else { return false };
        let (unwinding, pythons, trace) = (&self.unwinding, &self.pythons, &mut self.trace);
        // The walker now has everything that they had mapped when they sent their hello.
        if all_read {
            sessions.keep_ready(&mut waiting, &|image| !unwinding.is_compiling(image));
            let mut calls = HashMap::new();
            for announced in sessions.announced(&waiting) {
                let socket = announced.socket;
                let memory = trace
                    .as_mut()
                    .and_then(|trace| trace.announced(announced, recorder, &mut |event| sink.push(&event)));
                calls.extend(memory.map(|memory| (socket, memory)));
            }
            // A trace does not take Python frames at launches.
            let probed = trace.is_some();
            let traced = trace.as_ref().is_some_and(|trace| !trace.beside_profile);
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
        let accept_hellos = all_read;
        sessions.read(accept_hellos, &|pid| images.of_peer(pid), thread_ids, &mut |event| sink.push(&event))
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
                trace.watch_mapped(&mapped, &mut self.recorder, &mut |event| sink.push(&event));
            }
            trace.watch_deferred(&mut self.recorder, &mut |event| sink.push(&event));
        }
        self.images.take(events);
    }
}
