//! The frame between a thread's stack and that of its cause, named after the user's code there.

use model::event::{FrameKind, NamedFrame};
use text::user_code::is_user_file;

/// What `execute_with_graph_task` is called for, where no Python function says it.
const BACKWARD: &str = "backward";

/// What the boundary marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Work was handed to the thread.
    HandedOver,
    /// The thread was started.
    Started,
}

/// Returns the boundary's name for a caller with these Python frames, innermost first: the line of the user's code, and the
/// function that was called there.
pub fn name(kind: Kind, frames: &[NamedFrame]) -> String {
    match kind {
        Kind::HandedOver => named_after("handed over by", frames, BACKWARD),
        Kind::Started => named_after("started by", frames, "another thread"),
    }
}

/// Returns the name of the frame for the forward code that made a part of the work, in the same way.
pub fn forward_name(frames: &[NamedFrame]) -> String {
    named_after("backward of", frames, "other code")
}

/// `otherwise` is for callers without such a line.
fn named_after(what: &str, frames: &[NamedFrame], otherwise: &str) -> String {
    let user = frames.iter().position(|frame| is_user_file(&frame.module)).unwrap_or(0);
    let Some((function, line)) = frames.get(user).and_then(split) else {
        return format!("[{what} {otherwise}]");
    };
    let called = user.checked_sub(1).and_then(|inner| split(&frames[inner])).map_or(function, |(called, _)| called);
    format!("[{what} {called} ({line})]")
}

/// Returns the frame with this name.
pub fn frame(name: &str) -> NamedFrame {
    NamedFrame { kind: FrameKind::Native, name: name.into(), module: "".into() }
}

/// Splits `function (file:line)`; the function without its class.
pub fn split(frame: &NamedFrame) -> Option<(&str, &str)> {
    let (function, line) = frame.name.strip_suffix(')')?.rsplit_once(" (")?;
    Some((function.rsplit('.').next().unwrap_or(function), line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(frames: &[(&str, &str)]) -> String {
        let frame = |(name, module): &(&str, &str)| NamedFrame {
            kind: FrameKind::Python,
            name: (*name).into(),
            module: (*module).into(),
        };
        name(Kind::HandedOver, &frames.iter().map(frame).collect::<Vec<_>>())
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
