//! Real libraries, and corrupted copies of them.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use elf::{Budget, Bytes};
use probes::{Cost, Error, Function, open, summary};

fn exported<B: Bytes + ?Sized>(bytes: &B) -> Result<Vec<Function>, Error> {
    probes::exported(bytes, |_| true, &Budget::RECORDING)
}

fn find(bytes: &[u8], name: &str) -> Result<Option<Function>, Error> {
    probes::find(bytes, name, &Budget::RECORDING)
}

/// The C library this test runs with.
fn libc() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("/libc.so"));
    path.expect("this test is linked to a shared libc").into()
}

fn named<'a>(functions: &'a [Function], name: &str) -> &'a Function {
    let found = functions.iter().find(|function| function.names().any(|own| own == name));
    found.unwrap_or_else(|| panic!("{name} is not exported"))
}

/// Compiles a shared library from C or assembler.
fn library(folder: &Path, file: &str, text: &str) -> Vec<u8> {
    let (source, output) = (folder.join(file), folder.join("library.so"));
    std::fs::write(&source, text).unwrap();
    let status =
        Command::new("gcc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&output).arg(&source).status().unwrap();
    assert!(status.success());
    std::fs::read(output).unwrap()
}

/// Check that every function of libc has its site inside it, in code, and that no two share an address.
#[test]
fn every_function_of_libc_has_a_site() {
    let path = libc();
    let data = std::fs::read(&path).unwrap();
    let functions = exported(data.as_slice()).unwrap();
    for function in &functions {
        let delta = function.site.offset - function.offset;
        assert!(delta == 0 || delta < function.size, "{function:?}");
        assert!(delta == 0 || function.site.cost <= Cost::Emulated, "{function:?}");
    }
    let mut offsets: Vec<u64> = functions.iter().map(|function| function.offset).collect();
    offsets.sort_unstable();
    offsets.dedup();
    assert_eq!(offsets.len(), functions.len());
    let counts = summary(&functions);
    println!("{}: {counts}", path.display());
    assert!(counts.total() > 1000 && counts.emulated > counts.total() / 3, "{counts}");
    assert_eq!(functions, exported(&open(&path).unwrap()).unwrap(), "the same without reading the whole file");
}

/// Check names, aliases and sizes that every glibc has.
#[test]
fn names_of_libc_are_found() {
    let data = std::fs::read(libc()).unwrap();
    let functions = exported(data.as_slice()).unwrap();
    let puts = named(&functions, "puts");
    assert_eq!(puts.name, "puts");
    assert!(puts.aliases.contains(&"_IO_puts".to_owned()));
    assert!(puts.size > 0);
    let memcpy = functions.iter().find(|function| function.name == "memcpy");
    assert_eq!(memcpy, None, "resolved at load time");
    let found = find(data.as_slice(), "puts").unwrap().unwrap();
    assert_eq!((found.offset, found.site), (puts.offset, puts.site));
    assert_eq!(find(data.as_slice(), "no such function").unwrap(), None);
    assert_eq!(find(data.as_slice(), "").unwrap(), None);
}

/// The prologues of the real CUDA libraries, an overlapping entry, a loop, versions, and a function resolved at load
/// time.
const STUBS: &str = r#"
    .section .note.GNU-stack, "", @progbits
    .macro function name
        .globl \name
        .type \name, @function
        \name:
    .endm
    .macro done name
        .size \name, . - \name
    .endm
    .data
    gate: .long 0
    slot: .quad 0
    .text
    function cuStub
        cmpl $0x321cba00, gate(%rip)
        je 1f
        jmp *slot(%rip)
    1:  mov $4, %eax
        ret
    done cuStub
    function cudaStub
        push %rbp
        mov %rsp, %rbp
        leave
        ret
    done cudaStub
    function guarded
        endbr64
        push %r15
        pop %r15
        ret
    done guarded
    function outer
        endbr64
    function inner
        push %rbx
        pop %rbx
        ret
    done outer
    done inner
    function loops
        xor %eax, %eax
    1:  test %edi, %edi
        je 2f
        inc %eax
        jmp 1b
    2:  ret
    done loops
    .type local, @function
    local:
        xor %eax, %eax
        ret
    done local
    function old
        ret
    done old
    .symver old, versioned@V1
    function new
        nop
        ret
    done new
    .symver new, versioned@@V2
    .globl chosen
    .type chosen, @gnu_indirect_function
    chosen: ret
    done chosen
"#;

/// Check the sites of known prologues in a linked library.
#[test]
fn sites_of_known_prologues() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("map"), "V1 {};\nV2 { global: *; };\n").unwrap();
    let source = folder.path().join("stubs.s");
    std::fs::write(&source, STUBS).unwrap();
    let output = folder.path().join("stubs.so");
    let mut gcc = Command::new("gcc");
    gcc.args(["-shared", "-nostdlib", "-o"]).arg(&output).arg(&source);
    gcc.arg(format!("-Wl,--version-script={}", folder.path().join("map").display()));
    assert!(gcc.status().unwrap().success());
    let data = std::fs::read(output).unwrap();
    let functions = exported(data.as_slice()).unwrap();
    let site = |name| {
        let function = named(&functions, name);
        (function.site.offset - function.offset, function.site.cost)
    };
    assert_eq!(site("cuStub"), (10, Cost::Emulated));
    assert_eq!(site("cudaStub"), (0, Cost::Emulated));
    assert_eq!(site("guarded"), (4, Cost::Emulated));
    assert_eq!(site("outer"), (0, Cost::Stepped), "another function begins at +4");
    assert_eq!(site("inner"), (0, Cost::Emulated));
    assert_eq!(site("loops"), (0, Cost::Stepped), "the branch is in a loop");
    assert_eq!(site("versioned"), (0, Cost::Emulated), "the default version is the nop");
    assert!(functions.iter().all(|function| function.name != "local" && function.name != "chosen"));
    let local = find(data.as_slice(), "local").unwrap().unwrap();
    assert_eq!((local.size, local.site.cost), (3, Cost::Stepped));
    assert_eq!(find(data.as_slice(), "chosen").unwrap(), None);
}

/// Check that the sites of compiled functions are where a debugger would place them.
#[test]
fn compiled_functions_have_sites() {
    let folder = tempfile::tempdir().unwrap();
    let text = "int twice(int x) { return 2 * x; }\n\
        extern int callee(int);\n\
        int calls(int x) { return callee(x) + callee(x + 1); }\n\
        static __attribute__((noinline)) int hidden(int x) { return callee(x) + callee(x); }\n\
        int uses(int x) { return hidden(x) + 1; }\n";
    let data = library(folder.path(), "compiled.c", text);
    let functions = exported(data.as_slice()).unwrap();
    assert_eq!(named(&functions, "twice").site.cost, Cost::Stepped);
    assert_eq!(named(&functions, "calls").site.cost, Cost::Emulated);
    assert_eq!(find(data.as_slice(), "hidden").unwrap().unwrap().site.cost, Cost::Emulated);
}

/// Check that other files are rejected, with the reason.
#[test]
fn other_files_are_rejected() {
    let error = |data: &[u8]| exported(data).unwrap_err().to_string();
    assert!(error(b"").contains("ELF"));
    assert!(error(b"#!/bin/sh\nexit 0\n").contains("ELF"));
    let mut arm = std::fs::read(libc()).unwrap();
    arm[18] = 183;
    assert!(error(&arm).contains("machine 183"));
    let error = open(Path::new("/no/such/lib.so")).unwrap_err().to_string();
    assert!(error.starts_with("cannot open /no/such/lib.so: "), "{error}");
}

/// Check that a library truncated anywhere, or with bytes changed, yields functions or an error, never a panic, and
/// that the functions are within the file.
#[test]
fn corrupted_libraries_are_survived() {
    let folder = tempfile::tempdir().unwrap();
    let sound = library(folder.path(), "stubs.s", &STUBS.replace(".symver", "#"));
    let check = |data: &[u8]| {
        let Ok(functions) = exported(data) else { return };
        for function in functions {
            assert!(function.offset + function.size <= data.len() as u64 && function.site.offset < data.len() as u64);
        }
        let _ = find(data, "local");
        let _ = find(data, "cuStub");
    };
    for length in 0..sound.len() {
        check(&sound[..length]);
    }
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // Headers and symbol tables are the critical parts: they are few bytes of the file, so each is hit often.
    for _ in 0..20_000 {
        let mut data = sound.clone();
        for _ in 0..1 + random() % 8 {
            let at = random() as usize % if random() % 2 == 0 { 0x600.min(data.len()) } else { data.len() };
            data[at] = if random() % 4 == 0 { 0xff } else { random() as u8 };
        }
        check(&data);
    }
}
