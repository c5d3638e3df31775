//! The frame between a thread's stack and that of its cause, named after the user's code there.

use model::event::{FrameKind, NamedFrame};
use text::user_code::is_user_file;

/// What `execute_with_graph_task` is called for, where no Python function says it.
const BACKWARD: &str = "backward";

/// In place of a name, if there are too many.
pub const OTHER: &str = "[handed over by other code]";

/// What the boundary marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Work was handed to the thread.
    HandedOver,
    /// A task was handed to the thread's pool.
    Task,
    /// The thread was started.
    Started,
}

/// Returns the boundary's name for a caller with these Python frames, innermost first: the line of the user's code, and the
/// function that was called there.
pub fn name(kind: Kind, frames: &[NamedFrame]) -> String {
    match kind {
        Kind::HandedOver => named_after("handed over by", frames, BACKWARD),
        Kind::Task => named_line("handed over by", frames, "another thread"),
        Kind::Started => named_after("started by", frames, "another thread"),
    }
}

/// Returns the name of the frame for the forward code that made a part of the work: the line of the user's code, and the
/// innermost function. Between them are those by which PyTorch calls modules.
pub fn forward_name(frames: &[NamedFrame]) -> String {
    let (line, innermost) = (frames.get(users(frames)).and_then(split), frames.first().and_then(halves));
    match (line, innermost) {
        (Some((_, line)), Some((function, _))) => format!("[backward of {} ({line})]", operation(function)),
        _ => "[backward of other code]".into(),
    }
}

/// Returns what a function is for: the class of a module, whose function is always `forward`.
fn operation(function: &str) -> &str {
    let name = function.strip_suffix(".forward").unwrap_or(function);
    name.rsplit('.').next().unwrap_or(name)
}

/// `otherwise` is for callers without such a line.
fn named_after(what: &str, frames: &[NamedFrame], otherwise: &str) -> String {
    let user = users(frames);
    let Some((function, line)) = frames.get(user).and_then(split) else {
        return format!("[{what} {otherwise}]");
    };
    let called = user.checked_sub(1).and_then(|inner| split(&frames[inner])).map_or(function, |(called, _)| called);
    format!("[{what} {called} ({line})]")
}

/// Names the user's function itself: between its line and a task there are only functions of the library.
fn named_line(what: &str, frames: &[NamedFrame], otherwise: &str) -> String {
    let user = frames.get(users(frames)).and_then(split);
    user.map_or_else(|| format!("[{what} {otherwise}]"), |(function, line)| format!("[{what} {function} ({line})]"))
}

/// Returns which frame is the user's code: the innermost one, otherwise that of the library itself.
fn users(frames: &[NamedFrame]) -> usize {
    frames.iter().position(|frame| is_user_file(&frame.module)).unwrap_or(0)
}

/// Returns the frame with this name.
pub fn frame(name: &str) -> NamedFrame {
    NamedFrame { kind: FrameKind::Native, name: name.into(), module: "".into() }
}

/// Splits `function (file:line)`; the function without its class.
pub fn split(frame: &NamedFrame) -> Option<(&str, &str)> {
    let (function, line) = halves(frame)?;
    Some((function.rsplit('.').next().unwrap_or(function), line))
}

fn halves(frame: &NamedFrame) -> Option<(&str, &str)> {
    frame.name.strip_suffix(')')?.rsplit_once(" (")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(frames: &[(&str, &str)]) -> Vec<NamedFrame> {
        let frame = |(name, module): &(&str, &str)| NamedFrame {
            kind: FrameKind::Python,
            name: (*name).into(),
            module: (*module).into(),
        };
        frames.iter().map(frame).collect()
    }

    fn named(frames: &[(&str, &str)]) -> String {
        name(Kind::HandedOver, &of(frames))
    }

    /// Check that forward code is named after the module or function that the user's line called, through whatever else.
    #[test]
    fn forward_code_is_named_after_the_operation() {
        let (torch, own) = ("/venv/lib/python3.12/site-packages/torch/nn/module.py", "/home/me/train.py");
        let frames = [
            ("Linear.forward (linear.py:125)", torch),
            ("Module._call_impl (module.py:1762)", torch),
            ("Module._wrapped_call_impl (module.py:1751)", torch),
            ("Block.feed_forward (train.py:44)", own),
        ];
        assert_eq!(forward_name(&of(&frames)), "[backward of Linear (train.py:44)]");
        assert_eq!(forward_name(&of(&frames[3..])), "[backward of feed_forward (train.py:44)]");
        let function = [("layer_norm (functional.py:2930)", torch), frames[0], frames[3]];
        assert_eq!(forward_name(&of(&function)), "[backward of layer_norm (train.py:44)]");
        assert_eq!(forward_name(&[]), "[backward of other code]");
    }

    /// Check that a task is named after the user's function and line.
    #[test]
    fn tasks_are_named_after_the_users_function() {
        let jax = "/venv/lib/python3.12/site-packages/jax/_src/pjit.py";
        let frames = [("cache_miss (pjit.py:160)", jax), ("Model.train (jax_mlp.py:38)", "/home/me/jax_mlp.py")];
        assert_eq!(name(Kind::Task, &of(&frames)), "[handed over by train (jax_mlp.py:38)]");
        assert_eq!(name(Kind::Task, &[]), "[handed over by another thread]");
    }

    /// Check that the boundary names the user's line and what was called there, not PyTorch's own lines.
    #[test]
    fn the_users_line_is_named() {
        let torch = "/venv/lib/python3.12/site-packages/torch/_tensor.py";
        let frames = [
            ("_engine_run_backward (graph.py:841)", torch),
            ("Tensor.backward (_tensor.py:648)", torch),
            ("step (train.py:31)", "/home/me/train.py"),
            ("<module> (train.py:50)", "/home/me/train.py"),
        ];
        assert_eq!(named(&frames), "[handed over by backward (train.py:31)]");
        assert_eq!(named(&frames[2..]), "[handed over by step (train.py:31)]");
        assert_eq!(named(&frames[..2]), "[handed over by _engine_run_backward (graph.py:841)]");
        assert_eq!(named(&[]), "[handed over by backward]");
        assert_eq!(named(&[("[python]", "")]), "[handed over by backward]");
    }
}
