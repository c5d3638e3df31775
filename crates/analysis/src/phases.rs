//! Which phase of training or of inference GPU work belongs to, by the functions on its stack.
//!
//! The outermost function that names a phase decides: a forward pass within an evaluation is evaluation, one that is computed again
//! within the backward pass is backward. Only `forward` itself gives way to all others. Communication is a phase wherever it is
//! launched, because it often runs beside the others.

use std::cell::RefCell;

use model::{
    event::{FrameKind, NamedFrame, StackId},
    profile::{GpuKey, Profile},
};
use rustc_hash::FxHashMap;
use text::short::split_place;

use crate::classes;

/// What belongs to no phase.
const OTHER: &str = "other";

/// The phases of a profile's GPU work.
pub struct Phases<'a> {
    profile: &'a Profile,
    of_stack: RefCell<FxHashMap<StackId, &'static str>>,
}

impl<'a> Phases<'a> {
    /// The phases of a profile.
    pub fn new(profile: &'a Profile) -> Self {
        Self { profile, of_stack: RefCell::default() }
    }

    /// Returns the phase of GPU work.
    pub fn of(&self, key: &GpuKey) -> &'static str {
        if classes::of(self.profile, key.what) == "communication" {
            return "communication";
        }
        let Some(stack) = key.capture.or(key.stack) else { return OTHER };
        self.of_stack.borrow_mut().entry(stack).or_insert_with(|| of_stack(&self.profile.frames(stack)))
    }
}

/// Returns the phase of a stack.
fn of_stack(frames: &[NamedFrame]) -> &'static str {
    let outermost = frames.iter().find_map(of_frame);
    outermost.unwrap_or(if frames.iter().any(is_forward) { "forward" } else { OTHER })
}

/// Returns the function of a frame, without its class, its arguments and its line.
fn function(frame: &NamedFrame) -> &str {
    let name = split_place(&frame.name).0;
    let name = name.split_once('(').map_or(name, |(name, _)| name);
    name.rsplit(['.', ':']).next().unwrap_or(name)
}

fn is_forward(frame: &NamedFrame) -> bool {
    matches!(function(frame), "forward" | "_call_impl")
}

/// Returns the phase that a function names.
fn of_frame(frame: &NamedFrame) -> Option<&'static str> {
    if frame.name.starts_with("[handed over by backward ") || frame.name.starts_with("[backward of ") {
        return Some("backward");
    }
    let (function, file) = (function(frame), &*frame.module);
    let is_python = frame.kind == FrameKind::Python;
    let in_file = |name: &str| is_python && file.rsplit('/').next() == Some(name);
    let has_word = |word: &str| function.split('_').any(|part| part == word);
    Some(match function {
        "save_checkpoint" | "load_checkpoint" | "save_pretrained" | "load_state_dict" | "state_dict" => "checkpoint",
        "save" | "load" if in_file("serialization.py") => "checkpoint",
        "backward" | "run_backward" | "_run_backward" | "evaluate_function" => "backward",
        "evaluate" | "evaluation" | "validate" | "validation" | "validation_step" | "test_step" => "evaluation",
        _ if has_word("evaluate") || has_word("validate") || has_word("eval") => "evaluation",
        "zero_grad" | "optimizer_step" | "clip_grad_norm_" | "unscale_" => "optimizer",
        _ if is_python && file.contains("/optim/") && has_word("step") => "optimizer",
        "__next__" | "_next_data" if in_file("dataloader.py") => "data",
        "collate_fn" | "default_collate" | "load_batch" | "next_batch" | "get_batch" | "prefetch" => "data",
        _ if has_word("prefill") => "prefill",
        "decode" | "decode_step" | "decode_one_token" | "forward_decode" | "run_decode" => "decode",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TORCH: &str = "/venv/lib/python3.12/site-packages/torch";

    fn phase(frames: &[(&str, &str)]) -> &'static str {
        let frame = |(name, file): &(&str, &str)| {
            let kind = if file.ends_with(".py") { FrameKind::Python } else { FrameKind::Native };
            NamedFrame { kind, name: (*name).into(), module: (*file).into() }
        };
        of_stack(&frames.iter().map(frame).collect::<Vec<_>>())
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
