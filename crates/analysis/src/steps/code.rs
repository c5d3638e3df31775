//! The code of a recorded program: the call sites of its stacks, and their names.

use std::{
    cell::RefCell,
    hash::{Hash, Hasher},
};

use model::{
    event::{ADDRESS, Frame, FrameKind, NamedFrame, Origin, ProcessId, StackId},
    profile::Profile,
};
use rustc_hash::{FxHashMap, FxHasher};
use text::short::split_place;

use super::{levels::Level, loops::Code, tree::Site};
use crate::{
    names,
    phases::{self, COMPILE, OPTIMIZER, Rules},
    user_code::{self, UserCode},
};

/// Libraries that launch on behalf of their caller: what happens in them depends on the state of the driver.
const LAUNCHERS: [&str; 3] = ["libcuda.so", "libcudart.so", "libcupti.so"];

/// The code of a profile.
pub struct Program<'a> {
    profile: &'a Profile,
    user: UserCode<'a>,
    phases: Option<Rules>,
    /// The frames of the stack that was last asked for.
    last: RefCell<Option<(StackId, Vec<SiteNames>)>>,
}

/// A call site, and its names: several where functions were inlined.
type SiteNames = (Site, Vec<NamedFrame>);

impl<'a> Program<'a> {
    /// The code of a profile.
    pub fn new(profile: &'a Profile) -> Self {
        let phases = Rules::new(&profile.recording().phase_rules).ok();
        Self { profile, user: UserCode::new(profile), phases, last: RefCell::default() }
    }

    fn frames(&self, stack: StackId) -> Vec<SiteNames> {
        let Some(stack) = self.profile.stacks.get(stack) else { return Vec::new() };
        let mut sites = Vec::new();
        let frames: Vec<Frame> = stack.frames().collect();
        for frame in frames.into_iter().rev() {
            let names = self.profile.symbols.at(frame.named_in(stack.process), frame, stack.time);
            let names: Vec<NamedFrame> = names.map(|names| names.to_vec()).unwrap_or_default();
            let launches = |name: &NamedFrame| {
                name.kind == FrameKind::Probe || LAUNCHERS.iter().any(|library| name.module.starts_with(library))
            };
            if names.iter().any(launches) {
                break;
            }
            let function = names.first().map_or(0, function);
            let site = match frame {
                Frame::User(address) => Site { id: address, function, place: address & ADDRESS, is_exact: true },
                Frame::Python(number) => {
                    let place = names.first().and_then(line).unwrap_or(0);
                    let function = if place == 0 { 0 } else { function };
                    Site { id: 1 << 63 | u64::from(number), function, place, is_exact: false }
                }
                Frame::Kernel(_) => continue,
            };
            sites.push((site, names));
        }
        sites
    }

    /// Returns the names of a call site, by its index.
    pub fn with_names<T>(&self, stack: StackId, index: usize, read: impl FnOnce(&[NamedFrame]) -> T) -> T {
        let mut last = self.last.borrow_mut();
        if last.as_ref().is_none_or(|(known, _)| *known != stack) {
            *last = Some((stack, self.frames(stack)));
        }
        let names = last.as_ref().and_then(|(_, sites)| sites.get(index)).map(|(_, names)| names.as_slice());
        read(names.unwrap_or_default())
    }

    /// Returns where the iterations of a level begin: the line of user code, or else the innermost function with a name.
    pub fn place(&self, level: &Level) -> String {
        let sites = self.frames(level.stack);
        let frames: Vec<NamedFrame> = sites.into_iter().take(level.depth).flat_map(|(_, names)| names).collect();
        let informative = || frames.iter().rposition(|frame| names::is_informative(&frame.name));
        let found = user_code::innermost(&frames, self.user.program(level.process)).or_else(informative);
        let found = found.or(frames.len().checked_sub(1)).map(|at| names::frame(&frames[at]));
        found.unwrap_or_else(|| names::process(self.profile, level.process))
    }
}

impl Code for Program<'_> {
    fn sites(&self, _: ProcessId, stack: StackId) -> Vec<Site> {
        let (sites, names): (Vec<Site>, Vec<Vec<NamedFrame>>) = self.frames(stack).into_iter().unzip();
        let of_compiler = |rules| phases::of_frames(rules, &names.concat()) == COMPILE;
        if self.phases.as_ref().is_some_and(of_compiler) { Vec::new() } else { sites }
    }

    fn has_start(&self, process: ProcessId) -> bool {
        let info = self.profile.processes.get(&process);
        info.is_some_and(|info| info.origin != Origin::Found) && self.profile.dump.is_none()
    }

    fn ends_step(&self, stack: StackId, depth: usize) -> Option<bool> {
        let sites = self.frames(stack);
        let is_python = depth > 0 && sites.get(depth - 1).is_some_and(|(site, _)| !site.is_exact);
        let called: Vec<NamedFrame> = sites.into_iter().skip(depth).flat_map(|(_, names)| names).collect();
        let is_optimizer = self.phases.as_ref().is_some_and(|rules| phases::of_frames(rules, &called) == OPTIMIZER);
        if is_python || is_optimizer { Some(is_optimizer) } else { None }
    }

    fn optimizer(&self, stack: StackId) -> Option<usize> {
        let rules = self.phases.as_ref()?;
        let is_optimizer = |(_, names): &SiteNames| phases::of_frames(rules, names) == OPTIMIZER;
        self.frames(stack).iter().position(is_optimizer)
    }
}

/// Identifies a function, as far as its name does.
fn function(frame: &NamedFrame) -> u64 {
    let name = split_place(&frame.name).0;
    if name.starts_with('[') {
        return 0;
    }
    let mut hasher = FxHasher::default();
    (name, &frame.module).hash(&mut hasher);
    hasher.finish().max(1)
}

/// Returns the line of a frame: 31 of `train (train.py:31)`.
fn line(frame: &NamedFrame) -> Option<u64> {
    split_place(&frame.name).1.strip_suffix(')')?.rsplit_once(':')?.1.parse().ok()
}

/// Whether a frame is in a function that a reader names: `train`, `Trainer.training_step`, `training_step`, or a glob for the whole
/// frame, `step (sgd.py:*)`.
pub fn is_function(frame: &NamedFrame, name: &str) -> bool {
    if let Some(glob) = name.contains(['*', '?', '[']).then(|| text::pattern::Glob::parse(name).ok()).flatten() {
        return glob.matches(&frame.name);
    }
    let function = split_place(&frame.name).0;
    let plain = function.split_once('(').map_or(function, |(plain, _)| plain);
    let is = |function: &str| {
        let rest = function.strip_suffix(name);
        rest.is_some_and(|before| before.is_empty() || before.ends_with(['.', ':']))
    };
    is(function) || is(plain) || &*frame.name == name
}

/// Steps by thread, from a list that is sorted by thread.
pub(super) type ByThread<T> = FxHashMap<(ProcessId, u32), Vec<T>>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Check which functions a name means.
    #[test]
    fn functions_have_names() {
        let is = |frame: &str, name: &str| {
            is_function(&NamedFrame { kind: FrameKind::Native, name: frame.into(), module: "".into() }, name)
        };
        let frame = "Trainer.training_step (train.py:31)";
        for name in ["training_step", "Trainer.training_step", frame, "*training_step (train.py:*)", "*train.py:31)"] {
            assert!(is(frame, name), "{name}");
        }
        for name in ["step", "train", "Trainer", "train.py", "training_step (train.py:*)", "[", ""] {
            assert!(!is(frame, name), "{name}");
        }
        assert!(is("net::train(int, float*)", "train") && is("train(int)", "train") && is("train", "train"));
        assert!(!is("retrain(int)", "train") && !is("f(train)", "train"));
    }
}
