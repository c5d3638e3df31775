//! What an option adds to a recording: a source of events beside launches, samples and stacks, which every recording has.
//!
//! The collector knows no source by name but the tracer, which shares the sessions with it. It calls all sources at these points,
//! whose order matters:
//!
//! ```text
//!   added      before the command starts: a source has announced what it records
//!   each round
//!     begin    before records are read: what is noted now is older than the records that are read next
//!     mapped   a file is known to the stack walker
//!     take     a record, after those of its stack and its process; one of a call after the mappings before it
//!     gather   when the stacks are settled, before the sessions: most kernels then find the reading that ends their interval
//!     caught_up  when everything so far has been read
//!   every second  after a round
//!   at the end
//!     end      before the sessions end: nothing after this moment is of interest
//!     stop     before the BPF programs stop
//!     finish   when the last records have been read; stacks can still be requested
//!     losses   after everything else
//! ```

use std::path::PathBuf;

use bpf::{Cause, Losses, Record, Recorder};
use model::event::{Event, LossCause, Mapping, Note, ProcessId, SessionId, StackId};

use crate::{
    process::{images::Images, thread_ids::ThreadIds},
    sink::Sink,
};

/// A source. What it does not need it leaves out.
pub trait Source {
    /// Returns the files with probes if stacks are taken for it. Until their unwind tables are compiled, stacks fill the ring as
    /// raw memory.
    fn watched_files(&self) -> Option<&[PathBuf]> {
        None
    }

    /// A round begins.
    fn begin(&mut self) {}

    /// A process has mapped a file.
    fn mapped(&mut self, _mapping: &Mapping, _pid: u32, _around: &mut dyn Around) {}

    /// A process has forked: the child has the mappings of its parent.
    fn forked(&mut self, _child: ProcessId, _parent: ProcessId) {}

    /// A process image has ended. Records about it may follow.
    fn died(&mut self, _image: ProcessId) {}

    /// Takes a record of the BPF programs, or returns it if it is none of this source.
    fn take(&mut self, record: Record, _around: &mut dyn Around) -> Option<Record> {
        Some(record)
    }

    /// Passes on what has arrived elsewhere; returns `true` if there may be more.
    fn gather(&mut self, _around: &mut dyn Around) -> bool {
        false
    }

    /// Everything that was recorded so far has been read.
    fn caught_up(&mut self, _around: &mut dyn Around) {}

    /// A second has passed.
    fn each_second(&mut self, _around: &mut dyn Around) {}

    /// The recording ends now.
    fn end(&mut self, _around: &mut dyn Around) {}

    /// The BPF programs stop next.
    fn stop(&mut self, _around: &mut dyn Around) {}

    /// Passes on what is left.
    fn finish(&mut self, _around: &mut dyn Around) {}

    /// Returns what was lost so far, of what only this source records.
    fn losses(&self, _recorder: &Recorder, _losses: &Losses) -> Vec<(LossCause, u64)> {
        Vec::new()
    }

    /// Returns the CPU time of the processes that it had started, once they have ended.
    fn child_ns(&self) -> u64 {
        0
    }
}

/// The collector, as a source sees it.
pub trait Around {
    /// Returns what a source works with.
    fn parts(&mut self) -> Parts<'_>;

    /// Returns the whole of a stack with this native and this Python part: with a cause, below the stack of the code that
    /// handed the work to this thread.
    fn stack(&mut self, image: u32, taken: (u64, u64), cause: Option<(Cause, u32)>, time: u64) -> StackId;

    /// Returns a launch with the session id used in the recording.
    fn launch(&mut self, launch: (u64, u32), image: u32) -> Option<(SessionId, u32)>;

    /// Passes on an event.
    fn push(&mut self, event: Event) {
        self.parts().sink.push(&event);
    }

    /// Passes on a note.
    fn note(&mut self, text: String) {
        self.push(Event::Note(Note { text }));
    }
}

/// What a source works with.
pub struct Parts<'a> {
    /// The BPF programs.
    pub recorder: &'a mut Recorder,
    /// Where events go.
    pub sink: &'a mut dyn Sink,
    /// The processes that are followed.
    pub images: &'a Images,
    /// The ids of their threads.
    pub thread_ids: &'a ThreadIds,
}
