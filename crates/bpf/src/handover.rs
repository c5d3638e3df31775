//! Watches the calls that hand work to other threads. The Rust side of `bpf/handover.h`.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ProgramMut, UprobeMultiOpts, UprobeOpts};

use crate::{
    Error, Recorder, Result, Watch,
    contract::{
        bytes_of,
        types::{called, handed, limit},
    },
    programs::{self, skeleton::RecordSkel},
};

const ANY_PROCESS: i32 = -1;
const PROBE: &str = "probe on work handed to other threads";

/// An instruction that may call a task.
#[derive(Clone, Copy, Debug)]
pub struct TaskCall {
    /// Its offset in the file.
    pub offset: u64,
    /// The register with the function's address, numbered as in DWARF.
    pub register: u8,
    /// If the address is in memory: its distance from the register's value.
    pub memory: Option<i32>,
    /// The thread that hands the task over runs it itself.
    pub at_once: bool,
}

impl TaskCall {
    fn cookie(&self) -> u64 {
        let register = u64::from(u32::from(self.register) & called::CALL_REGISTER.0);
        let memory = |distance: i32| u64::from(called::CALL_MEMORY.0) | u64::from(distance as u32) << 32;
        let at_once = if self.at_once { called::CALL_AT_ONCE.0 } else { 0 };
        register | self.memory.map_or(0, memory) | u64::from(at_once)
    }
}

impl Recorder {
    /// Returns the calls in progress that hand work over, for processes to read: only the programs can change them.
    pub fn handed_calls(&self) -> io::Result<OwnedFd> {
        self.skel.maps.handed_calls.as_fd().try_clone_to_owned()
    }

    /// Leaves changes to the programs. A descriptor that cannot be used for writing is not enough: the kernel maps only others.
    pub(crate) fn freeze_handed_calls(&self) -> libbpf_rs::Result<()> {
        MapHandle::try_from(&self.skel.maps.handed_calls)?.freeze()
    }

    /// Gives a process that already runs its place there.
    pub(crate) fn begin_handed(&self, image: u32) -> libbpf_rs::Result<()> {
        let place = image & (limit::HANDED_CALLS.0 - 1);
        if place == 0 {
            return Ok(());
        }
        let value = handed { calls: 0, image, pools: 0 };
        self.skel.maps.handed_calls.update(&place.to_ne_bytes(), bytes_of(&value), MapFlags::ANY)
    }

    /// Watches the call that hands work over: its entry, and its return instructions, by their offsets in the file.
    pub fn watch_handovers(&mut self, watch: Watch, file: &Path, entry: u64, returns: &[u64]) -> Result<()> {
        let multi = self.multi;
        let programs = &self.handover_programs()?.progs;
        let (enter, leave) = if multi {
            (&programs.hand_over_multi, &programs.hand_back_multi)
        } else {
            (&programs.hand_over_single, &programs.hand_back_single)
        };
        // The returns first: a call whose return is not seen would be in progress for ever.
        let links = watch_at(multi, leave, file, returns)?.into_iter().chain(watch_at(multi, enter, file, &[entry])?);
        let links: Vec<Link> = links.collect();
        self.watches.entry(watch.0).or_default().extend(links);
        Ok(())
    }

    /// Watches the function that does a piece of such work, by its offset in the file.
    pub fn watch_handed_work(&mut self, watch: Watch, file: &Path, entry: u64) -> Result<()> {
        let multi = self.multi;
        let programs = &self.handover_programs()?.progs;
        let program = if multi { &programs.handed_node_multi } else { &programs.handed_node_single };
        let links = watch_at(multi, program, file, &[entry])?;
        self.watches.entry(watch.0).or_default().extend(links);
        Ok(())
    }

    /// Watches the function that numbers the parts of such work, by its return instructions' offsets in the file.
    pub fn watch_forward(&mut self, watch: Watch, file: &Path, returns: &[u64]) -> Result<()> {
        let multi = self.multi;
        let programs = &self.handover_programs()?.progs;
        let program = if multi { &programs.node_made_multi } else { &programs.node_made_single };
        let links = watch_at(multi, program, file, returns)?;
        self.watches.entry(watch.0).or_default().extend(links);
        Ok(())
    }

    /// Watches the tasks of thread pools, by their offsets in the file: the entries of the functions that take a task, and the
    /// instructions that may call one.
    pub fn watch_tasks(&mut self, watch: Watch, file: &Path, takes: &[u64], calls: &[TaskCall]) -> Result<()> {
        let multi = self.multi;
        let programs = &self.handover_programs()?.progs;
        let handed = if multi { &programs.task_handed_multi } else { &programs.task_handed_single };
        // The calls first: a task whose beginning is not seen would be taken for the next one at its address.
        let begun = if multi {
            watch_many_calls(&programs.task_begun_multi, file, calls)
        } else {
            watch_each_call(&programs.task_begun_single, file, calls)
        };
        let begun = begun.map_err(|source| Error::Attach { what: PROBE, source })?;
        let links: Vec<Link> = begun.into_iter().chain(watch_at(multi, handed, file, takes)?).collect();
        self.watches.entry(watch.0).or_default().extend(links);
        Ok(())
    }

    /// Loads the programs when they are first needed.
    fn handover_programs(&mut self) -> Result<&RecordSkel<'static>> {
        let loaded = match self.handover.take() {
            Some(loaded) => loaded,
            None => programs::load_handover(&self.skel, self.forward, self.multi)?,
        };
        Ok(self.handover.insert(loaded))
    }
}

fn watch_at(multi: bool, program: &ProgramMut<'_>, file: &Path, offsets: &[u64]) -> Result<Vec<Link>> {
    let links = if multi {
        let offsets = offsets.iter().map(|offset| *offset as usize).collect();
        let opts = UprobeMultiOpts { offsets, ..Default::default() };
        program.attach_uprobe_multi_with_opts(ANY_PROCESS, file, "", opts).map(|link| vec![link])
    } else {
        let attach = |offset: &u64| program.attach_uprobe(false, ANY_PROCESS, file, *offset as usize);
        offsets.iter().map(attach).collect()
    };
    links.map_err(|source| Error::Attach { what: PROBE, source })
}

fn watch_many_calls(program: &ProgramMut<'_>, file: &Path, calls: &[TaskCall]) -> libbpf_rs::Result<Vec<Link>> {
    let opts = UprobeMultiOpts {
        offsets: calls.iter().map(|call| call.offset as usize).collect(),
        cookies: calls.iter().map(TaskCall::cookie).collect(),
        ..Default::default()
    };
    Ok(vec![program.attach_uprobe_multi_with_opts(ANY_PROCESS, file, "", opts)?])
}

fn watch_each_call(program: &ProgramMut<'_>, file: &Path, calls: &[TaskCall]) -> libbpf_rs::Result<Vec<Link>> {
    let attach = |call: &TaskCall| {
        let opts = UprobeOpts { cookie: call.cookie(), ..Default::default() };
        program.attach_uprobe_with_opts(ANY_PROCESS, file, call.offset as usize, opts)
    };
    calls.iter().map(attach).collect()
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use wire::launches::{HANDED, Handed};

    use super::{handed, limit};

    /// Check that processes read what the programs write.
    #[test]
    fn the_injected_library_has_the_same_layout() {
        assert_eq!((HANDED, size_of::<Handed>()), (limit::HANDED_CALLS.0 as usize, size_of::<handed>()));
        assert_eq!(offset_of!(Handed, calls), offset_of!(handed, calls));
        assert_eq!(offset_of!(Handed, image), offset_of!(handed, image));
        assert_eq!(offset_of!(Handed, pools), offset_of!(handed, pools));
    }
}
