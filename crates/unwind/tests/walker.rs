//! walk.h, compiled natively, walks this process: compared with libgcc's unwinder, one instruction at a time.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::ffi::{CStr, CString, c_int, c_void};
use std::fs::File;
use std::path::Path;
use std::process::Command;

use common::{Random, gcc};
use elf::Elf;
use unwind::{Cfa, Row, Saved, Table};

const MAX_FRAMES: usize = 256;
/// As in walk_types.h.
const RESULTS: [&str; 9] =
    ["MORE", "END", "TRUNCATED", "NO_MAPPING", "NO_ROW", "UNSUPPORTED", "NO_REGISTER", "BAD_READ", "STUCK"];

/// `struct mapping` of walker.c.
#[repr(C)]
struct Mapping {
    start: u64,
    end: u64,
    base: u64,
    rows: *const Row,
    count: u64,
}

/// `struct mappings` of walker.c.
#[repr(C)]
struct Mappings {
    all: *const Mapping,
    count: u64,
}

/// `struct outcome` of chain.c.
#[repr(C)]
struct Outcome {
    steps: u64,
    mismatches: u64,
    guessed: u64,
    results: [u64; RESULTS.len()],
    first_mismatch: [u64; 2],
    deepest: [u64; MAX_FRAMES],
    depth: u64,
}

/// A library compiled from C files of tests/native, loaded with lazy binding.
struct Library(*mut c_void);

impl Library {
    fn new(folder: &Path, arguments: &[&str]) -> Library {
        let flags = ["-shared", "-fPIC", "-O2", "-g", "-Wl,-z,lazy"];
        let path = gcc(folder, "native.so", &[&flags, arguments].concat());
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the library is our own and has no constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) };
        assert!(!handle.is_null());
        Library(handle)
    }

    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is that of an open library, the name a C string.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!symbol.is_null(), "{name:?}");
        symbol
    }
}

/// The executable mappings of this process with their tables.
fn tables() -> Vec<(u64, u64, u64, Table)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut tables = Vec::new();
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (range, permissions) = (fields.next().unwrap(), fields.next().unwrap());
        let offset = u64::from_str_radix(fields.next().unwrap(), 16).unwrap();
        let Some(path) = fields.nth(2).filter(|_| permissions.contains('x')) else { continue };
        let (start, end) = range.split_once('-').unwrap();
        let (start, end) = (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap());
        let (elf, table) = if path == "[vdso]" {
            // SAFETY: the mapping is readable and stays for the life of the process.
            let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, (end - start) as usize) };
            (Elf::read(bytes).unwrap(), Table::of(bytes).unwrap())
        } else if path.starts_with('/') {
            // A library of another test, open but deleted, is not on any stack here.
            let Ok(file) = File::open(path) else { continue };
            (Elf::read(&file).unwrap(), Table::of(&file).unwrap())
        } else {
            continue;
        };
        let bias = elf.segments.bias(start, offset).unwrap();
        tables.push((start, end, bias.wrapping_add(table.base), table));
    }
    tables
}

/// Returns the exported symbol that contains an address.
fn name_of(address: u64) -> String {
    // SAFETY: all zeroes is a value of this struct of pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr only compares the address; the names are valid as long as their library, which is never closed.
    unsafe {
        if libc::dladdr(address as *const c_void, &mut info) == 0 || info.dli_sname.is_null() {
            return String::from("?");
        }
        CStr::from_ptr(info.dli_sname).to_string_lossy().into_owned()
    }
}

/// Runs the chain of chain.c, compiled with some flags, and checks every step.
fn step_through(flags: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let sources = ["tests/native/chain.c", "tests/native/walker.c"];
    let library = Library::new(folder.path(), &[flags, &sources].concat());
    // SAFETY: that is its type in chain.c.
    let run: extern "C" fn(*const Mappings, *mut Outcome) -> c_int =
        unsafe { std::mem::transmute(library.symbol(c"chain_run")) };
    let tables = tables();
    let mappings: Vec<Mapping> = tables
        .iter()
        .map(|&(start, end, base, ref table)| Mapping {
            start,
            end,
            base,
            rows: table.rows.as_ptr(),
            count: table.rows.len() as u64,
        })
        .collect();
    let mappings = Mappings { all: mappings.as_ptr(), count: mappings.len() as u64 };
    // SAFETY: all zeroes is a value of this struct of integers.
    let mut outcome: Outcome = unsafe { std::mem::zeroed() };
    run(&mappings, &mut outcome);

    let results: Vec<_> = RESULTS.iter().zip(outcome.results).filter(|&(_, count)| count > 0).collect();
    println!("{flags:?}: {} steps, {results:?}, {} guessed", outcome.steps, outcome.guessed);
    let [ip, frame] = outcome.first_mismatch;
    assert_eq!(outcome.mismatches, 0, "first at {ip:#x} ({}), frame {frame}", name_of(ip));
    assert!(outcome.steps > 5_000, "{}", outcome.steps);
    // The loader's trampoline computes its CFA from rbx, a realigning prologue from r10: nothing stops a walk.
    assert_eq!(outcome.results[1], outcome.steps, "{results:?}");

    let mut names: Vec<String> = outcome.deepest[..outcome.depth as usize].iter().copied().map(name_of).collect();
    names.reverse();
    names.retain(|name| name.starts_with("level") || name.starts_with("chain") || name == "bottom");
    names.dedup();
    assert_eq!(
        names,
        [
            "chain_run",
            "level_recursive",
            "level_callback",
            "level_registers",
            "level_variable",
            "level_aligned_variable",
            "level_aligned",
            "level_large",
            "level_signal",
            "bottom",
        ]
    );
}

/// Check every instruction of a call chain, and of everything it calls, against libgcc: without and with frame
/// pointers, with lazy and immediate binding. One test, because signal handlers belong to the whole process.
#[test]
fn every_instruction_matches_libgcc() {
    let common = ["-fno-optimize-sibling-calls", "-fasynchronous-unwind-tables"];
    for flags in [["-fomit-frame-pointer", "-Wl,-z,now"], ["-fno-omit-frame-pointer", "-fcf-protection"]] {
        step_through(&[common, flags].concat());
    }
}

/// Check that the searches in C and in Rust find the same row.
#[test]
fn searches_agree() {
    let folder = tempfile::tempdir().unwrap();
    let library = Library::new(folder.path(), &["tests/native/walker.c"]);
    // SAFETY: that is its type in walker.c.
    let search: extern "C" fn(*const Row, u32, u32, *mut Row) -> c_int =
        unsafe { std::mem::transmute(library.symbol(c"walker_search")) };
    let in_c = |rows: &[Row], pc: u32| {
        let mut found = Row::no_rule(0);
        (search(rows.as_ptr(), rows.len() as u32, pc, &mut found) == 0).then_some(found)
    };
    let libc = Table::of(&File::open("/lib/x86_64-linux-gnu/libc.so.6").unwrap()).unwrap();
    let mut random = Random(1);
    for size in (0..40).chain([libc.rows.len()]) {
        let table = Table { rows: libc.rows[..size].to_vec(), ..libc.clone() };
        let reach = table.rows.last().map_or(10, |row| row.pc + 10);
        let edges = table.rows.iter().flat_map(|row| [row.pc.saturating_sub(1), row.pc, row.pc + 1]).take(3000);
        for pc in edges.chain((0..2000).map(|_| random.next() as u32 % reach)).chain([0, u32::MAX]) {
            assert_eq!(in_c(&table.rows, pc), table.lookup(table.base + u64::from(pc)), "{size} rows, {pc:#x}");
        }
    }
    let most: Vec<Row> = (0..unwind::MAX_ROWS as u32).map(|index| Row::no_rule(2 * index)).collect();
    for pc in [0, 1, 2 * (1 << 22) + 1, u32::MAX] {
        let expected = Row::no_rule((pc & !1).min(2 * (unwind::MAX_ROWS as u32 - 1)));
        assert_eq!(in_c(&most, pc), Some(expected), "the largest table, {pc:#x}");
    }
}

/// Check every way a walk can end, on stacks of a few words.
#[test]
fn walks_end_as_expected() {
    const CODE: u64 = 0x10_0000;
    let folder = tempfile::tempdir().unwrap();
    let library = Library::new(folder.path(), &["tests/native/walker.c"]);
    type Walk = extern "C" fn(*const Mappings, u64, *const u64, *mut u64, u32, *mut c_int, *mut u32) -> u32;
    // SAFETY: that is its type in walker.c.
    let walk: Walk = unsafe { std::mem::transmute(library.symbol(c"walker_walk")) };
    // One rule for each 16 bytes of code.
    let rules = [
        (Cfa::Rsp(8), Saved::Same),
        (Cfa::Rbp(16), Saved::AtCfa(-16)),
        (Cfa::End, Saved::Same),
        (Cfa::NoRule, Saved::Same),
        (Cfa::Unsupported, Saved::Same),
        (Cfa::Rsp(8), Saved::Lost),
        (Cfa::Rsp(-8), Saved::Same),
        (Cfa::Signal, Saved::Same),
        (Cfa::RspSlot(8, 16), Saved::Same),
        (Cfa::RbpSlot(-8, 0), Saved::AtRbp(0)),
        (Cfa::Plt(11), Saved::Same),
        (Cfa::Register(3, 16), Saved::Same),
        (Cfa::Register(10, 8), Saved::Same),
    ];
    // The function with a frame pointer also saves rbx.
    let rbx = |cfa: &Cfa| if matches!(cfa, Cfa::Rbp(_)) { Saved::AtCfa(-24) } else { Saved::Same };
    let rows: Vec<Row> =
        (0..).zip(rules).map(|(index, (cfa, rbp))| Row::new(index * 16, cfa, rbp, rbx(&cfa)).unwrap()).collect();
    let [leaf, framed, end, none, unsupported, loses, stuck, signal, rsp_slot, rbp_slot, plt, by_rbx, by_r10] =
        std::array::from_fn(|index| CODE + 16 * index as u64 + 1);
    let mapping =
        Mapping { start: CODE, end: CODE + 0x1000, base: CODE, rows: rows.as_ptr(), count: rows.len() as u64 };
    let mappings = Mappings { all: &mapping, count: 1 };

    // Words from rsp on; words below 100 stand for addresses within the stack; rbp points to the given word, rbx to
    // word 1, r10 to word 2.
    let check = |ip: u64, stack: &[u64], rbp: i64, expected: &[u64], end: &str, guesses: u32| {
        let mut memory = [0_u64; 64];
        let at = |word: i64| (memory.as_ptr() as u64).wrapping_add_signed(8 * word);
        let words: Vec<u64> =
            stack.iter().map(|&word| if word < 100 && word > 0 { at(word as i64) } else { word }).collect();
        let mut registers = [1; 16];
        (registers[7], registers[6], registers[3], registers[10]) = (at(0), at(rbp), at(1), at(2));
        memory[..words.len()].copy_from_slice(&words);
        let (mut frames, mut why, mut guessed) = ([0; 8], 0, 0);
        let depth = walk(&mappings, ip, registers.as_ptr(), frames.as_mut_ptr(), 8, &mut why, &mut guessed);
        // A return address is looked up one byte before.
        let mut pcs = expected.to_vec();
        pcs.insert(0, ip);
        assert_eq!((&frames[..depth as usize], RESULTS[why as usize], guessed), (&*pcs, end, guesses));
        assert_eq!(std::hint::black_box(&memory)[0], words[0]);
    };
    check(leaf, &[end], 0, &[end - 1], "END", 0);
    check(leaf, &[0], 0, &[], "END", 0);
    check(leaf, &[framed, 99, 9, end], 2, &[framed - 1, end - 1], "END", 0);
    check(leaf, &[leaf; 16], 0, &[leaf - 1; 7], "TRUNCATED", 0);
    check(leaf, &[0xdead_0000], 0, &[0xdead_0000 - 1], "NO_MAPPING", 0);
    check(unsupported, &[end], 0, &[], "UNSUPPORTED", 0);
    check(loses, &[framed], 5, &[framed - 1], "NO_REGISTER", 0);
    check(stuck, &[end], 0, &[], "STUCK", 0);
    check(framed, &[end], 1 << 40, &[], "BAD_READ", 0);
    // Frame pointers where there is no rule, unless rbp is below the stack.
    check(none, &[7, 7, 5, none, 7, 6, end], 2, &[none - 1, end - 1], "END", 2);
    check(none, &[end], -2, &[], "NO_ROW", 0);
    // rbp, rsp and rip of the ucontext at words 15, 20 and 21; the interrupted instruction is looked up at its own
    // address.
    let mut context = [7; 24];
    (context[15], context[20], context[21], context[23]) = (22, 22, framed, end);
    check(signal, &context, 0, &[framed, end - 1], "END", 0);
    // The CFA is word 4 + 2 words, and word 5.
    check(rsp_slot, &[7, 4, 7, 7, 7, end], 0, &[end - 1], "END", 0);
    check(rbp_slot, &[5, 7, 7, 7, end], 1, &[end - 1], "END", 0);
    // A stub before and after its push.
    check(plt, &[end], 0, &[end - 1], "END", 0);
    check(plt + 10, &[7, end], 0, &[end - 1], "END", 0);
    // rbx in its register, and saved by an inner function; r10 only if nothing was called, or a signal interrupted.
    check(by_rbx, &[7, 7, end], 0, &[end - 1], "END", 0);
    check(leaf, &[by_rbx, 7, end], 0, &[by_rbx - 1, end - 1], "END", 0);
    check(framed, &[4, 8, by_rbx, 7, 7, end], 1, &[by_rbx - 1, end - 1], "END", 0);
    check(by_r10, &[7, 7, end], 0, &[end - 1], "END", 0);
    check(leaf, &[by_r10, 7, end], 0, &[by_r10 - 1], "NO_REGISTER", 0);
    (context[7], context[16], context[21], context[23]) = (23, 22, by_r10, end);
    check(signal, &context, 0, &[by_r10, end - 1], "END", 0);
    context[21] = by_rbx;
    check(signal, &context, 0, &[by_rbx, end - 1], "END", 0);
}

/// Check that the walker compiles as BPF, with all warnings.
#[test]
fn compiles_as_bpf() {
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new("clang")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["-target", "bpf", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Isrc"])
        .args(["-I/usr/include/x86_64-linux-gnu", "-c", "tests/native/walker.bpf.c", "-o"])
        .arg(folder.path().join("walker.o"))
        .status()
        .expect("clang is needed to build BPF");
    assert!(status.success());
}
