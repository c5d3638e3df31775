//! Which phase of training or of inference GPU work belongs to, by the functions on its stack.
//!
//! The outermost function that names a phase decides: a forward pass within an evaluation is evaluation, one that is computed again
//! within the backward pass is backward. Only `forward` itself gives way to all others. Communication is a phase wherever it is
//! launched, because it often runs beside the others.

mod rules;

use std::{cell::RefCell, collections::BTreeSet};

use model::{
    event::{NamedFrame, StackId},
    filter::PhaseSelection,
    profile::{GpuKey, Profile, What},
};
use rustc_hash::FxHashMap;

pub use self::rules::{Error, Rules};
use crate::classes;

/// What belongs to no phase.
const OTHER: &str = "other";
/// The phase that gives way to all others.
const FORWARD: &str = "forward";
/// The phase of work that compilers run to try what they have generated. It belongs to no step.
pub const COMPILE: &str = "compile";
/// The phase that ends a training step.
pub const OPTIMIZER: &str = "optimizer";
/// The phase of kernels that communicate, and their class.
const COMMUNICATION: &str = "communication";

/// The phases of a profile's GPU work.
pub struct Phases<'a> {
    profile: &'a Profile,
    rules: Rules,
    of_stack: RefCell<FxHashMap<StackId, String>>,
}

impl<'a> Phases<'a> {
    /// The phases of a profile, by its own rules and the known ones.
    pub fn new(profile: &'a Profile) -> Result<Self, Error> {
        let rules = Rules::new(&profile.recording().phase_rules)?;
        Ok(Self { profile, rules, of_stack: RefCell::default() })
    }

    /// Returns the phase of GPU work.
    pub fn of(&self, key: &GpuKey) -> String {
        if classes::of(self.profile, key.what) == COMMUNICATION {
            return COMMUNICATION.to_owned();
        }
        let Some(stack) = key.capture.or(key.stack) else { return OTHER.to_owned() };
        self.of_stack(stack)
    }

    fn of_stack(&self, stack: StackId) -> String {
        let of_frames = || of_frames(&self.rules, &self.profile.frames(stack)).to_owned();
        self.of_stack.borrow_mut().entry(stack).or_insert_with(of_frames).clone()
    }

    /// Returns what belongs to some phases, or the phases that there are if one of these is not.
    pub fn select(&self, wanted: &[String]) -> Result<PhaseSelection, Vec<String>> {
        let found: BTreeSet<String> = self.profile.gpu.keys().map(|key| self.of(key)).collect();
        if wanted.iter().any(|phase| !found.contains(phase)) {
            return Err(found.into_iter().collect());
        }
        let all = self.profile.stacks.iter().map(|stack| stack.id);
        let communicates = |index: &usize| classes::of(self.profile, What::Kernel(*index as u32)) == COMMUNICATION;
        let names = &self.profile.kernel_names;
        Ok(PhaseSelection {
            stacks: all.filter(|stack| wanted.contains(&self.of_stack(*stack))).collect(),
            communication: wanted.iter().any(|phase| phase == COMMUNICATION),
            communicating: (0..names.len())
                .filter(communicates)
                .map(|index| names[index].mangled.to_string())
                .collect(),
        })
    }
}

/// Returns the phase of work under these frames.
pub fn of_frames<'a>(rules: &'a Rules, frames: &[NamedFrame]) -> &'a str {
    let is_backward = |name: &str| name.starts_with("[handed over by backward ") || name.starts_with("[backward of ");
    let phase = |frame: &NamedFrame| if is_backward(&frame.name) { Some("backward") } else { rules.phase(frame) };
    let phases: Vec<&str> = frames.iter().filter_map(phase).collect();
    let other = phases.iter().find(|phase| **phase != FORWARD);
    other.or(phases.first()).copied().unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use model::event::FrameKind;

    use super::*;

    const TORCH: &str = "/venv/lib/python3.12/site-packages/torch";

    fn phase(frames: &[(&str, &str)]) -> String {
        let frame = |(name, file): &(&str, &str)| {
            let kind = if file.ends_with(".py") { FrameKind::Python } else { FrameKind::Native };
            NamedFrame { kind, name: (*name).into(), module: (*file).into() }
        };
        of_frames(&Rules::new("").expect("rules"), &frames.iter().map(frame).collect::<Vec<_>>()).to_owned()
    }

    /// Check the phases of stacks as PyTorch programs have them.
    #[test]
    fn stacks_have_phases() {
        let file = |name: &str| format!("{TORCH}/{name}");
        let (module, tensor, adamw) = (file("nn/modules/module.py"), file("_tensor.py"), file("optim/adamw.py"));
        let (loader, serialization) = (file("utils/data/dataloader.py"), file("serialization.py"));
        let train = ("train (train.py:31)", "/home/me/train.py");
        let call = ("Module._call_impl (module.py:1747)", module.as_str());
        let forward = ("GPT.forward (model.py:90)", "/home/me/model.py");
        let backward = ("Tensor.backward (_tensor.py:581)", tensor.as_str());
        let engine = (
            "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)",
            "libtorch_cpu.so",
        );
        assert_eq!(phase(&[train]), OTHER);
        assert_eq!(phase(&[train, call, forward]), "forward");
        assert_eq!(phase(&[train, backward]), "backward");
        assert_eq!(phase(&[train, ("[handed over by backward (train.py:32)]", ""), engine]), "backward");
        assert_eq!(phase(&[train, engine, forward]), "backward", "computed again");
        assert_eq!(phase(&[train, ("AdamW.step (adamw.py:243)", adamw.as_str())]), "optimizer");
        assert_eq!(
            phase(&[train, ("Optimizer.zero_grad (optimizer.py:9)", file("optim/optimizer.py").as_str())]),
            "optimizer"
        );
        assert_eq!(phase(&[train, ("_BaseDataLoaderIter.__next__ (dataloader.py:701)", loader.as_str())]), "data");
        assert_eq!(phase(&[train, ("save (serialization.py:850)", serialization.as_str())]), "checkpoint");
        assert_eq!(phase(&[("evaluate_model (train.py:80)", "/home/me/train.py"), call, forward]), "evaluation");
        assert_eq!(
            phase(&[("generate (serve.py:88)", "/srv/serve.py"), ("prefill (serve.py:40)", "/srv/serve.py"), forward]),
            "prefill"
        );
        assert_eq!(
            phase(&[("ModelRunner.forward_extend (model_runner.py:9)", "/sglang/model_runner.py"), call]),
            "prefill"
        );
        assert_eq!(
            phase(&[("PipelineEngine._exec_optimizer_step (engine.py:9)", "/deepspeed/engine.py")]),
            "optimizer"
        );
        assert_eq!(phase(&[("forward_step (training.py:9)", "/megatron/training.py"), call]), "forward");
        assert_eq!(phase(&[("Engine.decode_one_token (serve.py:61)", "/srv/serve.py"), call]), "decode");
        // Other functions with such words.
        for name in [
            "training_step (a.py:1)",
            "decode_jpeg (a.py:1)",
            "save (a.py:1)",
            "medieval (a.py:1)",
            "__next__ (a.py:1)",
        ] {
            assert_eq!(phase(&[(name, "/home/me/a.py")]), OTHER, "{name}");
        }
        assert_eq!(phase(&[]), OTHER);
    }
}
