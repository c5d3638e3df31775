//! Names of the eBPF programs in the kernel, ours and others'. The kernel lists them only while they are loaded, so
//! they are saved before ours are removed.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    sync::Arc,
};

/// The maximum length of a program: code beyond it is something else.
const LONGEST: u64 = 1 << 20;
/// The maximum number of programs.
const MOST: usize = 65_536;

/// The start addresses of programs, sorted.
#[derive(Clone, Debug, Default)]
pub struct BpfCode(Vec<(u64, Arc<str>)>);

impl BpfCode {
    /// Returns the currently loaded programs; empty if the kernel does not list them.
    pub fn loaded() -> Self {
        File::open("/proc/kallsyms").map(|file| Self::parse(BufReader::new(file))).unwrap_or_default()
    }

    fn parse(list: impl BufRead) -> Self {
        let mut code: Vec<_> = list.lines().map_while(Result::ok).filter_map(|line| entry(&line)).take(MOST).collect();
        code.sort_by_key(|(start, _)| *start);
        Self(code)
    }

    /// Returns the name of the program that contains an address.
    pub fn name(&self, address: u64) -> Option<&Arc<str>> {
        let after = self.0.partition_point(|(start, _)| *start <= address);
        let (start, name) = self.0.get(after.checked_sub(1)?)?;
        (address - start < LONGEST).then_some(name)
    }
}

/// Parses `ffffffffc0b2f5d4 t bpf_prog_6deef7357e7b4530_sample [bpf]`; an address of 0 is a hidden one.
fn entry(line: &str) -> Option<(u64, Arc<str>)> {
    let mut words = line.strip_suffix("[bpf]")?.split_ascii_whitespace();
    let start = u64::from_str_radix(words.next()?, 16).ok().filter(|start| *start != 0)?;
    Some((start, words.nth(1)?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that programs are found by any address in them, and nothing else is.
    #[test]
    fn programs_are_found_by_address() {
        let list = "ffffffff81000000 T _text\nffffffffc0000200 t bpf_prog_b_two\t[bpf]\nffffffffc0000100 t bpf_prog_a_one\t[bpf]\n\
                    0000000000000000 t bpf_prog_hidden\t[bpf]\ngarbage [bpf]\n";
        let code = BpfCode::parse(list.as_bytes());
        let name = |address| code.name(address).map(|name| &**name);
        assert_eq!(name(0xffff_ffff_c000_01ff), Some("bpf_prog_a_one"));
        assert_eq!(name(0xffff_ffff_c000_0200), Some("bpf_prog_b_two"));
        assert_eq!((name(0xffff_ffff_8100_0000), name(0xffff_ffff_c800_0000)), (None, None));
    }
}
