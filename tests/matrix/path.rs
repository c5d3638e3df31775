//! The paths of `programs/matrix/matrix.h`, held against stacks.

use model::event::NamedFrame;

/// A part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Function(String),
    /// One frame or more of the C library, the loader or the vdso, and stubs that lead there.
    System,
    /// One frame or more of the language's own library.
    Standard,
}

/// What a stack must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    parts: Vec<Part>,
    /// It is too long to be kept: the stack is its innermost part.
    pub cut: bool,
}

impl Path {
    /// Reads a kernel's name. Where the program is `stripped`, its functions are known by its name alone.
    pub fn parse(text: &str, stripped: Option<&str>) -> Self {
        let (cut, text) = text.strip_prefix("cut|").map_or((false, text), |rest| (true, rest));
        let mut parts = Vec::new();
        for part in text.split(';') {
            let repeated = part.rsplit_once('*').and_then(|(name, count)| Some((name, count.parse().ok()?)));
            let (name, count) = repeated.unwrap_or((part, 1));
            let part = match (name, stripped) {
                ("@system", _) => Part::System,
                ("@std", _) => Part::Standard,
                (_, Some(module)) => Part::Function(format!("[{module}]")),
                (name, None) => Part::Function(name.into()),
            };
            parts.extend(std::iter::repeat_n(part, count));
        }
        Self { parts, cut }
    }

    /// Whether a launch has this path: all of it, and then the CUDA libraries alone.
    pub fn launches(&self, frames: &[NamedFrame]) -> bool {
        let inside = frames.iter().rposition(|frame| !frame.module.starts_with("libcu")).map_or(0, |last| last + 1);
        let (path, cuda) = frames.split_at(inside);
        let parts = if self.cut { &self.parts[self.parts.len().saturating_sub(path.len())..] } else { &self.parts[..] };
        !cuda.is_empty() && fits(parts, path, &|parts, rest| parts.is_empty() && rest.is_empty())
    }

    /// Whether a thread that runs along this path may be here: some way along it, and then in what the functions call
    /// beside it.
    pub fn passes(&self, frames: &[NamedFrame]) -> bool {
        let beside = |frame: &NamedFrame| is_system(frame) || is_standard(frame) || frame.module.starts_with("libgcc");
        let off = |_: &[Part], rest: &[NamedFrame]| {
            let rest = if rest.first().is_some_and(|frame| frame.name.ends_with("spin")) { &rest[1..] } else { rest };
            rest.iter().all(beside)
        };
        if !self.cut {
            return fits(&self.parts, frames, &off);
        }
        // Which part was kept cannot be told when it is the middle of a recursion.
        (0..self.parts.len()).any(|from| fits(&self.parts[from..], frames, &off))
    }
}

/// Whether frames answer to parts, one by one, up to a point where `done` says that it is enough.
fn fits(parts: &[Part], frames: &[NamedFrame], done: &dyn Fn(&[Part], &[NamedFrame]) -> bool) -> bool {
    if done(parts, frames) {
        return true;
    }
    let (Some((part, parts_left)), Some((frame, left))) = (parts.split_first(), frames.split_first()) else {
        return false;
    };
    let some =
        |is: &dyn Fn(&NamedFrame) -> bool| is(frame) && (fits(parts_left, left, done) || fits(parts, left, done));
    match part {
        Part::Function(name) => function(frame) == name && fits(parts_left, left, done),
        Part::System => some(&is_system),
        Part::Standard => some(&is_standard),
    }
}

/// A function's name. gcc puts parts that seldom run elsewhere, under a name of their own.
fn function(frame: &NamedFrame) -> &str {
    frame.name.split_once(" [clone").map_or(&*frame.name, |(name, _)| name).trim_end_matches(".cold")
}

fn is_system(frame: &NamedFrame) -> bool {
    let file = |start| frame.module.starts_with(start);
    // A stub of the PLT, on the way to one of them, has no name of its own: what lies before it has.
    let name = |start| frame.name.starts_with(start);
    file("libc.so") || file("ld-linux") || file("libm.so") || file("[vdso]") || name("__libc_start") || name("_init")
}

fn is_standard(frame: &NamedFrame) -> bool {
    let name = |start| frame.name.starts_with(start);
    frame.module.starts_with("libstdc++")
        || name("std::")
        || name("core::")
        || name("alloc::")
        || name("<std::")
        || name("<alloc::")
}
