//! Seccomp: the system calls that a process can still make.

use std::io;

use libc::{sock_filter, sock_fprog};

/// The architecture whose numbers of system calls the tables use.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
/// Numbers from here on belong to another table of the same architecture (x32).
const OTHER_TABLE: u32 = 0x4000_0000;
/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS: u32 = 16;
/// The flags of `clone` that create namespaces.
const NAMESPACES: u32 = 0x7e02_0000;

/// A system call, and what its arguments must be.
pub(crate) struct Call {
    number: libc::c_long,
    arguments: &'static [Argument],
}

/// The lower half of an argument, as far as `mask` covers it, must have this value.
struct Argument {
    index: u32,
    mask: u32,
    value: u32,
}

const fn any(number: libc::c_long) -> Call {
    Call { number, arguments: &[] }
}

const fn only(number: libc::c_long, arguments: &'static [Argument]) -> Call {
    Call { number, arguments }
}

const fn argument(index: u32, mask: u32, value: u32) -> Argument {
    Argument { index, mask, value }
}

/// What a worker does: it reads files, uses memory that cannot be executed, and writes to descriptor 0, its socket. There is no
/// `stat` of an open file: the C library uses a call that takes paths.
pub(crate) const WORKER: &[Call] = &[
    any(libc::SYS_read),
    any(libc::SYS_pread64),
    any(libc::SYS_lseek),
    only(libc::SYS_write, &[argument(0, u32::MAX, 0)]),
    any(libc::SYS_close),
    any(libc::SYS_brk),
    only(
        libc::SYS_mmap,
        &[argument(2, libc::PROT_EXEC as u32, 0), argument(3, libc::MAP_ANONYMOUS as u32, libc::MAP_ANONYMOUS as u32)],
    ),
    only(libc::SYS_mprotect, &[argument(2, libc::PROT_EXEC as u32, 0)]),
    any(libc::SYS_mremap),
    any(libc::SYS_munmap),
    any(libc::SYS_madvise),
    any(libc::SYS_futex),
    any(libc::SYS_getrandom),
    any(libc::SYS_clock_gettime),
    any(libc::SYS_rt_sigreturn),
    any(libc::SYS_rt_sigprocmask),
    any(libc::SYS_sigaltstack),
    any(libc::SYS_restart_syscall),
    any(libc::SYS_exit),
    any(libc::SYS_exit_group),
];

/// What the zygote does besides: it receives requests, forks, and restricts the worker further.
pub(crate) const ZYGOTE: &[Call] = &[
    any(libc::SYS_recvmsg),
    any(libc::SYS_sendmsg),
    only(libc::SYS_clone, &[argument(0, NAMESPACES, 0)]),
    any(libc::SYS_pidfd_open),
    any(libc::SYS_prctl),
    any(libc::SYS_seccomp),
    any(libc::SYS_getppid),
    any(libc::SYS_gettid),
    any(libc::SYS_set_robust_list),
    any(libc::SYS_rseq),
];

/// What warpscope never does once it has started, by subject. These calls change the machine, or lead around the checks of others.
pub(crate) const TABLES: &[&[Call]] = &[KERNEL, MOUNTS, CLOCKS, DEVICES, SURFACE, MEMORY];

/// The kernel and its state.
const KERNEL: &[Call] = &[
    any(libc::SYS_init_module),
    any(libc::SYS_finit_module),
    any(libc::SYS_delete_module),
    any(libc::SYS_kexec_load),
    any(libc::SYS_kexec_file_load),
    any(libc::SYS_reboot),
    any(libc::SYS_swapon),
    any(libc::SYS_swapoff),
    any(libc::SYS_acct),
    any(libc::SYS_quotactl),
    any(libc::SYS_sethostname),
    any(libc::SYS_setdomainname),
];

/// Mounts, roots and namespaces. tracefs is mounted, if necessary, before the command starts.
const MOUNTS: &[Call] = &[
    any(libc::SYS_mount),
    any(libc::SYS_umount2),
    any(libc::SYS_pivot_root),
    any(libc::SYS_chroot),
    any(libc::SYS_move_mount),
    any(libc::SYS_open_tree),
    any(libc::SYS_fsopen),
    any(libc::SYS_fsconfig),
    any(libc::SYS_fsmount),
    any(libc::SYS_fspick),
    any(libc::SYS_mount_setattr),
    any(libc::SYS_setns),
    any(libc::SYS_unshare),
    any(libc::SYS_open_by_handle_at),
];

/// Clocks.
const CLOCKS: &[Call] =
    &[any(libc::SYS_settimeofday), any(libc::SYS_clock_settime), any(libc::SYS_clock_adjtime), any(libc::SYS_adjtimex)];

/// Devices and ports.
const DEVICES: &[Call] = &[any(libc::SYS_iopl), any(libc::SYS_ioperm), any(libc::SYS_mknod), any(libc::SYS_mknodat)];

/// Large parts of the kernel that attacks on it use, and that warpscope does not.
const SURFACE: &[Call] = &[
    any(libc::SYS_add_key),
    any(libc::SYS_request_key),
    any(libc::SYS_keyctl),
    any(libc::SYS_userfaultfd),
    any(libc::SYS_io_uring_setup),
    any(libc::SYS_io_uring_enter),
    any(libc::SYS_io_uring_register),
    any(libc::SYS_fanotify_init),
    any(libc::SYS_modify_ldt),
    any(libc::SYS_personality),
    any(libc::SYS_process_vm_writev),
];

/// Memory that can be written and executed.
const MEMORY: &[Call] =
    &[only(libc::SYS_mmap, &[argument(2, CODE, CODE)]), only(libc::SYS_mprotect, &[argument(2, CODE, CODE)])];
const CODE: u32 = (libc::PROT_WRITE | libc::PROT_EXEC) as u32;

/// Starting programs.
pub(crate) const EXECUTE: &[Call] = &[any(libc::SYS_execve), any(libc::SYS_execveat)];

/// Changing other processes.
pub(crate) const ATTACH: &[Call] = &[any(libc::SYS_ptrace), any(libc::SYS_pidfd_getfd)];

/// What happens with a call.
#[derive(Clone, Copy)]
pub(crate) enum Action {
    Allow,
    Refuse,
}

impl Action {
    fn instruction(self) -> sock_filter {
        let result = match self {
            Self::Allow => libc::SECCOMP_RET_ALLOW,
            Self::Refuse => libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        };
        statement(libc::BPF_RET | libc::BPF_K, result)
    }
}

fn statement(code: u32, value: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k: value }
}

fn load(offset: u32) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

/// Continues if the loaded value compares so, otherwise skips instructions.
fn jump(comparison: u32, value: u32, skipped: usize) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | comparison | libc::BPF_K) as u16, jt: 0, jf: skipped as u8, k: value }
}

/// Returns the program: the calls in `tables` have one action, all others another.
pub(crate) fn program(tables: &[&[Call]], listed: Action, others: Action) -> Vec<sock_filter> {
    let kill = statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS);
    let mut program = vec![
        load(ARCHITECTURE_AT),
        jump(libc::BPF_JEQ, ARCHITECTURE, 1),
        statement(libc::BPF_JMP | libc::BPF_JA, 1),
        kill,
        load(NUMBER),
        jump(libc::BPF_JGE, OTHER_TABLE, 1),
        Action::Refuse.instruction(),
    ];
    for call in tables.iter().copied().flatten() {
        // Per argument: load, mask, compare, and the action if it differs.
        program.push(jump(libc::BPF_JEQ, call.number as u32, call.arguments.len() * 5 + 1));
        for Argument { index, mask, value } in call.arguments {
            program.push(load(ARGUMENTS + index * 8));
            program.push(statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, *mask));
            program.push(jump(libc::BPF_JEQ, *value, 1));
            program.push(statement(libc::BPF_JMP | libc::BPF_JA, 1));
            program.push(others.instruction());
        }
        program.push(listed.instruction());
    }
    program.push(others.instruction());
    program
}

/// Applies a program to all threads of this process. New privileges must have been given up, unless we may administer the system.
pub(crate) fn apply(program: &mut [sock_filter]) -> io::Result<()> {
    let program = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: a valid program of the given length.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    match answer {
        0 => Ok(()),
        1.. => Err(io::Error::other("a thread has a filter of its own")),
        _ => Err(io::Error::last_os_error()),
    }
}
