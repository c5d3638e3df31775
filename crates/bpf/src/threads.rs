//! The registers of the threads of running processes, which are not stopped. The Rust side of `bpf/threads.bpf.c`.

use std::{io::Read as _, mem::MaybeUninit};

use libbpf_rs::{
    Iter, Link, MapCore, MapFlags, OpenObject, ProgramInput,
    skel::{OpenSkel, SkelBuilder},
};

use crate::{Error, Result, contract, programs::load_error};

#[allow(missing_docs, clippy::all, clippy::pedantic, clippy::restriction, unused_qualifications)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/threads.skel.rs"));
}
use skeleton::{ThreadsSkel, ThreadsSkelBuilder};

/// A thread, and its registers at its last entry to the kernel; `bpf/shared/processes.h` describes each field.
pub use crate::contract::types::thread_state as ThreadState;

/// The threads of some processes.
pub struct Threads {
    link: Link,
    _skel: ThreadsSkel<'static>,
}

impl Threads {
    /// Prepares to read the threads of these processes.
    pub fn of(pids: &[u32]) -> Result<Self> {
        // The skeleton borrows this for its lifetime; it is needed once per process.
        let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = ThreadsSkelBuilder::default().open(storage).map_err(load_error)?;
        open.progs.list_processes.set_autoload(false);
        let skel = open.load().map_err(load_error)?;
        let found = skel.progs.find_recorder.test_run(ProgramInput::default());
        found.map_err(|source| Error::Map { what: "find warpscope's own process id", source })?;
        for pid in pids {
            let wanted = skel.maps.wanted_processes.update(&pid.to_ne_bytes(), &[0; 4], MapFlags::ANY);
            wanted.map_err(|source| Error::Map { what: "select a process", source })?;
        }
        let link = skel.progs.thread_states.attach_trace();
        let link = link.map_err(|source| Error::Attach { what: "iterator over threads", source })?;
        Ok(Self { link, _skel: skel })
    }

    /// Reads the state of every thread.
    pub fn states(&self) -> Result<Vec<ThreadState>> {
        let mut bytes = Vec::new();
        Iter::new(&self.link)
            .map_err(|source| Error::Attach { what: "iterator over threads", source })?
            .read_to_end(&mut bytes)
            .map_err(|source| Error::Read { path: "the kernel's list of threads".into(), source })?;
        Ok(bytes.chunks_exact(size_of::<ThreadState>()).filter_map(contract::read).collect())
    }
}
