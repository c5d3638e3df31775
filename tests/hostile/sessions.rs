//! Attacks through the socket that injected libraries connect to, which any process of the command's user can reach.

use std::{
    fs, io,
    mem::MaybeUninit,
    process::{Child, Stdio},
};

use crate::support::{
    Scene,
    attacker::with_sudo,
    calls::{Trace, account},
    folded::{self, kernels_by_path},
    oracle::{Kind, Walk},
    program, programs,
    scene::number,
    truth::Truth,
};

/// The memory limit for a recording under attack.
const MOST_MEMORY: u64 = 256 << 20;

/// Check a recording while a process of the command's user floods warpscope with names, notices, GPUs, kernels, graph nodes,
/// totals, sessions, connections and nonsense. Memory stays bounded, everything rejected is counted by name, and every kernel of the
/// honest program is there, under its own path.
#[test]
fn a_flood_is_bounded_and_counted() {
    let scene = Scene::new();
    let walk = record_beside(&scene, "flood", 6);
    let report = scene.report("x.wscope");
    let truth = Truth::of(&scene, "account");
    assert_eq!(truth.delivered(), walk.total());
    assert_eq!(number(&report, "launches"), walk.total());
    assert_eq!((number(&report, "matched"), number(&report, "pending_launches")), (walk.total(), 0));

    // Rejected records are counted, and names are shown without control characters.
    for cause in [
        "sessions_refused",
        "names_refused",
        "devices_refused",
        "notes_refused",
        "streams_refused",
        "graph_nodes",
        "malformed_packets",
    ] {
        assert!(number(&report["lost"], cause) > 0, "{cause}: {}", report["lost"]);
    }
    let (errors, folded) = (scene.read("stderr"), scene.read("x.folded"));
    assert!(!errors.contains('\u{1b}') && !folded.contains('\u{1b}'), "{errors}");
    assert!(folded::read(&folded).len() < 500_000);
}

/// Records the ground-truth program while another one attacks warpscope for some seconds. Memory must stay bounded, and every
/// kernel of the honest program must be under its own path. Returns what that program did.
pub(super) fn record_beside(scene: &Scene, attack: &str, seconds: u32) -> Walk {
    for name in ["truth", attack] {
        // Other users may have no access to the build directory.
        programs::copy(program(name), scene.path(name));
    }
    let walk = Walk { processes: 2, threads: 2, streams: 2, devices: 2, launches: 5_000, graphs: false };
    let honest = walk.arguments();
    let script =
        format!("./{attack} {seconds} ready & until [ -e ready ]; do sleep 0.01; done; ./truth {honest} && wait $!");
    let sim = format!("devices=2,kernel_ns=3us,truth={}", scene.text("account"));
    let mut command = scene.record_words("--sim --gpu-only -o x.wscope -o x.folded", &["sh", "-c", &script]);
    with_sudo(&mut command).env("WARPSCOPE_SIM", sim);
    let out = |name: &str| Stdio::from(fs::File::create(scene.path(name)).expect("a file"));
    let child = command.stdout(out("stdout")).stderr(out("stderr")).spawn().expect("it starts");
    let (status, peak) = wait_with_peak(child);
    assert_eq!(status, 0, "{}", scene.read("stderr"));
    println!("peak memory {} MiB", peak >> 20);
    assert!(peak < MOST_MEMORY, "{} MiB", peak >> 20);
    let folded = scene.read("x.folded");
    let own: String =
        folded.lines().filter(|line| line.contains("] truth:")).fold(String::new(), |text, line| text + line + "\n");
    let expected = walk.counts().into_iter().filter(|((kind, ..), _)| *kind == Kind::Kernel).collect();
    assert_eq!(kernels_by_path(&own, 3), expected, "{}", scene.read("stderr"));
    walk
}

/// Waits for a child, and returns its exit code and the peak memory of it and its children.
fn wait_with_peak(child: Child) -> (i32, u64) {
    let pid = child.id();
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both places are writable; the usage is read only if the call succeeded.
    let usage = unsafe {
        assert_eq!(
            libc::wait4(pid.cast_signed(), &raw mut status, 0, usage.as_mut_ptr()),
            pid.cast_signed(),
            "{}",
            io::Error::last_os_error()
        );
        usage.assume_init()
    };
    (libc::WEXITSTATUS(status), usage.ru_maxrss as u64 * 1024)
}

/// Check a recording while a process of the command's user reports launches that never happened, with any stack, call and
/// time. Memory stays bounded, the process cannot change what the BPF programs share with others, and the honest program is exact.
#[test]
fn forged_launches_are_survived() {
    record_beside(&Scene::new(), "forged", 4);
}

/// Check a trace while a process of the command's user writes random events and positions to the memory for its calls, and
/// removes its pages. Memory stays bounded, impossible events are counted, and every call of the honest program is there.
#[test]
fn a_hostile_writer_of_calls_is_survived() {
    let scene = Scene::new();
    for name in ["traced", "rings"] {
        programs::copy(program(name), scene.path(name));
    }
    let script = "./rings 4 ready & until [ -e ready ]; do sleep 0.01; done; ./traced account account && wait $!";
    let mut command = scene.trace_words("--sim -q --calls-from cupti -o x.wscope -o x.jsonl", &["sh", "-c", script]);
    let out = |name: &str| Stdio::from(fs::File::create(scene.path(name)).expect("a file"));
    let command = with_sudo(&mut command).stdout(out("stdout")).stderr(out("stderr"));
    let (status, peak) = wait_with_peak(command.spawn().expect("it starts"));
    assert_eq!(status, 0, "{}", scene.read("stderr"));
    assert!(scene.read("stdout").contains("words"), "no attack: {}", scene.read("stdout"));
    assert!(peak < MOST_MEMORY, "{} MiB", peak >> 20);
    let made = account(&scene.read("account"));
    let mut traced = Trace::read(&scene.read("x.jsonl")).outermost();
    traced.retain(|thread, _| made.contains_key(thread));
    crate::trace::same(&traced, &made);
    assert!(number(&scene.report("x.wscope")["lost"], "malformed_packets") > 0);
}
