//! The time that the programs take, as they measure it themselves.

use libbpf_rs::{MapCore, MapFlags};

use crate::{
    Recorder,
    contract::{
        read,
        types::{cost, cost_program},
    },
};

/// A program whose time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostProgram {
    /// The launch marker.
    Launch,
    /// The CPU sampler.
    Sample,
    /// The entry of a traced call.
    Enter,
    /// The return of a traced call.
    Leave,
    /// A counted event.
    Hit,
}

/// The estimated number of runs of a program and the time that they took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramCost {
    /// The program.
    pub program: CostProgram,
    /// Runs.
    pub runs: u64,
    /// Nanoseconds in the program. The kernel's work to start it, such as a trap, is not included.
    pub ns: u64,
}

impl Recorder {
    /// Returns the cost of every program that has run.
    pub fn costs(&self) -> Vec<ProgramCost> {
        let all = [
            (CostProgram::Launch, cost_program::COST_LAUNCH),
            (CostProgram::Sample, cost_program::COST_SAMPLE),
            (CostProgram::Enter, cost_program::COST_ENTER),
            (CostProgram::Leave, cost_program::COST_LEAVE),
            (CostProgram::Hit, cost_program::COST_HIT),
        ];
        let of = |(program, number): (CostProgram, cost_program)| {
            let values = self.skel.maps.costs.lookup_percpu(&number.0.to_ne_bytes(), MapFlags::ANY);
            let each = values.ok().flatten().unwrap_or_default();
            let (runs, ns) = each
                .iter()
                .filter_map(|value| read::<cost>(value))
                .fold((0_u64, 0_u64), |(runs, ns), cost| (runs.saturating_add(cost.runs), ns.saturating_add(cost.ns)));
            ProgramCost { program, runs, ns }
        };
        all.into_iter().map(of).filter(|cost| cost.runs > 0).collect()
    }
}
