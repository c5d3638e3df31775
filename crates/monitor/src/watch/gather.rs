//! Builds a snapshot from the sums in the kernel.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant, SystemTime},
};

use bpf::calls::MemorySum;
use collect::calls::pausable::Pausable;
use cuda::calls::Role;
use gpu_counters::nvml::Sampler;
use model::event::ProcessId;

use super::{calls, choice, health, kernels, main_loop::Monitor, suspects};
use crate::{
    config::Options,
    snapshot::{Health, Kinds, Memory, Moved, Process, Snapshot},
};

/// The log message for processes that were not tracked completely.
const UNTRACKED: &str = "some allocations are not tracked, because their process or user has used up its share of the BPF map: \
    live memory is higher than shown (warpscope_memory_untracked_allocations_total)";

/// The longest time that a snapshot reads records.
const CATCH_UP: Duration = Duration::from_millis(50);

/// Entries of the kernel's maps by process.
struct ByProcess<T>(HashMap<u32, Vec<T>>);

impl<T> ByProcess<T> {
    fn of(all: impl Iterator<Item = T>, image: impl Fn(&T) -> u32) -> Self {
        let mut sorted = HashMap::<u32, Vec<T>>::new();
        for one in all {
            sorted.entry(image(&one)).or_default().push(one);
        }
        Self(sorted)
    }

    fn get(&self, image: u32) -> &[T] {
        self.0.get(&image).map_or(&[], Vec::as_slice)
    }
}

impl Monitor {
    /// Returns the current state of all processes. Ended processes are included for the last time.
    pub fn snapshot(&mut self) -> Snapshot {
        let read = bpf::now();
        let recorder = &self.collector.recorder;
        if let Err(error) = recorder.add_repeated() {
            self.collector.sink.notes.add(format!("some launches are not counted yet: {error}"));
        }
        let recorder = &self.collector.recorder;
        let (sums, errors) = (recorder.sums(), recorder.error_sums());
        let (memory, sites, kernel_sums) = (recorder.memory_sums(), recorder.sites(), recorder.kernel_sums());
        let rooms = recorder.sum_rooms();
        let maps = vec![
            ("calls", sums.len() as u64, rooms.calls),
            ("errors", errors.len() as u64, rooms.errors),
            ("memory", memory.len() as u64, rooms.memory),
            ("allocations", recorder.held(), rooms.allocations),
            ("sites", sites.len() as u64, rooms.sites),
            ("kernels", kernel_sums.len() as u64, rooms.kernels),
        ];
        self.periodic.full = maps.iter().filter(|(_, used, room)| used >= room).map(|(name, ..)| *name).collect();
        self.catch_up();
        let held = suspects::held(&sites, &mut self.collector);
        let sums = ByProcess::of(sums.iter(), |sum| sum.image);
        let errors = ByProcess::of(errors.iter(), |sum| sum.image);
        let memory = ByProcess::of(memory.iter(), |sum| sum.image);
        let kernel_sums = ByProcess::of(kernel_sums.iter(), |sum| sum.image);

        let now = bpf::now();
        let mut ids: Vec<ProcessId> =
            self.collector.sink.processes.iter().filter(|(_, known)| !known.reported).map(|(id, _)| *id).collect();
        ids.sort();
        let kinds = self.kinds();
        let mut processes = Vec::new();
        for id in ids {
            let late = self.collector.trace.as_ref().map(|trace| &trace.late);
            let state = &mut self.collector.sink;
            let Some(known) = state.processes.get_mut(&id) else { continue };
            let mut process = Process {
                id: id.0,
                pid: known.pid,
                comm: known.comm.clone(),
                user: known.user.clone(),
                container: known.container.clone(),
                command: known.command.clone(),
                watched: Duration::from_nanos(known.until(now).saturating_sub(known.since)),
                unwatched: late.and_then(|late| late.of(known.pid, known.since)).map(Duration::from_nanos),
                ..Process::default()
            };
            calls::add(&mut process, sums.get(id.0), state);
            leave_out(&mut process, kinds);
            if kinds.errors {
                calls::add_errors(&mut process, errors.get(id.0), state);
            }
            if kinds.launches {
                kernels::add(&mut process, id, kernel_sums.get(id.0), state, &self.namer);
            }
            if kinds.memory {
                process.memory = spaces(memory.get(id.0));
                if process.memory.iter().any(|memory| memory.untracked > 0) {
                    state.notes.add(UNTRACKED.into());
                }
                suspects::add(&mut process, id, &held, &self.growth, state, &self.namer);
            }
            if let Some(known) = state.processes.get_mut(&id) {
                // The end of a process may be known before its last sums: those are read first.
                known.reported = known.is_final(read, now, process.unnamed_launches == 0);
                process.ended = known.reported;
            }
            // A child of a followed process may never call CUDA.
            if !process.calls.is_empty() {
                processes.push(process);
            }
        }
        processes.sort_by_key(|process| (process.pid, process.id));
        // Growth is measured over one display interval, regardless of how often the metrics are scraped.
        self.growth.mark(&held, now, self.options.display_interval.unwrap_or(Duration::from_secs(10)));
        Snapshot {
            time_ns: now,
            unix_ns: unix_now(),
            processes,
            devices: self.nvml.as_ref().map(Sampler::devices).unwrap_or_default(),
            kinds,
            health: self.health(maps),
        }
    }

    /// Reads the records sent before the sums were read: a kernel's name is sent before its first launch is counted.
    /// The time is limited, because a program can fill the rings without end.
    fn catch_up(&mut self) {
        let begun = Instant::now();
        while self.collector.gather() && begun.elapsed() < CATCH_UP {}
    }

    /// Returns what is counted: what the user chose, if any function that does it is watched.
    fn kinds(&self) -> Kinds {
        let Options { memleak, cudatrace, bandwidth, errors, .. } = self.options;
        let functions = &self.collector.sink.functions;
        let watched: HashSet<Role> =
            functions.values().filter_map(|function| function.known).map(|known| known.role).collect();
        let any = |role| watched.contains(&role);
        Kinds {
            memory: memleak && any(Role::Alloc),
            launches: cudatrace && any(Role::Launch),
            graphs: cudatrace && any(Role::GraphLaunch),
            copies: bandwidth && any(Role::Copy),
            sets: bandwidth && any(Role::Set),
            errors,
        }
    }

    fn health(&self, maps: Vec<(&'static str, u64, u64)>) -> Health {
        let collector = &self.collector;
        let trace = collector.trace.as_ref();
        Health {
            libraries: trace.map_or(0, |trace| trace.libraries.count() as u64),
            functions: trace.map_or(0, |trace| trace.functions.count().into()),
            late_processes: trace.map_or(0, |trace| trace.late.processes),
            late: Duration::from_nanos(trace.map_or(0, |trace| trace.late.ns)),
            missed_processes: trace.map_or(0, |trace| trace.late.missed),
            lost: self.lost(),
            maps,
            series_dropped: self.evicted,
            paused: trace.and_then(|trace| trace.libraries.pausable.as_ref()).map(Pausable::paused),
            programs: health::programs(&collector.recorder.costs()),
            cpu_seconds: health::cpu_seconds(),
            resident_bytes: health::resident_bytes(),
            notes: collector.sink.notes.all(),
        }
    }

    /// Returns what was lost, by kind.
    pub fn lost(&self) -> Vec<(&'static str, u64)> {
        let (collector, losses) = (&self.collector, self.collector.recorder.losses());
        vec![
            ("sums", losses.sums),
            ("deep_calls", losses.deep_calls),
            ("names", losses.calls + collector.sink.names_refused),
            ("stacks", losses.stacks + losses.walks + collector.unwinding.raw_dropped()),
            ("processes", losses.processes),
            ("mappings", collector.lost_mappings()),
            ("reads", losses.unread),
        ]
    }
}

/// Removes what the user did not choose: when all functions are watched for errors, more is counted.
fn leave_out(process: &mut Process, kinds: Kinds) {
    if !kinds.copies {
        process.copies.clear();
    }
    if !kinds.sets {
        process.sets = Moved::default();
    }
    if !kinds.graphs {
        process.graph_launches = 0;
    }
    if !kinds.launches {
        process.other_launches = 0;
    }
}

/// Returns memory by space, ordered.
fn spaces(sums: &[&MemorySum]) -> Vec<Memory> {
    let memory = |sum: &&MemorySum| Memory {
        space: choice::numbered(sum.space),
        live_bytes: sum.live_bytes,
        live: sum.live,
        peak_bytes: sum.peak_bytes,
        allocations: sum.allocations,
        allocated_bytes: sum.allocated_bytes,
        frees: sum.frees,
        failed: sum.failed,
        failed_frees: sum.failed_frees,
        unknown_frees: sum.unknown_frees,
        missed_frees: sum.missed_frees,
        released: sum.released,
        untracked: sum.untracked,
    };
    let mut all: Vec<Memory> = sums.iter().map(memory).collect();
    all.sort_by_key(|memory| memory.space);
    all
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
