//! The line of a stack that its reader knows.

use model::{
    event::{FrameKind, NamedFrame},
    hang::Frame,
};

use crate::{
    names,
    user_code::{self, Place},
};

/// Returns the innermost line of the program's own code; `frames` begin with the innermost one. Without any, the innermost
/// informative frame.
pub(super) fn innermost(frames: &[Frame], program: &str) -> Option<Place> {
    let named: Vec<NamedFrame> = frames.iter().rev().map(named).collect();
    let informative = || named.iter().rposition(|frame| names::is_informative(&frame.name));
    let at = user_code::innermost(&named, program).or_else(informative).or(named.len().checked_sub(1))?;
    let frame = &named[at];
    Some(Place { frame: names::frame(frame), file: names::printable(&frame.module).into_owned() })
}

fn named(frame: &Frame) -> NamedFrame {
    let kind = if frame.python { FrameKind::Python } else { FrameKind::Native };
    NamedFrame { kind, name: frame.name.as_str().into(), module: frame.file.as_str().into() }
}
