//! Watches the calls that hand work to other threads. The Rust side of `bpf/handover.h`.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ProgramMut, UprobeMultiOpts};

use crate::{
    Error, Recorder, Result,
    contract::{
        bytes_of,
        types::{handed, limit},
    },
};

const ANY_PROCESS: i32 = -1;

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
        let value = handed { calls: 0, image, pad: 0 };
        self.skel.maps.handed_calls.update(&place.to_ne_bytes(), bytes_of(&value), MapFlags::ANY)
    }

    /// Watches the call that hands work over: its entry, and its return instructions, by their offsets in the file.
    pub fn watch_handovers(&mut self, file: &Path, entry: u64, returns: &[u64]) -> Result<()> {
        let programs = &self.skel.progs;
        let (enter, leave) = if self.multi {
            (&programs.hand_over_multi, &programs.hand_back_multi)
        } else {
            (&programs.hand_over_single, &programs.hand_back_single)
        };
        // The returns first: a call whose return is not seen would be in progress for ever.
        let links = self.watch_at(leave, file, returns)?.into_iter().chain(self.watch_at(enter, file, &[entry])?);
        let links: Vec<Link> = links.collect();
        self.links.extend(links);
        Ok(())
    }

    /// Watches the function that does a piece of such work, by its offset in the file.
    pub fn watch_handed_work(&mut self, file: &Path, entry: u64) -> Result<()> {
        let programs = &self.skel.progs;
        let program = if self.multi { &programs.handed_node_multi } else { &programs.handed_node_single };
        let links = self.watch_at(program, file, &[entry])?;
        self.links.extend(links);
        Ok(())
    }

    /// Watches the function that numbers the parts of such work, by its return instructions' offsets in the file.
    pub fn watch_forward(&mut self, file: &Path, returns: &[u64]) -> Result<()> {
        let programs = &self.skel.progs;
        let program = if self.multi { &programs.node_made_multi } else { &programs.node_made_single };
        let links = self.watch_at(program, file, returns)?;
        self.links.extend(links);
        Ok(())
    }

    fn watch_at(&self, program: &ProgramMut<'_>, file: &Path, offsets: &[u64]) -> Result<Vec<Link>> {
        let links = if self.multi {
            let offsets = offsets.iter().map(|offset| *offset as usize).collect();
            let opts = UprobeMultiOpts { offsets, ..Default::default() };
            program.attach_uprobe_multi_with_opts(ANY_PROCESS, file, "", opts).map(|link| vec![link])
        } else {
            let attach = |offset: &u64| program.attach_uprobe(false, ANY_PROCESS, file, *offset as usize);
            offsets.iter().map(attach).collect()
        };
        links.map_err(|source| Error::Attach { what: "probe on work handed to other threads", source })
    }
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
    }
}
