//! Finds the user's own code in a stack: the line that a reader knows and can change.
//!
//! In Python, these are the files outside of the interpreter and its packages. In a native program, these are the
//! functions of its executable. The code that started a thread did not cause what the thread does: it is left out.

use std::{cell::RefCell, collections::HashMap};

use model::{
    event::{FrameKind, NamedFrame, Origin, ProcessId, StackId},
    profile::{GpuKey, Profile},
};
use serde::Serialize;
use text::{
    short::{short, split_place},
    user_code::is_user_file,
};

use crate::names::{self, GpuFrames, is_informative};

/// The length of a name in a sentence, where it can be shortened to that.
const SHORT: usize = 60;

/// A line of code, or a function where lines are not known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The frame, as in the flame graph: `load (data.py:88)`.
    pub frame: String,
    /// The source file of a Python frame, otherwise the program or library that contains it.
    pub file: String,
}

impl Place {
    /// Returns the frame, shortened to fit into a sentence.
    pub fn short(&self) -> String {
        short(&self.frame, SHORT)
    }

    /// Returns the function, without the line.
    pub fn function(&self) -> &str {
        split_place(&self.frame).0
    }
}

/// Returns a frame without its line: `load (data.py)`. What is summed by function has no line of its own.
pub(crate) fn without_line(frame: &str) -> String {
    let (function, place) = split_place(frame);
    match place.rsplit_once(':') {
        Some((file, _)) => format!("{function}{file})"),
        None => format!("{function}{place}"),
    }
}

/// Whether a native frame is a function of the executable. Those of an interpreter are not user code.
fn is_of_program(frame: &NamedFrame, program: &str) -> bool {
    frame.kind == FrameKind::Native
        && &*frame.module == program
        && !program.starts_with("python")
        && (is_informative(&frame.name) || split_place(&frame.name).0 == "main")
}

/// Whether a frame is the user's own code: a Python file of no package, or a function of the executable `program`.
pub fn is_user(frame: &NamedFrame, program: &str) -> bool {
    match frame.kind {
        FrameKind::Python => is_user_file(&frame.module),
        _ => is_of_program(frame, program),
    }
}

/// Returns the index of the first frame of the thread itself, after those of the code that started it.
fn own(frames: &[NamedFrame]) -> usize {
    frames.iter().rposition(|frame| names::is_start(&frame.name)).map_or(0, |at| at + 1)
}

/// Returns the frames of user code, outermost first. If there are none, those that are informative.
fn path(frames: &[NamedFrame], program: &str) -> Vec<String> {
    let frames = &frames[own(frames)..];
    let python = |frame: &&NamedFrame| frame.kind == FrameKind::Python;
    let is_python = frames.iter().any(|frame| python(&frame));
    let is_user = |frame: &&NamedFrame| {
        if is_python { python(frame) && is_user_file(&frame.module) } else { is_of_program(frame, program) }
    };
    let informative = |frame: &&NamedFrame| {
        frame.kind != FrameKind::Kernel && (is_informative(&frame.name)) && (!is_python || python(frame))
    };
    let ours: Vec<String> = frames.iter().filter(is_user).map(names::frame).collect();
    if ours.is_empty() { frames.iter().filter(informative).map(names::frame).collect() } else { ours }
}

/// Returns the index of the innermost frame of user code. `program` is the file name of the executable. If a Python
/// stack has none, this is its innermost Python frame.
pub fn innermost(frames: &[NamedFrame], program: &str) -> Option<usize> {
    let first = own(frames);
    let last = |wanted: &dyn Fn(&NamedFrame) -> bool| frames[first..].iter().rposition(wanted).map(|at| first + at);
    let python = |frame: &NamedFrame| frame.kind == FrameKind::Python;
    last(&|frame| python(frame) && is_user_file(&frame.module))
        .or_else(|| last(&python))
        .or_else(|| last(&|frame| is_of_program(frame, program)))
}

/// Finds user code in the stacks of a profile.
pub struct UserCode<'a> {
    profile: &'a Profile,
    /// The file name of each image's executable.
    programs: HashMap<ProcessId, &'a str>,
    found: RefCell<HashMap<(ProcessId, StackId), Place>>,
}

impl<'a> UserCode<'a> {
    /// Learns the executables of a profile: the first file that is mapped into an image.
    pub fn new(profile: &'a Profile) -> Self {
        let mut first: HashMap<ProcessId, (u64, &str)> = HashMap::new();
        for mapping in profile.mappings.iter().filter(|mapping| mapping.path.starts_with('/')) {
            let known = first.entry(mapping.process).or_insert((mapping.time, &mapping.path));
            if mapping.time < known.0 {
                *known = (mapping.time, &mapping.path);
            }
        }
        let programs = first.into_iter().map(|(process, (_, path))| (process, path.rsplit('/').next().unwrap_or(path)));
        Self { profile, programs: programs.collect(), found: RefCell::default() }
    }

    /// Returns the file name of an image's executable. A forked image has that of its parent.
    pub fn program(&self, process: ProcessId) -> &'a str {
        let mut image = process;
        let mut first = None;
        // Images refer to earlier ones; a damaged recording may contain a circle.
        for _ in 0..64 {
            let own = self.programs.get(&image).copied();
            first = first.or(own);
            let info = self.profile.processes.get(&image);
            // What a forked image maps are libraries.
            match (own, info.and_then(|info| info.parent), info.is_some_and(|info| info.origin == Origin::Fork)) {
                (Some(program), _, false) => return program,
                (_, Some(parent), _) => image = parent,
                _ => break,
            }
        }
        first.unwrap_or_default()
    }

    /// Returns the frames of user code of a stack, outermost first. If there are none, those that are informative.
    pub fn path(&self, process: ProcessId, stack: StackId) -> Vec<String> {
        path(&self.profile.frames(stack), self.program(process))
    }

    /// Returns the innermost line of user code of a stack. If there is none, the innermost frame that is informative.
    pub fn place(&self, process: ProcessId, stack: StackId) -> Place {
        if let Some(known) = self.found.borrow().get(&(process, stack)) {
            return known.clone();
        }
        let frames = self.profile.frames(stack);
        let informative = || frames.iter().rposition(|f| f.kind != FrameKind::Kernel && is_informative(&f.name));
        let found = innermost(&frames, self.program(process)).or_else(informative).or(frames.len().checked_sub(1));
        let place = match found.map(|at| &frames[at]) {
            Some(frame) => Place { frame: names::frame(frame), file: names::printable(&frame.module).into_owned() },
            None => Place { frame: names::process(self.profile, process), file: String::new() },
        };
        self.found.borrow_mut().insert((process, stack), place.clone());
        place
    }
}

/// Returns a function from GPU work to its path of user code, with the process and the work itself.
pub(crate) fn user_path(profile: &Profile) -> impl Fn(&GpuKey) -> String {
    let (code, gpu_frames) = (UserCode::new(profile), GpuFrames::new(profile));
    move |key| {
        let mut frames = vec![names::process(profile, key.process)];
        match key.capture.or(key.stack) {
            Some(stack) => frames.extend(code.path(key.process, stack)),
            None => frames.push(names::LAUNCH_NOT_SEEN.to_owned()),
        }
        frames.extend(key.capture.is_some().then(|| names::GRAPH_REPLAY.to_owned()));
        frames.push(gpu_frames.name(key.device, key.what));
        frames.join(";")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: FrameKind, name: &str, module: &str) -> NamedFrame {
        NamedFrame { kind, name: name.into(), module: module.into() }
    }

    /// Check that a forked image has the program of its parent, whatever it maps itself; an exec'd one has its own.
    #[test]
    fn forked_images_have_the_program_of_their_parent() {
        use model::{event::Mapping, profile::ProcessInfo};
        let mut profile = Profile::default();
        let image = |parent, origin| ProcessInfo { parent, origin, ..ProcessInfo::default() };
        let images =
            [(1, None, Origin::Exec), (2, Some(ProcessId(1)), Origin::Fork), (3, Some(ProcessId(2)), Origin::Exec)];
        for (id, parent, origin) in images {
            profile.processes.insert(ProcessId(id), image(parent, origin));
        }
        for (process, time, path) in
            [(1, 1, "/bin/train"), (1, 2, "/lib/libc.so.6"), (2, 5, "/lib/libcupti.so"), (3, 9, "/bin/sh")]
        {
            let (start, end, offset, path, build_id) = (0, 0, 0, path.into(), Vec::new());
            profile.mappings.push(Mapping { process: ProcessId(process), time, start, end, offset, path, build_id });
        }
        let code = UserCode::new(&profile);
        assert_eq!([1, 2, 3].map(|id| code.program(ProcessId(id))), ["train", "train", "sh"]);
    }

    /// Check which Python files are the user's.
    #[test]
    fn packages_and_the_interpreter_are_not_user_code() {
        for path in ["train.py", "/home/me/lib/train.py", "/opt/python3.12/app/x.py", "/srv/lib/pythonic/x.py"] {
            assert!(is_user_file(path), "{path}");
        }
        let others = [
            "/usr/lib/python3.11/threading.py",
            "/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py",
            "/usr/lib/python3/dist-packages/numpy/core.py",
            "<frozen importlib._bootstrap>",
            "",
        ];
        for path in others {
            assert!(!is_user_file(path), "{path}");
        }
    }

    /// Check that a frame keeps its file without its line, and that nothing else changes.
    #[test]
    fn lines_are_left_out() {
        assert_eq!(without_line("load (data.py:88)"), "load (data.py)");
        for name in ["load (data.py)", "main", "f(int, std::array<char, 3>)", "[unknown]"] {
            assert_eq!(without_line(name), name);
        }
    }

    /// Check that the innermost user line is found below library code, and what is used where there is none.
    #[test]
    fn innermost_line_of_user_code() {
        use FrameKind::{Native, Python};
        let torch = "/venv/lib/python3.12/site-packages/torch/nn/linear.py";
        let mut frames = vec![
            frame(Native, "_start", "python3.12"),
            frame(Python, "<module> (train.py:9)", "/home/me/train.py"),
            frame(Python, "step (train.py:42)", "/home/me/train.py"),
            frame(Python, "forward (linear.py:134)", torch),
            frame(Native, "at::linear", "libtorch.so"),
        ];
        assert_eq!(innermost(&frames, "python3.12"), Some(2));
        frames.drain(1..3);
        assert_eq!(innermost(&frames, "python3.12"), Some(1), "a library's line is better than none");
        frames.remove(1);
        assert_eq!(innermost(&frames, "python3.12"), None);
        let started = [
            frame(Python, "main (train.py:3)", "/home/me/train.py"),
            frame(Native, "[started by start (train.py:3)]", ""),
            frame(Python, "work (train.py:7)", "/home/me/train.py"),
            frame(Python, "forward (linear.py:134)", torch),
        ];
        assert_eq!(innermost(&started, "python3.12"), Some(2));
        assert_eq!(path(&started, "python3.12"), ["work (train.py:7)"]);
        assert_eq!(
            innermost(&[&started[..2], &started[3..]].concat(), "python3.12"),
            Some(2),
            "not the line that started it"
        );
        let native = [
            frame(Native, "_start", "app"),
            frame(Native, "main", "app"),
            frame(Native, "load", "app"),
            frame(Native, "cudaLaunchKernel", "app"),
            frame(Native, "memcpy", "libc.so.6"),
        ];
        assert_eq!(innermost(&native, "app"), Some(2));
        assert_eq!(innermost(&native[..2], "app"), Some(1));
        let with_lines = [
            frame(Native, "main (hello.c:17)", "app"),
            frame(Native, "cudaLaunchKernel", "libcudart.so.12"),
            frame(Native, "[libcuda.so.1]", "libcuda.so.1"),
        ];
        assert_eq!(innermost(&with_lines, "app"), Some(0), "main is user code, with its line, too");
        assert_eq!(path(&with_lines, "app"), ["main (hello.c:17)"]);
    }
}
