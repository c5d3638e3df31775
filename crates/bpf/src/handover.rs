//! Watches the calls that hand work to other threads. The Rust side of `bpf/handover.h`.

use std::path::Path;

use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts};

use crate::{Error, Recorder, Result};

const ANY_PROCESS: i32 = -1;

impl Recorder {
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
