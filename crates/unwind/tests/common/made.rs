//! Handmade ELF files that consist only of headers and frame sections. Also used by a fuzz target.

#![allow(dead_code, reason = "each user needs its part")]

/// The address and size of the code of [`elf`].
pub const CODE: u64 = 0x10_0000;
pub const CODE_SIZE: u64 = 0x10_0000;
/// The address of its `.eh_frame`.
pub const EH_FRAME: u64 = 0x40_0000;

/// Builds an ELF file that consists only of headers and frame sections.
pub fn elf(eh_frame: &[u8], debug_frame: &[u8]) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.eh_frame\0.debug_frame\0.shstrtab\0";
    let (ehdr, phdr, shdr) = (64, 56, 64);
    let headers = ehdr + phdr + 4 * shdr;
    let eh_at = headers + NAMES.len();
    let debug_at = eh_at + eh_frame.len();
    let mut out = Vec::new();
    let mut words = |values: &[(u64, usize)]| {
        for &(value, size) in values {
            out.extend_from_slice(&value.to_le_bytes()[..size]);
        }
    };
    // e_ident, type DYN, x86-64, version, entry, phoff, shoff, flags, sizes and counts, shstrndx.
    words(&[(0x0001_0102_464c_457f, 8), (0, 8), (3, 2), (62, 2), (1, 4), (0, 8)]);
    words(&[(ehdr as u64, 8), ((ehdr + phdr) as u64, 8), (0, 4), (ehdr as u64, 2), (phdr as u64, 2), (1, 2)]);
    words(&[(shdr as u64, 2), (4, 2), (3, 2)]);
    // PT_LOAD, executable: offset, addresses, sizes, alignment.
    words(&[(1, 4), (5, 4), (0, 8), (CODE, 8), (CODE, 8), (headers as u64, 8), (CODE_SIZE, 8), (4096, 8)]);
    let sections = [
        (0, 0, 0, 0, 0),
        (1, 1, EH_FRAME, eh_at, eh_frame.len()),
        (11, 1, 0, debug_at, debug_frame.len()),
        (24, 3, 0, headers, NAMES.len()),
    ];
    for (name, kind, address, offset, size) in sections {
        words(&[(name, 4), (kind, 4), (0, 8), (address, 8), (offset as u64, 8), (size as u64, 8)]);
        words(&[(0, 4), (0, 4), (1, 8), (0, 8)]);
    }
    out.extend_from_slice(NAMES);
    out.extend_from_slice(eh_frame);
    out.extend_from_slice(debug_frame);
    out
}

/// A CIE of `.eh_frame`: absolute addresses, CFA = rsp + 8, return address at CFA - 8, then `instructions`.
pub fn cie(instructions: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1];
    body.extend_from_slice(instructions);
    with_length(body)
}

/// Builds an FDE at offset `at`, for the CIE at offset `cie`.
pub fn fde(at: usize, cie: usize, start: u64, length: u64, instructions: &[u8]) -> Vec<u8> {
    let mut body = ((at + 4 - cie) as u32).to_le_bytes().to_vec();
    body.extend_from_slice(&start.to_le_bytes());
    body.extend_from_slice(&length.to_le_bytes());
    body.extend_from_slice(instructions);
    with_length(body)
}

fn with_length(mut body: Vec<u8>) -> Vec<u8> {
    while body.len() % 8 != 4 {
        body.push(0);
    }
    [(body.len() as u32).to_le_bytes().to_vec(), body].concat()
}
