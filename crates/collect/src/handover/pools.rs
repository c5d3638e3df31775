//! XLA's thread pools in a file: the functions that take tasks, and the loops that run them.
//!
//! Known are Eigen's pool as used by TSL, `xla::WorkerThread` and `tsl::UnboundedWorkQueue`. JAX compiles on the
//! calling thread, which hands them tasks; among other things these measure which of several kernels is the fastest.
//! The functions are local symbols, so xla_cuda_plugin.so is searched for the beginnings of their names, in constant
//! memory: 85 MB of names and 17 MB of symbols in JAX 0.11. Calls with the same stack share one cause, which is sent
//! once. In such a process every launch needs the marker's probe: the cause of a task is not among what the process can
//! read.

use std::fs::File;

use bpf::{Recorder, TaskCall, Watch};
use elf::{Budget, Elf, SHT_SYMTAB, Segments, Symbol, Symbols, read};

use super::places::{Function, LARGEST, Places};
use crate::process::procfs;

/// The libraries that contain XLA for NVIDIA GPUs, as JAX has them.
pub const LIBRARIES: [&str; 2] = ["xla_cuda_plugin.so", "xla_extension.so"];

/// Of each pool, the function that takes a task as its second argument, and the loop of its threads. Whether a task is a
/// `std::function` or an `absl::AnyInvocable` is at the end of the names.
const POOLS: [(&str, &str); 3] = [
    (
        "_ZN5Eigen15ThreadPoolTemplIN3tsl6thread16EigenEnvironmentEE16ScheduleWithHintE",
        "_ZN5Eigen15ThreadPoolTemplIN3tsl6thread16EigenEnvironmentEE10WorkerLoopE",
    ),
    ("_ZN3xla12WorkerThread8ScheduleE", "_ZN3xla12WorkerThread8WorkLoopE"),
    ("_ZN3tsl18UnboundedWorkQueue8ScheduleE", "_ZN3tsl18UnboundedWorkQueue16PooledThreadFuncE"),
];

/// Several times what the library of JAX 0.11 has: 17 MB of symbols and 85 MB of names.
const BUDGET: Budget = Budget { symbols: 128 << 20, strings: 512 << 20, ..Budget::RECORDING };
/// The most indirect calls of a function. Real ones have up to twelve.
const MOST_CALLS: usize = 64;

/// The pools of one file.
pub struct Pools {
    file: File,
    segments: Segments,
    /// The entries of the functions that take tasks, in the file.
    takes: Vec<u64>,
    /// The instructions of the loops that may call a task, in the file.
    calls: Vec<TaskCall>,
    loops: Vec<Function>,
}

impl Pools {
    /// Finds the pools in a file; says why there are none.
    pub fn find(file: File) -> Result<Self, &'static str> {
        const NOT_FOUND: &str = "its functions were not found";
        let elf = Elf::read(&file).map_err(|_| NOT_FOUND)?;
        let symbols = Symbols::of(&elf, SHT_SYMTAB).ok_or("it has no symbol table")?;
        let find = |names| symbols.beginning_with(&file, names, &BUDGET).map_err(|_| NOT_FOUND);
        let (schedules, works) = (find(POOLS.map(|(schedule, _)| schedule))?, find(POOLS.map(|(_, work)| work))?);
        let (mut takes, mut calls, mut loops) = (Vec::new(), Vec::new(), Vec::new());
        for (schedule, work) in schedules.iter().zip(&works) {
            // Clones of a function, such as its cold part, begin with its name.
            let whole = |symbols: &[Symbol]| {
                let functions = symbols.iter().filter_map(|symbol| Function::of(symbol, &elf.segments));
                functions.max_by_key(|function| function.size())
            };
            let (Some(schedule), Some(work)) = (whole(schedule), whole(work)) else { continue };
            let (Some(begun), Some(at_once)) = (task_calls(&file, &work, false), task_calls(&file, &schedule, true))
            else {
                continue;
            };
            takes.push(schedule.offset);
            calls.extend(begun.into_iter().chain(at_once));
            loops.push(work);
        }
        let segments = elf.segments.clone();
        (!calls.is_empty()).then_some(Self { file, segments, takes, calls, loops }).ok_or(NOT_FOUND)
    }

    /// Returns where a mapping of the file has the loops.
    pub fn places(&self, start: u64, offset: u64) -> Option<Places> {
        let bias = self.segments.bias(start, offset)?;
        let works = self.loops.iter().map(|function| function.moved(bias)).collect();
        Some(Places { works, ..Places::default() })
    }

    /// Watches the tasks.
    pub fn watch(&self, watch: Watch, recorder: &mut Recorder) -> bpf::Result<()> {
        recorder.watch_tasks(watch, &procfs::open_file(&self.file), &self.takes, &self.calls)
    }
}

/// Returns the instructions of a function that may call a task.
fn task_calls(file: &File, function: &Function, at_once: bool) -> Option<Vec<TaskCall>> {
    let code = (function.size() <= LARGEST).then(|| read(file, function.offset, function.size(), "code").ok())??;
    let calls = probes::indirect_calls(&code).filter(|calls| calls.len() <= MOST_CALLS)?;
    let call = |call: probes::IndirectCall| TaskCall {
        offset: function.offset + call.at,
        register: call.register,
        memory: call.memory,
        at_once,
    };
    Some(calls.into_iter().map(call).collect())
}
