//! CPU time by function and by line of user code.
//!
//! A sample counts for the function that ran: its innermost frame. The interpreter's own functions run a Python function,
//! and most of them have no name, so their time is that of the Python function. Samples in warpscope's own code are left out.

use std::collections::BTreeMap;

use model::{
    event::{FrameKind, NamedFrame, ProcessId, StackId},
    profile::{CpuWeight, Profile},
};

use crate::{
    names,
    user_code::{Place, UserCode, without_line},
    waits,
};

/// Returns the program's samples by stack: those in warpscope's own code are left out.
pub fn stacks(profile: &Profile) -> impl Iterator<Item = (ProcessId, StackId, CpuWeight)> + '_ {
    let all = profile.cpu.iter().map(|(&(process, stack), &weight)| (process, stack, weight));
    all.filter(|(_, stack, _)| !profile.is_own_cost(*stack))
}

/// Returns CPU time by the function that ran, without lines.
pub fn by_function(profile: &Profile) -> BTreeMap<String, CpuWeight> {
    let mut sums = BTreeMap::new();
    for (process, stack, weight) in stacks(profile) {
        let frames = profile.frames(stack);
        let name = match (waits::spinning(&frames), running(&frames)) {
            (Some(reason), _) => reason.to_owned(),
            (None, Some(frame)) => without_line(&names::frame(frame)),
            (None, None) => names::process(profile, process),
        };
        add(sums.entry(name).or_default(), weight);
    }
    sums
}

/// Returns CPU time by the innermost line of user code.
pub fn by_line(profile: &Profile, code: &UserCode<'_>) -> BTreeMap<Place, CpuWeight> {
    let mut sums = BTreeMap::new();
    for (process, stack, weight) in stacks(profile) {
        add(sums.entry(code.place(process, stack)).or_default(), weight);
    }
    sums
}

fn add(sum: &mut CpuWeight, weight: CpuWeight) {
    sum.count = sum.count.saturating_add(weight.count);
    sum.ns = sum.ns.saturating_add(weight.ns);
}

/// Returns the frame of the function that ran: the innermost one, or the Python function that the interpreter ran.
fn running(frames: &[NamedFrame]) -> Option<&NamedFrame> {
    let interpreted = frames.iter().rev().find(|frame| !is_interpreter(frame));
    interpreted.filter(|frame| frame.kind == FrameKind::Python).or(frames.last())
}

/// Whether a frame is a function of the Python interpreter itself.
fn is_interpreter(frame: &NamedFrame) -> bool {
    frame.kind == FrameKind::Native && ["python", "libpython"].iter().any(|name| frame.module.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the interpreter's time is that of the Python function, and that of its callees is theirs.
    #[test]
    fn the_interpreter_runs_python_functions() {
        let frame = |kind, name: &str, module: &str| NamedFrame { kind, name: name.into(), module: module.into() };
        let mut frames = vec![
            frame(FrameKind::Native, "[python3.12]", "python3.12"),
            frame(FrameKind::Python, "load (data.py:7)", "/home/me/data.py"),
            frame(FrameKind::Native, "list_sort", "libpython3.12.so.1.0"),
            frame(FrameKind::Native, "[python3.12]", "python3.12"),
        ];
        let name = |frames: &[NamedFrame]| running(frames).map(|frame| frame.name.to_string());
        assert_eq!(name(&frames).as_deref(), Some("load (data.py:7)"));
        frames.push(frame(FrameKind::Native, "memcpy", "libc.so.6"));
        assert_eq!(name(&frames).as_deref(), Some("memcpy"));
        assert_eq!(name(&frames[..1]).as_deref(), Some("[python3.12]"), "no Python function runs yet");
        assert_eq!(name(&[]), None);
    }
}
