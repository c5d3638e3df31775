//! The tracks of the timeline: a process and a thread number for each, and the names of both.
//!
//! Real processes and threads keep their numbers. GPUs, their streams, waits and off-CPU intervals get numbers far
//! above the largest pid of Linux (4,194,304).

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use analysis::names;
use model::{
    event::{Activity, ProcessId, SessionId},
    profile::Profile,
};
use rustc_hash::FxHashMap;

use super::json::Json;
use crate::{
    formats::json_object::Object,
    lanes::{LANES, Lanes},
};

const GPU_PID: u32 = 1_000_000_000;
const STREAM_TID: u32 = 1_000_000_000;
const WAIT_TID: u32 = 2_000_000_000;
const SWITCH_TID: u32 = 1_500_000_000;
const RANGE_TID: u32 = 1_750_000_000;

/// The tracks in use.
pub struct Tracks {
    threads: FxHashMap<(u32, u32), ProcessId>,
    /// The first lane of each stream, by (device, session, context, stream).
    streams: BTreeMap<(u32, SessionId, u32, u32), u32>,
    waits: BTreeMap<SessionId, (u32, u32)>,
    /// The track beside each thread, by (pid, tid).
    switches: BTreeMap<(u32, u32), u32>,
    /// The track of each thread's NVTX ranges, by (pid, tid).
    ranges: BTreeMap<(u32, u32), u32>,
}

impl Tracks {
    /// Numbers the streams of a profile.
    pub fn new(profile: &Profile) -> Self {
        let known = profile.devices.iter().flat_map(|(&device, info)| {
            info.streams.iter().map(move |&(session, context, stream)| (device, session, context, stream))
        });
        let streams = known.zip(0..).map(|(stream, at)| (stream, STREAM_TID + at * LANES)).collect();
        Self {
            threads: FxHashMap::default(),
            streams,
            waits: BTreeMap::new(),
            switches: BTreeMap::new(),
            ranges: BTreeMap::new(),
        }
    }

    /// Returns the track of a thread of a process.
    pub fn thread(&mut self, profile: &Profile, process: ProcessId, tid: u32) -> (u32, u32) {
        let pid = profile.processes.get(&process).map_or(0, |p| p.pid);
        let last = self.threads.entry((pid, tid)).or_insert(process);
        *last = process.max(*last);
        (pid, tid)
    }

    /// Returns a GPU, and the first lane of a stream.
    pub fn stream(&mut self, profile: &Profile, activity: &Activity) -> (u32, u32) {
        let device = profile.device(activity.session, activity.device);
        let next = STREAM_TID + self.streams.len() as u32 * LANES;
        let stream = (device, activity.session, activity.context, activity.stream);
        (gpu_pid(device), *self.streams.entry(stream).or_insert(next))
    }

    /// Returns the process of a session, and the first lane of its waits.
    pub fn waits(&mut self, profile: &Profile, session: SessionId) -> (u32, u32) {
        let next = WAIT_TID + self.waits.len() as u32 * LANES;
        *self.waits.entry(session).or_insert_with(|| {
            let process = profile.sessions.get(&session).and_then(|s| profile.processes.get(&s.process));
            (process.map_or(0, |p| p.pid), next)
        })
    }

    /// Returns the track beside a thread for its off-CPU intervals.
    pub fn switches(&mut self, profile: &Profile, process: ProcessId, tid: u32) -> (u32, u32) {
        let (pid, tid) = self.thread(profile, process, tid);
        let next = SWITCH_TID + self.switches.len() as u32;
        (pid, *self.switches.entry((pid, tid)).or_insert(next))
    }

    /// Returns the process of a session, and the track of a thread's NVTX ranges.
    pub fn ranges(&mut self, profile: &Profile, session: SessionId, tid: u32) -> (u32, u32) {
        let process = profile.sessions.get(&session).map_or(ProcessId(0), |session| session.process);
        let (pid, tid) = self.thread(profile, process, tid);
        let next = RANGE_TID + self.ranges.len() as u32;
        (pid, *self.ranges.entry((pid, tid)).or_insert(next))
    }

    /// Writes the names of all processes and threads in use, GPUs below the processes.
    pub fn write(&self, profile: &Profile, lanes: &FxHashMap<u32, Lanes>, json: &mut Json<'_>) -> io::Result<()> {
        let process_name = |pid: u32| names::pid(profile, pid);
        let pids: BTreeSet<u32> =
            self.threads.keys().map(|(pid, _)| *pid).chain(self.waits.values().map(|(pid, _)| *pid)).collect();
        // Ranks by number, then what has none.
        let mut pids: Vec<u32> = pids.into_iter().collect();
        pids.sort_by_key(|pid| (names::rank_of_pid(profile, *pid).unwrap_or(u32::MAX), *pid));
        for (order, &pid) in pids.iter().enumerate() {
            name_process(json, pid, &process_name(pid))?;
            sort_process(json, pid, order as u32)?;
        }
        let threads: BTreeMap<(u32, u32), ProcessId> = self.threads.iter().map(|(&track, &id)| (track, id)).collect();
        for ((pid, tid), id) in threads {
            let name = profile.threads.get(&(id, tid)).cloned().unwrap_or_else(|| process_name(pid));
            name_thread(json, (pid, tid), &name)?;
            if let Some(&beside) = self.ranges.get(&(pid, tid)) {
                name_thread(json, (pid, beside), &format!("{name}, NVTX"))?;
                sort_thread(json, (pid, beside), tid)?;
            }
            if let Some(&beside) = self.switches.get(&(pid, tid)) {
                sort_thread(json, (pid, tid), tid)?;
                name_thread(json, (pid, beside), &format!("{name}, off the CPU"))?;
                sort_thread(json, (pid, beside), tid)?;
            }
        }
        for &(pid, first) in self.waits.values() {
            for lane in 0..lanes.get(&first).map_or(0, Lanes::count) {
                name_thread(json, (pid, first + lane), "GPU waits")?;
                sort_thread(json, (pid, first + lane), first + lane)?;
            }
        }
        let devices: BTreeSet<u32> = self.streams.keys().map(|(device, ..)| *device).collect();
        for device in devices {
            name_process(json, gpu_pid(device), &names::gpu(profile, device))?;
            sort_process(json, gpu_pid(device), device.saturating_add(1_000_000))?;
        }
        for (&(device, session, _, stream), &first) in &self.streams {
            let stream = names::stream(profile, session, stream);
            for lane in 0..lanes.get(&first).map_or(0, Lanes::count) {
                let name = match lane {
                    0 => stream.clone(),
                    _ => format!("{stream}, overlapping"),
                };
                let (pid, tid) = (gpu_pid(device), first + lane);
                name_thread(json, (pid, tid), &name)?;
                sort_thread(json, (pid, tid), tid)?;
            }
        }
        Ok(())
    }
}

/// Returns the process number of a GPU.
pub fn gpu_pid(device: u32) -> u32 {
    GPU_PID.saturating_add(device)
}

/// An event that names or sorts a track.
fn metadata(
    json: &mut Json<'_>,
    name: &str,
    (pid, tid): (u32, u32),
    args: impl FnOnce(&mut Object<'_>),
) -> io::Result<()> {
    json.event(|event| {
        event.word(b"ph", "M");
        event.word(b"name", name);
        event.number(b"pid", pid);
        event.number(b"tid", tid);
        event.object(b"args", args);
    })
}

fn name_process(json: &mut Json<'_>, pid: u32, name: &str) -> io::Result<()> {
    metadata(json, "process_name", (pid, 0), |args| args.text(b"name", name))
}

fn name_thread(json: &mut Json<'_>, track: (u32, u32), name: &str) -> io::Result<()> {
    metadata(json, "thread_name", track, |args| args.text(b"name", name))
}

fn sort_process(json: &mut Json<'_>, pid: u32, index: u32) -> io::Result<()> {
    metadata(json, "process_sort_index", (pid, 0), |args| args.number(b"sort_index", index))
}

fn sort_thread(json: &mut Json<'_>, track: (u32, u32), index: u32) -> io::Result<()> {
    metadata(json, "thread_sort_index", track, |args| args.number(b"sort_index", index))
}
