//! A trace as a source of events.

use std::collections::HashMap;

use bpf::{Losses, Record, Recorder, calls::CallRecord};
use model::event::{Event, LossCause, Mapping, ProcessId};

use super::{Mapped, Tracer, switch};
use crate::{
    calls::{
        handles::{Handles, MOST_SEEN},
        objects::Question,
        sums,
    },
    source::{Around, Parts, Source},
};

/// The note on processes that ended before their library was watched.
const MISSED: &str = "a process exited before its CUDA library was probed: its calls are missing";

impl Source for Tracer {
    fn begin(&mut self) {
        if let Some(callbacks) = &mut self.callbacks {
            callbacks.note_written();
        }
    }

    fn mapped(&mut self, mapping: &Mapping, pid: u32, around: &mut dyn Around) {
        let Mapping { start, end, path, time, .. } = mapping;
        let Parts { recorder, sink, .. } = around.parts();
        let mapped = Mapped { pid, start: *start, end: *end, path, time: *time };
        self.watch_mapped(&mapped, recorder, &mut |event| sink.push(&event));
        self.code.mapped(mapping, self.callbacks.is_some());
    }

    fn forked(&mut self, child: ProcessId, parent: ProcessId) {
        self.code.forked(child, parent);
    }

    fn died(&mut self, image: ProcessId) {
        self.code.died(image);
        if let Some(callbacks) = &mut self.callbacks {
            callbacks.ended(image);
        }
    }

    fn take(&mut self, record: Record, around: &mut dyn Around) -> Option<Record> {
        match record {
            Record::Call(call) => self.take_call(*call, around),
            Record::Syscall(call) => {
                let launch = call.launch.and_then(|launch| around.launch(launch, call.image));
                self.syscall(*call, launch, &mut |event| around.push(event));
            }
            Record::Switch(record) => {
                let taken = (record.stack, record.python);
                let stack = (record.stack != 0).then(|| around.stack(record.image, taken, None, record.out));
                around.push(switch(record, stack));
            }
            Record::Point(point) => around.push(self.point(&point)),
            other => return Some(other),
        }
        None
    }

    fn gather(&mut self, around: &mut dyn Around) -> bool {
        let Parts { sink, thread_ids, .. } = around.parts();
        let any = self.read_reported(thread_ids, &mut |event| sink.push(&event));
        self.code.forget_gone();
        any
    }

    fn caught_up(&mut self, around: &mut dyn Around) {
        let images = around.parts().images;
        if self.late.settle(|pid| images.of_peer(pid).is_some()) {
            around.note(MISSED.to_owned());
        }
    }

    fn each_second(&mut self, around: &mut dyn Around) {
        self.name_handles(false, around);
    }

    /// Removes all probes, and reports calls that have not returned.
    fn stop(&mut self, around: &mut dyn Around) {
        if self.beside_profile {
            return;
        }
        if let Some(callbacks) = &mut self.callbacks {
            callbacks.end_all();
        }
        if let Err(error) = around.parts().recorder.end_trace() {
            around.note(format!("calls in progress are not in the trace: {error}"));
        }
    }

    fn finish(&mut self, around: &mut dyn Around) {
        if self.beside_profile {
            return;
        }
        let Parts { recorder, sink, .. } = around.parts();
        sums::read(recorder, &mut |event| sink.push(&event));
        self.name_handles(true, around);
        for symbol in self.handles.as_mut().map(Handles::finish).unwrap_or_default() {
            around.push(Event::Symbol(symbol));
        }
        let missed = around.parts().recorder.missed_by_hooks();
        if missed > 0 {
            around.note(format!(
                "{missed} calls of kernel functions were missed (fentry): they were made inside another hook"
            ));
        }
    }

    fn losses(&self, _: &Recorder, losses: &Losses) -> Vec<(LossCause, u64)> {
        vec![
            (LossCause::RingCalls, losses.calls),
            (LossCause::DeepCalls, losses.deep_calls),
            (LossCause::CallSums, losses.sums),
            (LossCause::MissedSwitches, losses.switches),
        ]
    }
}

impl Tracer {
    fn take_call(&mut self, call: CallRecord, around: &mut dyn Around) {
        if self.code.is_own(ProcessId(call.image), call.caller) {
            return;
        }
        let Parts { recorder, sink, .. } = around.parts();
        self.check_init(&call, recorder, &mut |event| sink.push(&event));
        let Some(call) = self.place(call) else { return };
        let launch = call.launch.and_then(|launch| around.launch(launch, call.image));
        let taken = (call.stack, call.python);
        let stack = (call.stack != 0).then(|| around.stack(call.image, taken, None, call.start));
        around.push(self.call(call, launch, stack));
    }

    /// Looks for the names of kernels that processes launch by handles without a name: they got these handles before their
    /// calls were traced. `last`: there will be no other time.
    fn name_handles(&mut self, last: bool, around: &mut dyn Around) {
        for symbol in self.handles.as_mut().map(Handles::take).unwrap_or_default() {
            around.push(Event::Symbol(symbol));
        }
        let Parts { sink, images, .. } = around.parts();
        let Some(calls) = sink.calls() else { return };
        let mut unnamed = HashMap::<ProcessId, Vec<u64>>::new();
        for (image, handle) in calls.unnamed_handles() {
            unnamed.entry(image).or_default().push(handle);
        }
        let ask = |(pid, image)| {
            let (unnamed, seen) = (unnamed.remove(&image)?, calls.seen_handles(image, MOST_SEEN));
            Some(Question { pid, image, seen, unnamed })
        };
        let questions: Vec<_> = images.all().into_iter().filter_map(ask).collect();
        if !questions.is_empty() {
            // Without a thread they stay unnamed.
            self.handles = self.handles.take().or_else(|| Handles::start().ok());
        }
        if let Some(handles) = &mut self.handles {
            handles.request(questions, last);
        }
    }
}
