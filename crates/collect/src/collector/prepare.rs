//! Preparation before anything is written: loads programs, compiles tables, starts watching mappings.

use std::{
    collections::{BTreeMap, VecDeque},
    path::PathBuf,
    time::Duration,
};

use anyhow::Context;
use bpf::{Mappings, Recorder, Share};
use elf::Budget;
use model::event::{Event, Note};
use symbols::Kept;

use super::parts::Collector;
use crate::{
    command::{limits, signals::Signals},
    handover::Handovers,
    process::{images::Images, procfs, reused::Reused, scans::Scans, thread_ids::ThreadIds},
    sessions::Sessions,
    sink::Sink,
    stacks::{
        python::Pythons,
        unwinding::{Early, Unwinding},
    },
};

/// How to collect.
#[derive(Default)]
pub struct Options {
    /// What the BPF programs do.
    pub programs: bpf::Options,
    /// The injected libraries, if there are any.
    pub sessions: Option<Sessions>,
    /// Put Python frames into stacks.
    pub python: bool,
    /// Files that the command will map: their unwind tables, and those of the libraries that warpscope itself has
    /// mapped, are compiled before the command starts. `None` compiles nothing in advance.
    pub expected: Option<Vec<PathBuf>>,
    /// How much memory and time may be used.
    pub limits: Limits,
}

/// How much memory and time may be used.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Raw stacks that wait for their tables, about 33 KiB each.
    raw_stacks: usize,
    /// Limits on the sizes of files and tables.
    budget: Budget,
    /// How long to wait for a table if stacks would be truncated without it.
    table: Duration,
    /// Compile only the functions that occur on stacks.
    on_demand: bool,
    /// The memory for mapping records.
    mappings: Share,
}

impl Limits {
    /// For a recording, which may wait.
    pub const RECORDING: Self = Self {
        raw_stacks: 4096,
        budget: Budget::RECORDING,
        table: Duration::from_secs(10),
        on_demand: false,
        mappings: Share::RECORDING,
    };
    /// For a daemon, where scrapes have priority: a stack through a library that has just replaced another may end
    /// there. It takes few stacks, and PyTorch's tables have 70 MiB: only the functions that occur on stacks are compiled.
    pub const DAEMON: Self = Self {
        raw_stacks: 128,
        budget: Budget::DAEMON,
        table: Duration::ZERO,
        on_demand: true,
        mappings: Share::DAEMON,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::RECORDING
    }
}

/// A collector without a sink.
pub struct Prepared {
    recorder: Recorder,
    mappings: Result<Mappings, bpf::Error>,
    sessions: Option<Sessions>,
    kept: Kept,
    unwinding: Unwinding,
    pythons: Option<Pythons>,
    handovers: Option<Handovers>,
    period: u64,
}

impl Prepared {
    /// Loads the programs and compiles the first unwind tables.
    pub fn new(options: Options) -> anyhow::Result<Self> {
        let Options { programs, mut sessions, python, expected, limits } = options;
        let Limits { raw_stacks, budget, table, on_demand, mappings } = limits;
        let mut kept = Kept::new(limits::raise());
        let early = Early::start(&budget, on_demand);
        let mut early = early.context("cannot start the thread for unwind tables")?;
        for pid in &programs.found {
            early.queue(*pid, &mut kept.files);
        }
        let expected = expected.map(|expected| early.expect(&mut kept.files, &expected)).unwrap_or_default();
        let recorder = Recorder::start(&programs)?;
        let mut unwinding = Unwinding::new(recorder.unwind_maps()?, raw_stacks, table, early);
        unwinding.await_all(&expected);
        let mut pythons = if python { Some(Pythons::new(recorder.python_maps()?)) } else { None };
        if let Some(pythons) = &mut pythons {
            pythons.expect(&expected, &kept.files);
        }
        let period = programs.sample_hz.map_or(0, |hz| 1_000_000_000 / u64::from(hz.max(1)));
        let handovers = programs.handover.then(|| Handovers::new(programs.forward));
        let mappings = Mappings::watch(mappings);
        if let (Some(sessions), Ok(handed_calls)) = (&mut sessions, recorder.handed_calls()) {
            sessions.share_handed_calls(handed_calls);
        }
        Ok(Self { recorder, mappings, sessions, kept, unwinding, pythons, handovers, period })
    }

    /// Whether the kernel can watch many functions with one program.
    pub fn can_watch_many(&self) -> bool {
        self.recorder.can_watch_many()
    }

    /// Fails if the kernel provides no mapping records. Without them functions have no names.
    pub fn require_mappings(self) -> anyhow::Result<Self> {
        Ok(Self { mappings: Ok(self.mappings?), ..self })
    }

    /// Starts collecting.
    pub fn collect<S: Sink>(self, signals: Signals, mut sink: S) -> Collector<S> {
        let mut note = |text| sink.push(&Event::Note(Note { text }));
        if !procfs::proc_is_own() {
            note(procfs::FOREIGN_PROC.into());
        }
        let mappings = self
            .mappings
            .map_err(|error| note(format!("functions of some programs and libraries have no names: {error}")))
            .ok();
        Collector {
            recorder: self.recorder,
            mappings,
            signals,
            sink,
            kept: self.kept,
            unwinding: self.unwinding,
            pythons: self.pythons,
            trace: None,
            sources: Vec::new(),
            handovers: self.handovers,
            sessions: self.sessions,
            reported: VecDeque::new(),
            awaiting: Vec::new(),
            attaching: None,
            on_attached: |_, _| {},
            images: Images::default(),
            thread_ids: ThreadIds::default(),
            reused: Reused::default(),
            scans: Scans::default(),
            left_out: 0,
            reported_losses: BTreeMap::new(),
            period: self.period,
        }
    }
}
