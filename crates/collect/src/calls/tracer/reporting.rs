//! Processes that report their calls themselves, and what still has to be probed there.

use std::{collections::HashSet, os::fd::OwnedFd};

use bpf::{Recorder, calls::CallRecord};
use model::event::{Event, FunctionId, Note, ProcessId};

use super::Tracer;
use crate::{
    calls::callbacks::{Traced, exported_name, has_callback},
    process::thread_ids::ThreadIds,
    sessions::Announced,
};

impl Tracer {
    /// Handles a process that has loaded the injected library, before it continues: returns the memory for its calls. If
    /// it cannot report them, all functions are probed from now on.
    pub fn announced(
        &mut self,
        announced: Announced,
        recorder: &mut Recorder,
        push: &mut dyn FnMut(Event),
    ) -> Option<OwnedFd> {
        let Announced { process, session, pid, own_pid, reports, functions, .. } = announced;
        self.callbacks.as_ref()?;
        let names: HashSet<&str> = functions.iter().map(|(_, name)| exported_name(name)).collect();
        let mut opened = None;
        if reports {
            let mapped = self.code.cuda_files(process).to_vec();
            let mut traced = Vec::new();
            for (number, name) in &functions {
                let name = exported_name(name);
                if !has_callback(name) {
                    continue;
                }
                let function = self.libraries.reported_function(name, &mapped, &mut self.functions, push);
                if let Some((id, known_as, gather)) = function {
                    traced.push((*number, known_as, Traced::new(id, gather, name, has_arguments(name, &names))));
                }
            }
            let opening = self.callbacks.as_mut()?.open(process, session, (pid, own_pid), traced);
            opened = opening.ok().flatten().and_then(|file| file.try_clone_to_owned().ok());
        }
        if opened.is_some() {
            self.probe_unreported(Some(&names), recorder, push);
        } else {
            self.fall_back(process, pid, recorder, push);
        }
        opened
    }

    /// Probes all functions if a process has initialised CUDA and does not report its calls: it did not load the injected
    /// library, or the library could not start.
    pub fn check_init(&mut self, call: &CallRecord, recorder: &mut Recorder, push: &mut dyn FnMut(Event)) {
        let process = ProcessId(call.image);
        if self.libraries.is_init(FunctionId(call.function))
            && self.callbacks.as_ref().is_some_and(|callbacks| !callbacks.has(process))
            && self.libraries.expects_reports()
        {
            self.fall_back(process, call.pid, recorder, push);
        }
    }

    /// Traces all calls with probes from now on.
    fn fall_back(&mut self, process: ProcessId, pid: u32, recorder: &mut Recorder, push: &mut dyn FnMut(Event)) {
        self.probe_unreported(None, recorder, push);
        let text = format!(
            "calls of process {pid} are traced with probes since it initialised CUDA: CUPTI does not report them"
        );
        push(Event::Note(Note { text }));
        let released = self.callbacks.as_mut().map(|callbacks| callbacks.release(process));
        for call in released.into_iter().flatten() {
            push(self.call(call, None, None));
        }
    }

    fn probe_unreported(
        &mut self,
        reported: Option<&HashSet<&str>>,
        recorder: &mut Recorder,
        push: &mut dyn FnMut(Event),
    ) {
        if let Err(error) = self.libraries.probe_unreported(reported, recorder) {
            self.refuse(format!("some functions are not traced: {error:#}"), push);
        }
    }

    /// Takes a call from a probe if the process reports its calls: one that it reports itself is dropped, another one is
    /// put in its place between those. Returns the call if it has its place already.
    pub fn place(&mut self, call: CallRecord) -> Option<CallRecord> {
        let Some(callbacks) = &mut self.callbacks else { return Some(call) };
        let process = ProcessId(call.image);
        if callbacks.reports(process, FunctionId(call.function)) {
            return None;
        }
        let by_runtime = call.depth == 0 && self.code.is_runtime(process, call.caller);
        let role = self.libraries.role(FunctionId(call.function));
        callbacks.hold(call, by_runtime, role)
    }

    /// Reads the calls that processes have reported; returns `true` if there may be more.
    pub fn read_reported(&mut self, ids: &ThreadIds, push: &mut dyn FnMut(Event)) -> bool {
        let Some(mut callbacks) = self.callbacks.take() else { return false };
        let any = callbacks.read(ids, &mut |call| Some(self.call(call, None, None)), push);
        self.callbacks = Some(callbacks);
        any
    }
}

/// Whether the parameters of a reported function are those of the table. From before CUDA 4 there are functions with 32-bit
/// addresses and sizes, which have a second version since.
fn has_arguments(name: &str, reported: &HashSet<&str>) -> bool {
    let short = ["cuMem", "cuArray", "cuDeviceTotalMem", "cuModuleGetGlobal"];
    let second = format!("{name}_v2");
    let own = |name: &str| cuda::call(name).map(|call| call.name);
    let is_first = reported.contains(second.as_str()) && own(&second) == own(name);
    !(is_first && short.iter().any(|start| name.starts_with(start)))
}
