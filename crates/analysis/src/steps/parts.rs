//! What GPUs did in some steps, and what they waited for: the work that ran in each, and idle time by cause and line.

use std::{collections::BTreeMap, io};

use model::{
    event::{Event, NamedFrame, ProcessId, SessionId, StackId, Work},
    fold::{Fold, Joined, TimeRange},
    profile::Profile,
    steps::{Step, StepPart, StepParts},
};
use rustc_hash::FxHashMap;

use crate::{
    Events, idle,
    names::{self, SessionKernels},
    user_code::UserCode,
};

/// The interpreter's functions that collect garbage, by the beginning of their name.
const COLLECTS: [&str; 5] = ["gc_collect_", "collect_with_callback", "PyGC_Collect", "_PyGC_Collect", "_Py_RunGC"];

/// Work that ran in a step, on one device.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Ran {
    device: u32,
    session: SessionId,
    /// The kernel's name, or which copy.
    what: Result<u32, &'static str>,
    process: ProcessId,
    stack: Option<StackId>,
}

/// Returns what each GPU did in each of some steps.
pub fn parts<'a>(
    profile: &Profile,
    steps: &[Step],
    events: &mut dyn FnMut() -> io::Result<Events<'a>>,
) -> io::Result<Vec<BTreeMap<u32, StepParts>>> {
    let ranges: Vec<TimeRange> = steps.iter().map(|step| TimeRange { from: step.start, to: step.end }).collect();
    let mut kernels = SessionKernels::new(profile);
    let mut ran: Vec<FxHashMap<Ran, u64>> = vec![FxHashMap::default(); ranges.len()];
    let whole = (ranges.iter().map(|range| range.from).min(), ranges.iter().map(|range| range.to).max());
    let mut add = |joined: Joined<'_>| {
        let Joined { launch, activity, capture } = joined;
        if Some(activity.end) <= whole.0 || Some(activity.start) >= whole.1 {
            return;
        }
        for (range, ran) in ranges.iter().zip(&mut ran) {
            let (start, end) = range.cut(activity.start, activity.end);
            if end <= start {
                continue;
            }
            let what = match activity.work {
                Work::Kernel { name, .. } => Ok(name),
                Work::Copy { direction, .. } => Err(names::memcpy(direction)),
                Work::Memset { .. } => Err(names::MEMSET),
            };
            let of_session = || profile.sessions.get(&activity.session).map_or(ProcessId(0), |info| info.process);
            let key = Ran {
                device: profile.device(activity.session, activity.device),
                session: activity.session,
                what,
                process: launch.map_or_else(of_session, |launch| launch.process),
                stack: capture.or(launch.map(|launch| launch.stack)),
            };
            *ran.entry(key).or_default() += end - start;
        }
    };
    let mut fold = Fold::with_parts(ranges.clone());
    for event in events()? {
        if let Event::KernelName(name) = &event {
            kernels.learn(name);
        }
        fold.push_with(&event, &mut add);
    }
    let folded = fold.finish_with(&mut add);
    let code = UserCode::new(profile);
    let mut all: Vec<BTreeMap<u32, StepParts>> = vec![BTreeMap::new(); ranges.len()];
    for (device, info) in &folded.devices {
        for ((range, idle), all) in ranges.iter().zip(&info.idle_of_parts).zip(&mut all) {
            let idle_ns: u64 = idle.ns.iter().sum();
            let mut found =
                StepParts { busy_ns: (range.to - range.from).saturating_sub(idle_ns), ..StepParts::default() };
            for (charge, weight) in &idle.parts {
                let charge = idle::explained(profile, charge);
                let (state, reason) = idle::state(profile, &charge);
                let collects = |stack| profile.frames(stack).iter().any(collects);
                let part = StepPart::Idle {
                    cause: state.text(),
                    reason,
                    place: charge.stack.map(|stack| code.place(charge.process, stack).frame),
                    garbage_collection: charge.stack.is_some_and(collects),
                };
                let sum = found.parts.entry(part).or_default();
                *sum = (sum.0.saturating_add(weight.ns), sum.1 + weight.samples);
            }
            all.insert(*device, found);
        }
    }
    for (ran, all) in ran.into_iter().zip(&mut all) {
        for (key, ns) in ran {
            let place = key.stack.map(|stack| code.place(key.process, stack).frame);
            let place = place.unwrap_or_else(|| names::LAUNCH_NOT_SEEN.to_owned());
            let part = match key.what {
                Ok(name) => StepPart::Kernel { name: kernels.name(key.session, name).to_owned(), place },
                Err(name) => StepPart::Copy { name: name.to_owned(), place },
            };
            if let Some(found) = all.get_mut(&key.device) {
                let sum = found.parts.entry(part).or_default();
                sum.0 = sum.0.saturating_add(ns);
            }
        }
    }
    Ok(all)
}

/// Whether a frame is the interpreter's own, and collects garbage.
fn collects(frame: &NamedFrame) -> bool {
    let is_interpreter = frame.module.starts_with("python") || frame.module.starts_with("libpython");
    is_interpreter && COLLECTS.iter().any(|name| frame.name.starts_with(name))
}
