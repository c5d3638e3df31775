//! Watches the memory of PyTorch's caching allocator.

use std::path::Path;

use libbpf_rs::{Link, MapCore as _, MapFlags, UprobeMultiOpts, UprobeOpts};

use crate::{
    Error, Recorder, Result,
    contract::bytes_of,
    tensors::{TensorPoint, TensorProbe},
};

const ANY_PROCESS: i32 = -1;

impl Recorder {
    /// Describes the place with this number. Must precede its probes.
    pub fn describe_tensors(&self, number: u32, point: TensorPoint) -> Result<()> {
        self.skel
            .maps
            .tensor_points
            .update(&number.to_ne_bytes(), bytes_of(&point.to_point()), MapFlags::ANY)
            .map_err(|source| Error::Map { what: "describe where PyTorch reports memory", source })
    }

    /// Watches places in a file, in every process that maps it.
    pub fn watch_tensors(&mut self, file: &Path, probes: &[TensorProbe]) -> Result<()> {
        let links =
            if self.multi { self.watch_many_tensors(file, probes) } else { self.watch_each_tensor(file, probes) };
        self.links.extend(links.map_err(|source| Error::Attach { what: "probes on PyTorch's memory", source })?);
        Ok(())
    }

    fn watch_many_tensors(&self, file: &Path, probes: &[TensorProbe]) -> libbpf_rs::Result<Vec<Link>> {
        let opts = UprobeMultiOpts {
            offsets: probes.iter().map(|probe| probe.offset as usize).collect(),
            ref_ctr_offsets: probes.iter().map(|probe| probe.semaphore.unwrap_or(0) as usize).collect(),
            cookies: probes.iter().map(|probe| probe.number.into()).collect(),
            ..Default::default()
        };
        Ok(vec![self.skel.progs.tensor_multi.attach_uprobe_multi_with_opts(ANY_PROCESS, file, "", opts)?])
    }

    fn watch_each_tensor(&self, file: &Path, probes: &[TensorProbe]) -> libbpf_rs::Result<Vec<Link>> {
        let attach = |probe: &TensorProbe| {
            let opts = UprobeOpts {
                ref_ctr_offset: probe.semaphore.unwrap_or(0) as usize,
                cookie: probe.number.into(),
                ..Default::default()
            };
            self.skel.progs.tensor_single.attach_uprobe_with_opts(ANY_PROCESS, file, probe.offset as usize, opts)
        };
        probes.iter().map(attach).collect()
    }
}
