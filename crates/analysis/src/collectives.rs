//! What the ranks of a program communicated, and who made the others wait.
//!
//! Known from the communicators' own numbers ([`model::communication`]): exact on one host, where all clocks are one.

mod delays;
mod reasons;

use std::collections::BTreeMap;

use model::{
    communication::{Member, Operation, Reasons},
    event::{self, ProcessId, SessionId},
    profile::Profile,
};
use serde::Serialize;

pub use self::{
    delays::{Delay, Delays, find as delays, sum},
    reasons::find as reasons,
};
use crate::{
    user_code::{Place, UserCode},
    waits,
};

/// The operations of one kind on one communicator.
#[derive(Clone, Debug, Serialize)]
pub struct Collective {
    /// The communicator.
    pub communicator: String,
    /// Its members.
    pub members: u32,
    /// What is called: `all_reduce`, `send_receive`, or `other` for a group of different calls.
    pub operation: event::Operation,
    /// How often.
    pub count: u64,
    /// What each member passed, added up.
    pub bytes: u64,
    /// The time in which all took part, added up: from the start of the last one to the end of the first one.
    pub transfer_ns: u64,
    /// The time that members waited for the last one, added up.
    pub waited_ns: u64,
    /// The bus bandwidth as nccl-tests define it, in the time in which all took part. Absent for operations without such a
    /// definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus_bytes_per_second: Option<f64>,
}

/// A process that made others wait.
#[derive(Clone, Debug, Serialize)]
pub struct Late {
    /// Its CUDA process.
    #[serde(skip)]
    pub session: SessionId,
    /// Its rank, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The process.
    pub pid: u32,
    /// Operations in which others waited for it.
    pub count: u64,
    /// Operations in which it took part.
    pub of: u64,
    /// The time that the others waited for it, added up over them.
    pub waited_ns: u64,
    /// The time by which it delayed collective operations itself, and its GPU had been idle.
    pub host_ns: u64,
    /// And the rest, when its GPU had been busy.
    pub gpu_ns: u64,
    /// What its thread did while its GPU was idle, the longest first. Absent if nothing is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instead: Vec<Instead>,
}

/// What a thread did while others waited for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Instead {
    /// The line of user code.
    pub place: Place,
    /// Why it waited, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long.
    pub ns: u64,
    /// The samples that this is based on; 0 for a wait, which is exact.
    pub samples: u64,
}

/// The most things that a late process did are listed.
const MOST_INSTEAD: usize = 5;

/// Returns the operations by communicator and kind, those with the longest waits first.
pub fn by_communicator(profile: &Profile) -> Vec<Collective> {
    let all = &profile.whole().communication;
    let mut sums: BTreeMap<(u64, event::Operation), (Collective, f64)> = BTreeMap::new();
    for operation in &all.operations {
        let members = all.members_of(operation);
        let transfer = Operation::transfer(members);
        let (sum, bus) = sums.entry((operation.communicator, operation.operation)).or_insert_with(|| {
            let size = all.communicators.get(&operation.communicator).map_or(0, |known| known.size);
            let sum = Collective {
                communicator: format!("{:016x}", operation.communicator),
                members: size,
                operation: operation.operation,
                count: 0,
                bytes: 0,
                transfer_ns: 0,
                waited_ns: 0,
                bus_bytes_per_second: None,
            };
            (sum, 0.0)
        });
        sum.count += 1;
        sum.bytes = sum.bytes.saturating_add(operation.bytes);
        sum.transfer_ns = sum.transfer_ns.saturating_add(transfer);
        sum.waited_ns = members.iter().fold(sum.waited_ns, |sum, member| sum.saturating_add(member.waited));
        *bus += operation.operation.bus_bytes(operation.bytes, sum.members).unwrap_or(f64::NAN);
    }
    let mut rows: Vec<Collective> = sums.into_values().map(with_bandwidth).collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.waited_ns, row.transfer_ns)));
    rows
}

fn with_bandwidth((mut sum, bus): (Collective, f64)) -> Collective {
    sum.bus_bytes_per_second = (sum.transfer_ns > 0 && bus.is_finite()).then(|| bus / (sum.transfer_ns as f64 / 1e9));
    sum
}

/// Returns the processes that made others wait: those that were late themselves first, then by the waits.
pub fn late(profile: &Profile, code: &UserCode<'_>) -> Vec<Late> {
    let profile = profile.whole();
    let all = &profile.communication;
    let mut sums: BTreeMap<SessionId, (u64, u64, u64)> = BTreeMap::new();
    for operation in &all.operations {
        let members = all.members_of(operation);
        let mut caused = vec![0_u64; members.len()];
        for member in members {
            if let Some(caused) = caused.get_mut(member.waited_for as usize) {
                *caused = caused.saturating_add(member.waited);
            }
        }
        for (Member { session, .. }, caused) in members.iter().zip(caused) {
            let (count, of, ns) = sums.entry(*session).or_default();
            *count += u64::from(caused > 0);
            *of += 1;
            *ns = ns.saturating_add(caused);
        }
    }
    let row = |(session, (count, of, waited_ns)): (SessionId, (u64, u64, u64))| {
        let info = profile.sessions.get(&session);
        let (rank, pid) = rank_and_pid(profile, session);
        let reasons = all.reasons.get(&session);
        let instead = info.zip(reasons).map(|(info, reasons)| instead(profile, code, info.process, reasons));
        let (host_ns, gpu_ns) = reasons.map_or((0, 0), |reasons| (reasons.host_ns, reasons.gpu_ns));
        Late { session, rank, pid, count, of, waited_ns, host_ns, gpu_ns, instead: instead.unwrap_or_default() }
    };
    let mut rows: Vec<Late> = sums.into_iter().filter(|(_, (.., ns))| *ns > 0).map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.host_ns.saturating_add(row.gpu_ns), row.waited_ns)));
    rows
}

fn rank_and_pid(profile: &Profile, session: SessionId) -> (Option<u32>, u32) {
    let rank = profile.ranks.all.iter().find(|(_, info)| info.sessions.contains(&session)).map(|(rank, _)| *rank);
    let process = profile.sessions.get(&session).and_then(|info| profile.processes.get(&info.process));
    (rank, process.map_or(0, |process| process.pid))
}

/// Names a CUDA process: `rank 5`, or `process 4711`.
pub fn who(profile: &Profile, session: SessionId) -> String {
    match rank_and_pid(profile, session) {
        (Some(rank), _) => format!("rank {rank}"),
        (None, pid) => format!("process {pid}"),
    }
}

/// Returns what a thread did while others waited for it, by line of user code.
fn instead(profile: &Profile, code: &UserCode<'_>, process: ProcessId, reasons: &Reasons) -> Vec<Instead> {
    let mut sums: BTreeMap<(Place, Option<String>), (u64, u64)> = BTreeMap::new();
    for (stack, (ns, samples)) in &reasons.ran {
        let sum = sums.entry((code.place(process, *stack), None)).or_default();
        *sum = (sum.0.saturating_add(*ns), sum.1 + samples);
    }
    for ((stack, reason), ns) in &reasons.waited {
        let reason = waits::reason_of(profile, *reason, Some(*stack)).to_owned();
        let sum = sums.entry((code.place(process, *stack), Some(reason))).or_default();
        sum.0 = sum.0.saturating_add(*ns);
    }
    let row = |((place, reason), (ns, samples))| Instead { place, reason, ns, samples };
    let mut rows: Vec<Instead> = sums.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.ns));
    rows.truncate(MOST_INSTEAD);
    rows
}
