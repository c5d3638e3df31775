//! Kernels that do not use what the GPU has. An SM of the simulated H200 holds 8 blocks of 256 threads, and there are 132 SMs.

use super::{
    says::says,
    scenario::{Recorded, Scenario},
};
use crate::support::scene::number;

const MS: u64 = 1_000_000;

/// A program whose kernel `gather` waits at line 7 of its source for a reason, and for nothing else.
fn stalled(kind: &'static str, reason: &str, words: &'static str) -> Scenario {
    Scenario::of(["12( kernel:gather ) sync"])
        .sim(format!("kernel_ns=20ms,cubin={{cubin}},stall[gather]=0x5b0:{reason}:20"))
        .options("--stalls --gpu-only")
        .says(says(kind).at("tri.py:7").ns(12 * 20 * MS).words(&[words]))
}

/// A program whose only kernel uses known shares of the GPU.
fn counted(used: &str) -> Scenario {
    Scenario::of(["12( kernel:work ) sync"])
        .sim(format!("kernel_ns=20ms,pm[work]={used},meter={{scene}}meter"))
        .options("--counters --gpu-only")
}

/// A program whose kernel counts this in each run, by the numbers of `cupti::limits::METRICS`.
fn measured(counts: &str) -> Scenario {
    Scenario::of(["12( kernel:work ) sync"])
        .sim(format!("kernel_ns=20ms,limits[work]=1=99:{counts}"))
        .options("--limits --gpu-only")
}

scenarios! {
    /// Blocks for 8 of the SMs.
    a_small_grid => Scenario::of(["grid:8 12( kernel:work ) sync"])
        .sim("kernel_ns=20ms")
        .says(says("small-grid").at("launch").ns(12 * 20 * MS).words(&["8 blocks for 132 SMs"]));

    /// One block more than fits.
    a_tail => Scenario::of(["grid:1057 12( kernel:work ) sync"])
        .sim("kernel_ns=20ms")
        .says(says("tail").at("launch").ns(12 * 10 * MS).words(&["its last wave has 1 blocks"]));

    /// Blocks with so much shared memory that an SM holds two of them.
    low_occupancy => Scenario::of(["grid:1056 block:64 shared:100000 12( kernel:work ) sync"])
        .sim("kernel_ns=20ms")
        .says(says("low-occupancy").at("launch").ns(12 * 20 * MS).words(&["limited by shared memory"]));

    /// A matrix multiplication of cuBLAS in single precision.
    no_tensor_cores => Scenario::of(["12( kernel:ampere_sgemm_128x64_nn ) sync"])
        .sim("kernel_ns=20ms")
        .says(says("no-tensor-cores").at("launch").ns(12 * 20 * MS).words(&["CUBLAS_TF32_TENSOR_OP_MATH"]));

    memory_latency => stalled("memory-latency", "long_scoreboard", "for data from global memory");
    memory_queue => stalled("memory-queue", "lg_throttle", "the queue for global memory is full");
    bank_conflicts => stalled("bank-conflicts", "short_scoreboard", "for shared memory or special functions");
    barriers => stalled("barrier", "barrier", "at a barrier");

    latency_bound => counted("90:5:20:10:5").says(says("latency-bound").at("launch").ns(12 * 20 * MS));
    too_small => counted("20:5:5:10:5").says(says("too-small").at("launch").ns(12 * 20 * MS));
    limited_by_dram => measured("5=85").says(says("kernel-limit").at("launch").ns(12 * 20 * MS).words(&["DRAM: 85 %"]));
    limited_by_l2 => measured("5=40:9=70").says(says("kernel-limit").at("launch").ns(12 * 20 * MS).words(&["L2 cache: 70 %"]));
    limited_by_l1 => measured("11=90").says(says("kernel-limit").at("launch").ns(12 * 20 * MS).words(&["L1 cache: 90 %"]));
    limited_by_latency => measured("5=30").says(says("kernel-limit").at("launch").ns(12 * 20 * MS).words(&["no unit is near"]));

    /// The tensor pipe does what it is for.
    limited_by_the_tensor_pipe => measured("4=90");
    /// So does the pipe for FP64.
    limited_by_fp64 => measured("3=53:12=90");

    memory_bound => counted("90:5:20:50:25").says(says("memory-bound").at("launch").ns(12 * 20 * MS));

    /// A kernel that alternates with a short one has no sample of its own, but nearly all of each.
    alternating_kernels => Scenario::of(["2000( kernel:work kernel:short ) sync"])
        .sim("kernel[work]=190us,kernel[short]=10us,pm[work]=90:5:20:50:25,pm[short]=10:0:5:1:1,meter={scene}meter")
        .options("--counters --gpu-only")
        .says(says("memory-bound").at("launch").ns(2000 * MS * 19 / 100).words(&["work"])), judged_by_shared_samples;
}

/// Check by what alternating kernels are judged.
fn judged_by_shared_samples(Recorded { report, .. }: Recorded) {
    let all = &report["kernels_by_counters"];
    let working = number(&all["samples"], "samples") - number(&all["samples"], "idle");
    assert!(number(&all["samples"], "mostly") > working / 2, "{all}");
    let row = &all["kernels"][0];
    assert_eq!((row["kernel"].as_str(), row["verdict"].as_str()), (Some("work"), Some("memory bound")), "{all}");
    let others = row["others_share"].as_f64().expect("a share");
    assert!((0.03..0.07).contains(&others), "{others}");
}
