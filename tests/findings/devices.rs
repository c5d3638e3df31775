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

    /// The same, and the ranks communicate: the rank for which the others wait, and its line, are named.
    a_late_rank_that_computes => reducing(|rank, _| if rank == 3 { "compute:12000" } else { "" })
        .says(says("gpu-idle").words(&["GPUs 0 to 2 idle", "% wait_for_ranks"]))
        .says(idle("compute").of(3, 3).words(&["GPU 3 idle"]))
        .says(says("late-rank").words(&["rank 3 is late in", "all_reduce", "% compute"]).at("compute").takes("compute"))
        .never(&["in turn", "rank 0", "rank 1", "rank 2"]);

    /// It sleeps.
    a_late_rank_that_sleeps => reducing(|rank, _| if rank == 1 { "nap:12000" } else { "" })
        .says(says("gpu-idle").words(&["GPUs 0, 2 and 3 idle", "% wait_for_ranks"]))
        .says(idle("nap").of(1, 1).words(&["GPU 1 idle"]))
        .says(says("late-rank").words(&["rank 1 is late in", "% nap [sleeping]"]).at("nap").takes("nap"))
        .never(&["in turn", "rank 0", "rank 2", "rank 3"]), late_in_the_summary;

    /// Its GPU works longer than the others.
    a_late_rank_with_a_slow_gpu => reducing(|rank, _| if rank == 2 { "kernel:extra" } else { "" })
        .says(says("gpu-idle").words(&["GPUs 0, 1 and 3 idle", "% wait_for_ranks"]))
        .says(says("late-rank").words(&["rank 2 is late in", "% with a busy GPU, where extra runs"]))
        .never(&["in turn"]);

    /// Each rank is late in turn.
    ranks_that_are_late_in_turn => reducing(|rank, step| if step % 4 == rank { "nap:16000" } else { "" })
        .says(says("gpu-idle").words(&["GPUs 0 to 3 idle"]))
        .says(says("late-rank").words(&["ranks are late in turn"]))
        .never(&["is late in"]);

    /// One rank gathers what the others reduce.
    a_mismatch => Scenario::of((0..4).map(|rank| {
        let odd = if rank == 1 { "gather" } else { "reduce" };
        format!("rank:{rank} together 6( kernel:work reduce:4096 ) {odd}:4096 6( kernel:work reduce:4096 ) sync together")
    }))
    .sim("kernel_ns=20ms")
    .says(says("collective-mismatch").words(&["rank 1 calls all_gather", "call all_reduce"]).at("launch"))
    .unsteady();

    /// One rank leaves before the last operation of the others.
    a_missing_rank => Scenario::of((0..4).map(|rank| {
        let last = if rank == 2 { "" } else { "kernel:work reduce:4096" };
        format!("rank:{rank} together 12( kernel:work reduce:4096 ) {last} sync together")
    }))
    .sim("kernel_ns=20ms")
    .says(says("missing-member").words(&["rank 2 called nothing after call 11", "rank 0 and 2 more called all_reduce"]).at("launch"))
    .unsteady();

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

/// Four ranks that compute and reduce in each of 16 steps, before which some do something else.
pub fn reducing(before: impl Fn(u64, u64) -> &'static str) -> Scenario {
    let script = |rank| {
        let steps = (0..16).map(|step| format!("{} kernel:work reduce:1048576 sync together", before(rank, step)));
        format!("rank:{rank} together kernel:work reduce:1048576 sync together {}", steps.collect::<Vec<_>>().join(" "))
    };
    Scenario::of((0..4).map(script)).sim("kernel[nccl*]=30ms,kernel[extra]=12ms,kernel_ns=10ms").options("--off-cpu")
}

/// Check that the summary says for whom others waited, and what the late one did.
fn late_in_the_summary(Recorded { scene, report, .. }: Recorded) {
    let late = &report["waits"][0];
    let (host, gpu, instead) = (number(late, "host_ns"), number(late, "gpu_ns"), &late["instead"][0]);
    assert!(number(late, "rank") == 1 && host > 9 * gpu && host < number(late, "waited_ns"), "{late}");
    assert_eq!((&instead["place"]["frame"], &instead["reason"]), (&"nap".into(), &"[sleeping]".into()), "{late}");
    assert!(10 * number(instead, "ns") > 8 * host, "{late}");
    let text = Ended::of(&mut scene.warpscope(&["report", "x.wscope"])).exits(0).out().to_owned();
    assert!(text.contains("it was late itself by") && text.contains("in nap [sleeping]"), "{text}");
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
