//! The tracks: each is described when it is first used.

use std::io;

use analysis::names;
use model::{
    event::{ProcessId, SessionId},
    gpu_counters::Source,
    profile::Profile,
};
use rustc_hash::FxHashMap;

use super::packets::Packets;

/// `UNIT_COUNT`
const COUNT: u64 = 2;

/// A row of the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Track {
    /// What concerns the whole recording.
    About,
    /// A process, by its pid.
    Process(u32),
    /// A thread.
    Thread(ProcessId, u32),
    /// The off-CPU intervals of a thread, which cross the ends of its calls.
    OffCpu(ProcessId, u32),
    /// The NVTX ranges of a thread, by their depth and lane.
    Ranges(ProcessId, u32, u32),
    /// A GPU.
    Gpu(u32),
    /// A stream: device, session, context, stream, lane.
    Stream(u32, SessionId, u32, u32, u32),
    /// Waits of a session for the GPU, and the lane.
    Waits(SessionId, u32),
    /// The average number of operations in progress on a GPU.
    Running(u32),
    /// The power of a GPU.
    Power(u32),
    /// A metric of the counters of a GPU.
    Counter(u32, Source, u32),
    /// The average number of threads on a CPU.
    OnCpu,
}

impl Track {
    /// Returns a lane of this track.
    pub fn lane(self, lane: u32) -> Self {
        match self {
            Self::Stream(device, session, context, stream, _) => Self::Stream(device, session, context, stream, lane),
            Self::Waits(session, _) => Self::Waits(session, lane),
            Self::Ranges(process, tid, depth) => Self::Ranges(process, tid, depth + lane),
            other => other,
        }
    }
}

/// The tracks in use.
#[derive(Default)]
pub(super) struct Tracks {
    ids: FxHashMap<Track, u64>,
}

impl Tracks {
    /// Returns the id of a track, and writes its description if it is new.
    pub fn id(&mut self, profile: &Profile, track: Track, packets: &mut Packets<'_>) -> io::Result<u64> {
        if let Some(&known) = self.ids.get(&track) {
            return Ok(known);
        }
        // A thread of several images of one process (fork, then exec) is one track.
        let pid = |id: ProcessId| profile.processes.get(&id).map_or(0, |info| info.pid);
        if let Track::Thread(process, tid) | Track::OffCpu(process, tid) = track {
            let same = |known: &Track| match (*known, track) {
                (Track::Thread(other, t), Track::Thread(..)) | (Track::OffCpu(other, t), Track::OffCpu(..)) => {
                    t == tid && pid(other) == pid(process)
                }
                _ => false,
            };
            if let Some(id) = self.ids.iter().find(|(known, _)| same(known)).map(|(_, id)| *id) {
                self.ids.insert(track, id);
                return Ok(id);
            }
        }
        let parent = match track {
            Track::Thread(process, _) | Track::OffCpu(process, _) | Track::Ranges(process, ..) => {
                Some(Track::Process(pid(process)))
            }
            Track::Stream(device, ..) | Track::Running(device) | Track::Power(device) | Track::Counter(device, ..) => {
                Some(Track::Gpu(device))
            }
            Track::Waits(session, _) => {
                Some(Track::Process(profile.sessions.get(&session).map_or(0, |info| pid(info.process))))
            }
            Track::About | Track::Process(_) | Track::Gpu(_) | Track::OnCpu => None,
        };
        let parent = parent.map(|parent| self.id(profile, parent, packets)).transpose()?;
        let id = self.ids.len() as u64 + 1;
        self.ids.insert(track, id);
        let name = name(profile, track);
        packets.track(|descriptor| {
            descriptor.number(1, id);
            match track {
                Track::Process(pid) => descriptor.message(3, |process| {
                    process.number(1, pid.into());
                    process.text(6, &name);
                }),
                // Its process is found by the pid.
                Track::Thread(process, tid) => descriptor.message(4, |thread| {
                    thread.number(1, pid(process).into());
                    thread.number(2, tid.into());
                    thread.text(5, &name);
                }),
                _ => {
                    descriptor.text(2, &name);
                    if let Some(parent) = parent {
                        descriptor.number(5, parent);
                    }
                }
            }
            match track {
                Track::Running(_) | Track::OnCpu => descriptor.message(8, |counter| counter.number(3, COUNT)),
                Track::Power(_) => descriptor.message(8, |counter| counter.text(6, "W")),
                Track::Counter(_, source, number) => {
                    let unit = source.metric(number).map_or("", |(_, unit)| unit.text());
                    descriptor.message(8, |counter| counter.text(6, unit));
                }
                _ => {}
            }
        })?;
        Ok(id)
    }
}

fn name(profile: &Profile, track: Track) -> String {
    let thread = |process: ProcessId, tid: u32| {
        let comm = profile.processes.get(&process).map(|info| &info.comm);
        let named = profile.threads.get(&(process, tid)).or(comm);
        named.cloned().unwrap_or_else(|| "[unknown thread]".to_owned())
    };
    match track {
        Track::About => "warpscope".to_owned(),
        Track::Process(pid) => names::pid(profile, pid),
        Track::Thread(process, tid) => thread(process, tid),
        Track::OffCpu(process, tid) => format!("{} {tid}, off the CPU", thread(process, tid)),
        Track::Ranges(process, tid, _) => format!("{} {tid}, NVTX", thread(process, tid)),
        Track::Gpu(device) => names::gpu(profile, device),
        Track::Stream(_, session, _, stream, _) => names::stream(profile, session, stream),
        Track::Waits(..) => "GPU waits".to_owned(),
        Track::Running(_) => "operations in progress, average".to_owned(),
        Track::Power(_) => "power (NVML)".to_owned(),
        Track::Counter(_, source, number) => {
            source.metric(number).map_or_else(String::new, |(name, _)| format!("{name} ({})", source.text()))
        }
        Track::OnCpu => "threads on a CPU, average".to_owned(),
    }
}
