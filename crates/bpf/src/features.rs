//! Detects what this kernel supports, by trying it rather than by its version.

use std::{
    fs,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path::Path,
};

use crate::Error;

/// Returns the kernel's release, such as `6.18.0`.
pub fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").map(|s| s.trim().to_owned()).unwrap_or_else(|_| "unknown".into())
}

/// The oldest kernel that warpscope is tested with. Older ones with backported features, such as RHEL's, may work: what
/// decides is whether the programs load.
pub const MINIMUM: (u32, u32) = (6, 1);

/// Whether the kernel's version is below [`MINIMUM`].
pub fn below_minimum() -> bool {
    version(&kernel_release()).is_some_and(|version| version < MINIMUM)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Whether the kernel provides BTF.
pub fn btf() -> bool {
    Path::new("/sys/kernel/btf/vmlinux").exists()
}

/// Whether the kernel can attach one program to many probes at once (multi-uprobes, 6.6 and later).
pub fn uprobe_multi() -> bool {
    attaches_many(libbpf_rs::libbpf_sys::BPF_TRACE_UPROBE_MULTI)
}

/// Whether a program can decide at the entry of a function whether to watch its return (session uprobes, 6.13 and later).
pub fn uprobe_session() -> bool {
    attaches_many(libbpf_rs::libbpf_sys::BPF_TRACE_UPROBE_SESSION)
}

fn attaches_many(kind: libbpf_rs::libbpf_sys::bpf_attach_type) -> bool {
    use libbpf_rs::libbpf_sys as sys;
    // r0 = 0; exit
    let instructions: [u64; 2] = [0xb7, 0x95];
    let mut load = sys::bpf_prog_load_opts {
        sz: size_of::<sys::bpf_prog_load_opts>() as _,
        expected_attach_type: kind,
        ..Default::default()
    };
    // SAFETY: all pointers are valid during the call; the program is two instructions of eight bytes.
    let program = unsafe {
        sys::bpf_prog_load(
            sys::BPF_PROG_TYPE_KPROBE,
            c"uprobe_multi".as_ptr(),
            c"Dual MIT/GPL".as_ptr(),
            instructions.as_ptr().cast(),
            instructions.len() as _,
            &raw mut load,
        )
    };
    if program < 0 {
        return false;
    }
    // A directory cannot be probed: a kernel with multi-uprobes returns EBADF, others return EINVAL.
    let offset: libc::c_ulong = 0;
    let mut link = sys::bpf_link_create_opts { sz: size_of::<sys::bpf_link_create_opts>() as _, ..Default::default() };
    link.__bindgen_anon_1.uprobe_multi.path = c"/".as_ptr();
    link.__bindgen_anon_1.uprobe_multi.offsets = &raw const offset;
    link.__bindgen_anon_1.uprobe_multi.cnt = 1;
    // SAFETY: the options are valid during the call; both descriptors are owned here, and are closed here.
    unsafe {
        let program = OwnedFd::from_raw_fd(program);
        let answer = sys::bpf_link_create(program.as_raw_fd(), -1, kind, &raw const link);
        if answer >= 0 {
            drop(OwnedFd::from_raw_fd(answer));
        }
        answer == -libc::EBADF
    }
}

/// Fails if this process may not use eBPF.
pub fn require_privileges() -> Result<(), Error> {
    if privileged() { Ok(()) } else { Err(Error::NotPermitted) }
}

/// Whether this process may use eBPF: effective user root, or the two capabilities.
pub fn privileged() -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    const CAP_PERFMON: u32 = 38;
    const CAP_BPF: u32 = 39;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let has = |capability: u32| effective & (1 << capability) != 0;
    has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON))
}

/// Returns the mount point of tracefs, if it is mounted.
pub fn tracefs() -> Option<&'static str> {
    ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].into_iter().find(|p| Path::new(p).join("events").exists())
}

/// Whether we are in the initial pid namespace: processes have the pids that the BPF programs see.
pub fn initial_pid_namespace() -> bool {
    // The initial namespace has this fixed inode (include/linux/proc_ns.h).
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == "pid:[4026531836]")
}

/// Whether we are in the initial user namespace: root is the machine's root.
pub fn initial_user_namespace() -> bool {
    fs::read_link("/proc/self/ns/user").is_ok_and(|link| link.as_os_str() == "user:[4026531837]")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that versions are compared by number, ignoring suffixes of distributions.
    #[test]
    fn versions_compare_by_number() {
        assert_eq!(version("6.18.0-rc1"), Some((6, 18)));
        assert_eq!(version("5.14.0-427.el9.x86_64"), Some((5, 14)));
        assert!(version("5.19.17") < Some(MINIMUM) && version("6.1-cloud") >= Some(MINIMUM));
        assert_eq!(version("unknown"), None);
        assert!(!below_minimum(), "the tests run on a kernel that is supported");
    }

    /// Check that each result agrees with what the kernel reports elsewhere. Needs root, as all tests here do.
    #[test]
    fn results_agree_with_the_kernel() {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(text("/proc/version").starts_with(&format!("Linux version {} ", kernel_release())));
        assert!(privileged(), "these tests need root");
        assert!(btf() && fs::read("/sys/kernel/btf/vmlinux").is_ok_and(|types| types.starts_with(&[0x9f, 0xeb])));
        assert_eq!(uprobe_multi(), text("/proc/kallsyms").contains(" bpf_uprobe_multi_link_attach\n"));
        // Accessing it may mount it.
        let found = tracefs();
        let mounts = text("/proc/mounts");
        let mounted = |path: &str| mounts.lines().any(|line| line.starts_with(&format!("tracefs {path} ")));
        assert_eq!(found, ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].into_iter().find(|path| mounted(path)));
    }

    /// Check that feature detection leaves no descriptor open, however often it runs. Other tests may have some open
    /// meanwhile.
    #[test]
    fn detection_leaves_no_descriptor_open() {
        let open = || fs::read_dir("/proc/self/fd").expect("our descriptors").count();
        let before = open();
        let answers: Vec<bool> = (0..200).map(|_| uprobe_multi()).collect();
        assert!(answers.iter().all(|answer| *answer == answers[0]));
        assert!(open() < before + 200);
    }
}
