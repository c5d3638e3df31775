//! Kernels that have one problem each, and the same without it.

use cuda::occupancy::Shape;
use model::event::{Instruction, SessionId, SourceLine, StallLines, StallReason, StallSamples};

use super::*;
use crate::occupancy::tests::h200;

/// The kernel `work` runs for 10 s on an H200, with a shape.
fn shaped(shape: Shape) -> Profile {
    let mut profile = healthy();
    profile.devices.get_mut(&0).expect("it exists").limits = h200();
    let weight = GpuWeight { count: 10_000, ns: 10 * SECOND, max_ns: SECOND / 1000, ..GpuWeight::default() };
    profile.shapes.insert((0, 0), [(shape, weight)].into_iter().collect());
    profile
}

/// Ten full waves of blocks that fill an SM.
fn full() -> Shape {
    Shape { blocks: 10_560, threads: 256, registers: 32, shared_memory: 0 }
}

const REASONS: [&str; 6] =
    ["long_scoreboard", "lg_throttle", "short_scoreboard", "mio_throttle", "barrier", "math_pipe_throttle"];

/// Adds samples of the kernel at a line.
fn add_samples(profile: &mut Profile, line: u32, reason: &str, count: u64) {
    let session = SessionId(0);
    for (name, index) in REASONS.iter().zip(0..) {
        profile.stalls.name(&StallReason { session, index, name: (*name).into() });
    }
    let index = REASONS.iter().position(|name| *name == reason).expect("it is known") as u32;
    let at = Instruction { session, cubin: 1, function: 1, offset: u64::from(line) * 16 };
    let source = SourceLine { function: "".into(), file: "/home/me/slow.cu".into(), line };
    profile.stalls.locate(&StallLines { at, lines: vec![source] });
    profile.stalls.add(&StallSamples { at, reason: index, count, correlation: 0 });
    profile.stalls.functions.insert((session, 1), 0);
}

fn numbers(finding: &Finding) -> Vec<String> {
    finding.evidence.iter().map(crate::findings::Evidence::text).collect()
}

/// Check that few warps are reported with their limiter and the launching line: without samples only very few, with
/// samples only if they wait for latencies, and never for kernels that are known to need few.
#[test]
fn few_warps_are_reported_with_their_limiter() {
    assert_eq!(kinds(&shaped(full())), []);
    // 160 registers: 5,120 of a warp, three warps in a quarter; 12 warps are one block of eight.
    let mut profile = shaped(Shape { registers: 160, ..full() });
    let [finding] = &found(&profile)[..] else { panic!("one finding") };
    assert_eq!(finding.kind, Kind::LowOccupancy);
    assert_eq!(finding.title, "work holds 12 % of the warps of an SM, limited by registers: 100.0 % of the time");
    let expected = [
        "time 10.0 s",
        "warps on an SM 8",
        "of 64",
        "threads in a block 256",
        "registers of a thread 160",
        "shared memory of a block 0 B",
    ];
    assert_eq!(numbers(finding), expected);
    assert_eq!(finding.place.as_ref().map(|place| place.frame.as_str()), Some("step (train.py:42)"));
    assert!(finding.advice.contains("--stalls"), "{}", finding.advice);

    add_samples(&mut profile, 7, "math_pipe_throttle", 1000);
    assert_eq!(kinds(&profile), [], "it is bound by arithmetic");

    let mut profile = shaped(Shape { registers: 64, ..full() });
    assert_eq!(kinds(&profile), [], "half of the warps, and nothing says that it waits");
    add_samples(&mut profile, 7, "long_scoreboard", 1000);
    assert_eq!(kinds(&profile), [Kind::MemoryLatency, Kind::LowOccupancy]);

    let mut profile = shaped(Shape { registers: 160, ..full() });
    profile.kernel_names[0].text = "sm90_xmma_gemm_f16f16".into();
    assert_eq!(kinds(&profile), []);
}

/// Check that multiplications on the units for single precision are reported, on GPUs with tensor cores for them.
#[test]
fn multiplications_without_tensor_cores_are_reported() {
    let mut profile = shaped(full());
    profile.kernel_names[0].text = "ampere_sgemm_128x64_nn".into();
    let [finding] = &found(&profile)[..] else { panic!("one finding") };
    assert_eq!(finding.kind, Kind::NoTensorCores);
    let title = "matrix multiplications in single precision do not use the tensor cores: 100.0 % of the time, most in \
                 ampere_sgemm_128x64_nn";
    assert_eq!(finding.title, title);
    assert_eq!(numbers(finding), ["time 10.0 s", "kernels by that name 10,000", "their time 10.0 s"]);
    assert_eq!(finding.place.as_ref().map(|place| place.frame.as_str()), Some("step (train.py:42)"));
    profile.devices.get_mut(&0).expect("it exists").limits.capability = (7, 0);
    assert_eq!(kinds(&profile), []);
}

/// Check that a grid for a part of the SMs is reported, unless its kernels are short or run together.
#[test]
fn small_grids_are_reported() {
    let small = Shape { blocks: 16, ..full() };
    let mut profile = shaped(small);
    let [finding] = &found(&profile)[..] else { panic!("one finding") };
    assert_eq!(finding.kind, Kind::SmallGrid);
    assert_eq!(finding.title, "work has 16 blocks for 132 SMs: 100.0 % of the time, most of GPU 0 is empty");
    assert_eq!(numbers(finding), ["time 10.0 s", "mean duration 1.00 ms", "SMs used 16", "SMs 132"]);
    profile.devices.get_mut(&0).expect("it exists").kernel_busy_ns = 5 * SECOND;
    assert!(!kinds(&profile).contains(&Kind::SmallGrid), "two kernels at a time");
    let mut profile = shaped(small);
    let short = GpuWeight { count: 2_000_000, ns: 10 * SECOND, max_ns: 5_000, ..GpuWeight::default() };
    profile.shapes.insert((0, 0), [(small, short)].into_iter().collect());
    assert_eq!(kinds(&profile), []);
}

/// Check that a partly full last wave is reported with the time that it may cost.
#[test]
fn partly_full_waves_are_reported() {
    let profile = shaped(Shape { blocks: 1584, ..full() });
    let [finding] = &found(&profile)[..] else { panic!("one finding") };
    assert_eq!(finding.kind, Kind::Tail);
    assert_eq!(finding.title, "work needs 1.50 waves: its last wave has 528 blocks where 1,056 fit");
    let expected = ["time 10.0 s", "of that with an empty place, if blocks take equally long 2.50 s", "blocks 1,584"];
    assert_eq!(numbers(finding), expected);
    assert_eq!(finding.share, 0.25);
    assert_eq!(kinds(&shaped(Shape { blocks: 30_000, ..full() })), [], "2 % of 29 waves");
}

/// Check that each stall at a line is reported with the line, its time and its advice, from enough samples only.
#[test]
fn stalls_are_reported_at_their_line() {
    let cases = [
        ("long_scoreboard", Kind::MemoryLatency, "for data from global memory"),
        ("lg_throttle", Kind::MemoryQueue, "because the queue for global memory is full"),
        ("short_scoreboard", Kind::BankConflicts, "for shared memory or special functions"),
        ("mio_throttle", Kind::BankConflicts, "for shared memory or special functions"),
        ("barrier", Kind::Barrier, "at a barrier for other warps of their block"),
    ];
    for (reason, kind, words) in cases {
        let mut profile = healthy();
        add_samples(&mut profile, 17, reason, 600);
        add_samples(&mut profile, 17, "math_pipe_throttle", 100);
        add_samples(&mut profile, 9, reason, 100);
        add_samples(&mut profile, 9, "math_pipe_throttle", 200);
        let [finding] = &found(&profile)[..] else { panic!("one finding: {reason}") };
        assert_eq!(finding.kind, kind);
        assert_eq!(finding.title, format!("warps of work wait {words} at slow.cu:17: 60.0 % of the time"));
        let expected = ["samples 600", "in this stall 6.00 s", "at this line 7.00 s", "in this kernel 10.0 s"];
        assert_eq!(numbers(finding), expected);
        assert_eq!(finding.place.as_ref().map(|place| place.file.as_str()), Some("/home/me/slow.cu"));
    }
    let mut profile = healthy();
    add_samples(&mut profile, 17, "barrier", 49);
    assert_eq!(kinds(&profile), [], "too few samples");
    add_samples(&mut profile, 17, "barrier", 1);
    add_samples(&mut profile, 17, "math_pipe_throttle", 951);
    assert_eq!(kinds(&profile), [], "too little time");
}
