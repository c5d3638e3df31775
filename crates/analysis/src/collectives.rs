//! What the ranks of a program communicated, and who made the others wait.
//!
//! Known from the communicators' own numbers ([`model::communication`]): exact on one host, where all clocks are one.

use std::collections::BTreeMap;

use model::{
    communication::{Member, Operation},
    event::{self, SessionId},
    profile::Profile,
};
use serde::Serialize;

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
}

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

/// Returns the processes that made others wait, the longest waits first.
pub fn late(profile: &Profile) -> Vec<Late> {
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
    let ranks =
        |session| profile.ranks.all.iter().find(|(_, info)| info.sessions.contains(&session)).map(|(rank, _)| *rank);
    let row = |(session, (count, of, waited_ns)): (SessionId, (u64, u64, u64))| {
        let process = profile.sessions.get(&session).and_then(|info| profile.processes.get(&info.process));
        Late { rank: ranks(session), pid: process.map_or(0, |process| process.pid), count, of, waited_ns }
    };
    let mut rows: Vec<Late> = sums.into_iter().filter(|(_, (.., ns))| *ns > 0).map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.waited_ns));
    rows
}
