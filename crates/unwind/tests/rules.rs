//! Rows of hand-written call frame information, assembled by gcc: one test per rule.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{address_of, assemble};
use elf::Elf;
use unwind::{Cfa, Loss, Saved, Table};

/// Assembles a function `f` and returns the rows from its start on: offset, CFA, rbp.
fn rows_of_bytes(elf: &[u8]) -> (Vec<(u64, Cfa, Saved)>, Table) {
    let table = Table::of(elf).unwrap();
    let start = address_of(elf, "f");
    let rows = table.rows.iter().filter(|row| table.base + u64::from(row.pc) >= start);
    let rows = rows.map(|row| (table.base + u64::from(row.pc) - start, row.cfa(), row.rbp())).collect();
    (rows, table)
}

fn rows_of(body: &str) -> (Vec<(u64, Cfa, Saved)>, Table) {
    rows_of_bytes(&assemble(&format!(".globl f\nf: .cfi_startproc\n{body}\n.cfi_endproc")))
}

const END: (Cfa, Saved) = (Cfa::NoRule, Saved::Same);

/// Check the prologue and epilogue of every compiler, with nops for its instructions.
#[test]
fn frame_pointer_and_stack_pointer_rules() {
    let (rows, table) = rows_of(
        "nop\n .cfi_def_cfa_offset 16\n .cfi_offset %rbp, -16\n nop\n .cfi_def_cfa_register %rbp\n nop\n
         .cfi_remember_state\n .cfi_def_cfa %rsp, 8\n .cfi_restore %rbp\n nop\n .cfi_restore_state\n nop",
    );
    assert_eq!(
        rows,
        [
            (0, Cfa::Rsp(8), Saved::Same),
            (1, Cfa::Rsp(16), Saved::AtCfa(-16)),
            (2, Cfa::Rbp(16), Saved::AtCfa(-16)),
            (3, Cfa::Rsp(8), Saved::Same),
            (4, Cfa::Rbp(16), Saved::AtCfa(-16)),
            (5, END.0, END.1),
        ]
    );
    assert_eq!((table.stats.functions, table.stats.covered, table.stats.unsupported), (1, 5, 0));
}

/// Check that rows without changes relevant to the walker are merged.
#[test]
fn other_registers_make_no_rows() {
    let (rows, _) =
        rows_of("nop\n .cfi_offset %r13, -24\n nop\n .cfi_offset %r12, -32\n nop\n .cfi_same_value %rbp\n nop");
    assert_eq!(rows, [(0, Cfa::Rsp(8), Saved::Same), (4, END.0, END.1)]);
}

/// Check that an undefined return address ends the stack, as in _start and clone.
#[test]
fn an_undefined_return_address_ends_the_stack() {
    let (rows, _) = rows_of(".cfi_undefined %rip\n nop");
    assert_eq!(rows, [(0, Cfa::End, Saved::Same), (1, END.0, END.1)]);
}

/// Check gcc's realigned stack: the CFA is read from the frame, rbp is saved relative to itself.
#[test]
fn a_realigned_stack_reads_the_cfa_from_the_frame() {
    let (rows, table) =
        rows_of(".cfi_def_cfa %r10, 0\n nop\n .cfi_escape 0x10,6,2,0x76,0\n nop\n .cfi_escape 0xf,3,0x76,0x78,6\n nop");
    assert_eq!(
        rows,
        [
            (0, Cfa::Register(10, 0), Saved::Same),
            (1, Cfa::Register(10, 0), Saved::AtRbp(0)),
            (2, Cfa::RbpSlot(-8, 0), Saved::AtRbp(0)),
            (3, END.0, END.1),
        ]
    );
    assert_eq!((table.stats.losses().count(), table.stats.unsupported, table.stats.covered), (0, 0, 3));
}

/// Check the loader's trampoline: the CFA is relative to rbx, which is saved two words below the return address.
#[test]
fn the_cfa_can_be_relative_to_rbx() {
    let elf = assemble(
        ".globl f\n f: .cfi_startproc\n .cfi_def_cfa_offset 24\n nop\n .cfi_def_cfa_offset 32\n .cfi_offset %rbx, -32\n
         nop\n .cfi_def_cfa_register %rbx\n nop\n .cfi_endproc",
    );
    let table = Table::of(&*elf).unwrap();
    let start = address_of(&elf, "f");
    let rows: Vec<_> = (0..3).map(|at| table.lookup(start + at).unwrap()).map(|row| (row.cfa(), row.rbx())).collect();
    assert_eq!(
        rows,
        [(Cfa::Rsp(24), Saved::Same), (Cfa::Rsp(32), Saved::AtCfa(-32)), (Cfa::Register(3, 32), Saved::AtCfa(-32)),]
    );
}

/// Check OpenSSL's form: the old rsp is kept on the stack.
#[test]
fn stack_pointer_in_a_slot() {
    let (rows, _) = rows_of(".cfi_escape 0xf,6,0x77,0x98,1,6,0x23,8\n nop");
    assert_eq!(rows[0], (0, Cfa::RspSlot(152, 8), Saved::Same));
}

/// Check that a signal trampoline is recognised by glibc's rules, and only by those.
#[test]
fn signal_frames_are_recognised() {
    let (rows, _) =
        rows_of(".cfi_signal_frame\n .cfi_escape 0xf,4,0x77,0xa0,1,6\n .cfi_escape 0x10,16,3,0x77,0xa8,1\n nop");
    assert_eq!(rows[0], (0, Cfa::Signal, Saved::Same));
    let (rows, table) = rows_of(".cfi_signal_frame\n nop");
    assert_eq!(rows[0], (0, Cfa::Unsupported, Saved::Same));
    assert_eq!(table.stats.lost(Loss::SignalFrame), 1);
}

/// Check rules that a row cannot express: each is counted by reason.
#[test]
fn unsupported_rules_are_counted() {
    let cases = [
        (".cfi_escape 0xf,3,0x73,0,6\n nop", Loss::CfaRegister),
        (".cfi_def_cfa %rip, 16\n nop", Loss::CfaRegister),
        (".cfi_escape 0xf,2,0x80,0\n nop", Loss::CfaExpression),
        (".cfi_def_cfa %rbx, 16384\n nop", Loss::CfaOffset),
        (".cfi_def_cfa_offset 12\n nop", Loss::CfaOffset),
        (".cfi_def_cfa_offset 262144\n nop", Loss::CfaOffset),
        (".cfi_offset %rip, -16\n nop", Loss::ReturnAddress),
        (".cfi_def_cfa_register %rbp\n .cfi_register %rip, %rdi\n nop", Loss::ReturnAddress),
        (".cfi_escape 0x0b\n nop", Loss::Program),
        (".cfi_escape 0x3f\n nop", Loss::Program),
    ];
    for (body, loss) in cases {
        let (rows, table) = rows_of(body);
        assert_eq!(rows[0], (0, Cfa::Unsupported, Saved::Same), "{body}");
        assert_eq!(table.stats.losses().count(), 1, "{body}");
        assert_eq!(table.stats.lost(loss), 1, "{body}");
    }
}

/// Check that a lost rbp does not lose the frame.
#[test]
fn lost_frame_pointer() {
    for body in [".cfi_offset %rbp, -384\n nop", ".cfi_register %rbp, %rax\n nop", ".cfi_escape 0x10,6,2,0x77,8\n nop"]
    {
        let (rows, table) = rows_of(body);
        assert_eq!(rows[0], (0, Cfa::Rsp(8), Saved::Lost), "{body}");
        assert_eq!(table.stats.lost(Loss::Rbp), 1, "{body}");
    }
    let (rows, table) = rows_of(".cfi_undefined %rbp\n nop");
    assert_eq!(rows[0], (0, Cfa::Rsp(8), Saved::Lost));
    assert_eq!(table.stats.lost(Loss::Rbp), 0, "the row contains everything");
}

/// Check that padding between functions has no rule, and that functions without padding are adjacent.
#[test]
fn gaps_between_functions() {
    let (rows, table) = rows_of(
        "nop\n .cfi_endproc\n nop; nop; nop\n .cfi_startproc\n nop\n .cfi_endproc\n .cfi_startproc\n nop\n
         .cfi_def_cfa_offset 16\n nop",
    );
    assert_eq!(
        rows,
        [
            (0, Cfa::Rsp(8), Saved::Same),
            (1, END.0, END.1),
            (4, Cfa::Rsp(8), Saved::Same),
            (6, Cfa::Rsp(16), Saved::Same),
            (7, END.0, END.1),
        ]
    );
    assert_eq!((table.stats.functions, table.stats.gaps), (3, 2));
}

/// Check vfork: the child must not overwrite the return address, so it is kept in a register.
#[test]
fn return_address_in_a_register() {
    let (rows, _) = rows_of(".cfi_def_cfa_offset 0\n .cfi_register %rip, %rdi\n nop");
    assert_eq!(rows[0], (0, Cfa::Return(5, 0), Saved::Same));
}

/// Check clone: after the system call the rules end, for both the creator and the new thread.
#[test]
fn new_threads_have_no_caller() {
    let after = |instruction: &str| {
        let text = ".globl f\n f: .cfi_startproc\n nop\n .cfi_endproc\n INSTRUCTION\n nop\n ret\n .cfi_startproc\n
            .cfi_undefined %rip\n nop\n .cfi_endproc";
        rows_of_bytes(&assemble(&text.replace("INSTRUCTION", instruction))).0[1].1
    };
    assert_eq!(after("syscall"), Cfa::Thread);
    assert_eq!(after("nop"), Cfa::NoRule);
}

/// Check that a signal trampoline's rules extend to where its system call would return.
#[test]
fn signal_returns_have_rules() {
    let (rows, _) = rows_of(
        ".cfi_signal_frame\n .cfi_escape 0xf,4,0x77,0xa0,1,6\n .cfi_escape 0x10,16,3,0x77,0xa8,1\n syscall\n .cfi_endproc\n
         .fill 8, 1, 0x90\n .cfi_startproc\n nop",
    );
    let expected =
        [(0, Cfa::Signal, Saved::Same), (3, END.0, END.1), (10, Cfa::Rsp(8), Saved::Same), (11, END.0, END.1)];
    assert_eq!(rows, expected);
}

/// Check a function that overwrites its frame and returns into another: in between it cannot be unwound.
#[test]
fn landing_in_another_frame() {
    let (rows, _) = rows_of(
        ".fill 300, 1, 0x90\n call f\n call f\n nop\n call f\n nop\n .cfi_def_cfa_offset 16\n nop\n
         .cfi_def_cfa %rcx, 8\n mov %rcx,%rsp\n .cfi_def_cfa %rsp, 8\n ret",
    );
    assert_eq!(
        rows,
        [
            (0, Cfa::Rsp(8), Saved::Same),
            (305, Cfa::Unsupported, Saved::Same),
            (318, Cfa::Register(2, 8), Saved::Same),
            (321, Cfa::Rsp(8), Saved::Same),
            (322, END.0, END.1),
        ]
    );
}

/// Check that a program whose entry point has no rules has no caller there, as in glibc's loader.
#[test]
fn entry_without_rules() {
    let mut elf = assemble(
        ".globl f\n f: .cfi_startproc\n nop\n .cfi_endproc\n nop; nop\n .fill 200, 1, 0x90\n .cfi_startproc\n nop\n .cfi_endproc",
    );
    let entry = address_of(&elf, "f") + 2;
    elf[0x18..0x20].copy_from_slice(&entry.to_le_bytes());
    let (rows, _) = rows_of_bytes(&elf);
    assert_eq!(
        rows,
        [
            (0, Cfa::Rsp(8), Saved::Same),
            (1, END.0, END.1),
            (2, Cfa::End, Saved::Same),
            (130, END.0, END.1),
            (203, Cfa::Rsp(8), Saved::Same),
            (204, END.0, END.1),
        ]
    );
}

/// Check that a program's first function has no caller, whatever its rules say.
#[test]
fn entry_with_rules() {
    let mut elf = assemble(".globl f\n f: .cfi_startproc\n nop\n .cfi_def_cfa_offset 16\n nop\n .cfi_endproc");
    let entry = address_of(&elf, "f");
    elf[0x18..0x20].copy_from_slice(&entry.to_le_bytes());
    assert_eq!(rows_of_bytes(&elf).0[0].1, Cfa::Rsp(8), "a library may have any value there");
    elf[0x10] = 2;
    assert_eq!(rows_of_bytes(&elf).0, [(0, Cfa::End, Saved::Same), (2, END.0, END.1)]);
}

/// Check ld's PLT stubs, using its own rules for them.
#[test]
fn procedure_linkage_table() {
    let elf = assemble(".globl f\n f: .cfi_startproc\n call g@plt\n .cfi_endproc");
    let table = Table::of(&*elf).unwrap();
    let plt: Vec<_> = table.rows.iter().map(|row| row.cfa()).filter(|cfa| matches!(cfa, Cfa::Plt(_))).collect();
    assert_eq!(plt, [Cfa::Plt(11)]);
}

/// Check that .debug_frame is used if there is no .eh_frame.
#[test]
fn debug_frame_is_used() {
    let elf = assemble(
        ".cfi_sections .debug_frame\n .globl f\n f: .cfi_startproc\n nop\n .cfi_def_cfa_offset 16\n nop\n .cfi_endproc",
    );
    let (rows, _) = rows_of_bytes(&elf);
    assert_eq!(rows, [(0, Cfa::Rsp(8), Saved::Same), (1, Cfa::Rsp(16), Saved::Same), (2, END.0, END.1)]);
}

/// Check that section headers are not needed: a library without them has the same table.
#[test]
fn section_headers_are_not_needed() {
    let mut elf = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
    let with = Table::of(&*elf).unwrap();
    elf[0x28..0x30].fill(0);
    elf[0x3c..0x40].fill(0);
    assert_eq!(Table::of(&*elf).unwrap(), with);
}

/// Check that a file read in pieces has the same table as a whole one, and that its build id is the one from ld.
#[test]
fn files_and_bytes_give_the_same_table() {
    let path = "/lib/x86_64-linux-gnu/libc.so.6";
    let (bytes, file) = (std::fs::read(path).unwrap(), std::fs::File::open(path).unwrap());
    assert_eq!(Table::of(&file).unwrap(), Table::of(&*bytes).unwrap());
    let elf = Elf::read(&file).unwrap();
    assert_eq!(elf, Elf::read(&*bytes).unwrap());
    let id = object::Object::build_id(&object::File::parse(&*bytes).unwrap()).unwrap();
    assert_eq!(Some(&*elf.build_id), id);
    assert!(id.is_some());
}
