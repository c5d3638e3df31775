//! Reads folded stacks.

use super::oracle::{Counts, Kind, check_stack};

/// One line of folded stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The process first, the function that ran last.
    pub frames: Vec<&'a str>,
    /// In microseconds.
    pub weight: u64,
}

/// Work that ran on a GPU: its device (0 if there is only one) and a kernel's name, or none for a copy or memset.
pub struct OnGpu<'a> {
    pub kind: Kind,
    pub device: u32,
    pub name: &'a str,
}

/// Reads all lines.
pub fn read(text: &str) -> Vec<Line<'_>> {
    let line = |line: &'_ str| {
        let (stack, weight) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no weight: {line}"));
        (stack.len(), weight.parse().unwrap_or_else(|_| panic!("no weight: {line}")))
    };
    text.lines()
        .map(|text| {
            let (length, weight) = line(text);
            Line { frames: text[..length].split(';').collect(), weight }
        })
        .collect()
}

impl<'a> Line<'a> {
    /// The work at the end of the stack, if it ran on a GPU.
    pub fn on_gpu(&self) -> Option<OnGpu<'a>> {
        let (label, name) = self.frames.last()?.strip_prefix("[GPU")?.split_once(']')?;
        let (device, what) = label.split_once('_')?;
        let kind = match what {
            "Kernel" => Kind::Kernel,
            "Memset" => Kind::Memset,
            _ if what.starts_with("Memcpy ") => Kind::Copy,
            _ => return None,
        };
        Some(OnGpu { kind, device: device.parse().unwrap_or(0), name: name.trim_start() })
    }

    /// The frames between the process and the GPU work.
    pub fn launcher(&self) -> &[&'a str] {
        &self.frames[1..self.frames.len() - 1]
    }
}

/// Checks the stack of every kernel against its name, and counts kernels by their time, which is `kernel_us` for each. Copies and
/// memsets, whose names have no path, are skipped.
pub fn kernels_by_path(text: &str, kernel_us: u64) -> Counts {
    let mut counts = Counts::new();
    for line in read(text) {
        let Some(OnGpu { kind: Kind::Kernel, device, name }) = line.on_gpu() else { continue };
        let path = name.strip_prefix("truth:").unwrap_or_else(|| panic!("an unknown kernel: {name}"));
        check_stack(line.launcher(), path).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!(line.weight % kernel_us, 0, "a part of a kernel: {line:?}");
        *counts.entry((Kind::Kernel, device, path.to_owned())).or_default() += line.weight / kernel_us;
    }
    counts
}
