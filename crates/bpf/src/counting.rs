//! Counts events named by the user.

use std::{
    os::fd::{AsFd, AsRawFd},
    path::Path,
};

use libbpf_rs::{Link, MapCore, MapFlags, Program, UprobeMultiOpts, UprobeOpts, libbpf_sys as sys};

use crate::{
    Error, Recorder, Result,
    contract::{
        bytes_of,
        types::{hit_key, hit_sum},
    },
    hits::{HitKey, HitPoint, HitProbe, HitSum},
    links::{attach_tracepoint, run_for_threads},
};

impl Recorder {
    /// Describes the place with this number. Must precede its probes.
    pub fn describe_hits(&self, number: u32, point: HitPoint) -> Result<()> {
        self.skel
            .maps
            .hit_points
            .update(&number.to_ne_bytes(), bytes_of(&point.to_point()), MapFlags::ANY)
            .map_err(|source| Error::Map { what: "describe an event", source })
    }

    /// Counts the hits of watched places from now on, or no longer.
    pub fn open_hits(&mut self, open: bool) {
        if let Some(data) = self.skel.maps.data_data.as_deref_mut() {
            data.hits_open = open;
        }
    }

    /// Watches places in a file, in every process that maps it.
    pub fn watch_hits(&mut self, file: &Path, probes: &[HitProbe]) -> Result<()> {
        let what = "event probes";
        for returns in [false, true] {
            let probes: Vec<HitProbe> = probes.iter().copied().filter(|probe| probe.returns == returns).collect();
            if probes.is_empty() {
                continue;
            }
            let links = if self.multi {
                self.watch_many_hits(file, &probes, returns).map(|link| vec![link])
            } else {
                probes.iter().map(|probe| self.watch_one_hit(file, probe)).collect()
            };
            self.links.extend(links.map_err(|source| Error::Attach { what, source })?);
        }
        Ok(())
    }

    fn watch_many_hits(&self, file: &Path, probes: &[HitProbe], retprobe: bool) -> libbpf_rs::Result<Link> {
        let program = if retprobe { &self.skel.progs.hit_return_multi } else { &self.skel.progs.hit_multi };
        let opts = UprobeMultiOpts {
            offsets: probes.iter().map(|probe| probe.offset as usize).collect(),
            ref_ctr_offsets: probes.iter().map(|probe| probe.semaphore.unwrap_or(0) as usize).collect(),
            cookies: probes.iter().map(|probe| probe.point.into()).collect(),
            retprobe,
            ..Default::default()
        };
        program.attach_uprobe_multi_with_opts(-1, file, "", opts)
    }

    fn watch_one_hit(&self, file: &Path, probe: &HitProbe) -> libbpf_rs::Result<Link> {
        let program = if probe.returns { &self.skel.progs.hit_return_single } else { &self.skel.progs.hit_single };
        let opts = UprobeOpts {
            ref_ctr_offset: probe.semaphore.unwrap_or(0) as usize,
            cookie: probe.point.into(),
            retprobe: probe.returns,
            ..Default::default()
        };
        program.attach_uprobe_with_opts(-1, file, probe.offset as usize, opts)
    }

    /// Watches a tracepoint, by its number in tracefs.
    pub fn watch_hits_at(&mut self, tracepoint: u64, point: u32) -> Result<()> {
        self.links.push(attach_tracepoint(&self.skel.progs.hit_tracepoint, tracepoint, point)?);
        Ok(())
    }

    /// Stops recording waits, and adds those of threads that still wait to the sums.
    pub fn end_waits(&mut self) -> Result<()> {
        if self.waits.take().is_none() {
            return Ok(());
        }
        run_for_threads(&self.skel.progs.off_cpu_end)
    }

    /// Returns the sums of all hits so far.
    pub fn hit_sums(&self) -> Vec<(HitKey, HitSum)> {
        let hits: Vec<(hit_key, hit_sum)> = self.entries(&self.skel.maps.hits);
        hits.into_iter().map(|(key, sum)| (key.into(), sum.into())).collect()
    }

    /// Returns the number of hits that the kernel did not report: it runs no program while another one runs on the same
    /// CPU. Kernels before 6.7 do not count those of tracepoints.
    pub fn hits_missed(&self) -> u64 {
        let progs = &self.skel.progs;
        let missed = |program: &Program<'_>| {
            let mut info = sys::bpf_prog_info::default();
            let mut size = size_of_val(&info) as u32;
            let program = program.as_fd().as_raw_fd();
            // SAFETY: the buffer has `size` bytes.
            let answer = unsafe { sys::bpf_prog_get_info_by_fd(program, &raw mut info, &raw mut size) };
            if answer == 0 { info.recursion_misses } else { 0 }
        };
        let probes = if self.multi {
            [&progs.hit_multi, &progs.hit_return_multi]
        } else {
            [&progs.hit_single, &progs.hit_return_single]
        };
        probes.into_iter().chain([&progs.hit_tracepoint]).map(|program| missed(program)).sum()
    }
}
