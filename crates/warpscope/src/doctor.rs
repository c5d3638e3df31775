//! `doctor`: checks what this machine supports and says how to fix what is missing.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use bpf::features;
use terminal::Style;

/// The outcome of a check.
enum Finding {
    /// Works.
    Good(String),
    /// Works with limits, or matters only for some uses; with the remedy.
    Lesser(String, &'static str),
    /// Prevents recording; with the remedy.
    Bad(String, &'static str),
}
use Finding::{Bad, Good, Lesser};

/// Runs the command. Fails if something prevents recording.
pub fn run() -> anyhow::Result<ExitCode> {
    let colour = Style::of(&io::stdout()).colour;
    let mut out = io::stdout().lock();
    let mut bad = false;
    for (topic, finding) in checks() {
        bad |= matches!(finding, Bad(..));
        let (mark, shade, text, remedy) = match finding {
            Good(text) => ("ok  ", "32", text, None),
            Lesser(text, remedy) => ("note", "33", text, Some(remedy)),
            Bad(text, remedy) => ("FAIL", "31", text, Some(remedy)),
        };
        let mark = if colour { format!("\x1b[{shade}m{mark}\x1b[0m") } else { mark.to_owned() };
        writeln!(out, "{mark}  {topic:<12} {text}")?;
        if let Some(remedy) = remedy {
            writeln!(out, "      {:<12} -> {remedy}", "")?;
        }
    }
    Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn checks() -> Vec<(&'static str, Finding)> {
    let mut checks = vec![("kernel", Good(features::kernel_release()))];
    let privileged = features::privileged();
    checks.push((
        "privilege",
        if privileged {
            Good("may load eBPF programs".into())
        } else {
            Bad("may not load eBPF programs".into(), "run as root (sudo), or give the binary CAP_BPF and CAP_PERFMON")
        },
    ));
    checks.push((
        "BTF",
        if features::btf() {
            Good("/sys/kernel/btf/vmlinux".into())
        } else {
            Bad("the kernel has no BTF".into(), "use a kernel built with CONFIG_DEBUG_INFO_BTF=y")
        },
    ));
    if privileged {
        checks.push(("probes", probes()));
        checks.push((
            "multi-probe",
            if features::uprobe_multi() {
                Good("supported: one program can be attached to many probes at once".into())
            } else {
                Lesser(
                    "not supported by this kernel: probes are attached one by one".into(),
                    "Linux 6.6 and later support it",
                )
            },
        ));
    }
    checks.push((
        "namespace",
        if features::initial_pid_namespace() {
            Good("the host's pid namespace".into())
        } else {
            Lesser(
                "not the host's pid namespace: only processes in it can be recorded or traced".into(),
                "to monitor the whole machine, run in the host's pid namespace (docker run --pid=host)",
            )
        },
    ));
    checks.push((
        "parsers",
        match sandbox::missing() {
            None => Good("foreign files are read by processes without rights".into()),
            Some(missing) => {
                Lesser(missing, "use a kernel with landlock and seccomp; docs/privileges.md says what they are for")
            }
        },
    ));
    checks.push(("driver", driver()));
    checks.push(("CUPTI", cupti()));
    checks
}

/// Loads and attaches the programs that `record` needs.
fn probes() -> Finding {
    let options = bpf::Options { sample_hz: Some(99), ring_bytes: 1 << 20, ..Default::default() };
    match bpf::Recorder::start(&options).and_then(|_| bpf::Mappings::watch(bpf::Share::RECORDING)) {
        Ok(_) => Good("loaded, attached and removed again".into()),
        Err(error) => Bad(error.to_string(), "see docs/privileges.md"),
    }
}

fn driver() -> Finding {
    match fs::read_to_string("/proc/driver/nvidia/version") {
        Ok(text) => Good(text.lines().next().unwrap_or_default().trim_start_matches("NVRM version:").trim().to_owned()),
        Err(_) if Path::new("/dev/nvidiactl").exists() => Good("/dev/nvidiactl".into()),
        Err(_) => Lesser(
            "no NVIDIA driver on this machine".into(),
            "CPU profiles and the simulated GPU (warpscope demo) work without one",
        ),
    }
}

fn cupti() -> Finding {
    let found = cupti_libraries();
    match found.first() {
        Some(first) => Good(first.display().to_string()),
        None => Lesser(
            "no libcupti in the usual locations".into(),
            "programs that bundle CUPTI, such as PyTorch, work; otherwise install the CUDA toolkit or the Python package nvidia-cuda-cupti, or set WARPSCOPE_CUPTI",
        ),
    }
}

/// Returns the CUPTI libraries of the CUDA toolkit and of the Python packages in the current environment.
fn cupti_libraries() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    gpu_counters::libraries(&gpu_counters::environments(&variable, None, None))
}
