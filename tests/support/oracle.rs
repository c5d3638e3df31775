//! Computes independently what `programs/truth.c` does: how often it takes each path, and what it launches there.

use std::collections::BTreeMap;

/// The arguments of the program.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    pub processes: u64,
    pub threads: u64,
    pub streams: u64,
    pub devices: u64,
    /// Launches of each thread.
    pub launches: u64,
    /// `--graphs`
    pub graphs: bool,
}

/// The kinds of GPU work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Kernel,
    Copy,
    Memset,
}

/// The number of kernels, copies or memsets on each device under each path (`worker>a>leaf0`).
pub type Counts = BTreeMap<(Kind, u32, String), u64>;

/// Functions on the paths.
const INNER: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const LEAVES: [&str; 4] = ["leaf0", "leaf1", "leaf2", "leaf3"];
const PATHS: u64 = 64;
/// Kernels in a graph.
const NODES: u64 = 3;

/// Whether a function is on the paths, so that it is significant in a stack.
pub fn is_walker(function: &str) -> bool {
    function == "worker" || INNER.contains(&function) || LEAVES.contains(&function)
}

fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// All paths, by their numbers.
pub fn paths() -> Vec<String> {
    let mut state = 42;
    let mut pick = |among: u64| (next_random(&mut state) % among) as usize;
    let path = |_| {
        let inner = 1 + pick(10);
        let mut functions = vec!["worker"];
        functions.extend((0..inner).map(|_| INNER[pick(INNER.len() as u64)]));
        functions.push(LEAVES[pick(LEAVES.len() as u64)]);
        functions.join(">")
    };
    (0..PATHS).map(path).collect()
}

impl Walk {
    /// 2 processes, 8 threads, 3 streams, 2 devices.
    pub fn of(launches: u64) -> Self {
        Self { processes: 2, threads: 8, streams: 3, devices: 2, launches, graphs: false }
    }

    /// The program's arguments.
    pub fn arguments(&self) -> String {
        let Self { processes, threads, streams, devices, launches, graphs } = *self;
        let graphs = if graphs { " --graphs" } else { "" };
        format!("{processes} {threads} {streams} {devices} {launches}{graphs}")
    }

    /// The number of launch calls.
    pub fn total(&self) -> u64 {
        self.processes * self.threads * self.launches
    }

    /// The expected counts.
    pub fn counts(&self) -> Counts {
        let paths = paths();
        let mut state = 7;
        let mut counts = Counts::new();
        for n in 0..self.launches {
            let path = if n < PATHS { n } else { next_random(&mut state) % PATHS };
            let (kind, operations) = match n {
                _ if self.graphs && n % 50 == 49 => (Kind::Kernel, NODES),
                _ if n % 32 == 31 => (Kind::Memset, 1),
                _ if n % 16 == 15 => (Kind::Copy, 1),
                _ => (Kind::Kernel, 1),
            };
            // Every thread takes the same paths; threads use the devices in turn.
            for thread in 0..self.threads {
                let device = (thread % self.devices) as u32;
                *counts.entry((kind, device, paths[path as usize].clone())).or_default() += operations * self.processes;
            }
        }
        counts
    }
}

/// Checks that the stack, outermost frame first, contains exactly `path`: its functions side by side and no other functions of the
/// paths elsewhere, then only the CUDA libraries.
pub fn check_stack(frames: &[&str], path: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("{why}: {path} has the stack {}", frames.join(";")));
    let expected: Vec<&str> = path.split('>').collect();
    let Some(begin) = frames.iter().position(|frame| is_walker(frame)) else { return wrong("no path") };
    if !frames[begin..].starts_with(&expected) {
        return wrong("another path");
    }
    let inside = &frames[begin + expected.len()..];
    if inside.is_empty() || !inside.iter().all(|frame| frame.starts_with("cu") || frame.starts_with("[libcu")) {
        return wrong("not launched by the leaf itself");
    }
    Ok(())
}
