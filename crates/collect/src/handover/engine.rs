//! PyTorch's autograd engine in a file: the functions that hand work over and do it.
//!
//! The functions are found by the loader's hash table: libtorch_cpu.so has hundreds of thousands of symbols.

use std::fs::File;

use bpf::{Recorder, Watch};
use elf::{Elf, Segments, Symbols, read};

use super::places::{Function, LARGEST, Places};
use crate::process::procfs;

/// The library that contains the engine.
pub const LIBRARY: &str = "libtorch_cpu.so";

/// `Engine::execute_with_graph_task(std::shared_ptr<GraphTask> const&, std::shared_ptr<Node>, InputBuffer&&)`: runs on the
/// thread that called `backward()`, and returns when the graph task is complete.
const EXECUTE: &str = "_ZN5torch8autograd6Engine23execute_with_graph_taskERKSt10shared_ptrINS0_9GraphTaskEES2_INS0_4NodeEEONS0_11InputBufferE";
/// `Engine::evaluate_function(std::shared_ptr<GraphTask>&, Node*, InputBuffer&, std::shared_ptr<ReadyQueue> const&)`: runs
/// on the thread that does the work, once for each node.
const EVALUATE: &str = "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE";
/// `GraphTask::mark_as_completed_and_run_post_processing()`: runs callbacks on the thread that completed the graph task,
/// before `EXECUTE` returns.
const COMPLETE: &str = "_ZN5torch8autograd9GraphTask41mark_as_completed_and_run_post_processingEv";

/// `at::sequence_number::get_and_increment()`: runs on the thread that runs the forward code, once for each node.
const NUMBER: &str = "_ZN2at15sequence_number17get_and_incrementEv";

/// The most return instructions of a function. Real ones have a few.
const MOST_RETURNS: usize = 256;

/// The engine's functions in one file.
pub struct Engine {
    file: File,
    segments: Segments,
    execute: Function,
    /// The return instructions of `execute` in the file.
    returns: Vec<u64>,
    evaluate: Function,
    complete: Option<Function>,
    /// The return instructions of the function that numbers nodes.
    numbered: Vec<u64>,
}

impl Engine {
    /// Finds the engine in a file; `None` if it does not export the functions.
    pub fn find(file: File) -> Option<Self> {
        let elf = Elf::read(&file).ok()?;
        let function = |name| Function::of(&Symbols::exported(&elf, &file, name)?, &elf.segments);
        let (execute, evaluate, complete) = (function(EXECUTE)?, function(EVALUATE)?, function(COMPLETE));
        let returns = |function: &Function| -> Option<Vec<u64>> {
            let size = function.size();
            let code = (size <= LARGEST).then(|| read(&file, function.offset, size, "code").ok())??;
            let returns = probes::returns(&code).filter(|returns| returns.len() <= MOST_RETURNS)?;
            Some(returns.into_iter().map(|at| function.offset + at).collect())
        };
        let numbered = function(NUMBER).and_then(|number| returns(&number)).unwrap_or_default();
        let returns = returns(&execute)?;
        let segments = elf.segments.clone();
        (!returns.is_empty()).then_some(Self { file, segments, execute, returns, evaluate, complete, numbered })
    }

    /// Returns where a mapping of the file has the functions.
    pub fn places(&self, start: u64, offset: u64) -> Option<Places> {
        let bias = self.segments.bias(start, offset)?;
        let works = [Some(&self.evaluate), self.complete.as_ref()].into_iter().flatten();
        let works = works.map(|function| function.moved(bias)).collect();
        Some(Places { hands: vec![self.execute.moved(bias)], works, files: Vec::new() })
    }

    /// Watches the calls that hand work over.
    pub fn watch_calls(&self, watch: Watch, recorder: &mut Recorder) -> bpf::Result<()> {
        recorder.watch_handovers(watch, &procfs::open_file(&self.file), self.execute.offset, &self.returns)
    }

    /// Watches every piece of work.
    pub fn watch_work(&self, watch: Watch, recorder: &mut Recorder) -> bpf::Result<()> {
        recorder.watch_handed_work(watch, &procfs::open_file(&self.file), self.evaluate.offset)
    }

    /// Watches which code makes the pieces of work; false if the file does not export what is needed.
    pub fn watch_forward(&self, watch: Watch, recorder: &mut Recorder) -> bpf::Result<bool> {
        if self.numbered.is_empty() {
            return Ok(false);
        }
        recorder.watch_forward(watch, &procfs::open_file(&self.file), &self.numbered).map(|()| true)
    }
}
