//! Events that the user names: what to watch, and what was added up. The Rust side of `bpf/hits_shared.h`.

use std::{
    os::fd::{AsFd, AsRawFd, IntoRawFd},
    path::Path,
};

use libbpf_rs::{Link, MapCore, MapFlags, PerfEventOpts, Program, UprobeMultiOpts, UprobeOpts, libbpf_sys as sys};

use crate::{Error, Recorder, Result, perf, record::Fields, recorder::skeleton::OpenRecordSkel};

/// Distinct (place, process image, stack) that are added up in the kernel, as a rule: some 40 MiB if all are there.
pub const MAX_HITS: u32 = 262_144;

/// Places that can be watched in one recording.
pub const MAX_HIT_POINTS: usize = 4096;

const NO_REGISTER: u8 = 0xff;

/// A place that is watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitPoint {
    /// What a hit weighs; hits are only counted without.
    pub weight: Option<HitWeight>,
    /// It is a function's entry: the stack begins with the caller.
    pub at_entry: bool,
    /// Take the kernel part of the stack, too.
    pub kernel: bool,
}

/// A weight: where it is, and how to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitWeight {
    /// Where.
    pub source: HitSource,
    /// Bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Negative values are possible.
    pub signed: bool,
}

/// Where a weight is. Registers are numbered as in DWARF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitSource {
    /// Nowhere: always this value.
    Constant(i64),
    /// In a register, from this bit on.
    Register(u8, u8),
    /// In the process's memory.
    Memory {
        /// A register that holds an address.
        base: Option<u8>,
        /// A register that is multiplied and added.
        index: Option<(u8, u8)>,
        /// What else is added.
        offset: i64,
    },
    /// In the record of a tracepoint.
    Field(u16),
}

/// Where to put a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitProbe {
    /// Offset in the file.
    pub offset: u64,
    /// The place's number.
    pub point: u32,
    /// At the return of the function that begins there.
    pub returns: bool,
    /// Offset in the file of a counter that the kernel keeps above 0 while the probe is there.
    pub semaphore: Option<u64>,
}

/// By what hits are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HitKey {
    /// The stack's id, 0 if it could not be taken.
    pub stack: u64,
    /// The id of its Python part, 0 if there is none.
    pub python: u64,
    /// The process image.
    pub image: u32,
    /// The place's number.
    pub point: u32,
    /// Keeps equal addresses of different files apart.
    generation: u32,
}

/// Hits added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitSum {
    /// Hits.
    pub count: u64,
    /// Their weights.
    pub weight: u64,
    /// Of the hits, those whose weight was unreadable, negative or 2^56 and more: it is not in `weight`.
    pub outside: u64,
}

/// A key that is new, with a sum of 0; or a hit that found no room in the kernel's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitRecord {
    /// When.
    pub time: u64,
    /// Of what.
    pub key: HitKey,
    /// How much.
    pub sum: HitSum,
}

impl HitPoint {
    /// As `struct hit_point`.
    fn to_bytes(self) -> [u8; 16] {
        let (mut source, mut base, mut index, mut scale, mut offset) = (0, NO_REGISTER, NO_REGISTER, 0, 0_i64);
        let weight = self.weight;
        match weight.map(|weight| weight.source) {
            None => {}
            Some(HitSource::Constant(value)) => (source, offset) = (1, value),
            Some(HitSource::Register(register, shift)) => (source, base, offset) = (2, register, shift.into()),
            Some(HitSource::Memory { base: register, index: scaled, offset: distance }) => {
                (source, offset) = (3, distance);
                base = register.unwrap_or(NO_REGISTER);
                (index, scale) = scaled.unwrap_or((NO_REGISTER, 0));
            }
            Some(HitSource::Field(at)) => (source, offset) = (4, at.into()),
        }
        let (size, signed) = weight.map_or((0, false), |weight| (weight.size, weight.signed));
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&[
            source,
            size,
            signed.into(),
            base,
            index,
            scale,
            self.at_entry.into(),
            self.kernel.into(),
        ]);
        bytes[8..].copy_from_slice(&offset.to_ne_bytes());
        bytes
    }
}

impl HitKey {
    fn parse(f: &mut Fields<'_>) -> Option<Self> {
        let (stack, python, image, point, generation) = (f.u64()?, f.u64()?, f.u32()?, f.u32()?, f.u32()?);
        f.u32()?;
        Some(Self { stack, python, image, point, generation })
    }
}

impl HitSum {
    fn parse(f: &mut Fields<'_>) -> Option<Self> {
        Some(Self { count: f.u64()?, weight: f.u64()?, outside: f.u64()? })
    }
}

impl HitRecord {
    /// What follows the type and the process.
    pub(crate) fn parse(f: &mut Fields<'_>) -> Option<Self> {
        Some(Self { time: f.u64()?, key: HitKey::parse(f)?, sum: HitSum::parse(f)? })
    }
}

/// Loads the programs if hits are wanted, else keeps their maps small.
pub(crate) fn prepare(open: &mut OpenRecordSkel<'_>, room: Option<u32>, multi: bool) -> libbpf_rs::Result<()> {
    let wanted = room.is_some();
    open.maps.hits.set_max_entries(room.unwrap_or(1))?;
    if !wanted {
        open.maps.hit_points.set_max_entries(1)?;
    }
    for program in [&mut open.progs.hit_multi, &mut open.progs.hit_return_multi] {
        program.set_autoload(wanted && multi);
    }
    for program in [&mut open.progs.hit_single, &mut open.progs.hit_return_single] {
        program.set_autoload(wanted && !multi);
    }
    open.progs.hit_tracepoint.set_autoload(wanted);
    Ok(())
}

impl Recorder {
    /// Describes the place with this number. It comes before its probes.
    pub fn describe_hits(&self, number: u32, point: HitPoint) -> Result<()> {
        self.skel
            .maps
            .hit_points
            .update(&number.to_ne_bytes(), &point.to_bytes(), MapFlags::ANY)
            .map_err(|source| Error::Map { what: "describe an event", source })
    }

    /// Watches places of a file, in every process that maps it.
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

    /// Watches a tracepoint, by the number it has in tracefs.
    pub fn watch_hits_at(&mut self, tracepoint: u64, point: u32) -> Result<()> {
        let what = "tracepoint";
        let event = perf::tracepoint(tracepoint).map_err(|source| Error::Attach { what, source: source.into() })?;
        let opts = PerfEventOpts { cookie: point.into(), ..Default::default() };
        let link = self.skel.progs.hit_tracepoint.attach_perf_event_with_opts(event.as_raw_fd(), opts);
        self.links.push(link.map_err(|source| Error::Attach { what, source })?);
        // The link owns it now, and closes it.
        let _ = event.into_raw_fd();
        Ok(())
    }

    /// All hits so far that were added up in the kernel.
    pub fn hit_sums(&self) -> Vec<(HitKey, HitSum)> {
        let mut found = Vec::new();
        self.each(&self.skel.maps.hits, |key, value| {
            let read = (HitKey::parse(&mut Fields::new(key)), HitSum::parse(&mut Fields::new(value)));
            if let (Some(key), Some(sum)) = read {
                found.push((key, sum));
            }
        });
        found
    }

    /// Hits that the kernel did not report: it runs no program while another one runs on the same CPU. Kernels before 6.7 do
    /// not count those of tracepoints.
    pub fn hits_missed(&self) -> u64 {
        let progs = &self.skel.progs;
        let missed = |program: &Program<'_>| {
            let mut info = sys::bpf_prog_info::default();
            let mut size = size_of_val(&info) as u32;
            let program = program.as_fd().as_raw_fd();
            // SAFETY: there is room for as many bytes as `size` says.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A point is written as the C side reads it.
    #[test]
    fn points() {
        let source = HitSource::Memory { base: Some(6), index: Some((3, 8)), offset: -16 };
        let weight = HitWeight { source, size: 4, signed: true };
        let point = HitPoint { weight: Some(weight), at_entry: false, kernel: true };
        let mut expected = vec![3, 4, 1, 6, 3, 8, 0, 1];
        expected.extend((-16_i64).to_ne_bytes());
        assert_eq!(point.to_bytes()[..], expected);
        let counted = HitPoint { at_entry: true, ..HitPoint::default() };
        assert_eq!(counted.to_bytes(), [0, 0, 0, NO_REGISTER, NO_REGISTER, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
