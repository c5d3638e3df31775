//! Files that resemble libraries but are broken.

use std::{
    fs::{self, File},
    path::Path,
};

use crate::support::natives::native;

/// Offsets in a 64-bit ELF header: of the section headers, of the number of segments and of sections, and of the index of the
/// section with their names.
const SECTIONS_AT: usize = 0x28;
const SEGMENT_COUNT: usize = 0x38;
const SECTION_COUNT: usize = 0x3c;
const NAMES_INDEX: usize = 0x3e;
const SECTION: usize = 64;

fn u16_at(bytes: &[u8], at: usize) -> usize {
    u16::from_le_bytes([bytes[at], bytes[at + 1]]).into()
}

fn u64_at(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) as usize
}

/// Returns the offset of the header of `.eh_frame`.
fn frame_section(elf: &[u8]) -> usize {
    let header = |index: usize| u64_at(elf, SECTIONS_AT) + SECTION * index;
    let names = u64_at(elf, header(u16_at(elf, NAMES_INDEX)) + 24);
    let named = |at: usize| {
        let name = names + u32::from_le_bytes(elf[at..at + 4].try_into().expect("4 bytes")) as usize;
        elf[name..].starts_with(b".eh_frame\0")
    };
    (0..u16_at(elf, SECTION_COUNT)).map(header).find(|at| named(*at)).expect("it has one")
}

/// Writes the files into a directory and returns their paths.
pub fn write(directory: &Path) -> Vec<String> {
    fs::create_dir(directory).expect("a directory of our own");
    let library = fs::read(native("libplugin.so")).expect("a library");
    let frames = frame_section(&library);
    let changed = |at: usize, value: &[u8]| {
        let mut bytes = library.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        bytes
    };
    let mut files: Vec<(String, Vec<u8>, u64)> = Vec::new();
    let mut add = |name: &str, bytes: Vec<u8>, length: u64| files.push((name.into(), bytes, length));
    add("empty", Vec::new(), 0);
    add("text", b"#!/bin/sh\n".to_vec(), 0);
    add("cut in the header", library[..40].to_vec(), 0);
    add("cut in the segments", library[..100].to_vec(), 0);
    add("cut in the code", library[..5000].to_vec(), 0);
    add("sections far away", changed(SECTIONS_AT, &(1_u64 << 40).to_le_bytes()), 0);
    add("65535 sections", changed(SECTION_COUNT, &[0xff; 2]), 0);
    add("65535 segments", changed(SEGMENT_COUNT, &[0xff; 2]), 0);
    add("no sections", changed(SECTION_COUNT, &[0; 2]), 0);
    add("frames far away", changed(frames + 24, &(1_u64 << 62).to_le_bytes()), 0);
    add("frames beyond the end", changed(frames + 32, &(1_u64 << 20).to_le_bytes()), 0);
    add("sparse", library.clone(), 2 << 30);
    add("sparse, all of it frames", changed(frames + 32, &(2_u64 << 30).to_le_bytes()), 2 << 30);
    add("sparse, much of it frames", changed(frames + 32, &(250_u64 << 20).to_le_bytes()), 2 << 30);
    add("line\nfeed, \u{1b}[31mcolour and \u{1}", library.clone(), 0);
    add("blanks; \"quotes\" & <tags>\\", library.clone(), 0);
    // The same noise in every run (xorshift).
    let mut state = 1_u64;
    for number in 0..50 {
        let mut bytes = library.clone();
        for _ in 0..100 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = 64 + state as usize % (bytes.len() - 64);
            bytes[at] = (state >> 32) as u8;
        }
        add(&format!("noise {number}"), bytes, 0);
    }
    let put = |(name, bytes, length): (String, Vec<u8>, u64)| {
        let path = directory.join(name);
        fs::write(&path, bytes).expect("it can be written");
        if length > 0 {
            File::options().write(true).open(&path).and_then(|file| file.set_len(length)).expect("it can be sparse");
        }
        path.into_os_string().into_string().expect("the path is text")
    };
    files.into_iter().map(put).collect()
}
