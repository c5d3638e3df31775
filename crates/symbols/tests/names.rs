//! Names in real programs, compiled here: with symbols, stripped, with debug files, replaced, malformed.

mod support;

use std::fs;

use elf::Budget;
use support::{IMAGE, Scene, names, plain, with_lines};
use symbols::{DebugFiles, Kept, Options};

/// Functions that only full symbols name, and one that ends in a call that never returns.
const C: &str = r#"
#include <stdlib.h>
__attribute__((noinline, noclone)) static int inner(int n) { __asm__ volatile("" : "+r"(n)); return n + 1; }
__attribute__((noinline, noclone, noreturn)) void stop(int n) { exit(n); }
__attribute__((noinline, noclone)) void caller(int n) {
    stop(inner(n));
}
__attribute__((noinline, noclone)) void neighbour(void) { __asm__ volatile("" ::: "memory"); }
int main(int argc, char **argv) {
    neighbour();
    caller(argc);
}
"#;

fn c_program(flags: &str) -> Scene {
    let scene = Scene::new();
    scene.write("program.c", C);
    scene.run(&format!("gcc -O2 -fno-ipa-ra -fno-reorder-functions -Wl,--build-id=sha1 {flags} program.c -o program"));
    scene
}

/// A file with symbols names all its functions; the caller of a function that never returns is named, not its
/// neighbour.
#[test]
fn functions_are_named() {
    let scene = c_program("");
    let program = scene.program("program");
    let calls = program.calls(&scene, "stop");
    let addresses = [program.symbol("inner"), calls[0], program.symbol("main")];
    assert_eq!(calls[0] + 1, program.symbol("neighbour").min(calls[0] + 1), "the call ends its function");
    assert_eq!(program.names(&mut program.kept(9), &plain(&[]), &addresses), ["inner", "caller", "main"]);
}

/// Without symbols a function has the name of its file; the debug file restores its name: by link next to the file, in
/// `.debug` and in a directory of debug files, and by build id there.
#[test]
fn debug_files_are_found() {
    let scene = c_program("-g");
    let program = scene.program("program");
    let addresses = [program.symbol("inner"), program.symbol("main")];
    scene.run("objcopy --only-keep-debug program program.debug");
    scene.run("objcopy --strip-all --add-gnu-debuglink=program.debug program");
    let debug = fs::read(scene.path("program.debug")).expect("it is there");
    let stripped = scene.program("program");
    let all = |kept: &mut Kept| {
        let directory = scene.path("debug");
        stripped.names(kept, &plain(&[&scene.path("nowhere"), &directory]), &addresses)
    };
    let mut kept = stripped.kept(9);
    assert_eq!(all(&mut kept), ["inner", "main"], "next to it");
    fs::remove_file(scene.path("program.debug")).expect("it was there");
    assert_eq!(all(&mut kept), ["[program]", "[program]"]);

    fs::create_dir(scene.path(".debug")).expect("a directory");
    fs::write(scene.path(".debug/program.debug"), &debug).expect("a file");
    assert_eq!(all(&mut kept), ["inner", "main"], "in .debug");
    // Another file with that name is not its debug file.
    fs::write(scene.path(".debug/program.debug"), [&debug[..], b"x"].concat()).expect("a file");
    assert_eq!(all(&mut kept), ["[program]", "[program]"]);

    let directory = scene.path("debug").join(scene.path("").strip_prefix("/").expect("absolute"));
    fs::create_dir_all(&directory).expect("directories");
    fs::write(directory.join("program.debug"), &debug).expect("a file");
    assert_eq!(all(&mut kept), ["inner", "main"], "under a directory of debug files");
    fs::remove_file(directory.join("program.debug")).expect("it was there");

    let hex: String = program.mapping().build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let directory = scene.path("debug/.build-id").join(&hex[..2]);
    fs::create_dir_all(&directory).expect("directories");
    fs::write(directory.join(format!("{}.debug", &hex[2..])), &debug).expect("a file");
    assert_eq!(all(&mut kept), ["inner", "main"], "by build id");
    // A file under its build id that has another one is not its debug file.
    scene.write("other.c", "int main(void) { return 0; }");
    scene.run("gcc -g -Wl,--build-id=sha1 other.c -o other");
    fs::copy(scene.path("other"), directory.join(format!("{}.debug", &hex[2..]))).expect("a copy");
    assert_eq!(all(&mut kept), ["[program]", "[program]"]);
}

/// Files fetched earlier by debuginfod's client are used.
#[test]
fn the_debuginfod_cache_is_used() {
    let scene = c_program("-g");
    let program = scene.program("program");
    let addresses = [program.symbol("inner")];
    let hex: String = program.mapping().build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let cache = scene.path(".cache/debuginfod_client").join(hex);
    fs::create_dir_all(&cache).expect("directories");
    scene.run("objcopy --only-keep-debug program program.debug");
    scene.run("strip program");
    fs::rename(scene.path("program.debug"), cache.join("debuginfo")).expect("a file");
    let options = Options { debug_files: DebugFiles::new(&[], &[scene.path("")]), ..plain(&[]) };
    let stripped = scene.program("program");
    assert_eq!(stripped.names(&mut stripped.kept(9), &options, &addresses), ["inner"]);
}

/// A file that is deleted or replaced after it was mapped still gives its own names. One that was not kept open is
/// searched by path, and not used if it is a different file.
#[test]
fn replaced_files_keep_their_names() {
    let scene = c_program("");
    let program = scene.program("program");
    let addresses = [program.symbol("inner"), program.symbol("main")];
    let (mut held, mut not_held) = (program.kept(9), program.kept(0));
    assert_eq!(program.names(&mut not_held, &plain(&[]), &addresses), ["inner", "main"]);
    scene.write("other.c", "int other(int n) { return n; } int main(void) { return other(0); }");
    scene.run("gcc -Wl,--build-id=sha1 other.c -o program.new");
    fs::rename(scene.path("program.new"), scene.path("program")).expect("it replaces the program");
    assert_eq!(program.names(&mut held, &plain(&[]), &addresses), ["inner", "main"]);
    assert_eq!(program.names(&mut not_held, &plain(&[]), &addresses), ["[program]", "[program]"]);
    fs::remove_file(scene.path("program")).expect("it was there");
    assert_eq!(program.names(&mut held, &plain(&[]), &addresses), ["inner", "main"]);
}

/// A file overwritten in place is not the one that was mapped, and is not used, with or without a build id.
#[test]
fn overwritten_files_are_not_used() {
    for id in ["-Wl,--build-id=sha1", "-Wl,--build-id=none"] {
        let scene = c_program(id);
        let program = scene.program("program");
        let addresses = [program.symbol("inner")];
        let mut held = program.kept(9);
        assert_eq!(program.names(&mut held, &plain(&[]), &addresses), ["inner"]);
        scene.write("other.c", "int other(int n) { return n; } int main(void) { return other(0); }");
        scene.run(&format!("gcc {id} other.c -o other"));
        let other = fs::read(scene.path("other")).expect("it is there");
        fs::write(scene.path("program"), other).expect("it is overwritten");
        assert_eq!(program.names(&mut held, &plain(&[]), &addresses), ["[program]"]);
    }
}

/// Exceeding the number of open files is reported.
#[test]
fn too_many_files_are_reported() {
    let scene = c_program("");
    let program = scene.program("program");
    scene.run("cp program second");
    let mut kept = program.kept(1);
    kept.mapped(&scene.program("second").mapping(), std::process::id());
    let (names, notes) = program.names_and_notes(&mut kept, &plain(&[]), &[program.symbol("inner")]);
    assert_eq!(names, ["inner"]);
    assert!(notes.len() == 1 && notes[0].starts_with("1 mapped file"), "{notes:?}");
}

const CPP: &str = r#"
extern "C" int sink(int);
namespace geometry {
template <typename T> struct Box {
    T side;
    T area() const {
        return sink(side) * side;
    }
};
}
static inline int twice(int n) {
    geometry::Box<int> box{n};
    return box.area() * 2;
}
extern "C" __attribute__((noinline)) int measure(int n) {
    int first = sink(n);
    return first + twice(n);
}
extern "C" __attribute__((noinline)) int sink(int n) { __asm__ volatile("" : "+r"(n)); return n; }
int main(int argc, char **) {
    return measure(argc);
}
"#;

/// The line of each call, and inlined functions as their own frames; the same whether the DWARF is in the file, in its
/// debug file, or compressed, and of version 4 or 5. Without lines, only the function.
#[test]
fn lines_and_inlined_functions_are_found() {
    for dwarf in ["-gdwarf-4", "-gdwarf-5", "-gdwarf-5 -gz=zlib"] {
        let scene = Scene::new();
        scene.write("shape.cpp", CPP);
        scene.run(&format!("g++ -O2 {dwarf} -Wl,--build-id=sha1 shape.cpp -o program"));
        let program = scene.program("program");
        let calls = program.calls(&scene, "sink");
        let expected = [
            "measure (shape.cpp:16)",
            "measure (shape.cpp:17) > twice (shape.cpp:13) > geometry::Box<int>::area() const (shape.cpp:7)",
        ];
        assert_eq!(program.names(&mut program.kept(9), &with_lines(&[]), &calls), expected, "{dwarf}");
        assert_eq!(program.names(&mut program.kept(9), &plain(&[]), &calls), ["measure", "measure"], "{dwarf}");
        scene.run("objcopy --only-keep-debug program program.debug");
        scene.run("objcopy --strip-all --add-gnu-debuglink=program.debug program");
        let stripped = scene.program("program");
        assert_eq!(stripped.names(&mut stripped.kept(9), &with_lines(&[]), &calls), expected, "{dwarf}");
    }
}

/// Rust's names and inlined functions.
#[test]
fn rust_names_and_inlined_functions_are_found() {
    let scene = Scene::new();
    scene.write(
        "program.rs",
        "#[unsafe(no_mangle)] #[inline(never)] extern \"C\" fn sink(n: u32) -> u32 { std::hint::black_box(n) }
struct Wheel(u32);
impl Wheel {
    #[inline(always)]
    fn turn(&self) -> u32 {
        sink(self.0) + 1
    }
}
#[inline(never)]
fn drive(wheel: &Wheel) -> u32 {
    wheel.turn() * 2
}
fn main() {
    println!(\"{}\", drive(std::hint::black_box(&Wheel(7))));
}
",
    );
    scene.run("rustc --edition 2024 -g -C opt-level=2 program.rs");
    let program = scene.program("program");
    let calls = program.calls(&scene, "sink");
    assert_eq!(program.names(&mut program.kept(9), &plain(&[]), &calls), ["program::drive"]);
    let expected = ["program::drive (program.rs:11) > program::Wheel::turn (program.rs:6)"];
    assert_eq!(program.names(&mut program.kept(9), &with_lines(&[]), &calls), expected);
}

/// Changes the header of a program's compressed `.debug_info`: its type, then its size.
fn change_compression(scene: &Scene, change: impl FnOnce(&mut [u8])) {
    let sections = scene.run("readelf -SW program");
    let line = sections.lines().find(|line| line.contains(".debug_info")).expect("it is there");
    let offset = line.split(']').nth(1).and_then(|rest| rest.split_whitespace().nth(3)).expect("an offset");
    let offset = usize::from_str_radix(offset, 16).expect("a number");
    let mut bytes = fs::read(scene.path("program")).expect("it is there");
    change(&mut bytes[offset..offset + 16]);
    fs::write(scene.path("program"), bytes).expect("it is ours");
}

/// Unreadable DWARF loses the lines, not the names, and is reported.
#[test]
fn unreadable_lines_are_reported() {
    let scene = c_program("-g -gz=zlib");
    let program = scene.program("program");
    let addresses = [program.symbol("inner")];
    // Far larger than the actual size.
    change_compression(&scene, |header| header[8..].copy_from_slice(&(1_u64 << 40).to_le_bytes()));
    let (names, notes) = program.names_and_notes(&mut program.kept(9), &with_lines(&[]), &addresses);
    assert_eq!(names, ["inner"]);
    assert_eq!(
        notes,
        [
            "program: source lines are missing or incomplete: its debug information has 1024.0 GiB, more than the limit of 2.0 GiB"
        ]
    );
}

/// The debug information of a system's libc has a megabyte of abbreviations: a small table for each of its units. The
/// daemon's limit applies to one table, because only one is in memory.
#[test]
fn many_small_tables_of_abbreviations_are_read() {
    let options = Options { budget: Budget::DAEMON, ..with_lines(&[]) };
    let scene = Scene::new();
    scene.write("program.c", C);
    // A zero is an empty table.
    scene.write("tables.s", ".section .debug_abbrev,\"\",@progbits\n.fill 900000, 1, 0\n");
    scene.run("gcc -O2 -g -fno-ipa-ra program.c tables.s -o program -z noexecstack");
    let program = scene.program("program");
    let addresses = [program.symbol("inner")];
    let (names, notes) = program.names_and_notes(&mut program.kept(9), &options, &addresses);
    assert_eq!((names, notes), (vec!["inner (program.c:3)".to_owned()], Vec::new()));

    let one = "
        .section .debug_info,\"\",@progbits
        .long 2f - 1f
        1: .short 4
        .long table
        .byte 8
        .uleb128 1
        2:
        .section .debug_abbrev,\"\",@progbits
        table:
        .set code, 1
        .rept 100000
        .uleb128 code, 0x11
        .byte 0, 0, 0
        .set code, code + 1
        .endr
        .byte 0
    ";
    scene.write("table.s", one);
    scene.run("gcc -O2 -g -fno-ipa-ra program.c table.s -o program -z noexecstack");
    let program = scene.program("program");
    let addresses = [program.symbol("inner")];
    let (names, notes) = program.names_and_notes(&mut program.kept(9), &options, &addresses);
    assert_eq!(names, ["inner (program.c:3)"]);
    assert!(notes.len() == 1 && notes[0].contains("table of abbreviations"), "{notes:?}");
}

/// DWARF compressed with zstd is reported. Not every objcopy can produce it, but only its header is read.
#[test]
fn zstd_is_reported() {
    const ELFCOMPRESS_ZSTD: u32 = 2;
    let scene = c_program("-g -gz=zlib");
    let program = scene.program("program");
    let addresses = [program.symbol("inner")];
    change_compression(&scene, |header| header[..4].copy_from_slice(&ELFCOMPRESS_ZSTD.to_le_bytes()));
    let (names, notes) = program.names_and_notes(&mut program.kept(9), &with_lines(&[]), &addresses);
    assert_eq!(names, ["inner"]);
    assert_eq!(
        notes,
        [
            "program: source lines are missing or incomplete: its debug information is compressed by a method other than zlib"
        ]
    );
}

/// Randomly corrupted files: names may be wrong, but there are names, and quickly.
#[test]
fn corrupted_files_are_survived() {
    let scene = Scene::new();
    scene.write("shape.cpp", CPP);
    scene.run("g++ -O2 -g -Wl,--build-id=none shape.cpp -o program");
    let program = scene.program("program");
    let calls = program.calls(&scene, "sink");
    let whole = fs::read(scene.path("program")).expect("it is there");
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for round in 0..1000 {
        let mut bytes = whole.clone();
        match round % 4 {
            0 => bytes.truncate(random(whole.len())),
            1 => (0..20).for_each(|_| bytes[random(64 + 13 * 56)] = random(256) as u8),
            2 => (0..20).for_each(|_| bytes[whole.len() - 1 - random(37 * 64)] = random(256) as u8),
            _ => (0..200).for_each(|_| bytes[random(whole.len())] = random(256) as u8),
        }
        fs::write(scene.path("program"), &bytes).expect("it is ours");
        let (names, _) = program.names_and_notes(&mut program.kept(9), &with_lines(&[]), &calls);
        assert_eq!(names.len(), calls.len());
    }
}

/// Functions of the vdso have names.
#[test]
fn vdso_functions_are_named() {
    let maps = fs::read_to_string("/proc/self/maps").expect("our own");
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).expect("there is one");
    let (start, end) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
    let number = |text| u64::from_str_radix(text, 16).expect("a number");
    let mapping = model::event::Mapping {
        process: IMAGE,
        time: 10,
        start: number(start),
        end: number(end),
        offset: 0,
        path: "[vdso]".into(),
        build_id: Vec::new(),
    };
    // SAFETY: only reads a number.
    let base = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    assert_eq!(base, mapping.start);
    let mut kept = Kept::new(9);
    kept.mapped(&mapping, std::process::id());
    let range = mapping.start..mapping.end;
    let (all, _) = names(mapping, &mut kept, &plain(&[]), &range.collect::<Vec<u64>>());
    assert!(all.iter().any(|name| name.ends_with("clock_gettime")), "{all:?}");
}

/// Code without a file is named by the process's map; the last entry counts.
#[test]
fn generated_code_is_named_by_perf_maps() {
    let pid = std::process::id();
    let path = format!("/tmp/perf-{pid}.map");
    fs::write(&path, "5000 100 old\n5000 80 JS:*busy\n").expect("/tmp can be written to");
    let mapping = model::event::Mapping {
        process: IMAGE,
        time: 10,
        start: 0x5000,
        end: 0x6000,
        offset: 0,
        path: "//anon".into(),
        build_id: Vec::new(),
    };
    let mut kept = Kept::new(9);
    kept.mapped(&mapping, pid);
    let (names, notes) = names(mapping, &mut kept, &plain(&[]), &[0x5000, 0x507f, 0x5080, 0x5100]);
    fs::remove_file(&path).expect("it was there");
    assert_eq!(names, ["JS:*busy", "JS:*busy", "old", "[anon]"]);
    assert_eq!(notes, Vec::<String>::new());
}

/// Two libraries are mapped at one address in turn: each stack has the name of the one mapped at that time.
#[test]
fn reused_addresses_are_named_by_time() {
    let scene = Scene::new();
    for name in ["first", "second"] {
        scene.write("library.c", &format!("int {name}(int n) {{ return n + 1; }}"));
        scene.run(&format!("gcc -shared -fPIC -Wl,--build-id=sha1 library.c -o lib{name}.so"));
    }
    let (first, second) = (scene.program("libfirst.so"), scene.program("libsecond.so"));
    let address = first.in_process(first.symbol("first"));
    assert_eq!(address, second.in_process(second.symbol("second")));
    let mut kept = Kept::new(9);
    let at = |library: &support::Program, time| model::event::Mapping { time, ..library.mapping() };
    let mappings = vec![at(&first, 10), at(&second, 30), at(&first, 50)];
    for mapping in &mappings {
        kept.mapped(mapping, std::process::id());
    }
    let mut profile = model::profile::Profile { mappings, ..Default::default() };
    profile.processes.insert(IMAGE, Default::default());
    let times = [20, 40, 60, 5];
    for time in times {
        let id = model::event::StackId(time);
        let frames = vec![model::event::Frame::User(address)];
        let end = model::event::StackEnd::Whole;
        profile.stacks.insert(&model::event::Stack { id, process: IMAGE, time, frames, end });
    }
    for symbol in symbols::resolve(&profile, &mut kept, &plain(&[])).symbols {
        profile.symbols.add(symbol);
    }
    let names = times.map(|time| profile.frames(model::event::StackId(time))[0].name.to_string());
    assert_eq!(names, ["first", "second", "first", "first"]);
}
