//! The ranks of a distributed program: their work, their communication, and which ranks the others waited for.

use std::collections::BTreeSet;

use model::{
    profile::{Profile, What},
    ranks::is_communication,
};
use serde::Serialize;
use text::units::share;

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One rank.
#[derive(Clone, Debug, Serialize)]
pub struct Rank {
    /// Its number.
    pub rank: u32,
    /// Its number on this machine, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_rank: Option<u32>,
    /// The environment variable with its number.
    pub variable: String,
    /// Its CUDA processes.
    pub pids: Vec<u32>,
    /// The GPUs that it used, as shown.
    pub devices: Vec<String>,
    /// Time in which at least one of its kernels, copies or memsets ran.
    pub busy_ns: u64,
    /// The same as a share of the recording.
    pub busy_share: f64,
    /// The end of its last work, since the start of the recording.
    pub end_ns: u64,
    /// Durations of its kernels, copies and memsets, added up.
    pub gpu_time_ns: u64,
    /// Kernels, copies and memsets.
    pub operations: u64,
    /// Launches.
    pub launches: u64,
    /// Communication kernels (NCCL).
    pub communication_kernels: u64,
    /// Their durations, added up.
    pub communication_ns: u64,
    /// The same as a share of `gpu_time_ns`.
    pub communication_share: f64,
    /// Time in which only communication kernels ran.
    pub exposed_ns: u64,
    /// Time that its communication kernels waited for other ranks to start theirs.
    pub waited_ns: u64,
    /// The same for each rank that it waited for.
    pub waited_for: Vec<WaitedFor>,
    /// Collective operations that it started last.
    pub started_last: u64,
}

/// Time that a rank waited for another one.
#[derive(Clone, Debug, Serialize)]
pub struct WaitedFor {
    /// The rank that started last.
    pub rank: u32,
    /// How long.
    pub ns: u64,
}

/// Communication kernels (NCCL) of all processes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Communication {
    /// Kernels.
    pub kernels: u64,
    /// Their durations, added up.
    pub ns: u64,
    /// Their share of `gpu_time_ns`, 0 to 1.
    pub share: f64,
    /// Operations whose members all took part, as the basis of `ranks[].waited_ns`.
    pub collectives: u64,
    /// Kernels that could not be assigned to one.
    pub unassigned: u64,
    /// What the program called is not known: the k-th run of a kernel on each rank is taken for one operation, if all ranks ran
    /// that kernel equally often.
    pub assumed: bool,
    /// Communicators whose members called different operations; nothing after that is joined.
    pub mismatches: u64,
    /// Kernels that began before those of another host, by less than their clocks may be wrong: nobody is said to have waited.
    #[serde(skip_serializing_if = "is_zero")]
    pub within_bound: u64,
}

impl Rank {
    /// Returns the selected ranks, with all that they did.
    pub(super) fn of(profile: &Profile, wall_ns: u64) -> Vec<Self> {
        let selected = &profile.ranks.all;
        let profile = profile.whole();
        let start = profile.start.as_ref().map_or(0, |start| start.time);
        let streams =
            |info: &model::profile::DeviceInfo| info.streams.iter().map(|(id, ..)| *id).collect::<BTreeSet<_>>();
        let devices: Vec<_> = profile.devices.values().map(|info| (&info.label, streams(info))).collect();
        let rank = |(rank, info): (&u32, &model::ranks::RankInfo)| {
            let used = |(_, sessions): &&(&String, BTreeSet<_>)| !sessions.is_disjoint(&info.sessions);
            let process = |id| profile.processes.get(&profile.sessions.get(id)?.process);
            let pids: BTreeSet<u32> = info.sessions.iter().filter_map(process).map(|process| process.pid).collect();
            Self {
                rank: *rank,
                local_rank: info.local,
                variable: info.variable.clone(),
                pids: pids.into_iter().collect(),
                devices: devices.iter().filter(used).map(|(label, _)| (*label).clone()).collect(),
                busy_ns: info.busy_ns,
                busy_share: share(info.busy_ns, wall_ns),
                end_ns: info.end.saturating_sub(start),
                gpu_time_ns: info.gpu_ns,
                operations: info.operations,
                launches: info.launches,
                communication_kernels: info.communication,
                communication_ns: info.communication_ns,
                communication_share: share(info.communication_ns, info.gpu_ns),
                exposed_ns: info.exposed_ns,
                waited_ns: info.waited_ns(),
                waited_for: info.waited.iter().map(|(rank, ns)| WaitedFor { rank: *rank, ns: *ns }).collect(),
                started_last: info.last,
            }
        };
        profile.ranks.all.iter().filter(|(rank, _)| selected.contains_key(rank)).map(rank).collect()
    }
}

impl Communication {
    pub(super) fn of(profile: &Profile, gpu_time_ns: u64) -> Option<Self> {
        let ranks = &profile.whole().ranks;
        let model::communication::Communication { ref mismatches, within_bound, .. } = profile.whole().communication;
        let mismatches = mismatches.len() as u64;
        let (collectives, unassigned, assumed) = (ranks.collectives, ranks.unassigned, ranks.assumed);
        let mut all = Self { collectives, unassigned, assumed, mismatches, within_bound, ..Self::default() };
        for (key, weight) in &profile.gpu {
            let What::Kernel(index) = key.what else { continue };
            if profile.kernel_names.get(index as usize).is_some_and(|name| is_communication(&name.mangled)) {
                all.kernels = all.kernels.saturating_add(weight.count);
                all.ns = all.ns.saturating_add(weight.ns);
            }
        }
        all.share = share(all.ns, gpu_time_ns);
        (all.kernels > 0).then_some(all)
    }
}
