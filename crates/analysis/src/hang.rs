//! Which ranks of a job wait for others, and which have not arrived.
//!
//! A rank waits if a thread is in a call that returns only when others take part (a collective operation), or in one that waits for the
//! GPU, and has not left it while it was watched: the code around that call stayed where it was. Everything else is elsewhere,
//! by line. That says nothing about the future: a slow rank looks like a stuck one, so the time that was watched is
//! part of every verdict.

mod calls;
pub mod file;
mod job;
mod places;
mod sentence;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use self::calls::Call;
pub use self::{
    calls::frames_of_call,
    job::{Doing, Hang, Job, Rank, Verdict},
    sentence::state,
};
use model::hang::{Host, Process, State, Thread};

impl<'a> Hang<'a> {
    /// Concludes from what was seen on some hosts.
    pub fn of(hosts: &'a [Host]) -> Self {
        let mut jobs: BTreeMap<(&str, &str), Vec<(&Host, &Process)>> = BTreeMap::new();
        for host in hosts {
            for process in &host.processes {
                // Processes that share nothing else were at least selected together.
                let own = if process.place.job.is_empty() { host.host.as_str() } else { "" };
                jobs.entry((&process.place.job, own)).or_default().push((host, process));
            }
        }
        let jobs = jobs.into_iter().map(|((job, _), processes)| Job::of(job, &processes)).collect();
        let notes = hosts.iter().flat_map(|host| host.notes.iter().map(move |note| format!("{}: {note}", host.host)));
        Self { jobs, notes: notes.collect() }
    }

    /// Whether ranks of a job wait for others that are elsewhere, or in different places.
    pub fn is_stuck(&self) -> bool {
        self.jobs.iter().any(|job| matches!(job.verdict, Verdict::NotArrived | Verdict::Apart))
    }
}

impl<'a> Job<'a> {
    fn of(job: &'a str, processes: &[(&'a Host, &'a Process)]) -> Self {
        let mut ranks: Vec<Rank<'a>> = processes.iter().map(|(host, process)| rank(host, process)).collect();
        ranks.sort_by_key(|rank| (rank.rank.unwrap_or(u32::MAX), rank.host, rank.pid));
        let world_size = processes.iter().filter_map(|(_, process)| process.place.world_size).max();
        let watched_ns = processes.iter().map(|(host, _)| host.watched_ns).min().unwrap_or(0);
        let (gone, not_found) = missing(processes, world_size);
        let mut job = Self {
            job,
            verdict: Verdict::NoneWaits,
            text: String::new(),
            world_size,
            watched_ns,
            ranks,
            gone,
            not_found,
        };
        job.verdict = job.conclude();
        job.text = sentence::of(&job);
        job
    }

    fn conclude(&self) -> Verdict {
        let waiting = self.ranks.iter().filter(|rank| rank.waits()).count();
        if waiting == 0 {
            return Verdict::NoneWaits;
        }
        if waiting < self.ranks.len() || !self.gone.is_empty() {
            return Verdict::NotArrived;
        }
        let places: BTreeSet<_> = self.ranks.iter().map(|rank| (&rank.call, &rank.place)).collect();
        if places.len() > 1 { Verdict::Apart } else { Verdict::Together }
    }
}

/// The most ranks of a program that are counted: its size is what an environment says.
const MOST_RANKS: u32 = 1 << 17;

/// Returns the ranks that have no process where they belong, and other ranks that were not found. The ranks of a host follow each
/// other if its processes know their number: this is how launchers assign them.
fn missing(processes: &[(&Host, &Process)], world_size: Option<u32>) -> (Vec<u32>, Vec<u32>) {
    let found: BTreeSet<u32> = processes.iter().filter_map(|(_, process)| process.place.rank).collect();
    let Some(size) = world_size.filter(|size| !found.is_empty() && *size <= MOST_RANKS) else {
        return (Vec::new(), Vec::new());
    };
    let here = |rank: u32| {
        processes.iter().any(|(_, process)| {
            let place = &process.place;
            let Some(((own, local), count)) = place.rank.zip(place.local_rank).zip(place.local_world_size) else {
                return false;
            };
            own.checked_sub(local).is_some_and(|first| rank >= first && rank - first < count)
        })
    };
    (0..size).filter(|rank| !found.contains(rank)).partition(|rank| here(*rank))
}

fn rank<'a>(host: &'a Host, process: &'a Process) -> Rank<'a> {
    let call = shown(process);
    let thread = call.as_ref().map(|(thread, _)| *thread);
    let call = call.and_then(|(_, call)| call);
    let outer = thread.map_or(&[][..], |thread| &thread.frames[call.as_ref().map_or(0, |call| call.frames)..]);
    let same = |thread: &Thread| !outer.is_empty() && thread.kept as usize >= outer.len();
    let throughout = thread.is_some_and(|thread| match thread.returned.filter(|_| call.is_some()) {
        _ if !thread.ran => true,
        Some(returned) => returned == 0,
        None => same(thread),
    });
    Rank {
        rank: process.place.rank,
        pid: process.pid,
        host: &host.host,
        ended: process.ended,
        tid: thread.map(|thread| thread.tid),
        doing: call.as_ref().map_or(Doing::Elsewhere, |call| call.doing),
        place: places::innermost(outer, &process.program),
        call: call.map(|call| call.name),
        state: thread.map_or(State::Other, |thread| thread.state),
        throughout,
        thread,
    }
}

/// Returns the thread that shows what a process does, and the call it is in. This is the first one, unless that waits for
/// another thread, and one of the others is in a call: PyTorch's backward pass runs on threads of its own.
fn shown(process: &Process) -> Option<(&Thread, Option<Call>)> {
    let first = process.threads.first()?;
    let own = calls::outermost(&first.frames);
    if own.is_some() || first.state != State::Lock {
        return Some((first, own));
    }
    let others = process.threads[1..].iter().filter_map(|thread| Some((thread, calls::outermost(&thread.frames)?)));
    let call = others.min_by_key(|(_, call)| call.doing == Doing::WaitsForGpu);
    Some(call.map_or((first, None), |(thread, call)| (thread, Some(call))))
}
