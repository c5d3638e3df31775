//! What the idle time of the GPUs is charged to, so that the page can charge a part of the time by itself: see `page/idle.js`.

use std::collections::{BTreeMap, HashMap};

use analysis::{family::Family, idle, names};
use model::{
    event::ProcessId,
    idle::{Cause, Charge, Phase},
    profile::Profile,
};

use super::{block::Column, gather::ThreadInfo, tree::Tree};

/// Something that idle time can be charged to.
struct Row {
    device: u32,
    phase: Phase,
    /// The thread, plus 1; 0 if it is not known.
    thread: u32,
    cause: Cause,
    /// The stack, and for a wait its reason; 0 if it is not known.
    stack: u32,
    /// In the flame graph of idle time.
    node: u32,
    /// The frame of the user's line, plus 1; 0 if there is none.
    place: u32,
    /// The frame of the reason of a wait, plus 1.
    reason: u32,
}

/// Returns what idle time is charged to. For each thread and phase, there is a row for what is unknown.
pub fn charges(profile: &Profile, threads: &[ThreadInfo], tree: &mut Tree<'_>) -> Vec<Column> {
    let numbers = threads.iter().zip(1_u32..).map(|(thread, number)| ((thread.process, thread.tid), number));
    let numbers: HashMap<(u32, u32), u32> = numbers.collect();
    // Events of a part of the processes do not say when a GPU was idle.
    let devices = profile.devices.iter().filter(|_| profile.part.is_none());
    let mut rows = Vec::new();
    for (device, info) in devices {
        let mut unknown: BTreeMap<(Phase, ProcessId, u32), Charge> = BTreeMap::new();
        for (charge, _) in &info.idle.parts {
            let none = Charge { cause: Cause::Unknown, stack: None, ..*charge };
            if charge.cause != Cause::Meanwhile {
                unknown.insert((charge.phase, charge.process, charge.tid), none);
            }
        }
        let known = info.idle.parts.iter().map(|(charge, _)| charge);
        let known = known.filter(|charge| idle::explained(profile, charge).cause != Cause::Unknown);
        for charge in known.chain(unknown.values()) {
            let thread = numbers.get(&(charge.process.0, charge.tid)).copied().unwrap_or(0);
            rows.push(row(profile, *device, &info.label, charge, thread, tree));
        }
    }
    vec![
        Column::plain("charge.device", rows.iter().map(|row| row.device.into())),
        Column::plain("charge.phase", rows.iter().map(|row| row.phase as u64)),
        Column::plain("charge.thread", rows.iter().map(|row| row.thread.into())),
        Column::plain("charge.cause", rows.iter().map(|row| number(row.cause))),
        Column::delta("charge.stack", rows.iter().map(|row| row.stack.into())),
        Column::delta("charge.node", rows.iter().map(|row| row.node.into())),
        Column::plain("charge.place", rows.iter().map(|row| row.place.into())),
        Column::plain("charge.reason", rows.iter().map(|row| row.reason.into())),
    ]
}

/// The number of a cause in the page.
fn number(cause: Cause) -> u64 {
    match cause {
        Cause::Launching => 0,
        Cause::Waiting(_) => 1,
        Cause::Running => 2,
        Cause::Meanwhile => 3,
        Cause::Unknown => 4,
    }
}

fn row(profile: &Profile, device: u32, label: &str, charge: &Charge, thread: u32, tree: &mut Tree<'_>) -> Row {
    let &Charge { phase, process, cause, stack, .. } = charge;
    let path = match stack {
        Some(stack) => tree.stack(process, Some(stack)),
        None => tree.process(process),
    };
    let (_, reason) = idle::state(profile, charge);
    let label = format!("GPU {label}");
    let mut outer = vec![(label.as_str(), Family::GpuKernel)];
    match phase {
        Phase::Before => outer.push((names::BEFORE_GPU_WORK, Family::Unknown)),
        Phase::Between => {}
        Phase::After => outer.push((names::AFTER_GPU_WORK, Family::Unknown)),
    }
    let doing = match cause {
        Cause::Launching => Some((names::LAUNCHING, Family::Wait)),
        Cause::Waiting(_) => reason.as_deref().map(|reason| (reason, Family::Wait)),
        Cause::Running => None,
        Cause::Meanwhile => Some((names::MEANWHILE, Family::Wait)),
        Cause::Unknown => Some(("[unknown]", Family::Unknown)),
    };
    let node = tree.idle(&outer, path, doing);
    let key = match (stack, &reason) {
        (Some(stack), Some(reason)) => tree.wait(process, stack, reason),
        (Some(_), None) => path,
        (None, _) => 0,
    };
    let place = stack.map_or(0, |stack| tree.place(process, stack) + 1);
    let reason = reason.map_or(0, |reason| tree.frame(&reason, Family::Wait) + 1);
    Row { device, phase, thread, cause, stack: key, node, place, reason }
}
