//! Labels shared by several outputs of a trace.

use analysis::names;
use model::{
    event::{Mode, ProcessId, Switch},
    profile::Profile,
};

/// Maximum length of a kernel's name in a line, where it can be shortened to that.
pub(super) const KERNEL_LENGTH: usize = 48;

/// Whether the recording is a trace.
pub(crate) fn is_trace(profile: &Profile) -> bool {
    profile.start.as_ref().is_some_and(|start| matches!(start.mode, Mode::Trace | Mode::TraceSums))
}

/// Formats a thread with its name, or that of its process: `python3/1234`.
pub(super) fn thread_label(profile: &Profile, process: ProcessId, tid: u32) -> String {
    let comm = profile.threads.get(&(process, tid)).map(|comm| names::word(comm));
    format!("{}/{tid}", comm.unwrap_or_else(|| names::process(profile, process)))
}

/// The label of an off-CPU interval.
pub(crate) const OFF_CPU: &str = "off-cpu";

/// Returns why a thread was off the CPU, by the kernel's `TASK_*` state.
pub(crate) fn off_cpu(switch: &Switch) -> &'static str {
    match switch.state & 0xff {
        _ if switch.preempted => "preempted",
        0 => "runnable",
        1 => "sleeping",
        2 => "blocked",
        4 => "stopped",
        8 => "traced",
        _ => "other",
    }
}
