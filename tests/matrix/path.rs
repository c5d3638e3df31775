//! The paths of `programs/matrix/matrix.h`, matched against stacks.

use std::collections::{BTreeSet, HashSet};

use model::event::{NamedFrame, StackEnd};

use crate::support::recording::Stack;

/// A part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Function(String),
    /// One or more frames of the C library, the loader or the vdso, and stubs that lead there.
    System,
    /// One or more frames of the language's own library.
    Standard,
}

/// The expected stack.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Path {
    parts: Vec<Part>,
    /// The reason why the stack ends.
    end: StackEnd,
}

/// The paths of a program.
pub struct Paths {
    paths: Vec<Path>,
    /// All functions on the paths.
    own: HashSet<String>,
    /// The name used for all functions of a stripped program.
    stripped: Option<String>,
    /// Whether the C library is statically linked.
    linked: bool,
}

impl Paths {
    /// Parses the names of kernels.
    pub fn of<'a>(program: &str, kernels: impl IntoIterator<Item = &'a str>) -> Self {
        let stripped = program.ends_with("-stripped").then(|| format!("[{program}]"));
        let paths: Vec<Path> = kernels.into_iter().map(|kernel| Path::parse(kernel, stripped.as_deref())).collect();
        let parts = paths.iter().flat_map(|path| &path.parts);
        let functions =
            parts.filter_map(|part| if let Part::Function(name) = part { Some(name.clone()) } else { None });
        let own = functions.chain(["spin", "rust::spin"].map(String::from)).collect();
        Self { paths, own, stripped, linked: program.ends_with("-static") }
    }

    /// Whether a launch's stack is one of the paths, complete and followed only by the CUDA libraries. A path that is too long is
    /// truncated.
    pub fn launched(&self, stack: &Stack) -> bool {
        let cuda = |frame: &NamedFrame| frame.module.starts_with("libcu");
        let inside = stack.frames.iter().rposition(|frame| !cuda(frame)).map_or(0, |last| last + 1);
        let (frames, cuda) = stack.frames.split_at(inside);
        let whole = |parts: &[Part], rest: &[NamedFrame]| parts.is_empty() && rest.is_empty();
        self.paths.iter().any(|path| {
            let innermost = path.parts.len().saturating_sub(frames.len());
            let parts = if path.end == StackEnd::Truncated { &path.parts[innermost..] } else { &path.parts[..] };
            !cuda.is_empty() && stack.end == path.end && self.fits(parts, frames, &whole)
        })
    }

    /// Whether a sample may be on one of the paths: a prefix of the path, then functions called from there.
    pub fn sampled(&self, stack: &Stack) -> bool {
        let spins = |frame: &NamedFrame| frame.name.ends_with("spin") || self.stripped.as_deref() == Some(&*frame.name);
        let beside = |_: &[Part], rest: &[NamedFrame]| {
            let rest = if rest.first().is_some_and(spins) { &rest[1..] } else { rest };
            !rest.iter().any(|frame| self.own.contains(function(frame)))
        };
        self.paths.iter().any(|path| match stack.end {
            // Which part of a recursion was kept is unknown.
            StackEnd::Truncated => {
                path.end == StackEnd::Truncated
                    && (0..path.parts.len()).any(|from| self.fits(&path.parts[from..], &stack.frames, &beside))
            }
            _ => self.fits(&path.parts, &stack.frames, &beside),
        })
    }

    /// Whether frames match parts, one by one, up to a point where `done` accepts the rest.
    fn fits(&self, parts: &[Part], frames: &[NamedFrame], done: &dyn Fn(&[Part], &[NamedFrame]) -> bool) -> bool {
        if done(parts, frames) {
            return true;
        }
        let (Some((part, after)), Some((frame, left))) = (parts.split_first(), frames.split_first()) else {
            return false;
        };
        let some = |is: bool| is && (self.fits(after, left, done) || self.fits(parts, left, done));
        match part {
            Part::Function(name) => function(frame) == name && self.fits(after, left, done),
            Part::System => some(self.is_system(frame)),
            Part::Standard => some(is_standard(frame)),
        }
    }

    fn is_system(&self, frame: &NamedFrame) -> bool {
        let files = ["libc.so", "ld-linux", "libm.so", "[vdso]"];
        // A PLT stub has no symbol of its own: it gets the symbol before it.
        let stub = &*frame.name == "_init";
        stub || files.iter().any(|file| frame.module.starts_with(file))
            || (self.linked && !self.own.contains(function(frame)))
    }
}

impl Path {
    fn parse(text: &str, stripped: Option<&str>) -> Self {
        let (end, text) = match text.split_once('|') {
            Some(("cut", rest)) => (StackEnd::Truncated, rest),
            Some(("bare", rest)) => (StackEnd::NoRule, rest),
            _ => (StackEnd::Whole, text),
        };
        let mut parts = Vec::new();
        for part in text.split(';') {
            let repeated = part.rsplit_once('*').and_then(|(name, count)| Some((name, count.parse().ok()?)));
            let (name, count) = repeated.unwrap_or((part, 1));
            let part = match name {
                "@system" => Part::System,
                "@std" => Part::Standard,
                name => Part::Function(stripped.unwrap_or(name).into()),
            };
            parts.extend(std::iter::repeat_n(part, count));
        }
        Self { parts, end }
    }
}

/// A function's name. gcc moves cold parts elsewhere, under a name of their own.
fn function(frame: &NamedFrame) -> &str {
    frame.name.split_once(" [clone").map_or(&*frame.name, |(name, _)| name).trim_end_matches(".cold")
}

fn is_standard(frame: &NamedFrame) -> bool {
    let name = |start: &&str| frame.name.starts_with(*start);
    frame.module.starts_with("libstdc++") || ["std::", "core::", "alloc::", "<std::", "<alloc::"].iter().any(name)
}

/// Distinct paths.
pub type Kernels = BTreeSet<String>;
