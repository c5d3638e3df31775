//! What was concluded about jobs and their ranks.

use model::hang::{State, Thread};
use serde::Serialize;

use crate::user_code::Place;

/// What the hosts that were watched say about their jobs.
#[derive(Clone, Debug, Serialize)]
pub struct Hang<'a> {
    /// The jobs, by name.
    pub jobs: Vec<Job<'a>>,
    /// What could not be seen, by host.
    pub notes: Vec<String>,
}

/// A job, and its ranks on the hosts that were watched.
#[derive(Clone, Debug, Serialize)]
pub struct Job<'a> {
    /// What its ranks have in common; empty if unknown.
    pub job: &'a str,
    /// The conclusion.
    pub verdict: Verdict,
    /// The conclusion as a sentence.
    pub text: String,
    /// The number of ranks, if it is known.
    pub world_size: Option<u32>,
    /// For how long each of them was watched at least.
    pub watched_ns: u64,
    /// The processes, by rank.
    pub ranks: Vec<Rank<'a>>,
    /// Ranks that have no process on the host where they belong.
    pub gone: Vec<u32>,
    /// Other ranks that have not been found.
    pub not_found: Vec<u32>,
}

/// A conclusion about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Some ranks waited all the time, and others were elsewhere, or are gone.
    NotArrived,
    /// All ranks waited all the time, in different calls or at different lines.
    Apart,
    /// All ranks that were found waited all the time in the same place.
    Together,
    /// No rank waited all the time.
    NoneWaits,
}

/// A process of a job, and what it does.
#[derive(Clone, Debug, Serialize)]
pub struct Rank<'a> {
    /// Its rank, if known.
    pub rank: Option<u32>,
    /// Its process.
    pub pid: u32,
    /// Its host.
    pub host: &'a str,
    /// The process ended while it was watched.
    pub ended: bool,
    /// The thread that shows what it does; absent if there was none.
    pub tid: Option<u32>,
    /// What it does.
    pub doing: Doing,
    /// The call, if it is in one.
    pub call: Option<String>,
    /// The innermost line of its own code; outside of the call.
    pub place: Option<Place>,
    /// What the thread does, as the system sees it.
    pub state: State,
    /// It stayed there while it was watched.
    pub throughout: bool,
    /// That thread.
    #[serde(skip)]
    pub thread: Option<&'a Thread>,
}

/// What a rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// It is in a call that needs other ranks.
    InCollective,
    /// It waits for its GPU.
    WaitsForGpu,
    /// Neither.
    Elsewhere,
}

impl Rank<'_> {
    /// Whether it waited all the time.
    pub fn waits(&self) -> bool {
        self.doing != Doing::Elsewhere && self.throughout && !self.ended
    }
}
