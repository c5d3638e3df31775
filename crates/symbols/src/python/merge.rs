//! Puts Python frames in the place of the native frames that run them.
//!
//! A native frame in the interpreter's loop runs Python frames: one in old versions, in new ones all those that called each
//! other without leaving the loop. The outermost of them is the one that the loop was entered for. So the n-th entry
//! from the outside belongs to the n-th loop from the outside:
//!
//! ```text
//!   native, outermost first                  Python           what is shown
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
//! The interpreter's own frames are hidden, but for those at the innermost end: there the time is spent. So are the functions that
//! it generates to stand for Python functions in a profiler that knows no Python (`-X perf`): each calls the loop.

/// What a native frame lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The interpreter's loop.
    Loop,
    /// The rest of the file that the interpreter lies in, but for `_start` and `main`.
    Interpreter,
    /// The C library and its like, which the interpreter calls for its own ends, and `_start` and `main`.
    System,
    /// Code made at run time, in no file.
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

/// Both parts as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Innermost first.
    pub frames: Vec<Part>,
    /// The parts do not answer to each other: some frames may be out of order.
    pub uneven: bool,
}

/// Puts the two parts together. All Python frames are in the result, in their order, and so are all native frames that are
/// neither the loop nor the interpreter's.
pub fn merge(native: Native<'_>, python: Python<'_>) -> Merged {
    let runs = runs(python.entries);
    let loops: Vec<usize> = (0..native.kinds.len()).filter(|i| native.kinds[*i] == Kind::Loop).collect();
    // A loop that was entered but has not linked its frame yet, or has unlinked it already, is the innermost.
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
                // Runs without a loop of their own: inside the innermost loop, or beyond the last that is known.
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
            None if is_stand_in(native.kinds, index) => {}
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

/// The frames that each run of the loop has, innermost first: each ends with the one it was entered for.
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

/// Whether a frame is one that the interpreter has generated to stand for a Python function: it calls the loop itself, which
/// nothing else without a file does.
fn is_stand_in(kinds: &[Kind], index: usize) -> bool {
    kinds[index] == Kind::Generated && index.checked_sub(1).is_some_and(|called| kinds[called] == Kind::Loop)
}

/// Whether a frame of the interpreter's own is shown: at the innermost end what the interpreter itself does, but not its way
/// into an extension.
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

    /// The picture above.
    #[test]
    fn an_extension_calls_back() {
        let native = [I, L, I, O, I, L, I, I, S, O];
        let python = [ENTRY, CALLED, ENTRY];
        assert_eq!(shown(&native, &python), ("98cb3a0".into(), false));
    }

    /// What the interpreter does at the innermost end is shown, with the C library's part in it; the way to an extension is
    /// not.
    #[test]
    fn the_innermost_frames() {
        assert_eq!(shown(&[S, I, I, L, S], &[ENTRY]), ("4a210".into(), false));
        assert_eq!(shown(&[S, O, I, L, S], &[ENTRY]), ("4a10".into(), false));
    }

    /// A loop that has just been entered has no Python frame yet: it is shown, being the innermost, and nothing shifts.
    #[test]
    fn a_loop_just_entered() {
        assert_eq!(shown(&[L, I, L, I, L, S], &[CALLED, ENTRY, ENTRY]), ("5cba10".into(), false));
    }

    /// With `-X perf` each Python function has a stand-in, which is hidden; other generated code is not. One that has not
    /// called the loop yet is where the time is spent.
    #[test]
    fn stand_ins() {
        assert_eq!(shown(&[O, I, L, G, I, L, G, I, S], &[ENTRY, ENTRY]), ("8ba0".into(), false));
        assert_eq!(shown(&[L, I, G, I, L, G, I, S], &[ENTRY, ENTRY]), ("7b2a".into(), false));
        assert_eq!(shown(&[G, I, L, G, I, S], &[ENTRY]), ("5a0".into(), false));
        assert_eq!(shown(&[L, G, I, L, G, I, S], &[ENTRY]), ("6a0".into(), false));
    }

    /// A native part cut short is matched from the inside, and the Python frames beyond it are kept; so is a Python part
    /// cut short.
    #[test]
    fn cut_short() {
        assert_eq!(merged(&[O, L, I, L], false, &[ENTRY, ENTRY, CALLED, ENTRY], true), ("dcba0".into(), false));
        assert_eq!(merged(&[O, L, I, L, I, L, S], true, &[ENTRY, CALLED], false), ("6ba0".into(), false));
        assert_eq!(merged(&[O, O], false, &[CALLED, ENTRY], true), ("ba10".into(), false));
    }

    /// More Python than native is told, and every frame is there.
    #[test]
    fn uneven() {
        assert_eq!(shown(&[O, L, O, L, S], &[ENTRY, ENTRY, ENTRY]), ("4c2ba0".into(), true));
        assert_eq!(shown(&[L, L, L, S], &[ENTRY]), ("3a10".into(), true));
        assert_eq!(shown(&[O, S], &[ENTRY]), ("a10".into(), true));
    }

    /// Whatever the parts are, all Python frames come out in their order, and all that is not the interpreter's.
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
