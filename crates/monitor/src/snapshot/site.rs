//! Finds the line of the program that a stack belongs to: the frame that a person would name.

use std::borrow::Cow;

use text::names::printable;

use crate::snapshot::Frame;

/// Namespaces of frameworks and of standard libraries: they allocate on behalf of a caller.
const FOREIGN: [&str; 13] = [
    "at::",
    "c10::",
    "torch::",
    "caffe2::",
    "std::",
    "core::",
    "alloc::",
    "__gnu_cxx::",
    "pybind11::",
    "cupy::",
    "xla::",
    "thrust::",
    "cub::",
];

/// A Python frame that is not known: not read, because the interpreter was found later, or without a name. Whatever is beside it
/// is no one's line.
pub const UNKNOWN_PYTHON: &str = "[python]";

/// Returns the innermost frame of the program itself in `stack` (outermost first): `train.py:42 step` for Python, the
/// function's name for other languages. If all frames belong to libraries, returns the innermost named one; `None` for
/// a stack without names, or without those that matter.
pub fn site(stack: &[Frame]) -> Option<Cow<'_, str>> {
    let mut innermost = None;
    for frame in stack.iter().rev() {
        if frame.name == UNKNOWN_PYTHON {
            return None;
        }
        let Some((function, file, line)) = python_place(&frame.name) else { continue };
        let text = || Cow::Owned(printable(&format!("{file}:{line} {function}")).into_owned());
        if !frame.of_library {
            return Some(text());
        }
        innermost.get_or_insert_with(text);
    }
    let last = |wanted: fn(&str) -> bool| {
        stack.iter().rev().map(|frame| &*frame.name).find(|name| wanted(name)).map(printable)
    };
    innermost.or_else(|| last(is_of_program)).or_else(|| last(|name| !name.is_empty() && !name.starts_with('[')))
}

/// Splits `step (dir/train.py:42)` into function, file without its directory, and line.
fn python_place(frame: &str) -> Option<(&str, &str, &str)> {
    let (function, place) = frame.strip_suffix(')')?.rsplit_once(" (")?;
    let (file, line) = place.rsplit_once(':')?;
    let is_line = !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit());
    let file = file.rsplit('/').next().unwrap_or(file);
    // Native frames may have a source line too, but it does not distinguish the program from the standard library.
    (is_line && (file.ends_with(".py") || file.starts_with('<'))).then_some((function, file, line))
}

fn is_of_program(frame: &str) -> bool {
    let function = frame.strip_prefix("void ").unwrap_or(frame);
    let driver = |rest: &str| rest.starts_with(|c: char| c.is_ascii_uppercase());
    !(function.is_empty()
        || function.starts_with('[')
        || function.ends_with("_[k]")
        || function.starts_with('<')
        || function.starts_with("cuda")
        || function.starts_with("__cuda")
        || function.strip_prefix("cu").is_some_and(driver)
        || function.starts_with("Py")
        || function.starts_with("_Py")
        || function.starts_with("THP")
        || function.starts_with("operator new")
        || function.starts_with("__libc_start")
        || matches!(function, "_start" | "start_thread" | "clone3" | "clone" | "__clone3")
        || FOREIGN.iter().any(|namespace| function.starts_with(namespace)))
}

/// Returns a short, stable id for a whole stack: FNV-1a over its frames.
pub fn stack_id(stack: &[Frame]) -> u64 {
    let ends = std::iter::repeat(0xff);
    let bytes = stack.iter().zip(ends).flat_map(|(frame, end)| frame.name.bytes().chain([end]));
    fnv(bytes)
}

/// FNV-1a: gives the same names in every run.
pub(crate) fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of `module.py` are of a library.
    fn stack(names: &[&str]) -> Vec<Frame> {
        let frame = |name: &&str| Frame { of_library: name.contains("(module.py"), ..Frame::from(*name) };
        names.iter().map(frame).collect()
    }

    fn of(frames: &[&str]) -> Option<String> {
        site(&stack(frames)).map(Cow::into_owned)
    }

    /// Check that the program's own line is found below the libraries it calls.
    #[test]
    fn the_programs_own_line_is_found() {
        let python = ["_start", "<module> (train.py:50)", "step (/srv/job/train.py:42)", "_call_impl (module.py:1532)"];
        let native = ["at::native::empty_cuda", "c10::cuda::CUDACachingAllocator::malloc(unsigned long)", "cudaMalloc"];
        assert_eq!(of(&[&python[..], &native[..]].concat()).as_deref(), Some("train.py:42 step"));
        assert_eq!(
            of(&["_start", "main", "load(Model*)", "std::vector<int>::resize", "cudaMalloc", "[libcuda.so.1]"])
                .as_deref(),
            Some("load(Model*)")
        );
        assert_eq!(of(&["_start", "main", "cuMemAlloc_v2"]).as_deref(), Some("main"));
        assert_eq!(of(&["forward (module.py:9)", "cudaMalloc"]).as_deref(), Some("module.py:9 forward"));
        assert_eq!(of(&["[libfoo.so]", "c10::alloc()", "[libcuda.so.1]"]).as_deref(), Some("c10::alloc()"));
        assert_eq!(of(&["[libfoo.so]"]), None);
        let unknown = ["<module> (train.py:50)", UNKNOWN_PYTHON, "forward (module.py:9)", "ffi_call", "cudaMalloc"];
        assert_eq!(of(&unknown), None, "not the line of its caller, nor of what it calls");
        assert_eq!(
            of(&["main", UNKNOWN_PYTHON, "step (train.py:42)", "ffi_call"]).as_deref(),
            Some("train.py:42 step")
        );
        assert_eq!(of(&["main", "_PyEval_EvalFrameDefault", "ffi_call", UNKNOWN_PYTHON]), None);
        assert_eq!(of(&[]), None);
    }

    /// Check that hostile frames stay on one line.
    #[test]
    fn hostile_frames_stay_on_one_line() {
        assert_eq!(of(&["evil\n\u{1b}[2J (a\n.py:1)"]).as_deref(), Some("a .py:1 evil  [2J"));
        assert_eq!(of(&[" (", ")", "(:)", " (.py:)"]).as_deref(), Some(" (.py:)"));
    }

    /// Check that stacks with the same letters in different frames have different ids.
    #[test]
    fn stack_ids_differ() {
        let id = |frames: &[&str]| stack_id(&stack(frames));
        assert_eq!(id(&["a", "b"]), id(&["a", "b"]));
        assert_ne!(id(&["a", "b"]), id(&["ab"]));
        assert_ne!(id(&["a", "b"]), id(&["b", "a"]));
    }
}
