//! Several GPUs and ranks, and GPU memory.

use super::{
    says::{idle, says},
    scenario::{Recorded, Scenario},
};
use crate::support::{Ended, scene::number};

const MS: u64 = 1_000_000;

scenarios! {
    /// GPUs that are idle alike have one finding, and the one that is not has another.
    gpus_of_which_one_differs => Scenario::of((0..8).map(|gpu| {
        let (rounds, nap) = if gpu == 7 { (2, 250_000) } else { (10, 40_000) };
        format!("device:{gpu} kernel:work sync {rounds}( nap:{nap} kernel:work sync )")
    }))
    .sim("kernel_ns=20ms")
    .options("--off-cpu")
    .says(says("gpu-idle").words(&["GPUs 0 to 6 idle", "% nap"]))
    .says(idle("nap").of(7, 7).words(&["GPU 7 idle"]))
    .says(says("imbalance"))
    .never(&["the others"])
    .unsteady();

    /// GPUs that are idle for the same reason, one of them for a shorter time: they have one finding, which names it.
    gpus_of_which_one_differs_a_little => Scenario::of((0..4).map(|gpu| {
        let (rounds, nap) = if gpu == 2 { (12, 30_000) } else { (10, 40_000) };
        format!("device:{gpu} kernel:work sync {rounds}( nap:{nap} kernel:work sync )")
    }))
    .sim("kernel_ns=20ms")
    .options("--off-cpu")
    .says(says("gpu-idle").words(&["GPUs 0 to 3 idle", " % (GPU 2 ", "% nap"]));

    /// Ranks are equally busy, but one of them works three times as long.
    a_rank_that_ends_late => Scenario::of([1, 10, 11, 2].map(|rank| {
        let nap = if rank == 11 { 150_000 } else { 25_000 };
        format!("rank:{rank} together kernel:work sync 6( nap:{nap} kernel:work sync )")
    }))
    .sim("devices=16,kernel_ns=20ms")
    .says(says("gpu-idle"))
    .says(says("gpu-idle"))
    .says(says("imbalance").words(&["rank 11 worked until"]))
    .unsteady(), in_order;

    /// In each step three ranks wait for the fourth, which computes.
    a_straggler => Scenario::of((0..4).map(|rank| {
        let step = if rank == 3 { "compute:20000 kernel:work" } else { "kernel:work" };
        format!("rank:{rank} together kernel:work sync 12( {step} sync together )")
    }))
    .sim("kernel_ns=10ms")
    .options("--off-cpu")
    .says(says("gpu-idle").words(&["GPUs 0 to 2 idle", "% wait_for_ranks"]))
    .says(idle("compute").of(3, 3).words(&["GPU 3 idle"]));

    /// One GPU has four times as much to do as the other.
    an_uneven_load => Scenario::of(["device:0 16( kernel:work ) sync", "device:1 16( kernel:short ) sync"])
        .sim("kernel[work]=20ms,kernel[short]=5ms")
        .says(says("imbalance").ns(16 * 15 * MS).words(&["GPU 0 was busy", "GPU 1 only"]))
        .unsteady();

    /// A line allocates in each step and frees nothing: 160 MiB, and the program has 16 MiB more.
    a_leak => Scenario::of(["10( weights:16 kernel:work ) sync"])
        .sim("kernel_ns=20ms")
        .options("--memory")
        .says(says("memory-peak").at("weights").words(&["peaks at 176 MiB", "91 % allocated by weights"]));

    /// Two lines hold the memory at its peak.
    memory_of_two_lines => Scenario::of(["weights:96 buffers:32 kernel:work free 12( kernel:work ) sync"])
        .sim("kernel_ns=20ms")
        .options("--memory")
        .says(says("memory-peak").at("weights").words(&["peaks at 144 MiB", "67 % allocated by weights"]));
}

/// Check that ranks are in the order of their numbers, and not of these as text.
fn in_order(Recorded { scene, report, .. }: Recorded) {
    let ranks: Vec<u64> = report["ranks"].as_array().expect("ranks").iter().map(|rank| number(rank, "rank")).collect();
    assert_eq!(ranks, [1, 2, 10, 11]);
    Ended::of(&mut scene.warpscope(&["export", "x.wscope", "-o", "x.json"])).exits(0);
    assert_eq!(sorted_processes(&scene.read("x.json")), ["(rank 1)", "(rank 2)", "(rank 10)", "(rank 11)"]);
    let text = Ended::of(&mut scene.warpscope(&["report", "x.wscope"])).exits(0).out().to_owned();
    assert!(text.contains("and rank 11 last, after "), "{text}");
}

/// The ranks of a Chrome trace in the order of their tracks.
fn sorted_processes(trace: &str) -> Vec<String> {
    let trace: serde_json::Value = serde_json::from_str(trace).expect("JSON");
    let events = || trace["traceEvents"].as_array().expect("events").iter();
    let of = |name: &'static str| events().filter(move |event| event["name"] == name);
    let mut order: Vec<(u64, u64)> =
        of("process_sort_index").map(|event| (number(&event["args"], "sort_index"), number(event, "pid"))).collect();
    order.sort_unstable();
    let name = |pid: u64| of("process_name").find(|event| number(event, "pid") == pid);
    let names = order.iter().filter_map(|(_, pid)| name(*pid)?["args"]["name"].as_str()?.split_once(" (rank "));
    names.map(|(_, rank)| format!("(rank {rank}")).collect()
}
