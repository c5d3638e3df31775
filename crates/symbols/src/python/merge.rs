//! Replaces the native frames that run Python code by the Python frames.
//!
//! A native frame in the interpreter's loop runs Python frames: one in old versions, in new ones all those that called
//! each other without leaving the loop. The outermost of them is the one that the loop was entered for. So the n-th
//! entry from the outside belongs to the n-th loop from the outside:
//!
//! ```text
//!   native, outermost first                  Python           shown
//!   _start                                                    _start
//!   __libc_start_main                                         __libc_start_main
//!   Py_RunMain ...          (interpreter)                     -
//!   _PyEval_EvalFrameDefault       (loop)    <module> entry   <module> (train.py:50)
//!                                            train            train (train.py:42)
//!   cfunction_call          (interpreter)                     -
//!   torch::...                    (other)                     torch::...
//!   PyObject_Call           (interpreter)                     -
//!   _PyEval_EvalFrameDefault       (loop)    hook entry       hook (train.py:12)
//!   PyDict_SetItem          (interpreter)                     PyDict_SetItem
//! ```
//!
//! The interpreter's own frames are hidden, except for those at the innermost end, where the time is spent. So are the
//! functions that it generates to represent Python functions for profilers without Python support (`-X perf`): each
//! calls the loop.
//!
//! Entries and loops that do not match are counted (`python_stacks_uneven`). Nothing else without a file calls the loop
//! directly, so the functions of `-X perf` can be identified; they are omitted next to Python's own frames.

/// The code that a native frame is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The interpreter's loop.
    Loop,
    /// The rest of the interpreter's file, except for `_start` and `main`.
    Interpreter,
    /// The C library and similar ones, which the interpreter itself uses, and `_start` and `main`.
    System,
    /// Code generated at run time, not in a file.
    Generated,
    /// Anything else: extensions, other libraries.
    Other,
}

/// The native part of a stack.
#[derive(Clone, Copy, Debug)]
pub struct Native<'a> {
    /// Innermost first.
    pub kinds: &'a [Kind],
    /// It reaches the outermost frame.
    pub whole: bool,
}

/// The Python part of a stack.
#[derive(Clone, Copy, Debug)]
pub struct Python<'a> {
    /// Innermost first: whether the loop was entered for the frame.
    pub entries: &'a [bool],
    /// It reaches the outermost frame.
    pub whole: bool,
}

/// A frame of one or the other part, by its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A native frame.
    Native(usize),
    /// A Python frame.
    Python(usize),
}

/// Both parts merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Innermost first.
    pub frames: Vec<Part>,
    /// The parts do not match: some frames may be out of order.
    pub uneven: bool,
}

/// Merges the two parts. The result contains all Python frames in order, and all native frames that belong neither to
/// the loop nor to the interpreter.
pub fn merge(native: Native<'_>, python: Python<'_>) -> Merged {
    let runs = runs(python.entries);
    let loops: Vec<usize> = (0..native.kinds.len()).filter(|i| native.kinds[*i] == Kind::Loop).collect();
    // A loop that was entered but has not linked its frame yet, or has already unlinked it, is the innermost.
    let idle = match loops.len().checked_sub(runs.len()) {
        Some(more) if python.whole => more,
        _ => 0,
    };
    let from_outside = native.whole && python.whole;
    let uneven = from_outside && (idle > 1 || runs.len() > loops.len());
    let working = &loops[idle..];
    let mut frames = Vec::with_capacity(native.kinds.len() + python.entries.len());
    for (index, kind) in native.kinds.iter().enumerate() {
        match working.iter().position(|at| *at == index) {
            Some(number) => {
                // Runs without their own loop: inside the innermost loop, or beyond the last known one.
                let surplus = runs.len().saturating_sub(working.len());
                let last = number + 1 == working.len();
                let (begin, end) = match from_outside {
                    true => (if number == 0 { 0 } else { number + surplus }, number + surplus + 1),
                    false => (number, if last { number + 1 + surplus } else { number + 1 }),
                };
                for run in runs.get(begin..end.min(runs.len())).unwrap_or_default() {
                    frames.extend(run.clone().map(Part::Python));
                }
            }
            None if is_generated_python(native.kinds, index) => {}
            None if *kind != Kind::Interpreter && *kind != Kind::Loop => frames.push(Part::Native(index)),
            None if is_shown(native.kinds, working, index) => frames.push(Part::Native(index)),
            None => {}
        }
    }
    if working.is_empty() {
        frames.extend((0..python.entries.len()).map(Part::Python));
    }
    Merged { frames, uneven }
}

/// Returns the frames of each run of the loop, innermost first: each ends with the one it was entered for.
fn runs(entries: &[bool]) -> Vec<std::ops::Range<usize>> {
    let mut runs = Vec::new();
    let mut begin = 0;
    for (index, entry) in entries.iter().enumerate() {
        if *entry || index + 1 == entries.len() {
            runs.push(begin..index + 1);
            begin = index + 1;
        }
    }
    runs
}

/// Whether the interpreter generated the frame to represent a Python function: it calls the loop itself, as no other
/// code without a file does.
fn is_generated_python(kinds: &[Kind], index: usize) -> bool {
    kinds[index] == Kind::Generated && index.checked_sub(1).is_some_and(|called| kinds[called] == Kind::Loop)
}

/// Whether a frame of the interpreter is shown: at the innermost end, where the interpreter itself does the work, but
/// not where it calls an extension.
fn is_shown(kinds: &[Kind], working: &[usize], index: usize) -> bool {
    working.first().is_none_or(|innermost| {
        index < *innermost && !kinds[..index].iter().any(|kind| matches!(kind, Kind::Other | Kind::Generated))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Kind::{Generated as G, Interpreter as I, Loop as L, Other as O, System as S};

    fn shown(native: &[Kind], python: &[bool]) -> (String, bool) {
        merged(native, true, python, true)
    }

    /// Native frames by number, Python frames by letter, outermost first.
    fn merged(native: &[Kind], native_whole: bool, python: &[bool], python_whole: bool) -> (String, bool) {
        let native = Native { kinds: native, whole: native_whole };
        let merged = merge(native, Python { entries: python, whole: python_whole });
        let letter = |part: &Part| match *part {
            Part::Native(index) => char::from(b'0' + index as u8),
            Part::Python(index) => char::from(b'a' + index as u8),
        };
        (merged.frames.iter().rev().map(letter).collect(), merged.uneven)
    }

    const ENTRY: bool = true;
    const CALLED: bool = false;

    /// The example above.
    #[test]
    fn an_extension_calls_back() {
        let native = [I, L, I, O, I, L, I, I, S, O];
        let python = [ENTRY, CALLED, ENTRY];
        assert_eq!(shown(&native, &python), ("98cb3a0".into(), false));
    }

    /// The interpreter's work at the innermost end is shown, including the C library's part; calls into an extension
    /// are not.
    #[test]
    fn innermost_interpreter_frames_are_shown() {
        assert_eq!(shown(&[S, I, I, L, S], &[ENTRY]), ("4a210".into(), false));
        assert_eq!(shown(&[S, O, I, L, S], &[ENTRY]), ("4a10".into(), false));
    }

    /// A loop that was just entered has no Python frame yet: it is shown as the innermost, and nothing shifts.
    #[test]
    fn a_loop_just_entered() {
        assert_eq!(shown(&[L, I, L, I, L, S], &[CALLED, ENTRY, ENTRY]), ("5cba10".into(), false));
    }

    /// With `-X perf` each Python function has a generated frame, which is hidden; other generated code is not. One
    /// that has not called the loop yet is where the time is spent.
    #[test]
    fn generated_python_frames_are_hidden() {
        assert_eq!(shown(&[O, I, L, G, I, L, G, I, S], &[ENTRY, ENTRY]), ("8ba0".into(), false));
        assert_eq!(shown(&[L, I, G, I, L, G, I, S], &[ENTRY, ENTRY]), ("7b2a".into(), false));
        assert_eq!(shown(&[G, I, L, G, I, S], &[ENTRY]), ("5a0".into(), false));
        assert_eq!(shown(&[L, G, I, L, G, I, S], &[ENTRY]), ("6a0".into(), false));
    }

    /// A truncated native part is matched from the inside, and the Python frames beyond it are kept; so is a truncated
    /// Python part.
    #[test]
    fn truncated_parts_are_matched_from_inside() {
        assert_eq!(merged(&[O, L, I, L], false, &[ENTRY, ENTRY, CALLED, ENTRY], true), ("dcba0".into(), false));
        assert_eq!(merged(&[O, L, I, L, I, L, S], true, &[ENTRY, CALLED], false), ("6ba0".into(), false));
        assert_eq!(merged(&[O, O], false, &[CALLED, ENTRY], true), ("ba10".into(), false));
    }

    /// More Python than native runs are reported as uneven, and every frame is kept.
    #[test]
    fn uneven_parts_are_reported() {
        assert_eq!(shown(&[O, L, O, L, S], &[ENTRY, ENTRY, ENTRY]), ("4c2ba0".into(), true));
        assert_eq!(shown(&[L, L, L, S], &[ENTRY]), ("3a10".into(), true));
        assert_eq!(shown(&[O, S], &[ENTRY]), ("a10".into(), true));
    }

    /// For all inputs, all Python frames are returned in order, and all frames outside the interpreter.
    #[test]
    fn nothing_is_lost() {
        let kinds = [L, I, S, O, G];
        for seed in 0_u32..20_000 {
            let pick = |shift: u32| (seed.wrapping_mul(2_654_435_761) >> shift) as usize;
            let native: Vec<Kind> = (0..pick(3) % 9).map(|i| kinds[pick(5 + 2 * i as u32) % 5]).collect();
            let python: Vec<bool> = (0..pick(7) % 6).map(|i| pick(11 + i as u32) % 2 == 0).collect();
            let native_part = Native { kinds: &native, whole: pick(29) % 2 == 0 };
            let merged = merge(native_part, Python { entries: &python, whole: pick(30) % 2 == 0 });
            let of_python: Vec<usize> = merged.frames.iter().filter_map(|p| python_index(*p)).collect();
            assert_eq!(of_python, (0..python.len()).collect::<Vec<_>>(), "{native:?} {python:?}");
            for (index, kind) in native.iter().enumerate() {
                let there = merged.frames.contains(&Part::Native(index));
                assert!(there || !matches!(kind, S | O), "{native:?} {python:?}");
            }
        }
    }

    fn python_index(part: Part) -> Option<usize> {
        match part {
            Part::Python(index) => Some(index),
            Part::Native(_) => None,
        }
    }
}
