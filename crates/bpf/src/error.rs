//! Errors of the kernel interface, with messages that say what to do.

use std::{io, path::PathBuf};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An operation that the kernel rejected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not enough privilege.
    #[error("not permitted to load eBPF programs: run warpscope as root (sudo), or give it CAP_BPF and CAP_PERFMON")]
    NotPermitted,
    /// Root only inside a user namespace.
    #[error(
        "not permitted to load eBPF programs from a user namespace: its root is not the host's; run warpscope outside of it, for example in a container started with --privileged or --cap-add BPF --cap-add PERFMON"
    )]
    UserNamespace,
    /// The kernel has no BTF.
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux is missing): warpscope needs a kernel built with CONFIG_DEBUG_INFO_BTF=y, as those of Debian, Ubuntu, Fedora and RHEL are"
    )]
    NoBtf,
    /// A program could not be loaded.
    #[error("cannot load the eBPF programs: {0}{detail}", detail = Detail(.1))]
    Load(libbpf_rs::Error, String),
    /// The kernel is too old.
    #[error(
        "this kernel ({release}) cannot run warpscope's eBPF programs: the oldest tested kernel is Linux 6.1{detail}", detail = Detail(.detail)
    )]
    OldKernel {
        /// The kernel's release.
        release: String,
        /// The verifier's reason.
        detail: String,
    },
    /// A program could not be attached.
    #[error("cannot attach the {what}: {source}")]
    Attach {
        /// Which probe.
        what: &'static str,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// The sampler's timer could not be opened.
    #[error("cannot sample CPU {cpu} at {hz} Hz: {source}{hint}", hint = sampling_hint(.source))]
    Sampling {
        /// The CPU.
        cpu: u32,
        /// The frequency.
        hz: u32,
        /// Why.
        source: io::Error,
    },
    /// Mappings cannot be watched.
    #[error("cannot record memory mappings on CPU {cpu}: {source}")]
    Mappings {
        /// The CPU.
        cpu: u32,
        /// Why.
        source: io::Error,
    },
    /// A map operation failed.
    #[error("cannot {what}: {source}")]
    Map {
        /// What was being done.
        what: &'static str,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// A file of /proc or /sys could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

struct Detail<'a>(&'a str);

impl std::fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "\nmessages of libbpf:\n{}", self.0.trim_end()) }
    }
}

fn sampling_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EINVAL) => " (the kernel's limit is in /proc/sys/kernel/perf_event_max_sample_rate)",
        Some(libc::EACCES | libc::EPERM) => " (run as root, or give warpscope CAP_PERFMON)",
        _ => "",
    }
}
