//! Watches the calls that hand work to other threads. The Rust side of `bpf/handover.h`.

use std::path::Path;

use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts, UprobeOpts};

use crate::{Error, Recorder, Result};

const ANY_PROCESS: i32 = -1;

impl Recorder {
    /// Watches the entry and the return of the call that hands work over, at an offset in the file.
    pub fn watch_handovers(&mut self, file: &Path, offset: u64) -> Result<()> {
        let programs = &self.skel.progs;
        let (enter, leave) = if self.multi {
            (&programs.hand_over_multi, &programs.hand_back_multi)
        } else {
            (&programs.hand_over_single, &programs.hand_back_single)
        };
        // The return first: a call whose return is not seen would be in progress for ever.
        let links = [(leave, true), (enter, false)].map(|(program, retprobe)| self.watch_at(program, file, offset, retprobe));
        for link in links {
            self.links.push(link?);
        }
        Ok(())
    }

    /// Watches the function that does a piece of such work, at an offset in the file.
    pub fn watch_handed_work(&mut self, file: &Path, offset: u64) -> Result<()> {
        let programs = &self.skel.progs;
        let program = if self.multi { &programs.handed_node_multi } else { &programs.handed_node_single };
        let link = self.watch_at(program, file, offset, false)?;
        self.links.push(link);
        Ok(())
    }

    fn watch_at(&self, program: &ProgramMut<'_>, file: &Path, offset: u64, retprobe: bool) -> Result<Link> {
        let link = if self.multi {
            let opts = UprobeMultiOpts { offsets: vec![offset as usize], retprobe, ..Default::default() };
            program.attach_uprobe_multi_with_opts(ANY_PROCESS, file, "", opts)
        } else {
            let opts = UprobeOpts { retprobe, ..Default::default() };
            program.attach_uprobe_with_opts(ANY_PROCESS, file, offset as usize, opts)
        };
        link.map_err(|source| Error::Attach { what: "probe on work handed to other threads", source })
    }
}
