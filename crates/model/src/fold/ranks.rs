//! Adds up the work of each rank, and finds out which ranks waited for which.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::busy::BusyTime;
use crate::{
    communication::{Communication, Member},
    event::{Activity, Rank, SessionId},
    ranks::{RankInfo, Ranks, is_collective, is_communication},
};

/// The maximum number of ranks; the processes of others have no rank.
const MAX_RANKS: usize = 1024;
/// Disjoint intervals of busy time that stay open to late arrivals, per rank.
const KEPT: usize = 4096;
/// The maximum number of kernels of collective operations whose start is kept: 32 MB.
const MAX_STARTS: usize = 4 << 20;

/// The work of all ranks.
#[derive(Default)]
pub struct RankWork {
    /// By rank.
    all: BTreeMap<u32, Work>,
    by_session: FxHashMap<SessionId, u32>,
    /// The starts of the kernels of collective operations, by kernel and rank.
    starts: BTreeMap<(u32, u32), Vec<u64>>,
    kept: usize,
    dropped: u64,
    /// What each kernel is, by the index of its name.
    kinds: FxHashMap<u32, Kind>,
}

struct Work {
    info: RankInfo,
    busy: BusyTime,
    /// The time in which something else than communication ran.
    computing: BusyTime,
}

/// What a kernel is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Computation,
    Communication,
    Collective,
}

impl RankWork {
    /// Whether no process has a rank.
    pub fn is_empty(&self) -> bool {
        self.by_session.is_empty()
    }

    /// Adds what a session reports about its rank. Only the first report counts.
    pub fn describe(&mut self, rank: &Rank) {
        let Some(number) = rank.rank else { return };
        if self.by_session.contains_key(&rank.session)
            || (self.all.len() >= MAX_RANKS && !self.all.contains_key(&number))
        {
            return;
        }
        let work = self.all.entry(number).or_insert_with(|| Work {
            info: RankInfo { local: rank.local, variable: rank.variable.clone(), ..RankInfo::default() },
            busy: BusyTime::new(KEPT),
            computing: BusyTime::new(KEPT),
        });
        work.info.sessions.insert(rank.session);
        self.by_session.insert(rank.session, number);
    }

    /// Adds a launch.
    pub fn launch(&mut self, session: SessionId) {
        if let Some(work) = self.by_session.get(&session).and_then(|rank| self.all.get_mut(rank)) {
            work.info.launches += 1;
        }
    }

    /// Adds an activity. For a kernel, `name` returns the index and the text of its name.
    pub fn activity<'a>(&mut self, activity: &Activity, name: impl FnOnce() -> Option<(u32, &'a str)>) {
        let Some(&rank) = self.by_session.get(&activity.session) else { return };
        let Some(Work { info, busy, computing }) = self.all.get_mut(&rank) else { return };
        let ns = activity.duration();
        info.operations += 1;
        info.gpu_ns = info.gpu_ns.saturating_add(ns);
        if activity.start != 0 {
            busy.add(activity.start, activity.end);
            info.end = info.end.max(activity.end);
        }
        let kinds = &mut self.kinds;
        let mut kind_of = |(index, name): (u32, &str)| {
            let kind = || match (is_communication(name), is_collective(name)) {
                (_, true) => Kind::Collective,
                (true, _) => Kind::Communication,
                _ => Kind::Computation,
            };
            (index, *kinds.entry(index).or_insert_with(kind))
        };
        let kernel = name().map(&mut kind_of).filter(|(_, kind)| *kind != Kind::Computation);
        let Some((index, kind)) = kernel else {
            if activity.start != 0 {
                computing.add(activity.start, activity.end);
            }
            return;
        };
        info.communication += 1;
        info.communication_ns = info.communication_ns.saturating_add(ns);
        if kind == Kind::Collective && activity.start != 0 {
            if self.kept < MAX_STARTS {
                self.kept += 1;
                self.starts.entry((index, rank)).or_default().push(activity.start);
            } else {
                self.dropped += 1;
            }
        }
    }

    /// Ends the sums. Where communicators are known, ranks waited as these say; otherwise the k-th run of a kernel on one rank is
    /// taken for the k-th run on another.
    pub fn finish(self, communication: &Communication) -> Ranks {
        let mut ranks = Ranks { unassigned: self.dropped, ..Ranks::default() };
        for (rank, Work { mut info, mut busy, mut computing }) in self.all {
            info.busy_ns = busy.total();
            info.exposed_ns = info.busy_ns.saturating_sub(computing.total());
            ranks.all.insert(rank, info);
        }
        if !communication.communicators.is_empty() {
            add_known(&mut ranks, communication, &self.by_session);
            return ranks;
        }
        ranks.assumed = true;
        // Without communication kernels, a rank takes part in nothing: it may not have begun.
        let members: Vec<u32> =
            ranks.all.iter().filter(|(_, info)| info.communication > 0).map(|(rank, _)| *rank).collect();
        let mut kernels: BTreeMap<u32, BTreeMap<u32, Vec<u64>>> = BTreeMap::new();
        for ((kernel, rank), mut starts) in self.starts {
            starts.sort_unstable();
            kernels.entry(kernel).or_default().insert(rank, starts);
        }
        for of_kernel in kernels.into_values() {
            let runs = of_kernel.values().map(Vec::len).max().unwrap_or(0);
            let agree = members.len() > 1 && self.dropped == 0 && of_kernel.len() == members.len();
            if !agree || of_kernel.values().any(|starts| starts.len() != runs) {
                ranks.unassigned += of_kernel.values().map(|starts| starts.len() as u64).sum::<u64>();
                continue;
            }
            for run in 0..runs {
                collective(&mut ranks, of_kernel.iter().map(|(rank, starts)| (*rank, starts[run])));
            }
        }
        ranks
    }
}

/// Adds the operations of communicators.
fn add_known(ranks: &mut Ranks, communication: &Communication, rank_of: &FxHashMap<SessionId, u32>) {
    (ranks.collectives, ranks.unassigned) =
        (communication.operations.len() as u64, communication.unidentified + communication.incomplete);
    for operation in &communication.operations {
        let members = communication.members_of(operation);
        let rank = |member: &Member| rank_of.get(&member.session).copied();
        let last = members.iter().max_by_key(|member| member.start).and_then(rank);
        if let Some(info) = last.and_then(|last| ranks.all.get_mut(&last)) {
            info.last += 1;
        }
        for member in members.iter().filter(|member| member.waited > 0) {
            let (own, other) = (rank(member), members.get(member.waited_for as usize).and_then(rank));
            if let (Some(info), Some(other)) = (own.and_then(|own| ranks.all.get_mut(&own)), other) {
                let sum = info.waited.entry(other).or_default();
                *sum = sum.saturating_add(member.waited);
            }
        }
    }
}

/// Adds one collective operation: when each rank started it.
fn collective(ranks: &mut Ranks, starts: impl Iterator<Item = (u32, u64)> + Clone) {
    let Some((last, end)) = starts.clone().max_by_key(|(_, start)| *start) else { return };
    ranks.collectives += 1;
    if let Some(info) = ranks.all.get_mut(&last) {
        info.last += 1;
    }
    for (rank, start) in starts.filter(|(rank, _)| *rank != last) {
        if let Some(info) = ranks.all.get_mut(&rank) {
            let sum = info.waited.entry(last).or_default();
            *sum = sum.saturating_add(end - start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Work as What;

    fn work() -> RankWork {
        let mut work = RankWork::default();
        for rank in 0..3 {
            let variable = "RANK".to_owned();
            work.describe(&Rank { session: SessionId(rank), rank: Some(rank), local: None, variable, mps: false });
        }
        work
    }

    fn add(work: &mut RankWork, rank: u32, name: (u32, &'static str), start: u64, end: u64) {
        let kernel = What::Kernel { name: 1, grid: [1; 3], block: [1; 3], registers: 0, shared_memory: 0 };
        let activity = Activity { session: SessionId(rank), start, end, work: kernel, ..Activity::default() };
        work.activity(&activity, || Some(name));
    }

    const REDUCE: (u32, &str) = (1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
    const GATHER: (u32, &str) = (2, "ncclDevKernel_AllGather_RING_LL");
    const GEMM: (u32, &str) = (3, "gemm");

    /// ```text
    ///   rank 0   10 ####====== 30      50 ===## 60
    ///   rank 1     14 ##====== 30   48 ##====## 60
    ///   rank 2          20 === 30        52 === 60
    /// ```
    #[test]
    fn ranks_wait_for_the_last_one() {
        let mut work = work();
        // Records arrive in any order.
        for (rank, start, end) in [(0, 50, 60), (0, 10, 30), (1, 14, 30), (1, 48, 60), (2, 52, 60), (2, 20, 30)] {
            add(&mut work, rank, REDUCE, start, end);
        }
        add(&mut work, 1, GEMM, 25, 40);
        let ranks = work.finish(&Communication::default());
        assert_eq!((ranks.collectives, ranks.unassigned), (2, 0));
        assert_eq!(ranks.all[&0].waited, [(2, 10 + 2)].into());
        assert_eq!(ranks.all[&1].waited, [(2, 6 + 4)].into());
        assert_eq!((ranks.all[&2].waited_ns(), ranks.all[&2].last), (0, 2));
        let one = &ranks.all[&1];
        assert_eq!((one.operations, one.communication, one.communication_ns), (3, 2, 28));
        assert_eq!((one.gpu_ns, one.busy_ns), (43, 26 + 12));
    }

    /// Check that nothing is claimed about a kernel that ranks ran unequally often, or that some did not run.
    #[test]
    fn unequal_counts_are_not_assigned() {
        let mut work = work();
        for rank in 0..3 {
            add(&mut work, rank, REDUCE, 10 + u64::from(rank), 20);
        }
        add(&mut work, 0, REDUCE, 30, 40);
        add(&mut work, 0, GATHER, 50, 60);
        add(&mut work, 1, GATHER, 55, 60);
        let ranks = work.finish(&Communication::default());
        assert_eq!((ranks.collectives, ranks.unassigned), (0, 6));
        assert!(ranks.all.values().all(|info| info.waited.is_empty()));
    }
}
