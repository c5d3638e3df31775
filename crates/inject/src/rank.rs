//! The place of this process in a distributed program, by its environment. Programs that start their own workers set the
//! variables in the worker itself, so they are read here, and not from the process's initial environment.

use crate::environment;
use crate::queue::QUEUE;

/// Sends the rank, and whether the Multi-Process Service is used, if anything is known.
pub fn announce() {
    let number = |name: &str| environment::variable(name)?.trim().parse::<u32>().ok();
    let found = (0_u8..).zip(wire::RANK_VARIABLES).find_map(|(source, (rank, local))| {
        let rank = number(rank)?;
        Some(wire::Rank { rank, local: number(local).unwrap_or(u32::MAX), source, mps: 0 })
    });
    let mps = environment::bytes(wire::MPS_VARIABLE).is_some_and(|directory| !directory.is_empty());
    if found.is_none() && !mps {
        return;
    }
    let rank = found.unwrap_or(wire::Rank { rank: u32::MAX, local: u32::MAX, source: 0, mps: 0 });
    let mut bytes = [0; wire::Rank::SIZE];
    wire::Rank { mps: mps.into(), ..rank }.encode(&mut bytes);
    QUEUE.append(&bytes, 0);
}
