//! GPUs that wait for one thread, while others run beside it.

use super::{
    says::{idle, says},
    scenario::{Recorded, Scenario},
};
use crate::support::scene::number;

scenarios! {
    /// A thread prefetches with small copies, and sleeps in between, while another one computes: the former is a bystander.
    a_prefetching_thread => Scenario::of([
        "kernel:work sync 20( compute:8000 kernel:work sync )",
        "40( copy:65536 sync nap:4000 )",
    ])
    .sim("kernel_ns=2ms")
    .options("--off-cpu")
    .says(idle("compute"))
    .never(&["nap", "fewer"]);

    /// The thread that launches waits for one that loads and copies: its wait is blamed.
    a_starved_consumer => Scenario::of([
        "kernel:work sync 20( take:0 kernel:work sync post:1 )",
        "20( load:6000 copy:65536 sync post:0 take:1 )",
    ])
    .sim("kernel_ns=5ms")
    .options("--off-cpu")
    .says(says("gpu-idle").words(&["% take"]).at("take"))
    .never(&["fewer"]);

    /// Nothing is known about the thread that ends a gap, but another one computed all the time.
    another_thread_that_ran => Scenario::of(["kernel:work sync import:400000 post:0", "take:0 kernel:work sync"])
        .sim("kernel_ns=5ms")
        .says(says("gpu-idle").words(&["while another thread ran import_module", "record with --off-cpu"]))
        .unsteady();

    /// The same with waits: those of a thread are recorded from its first launch on, which ends the gap.
    another_thread_that_ran_before_the_first_launch =>
        Scenario::of(["kernel:work sync import:400000 post:0", "take:0 kernel:work sync"])
            .sim("kernel_ns=5ms")
            .options("--off-cpu")
            .says(says("gpu-idle").words(&["while another thread ran import_module"]))
            .never(&["record with --off-cpu"])
            .unsteady();

    /// The thread that launches is one of a pool, to which another one gives work after it has computed.
    a_pool_without_work => Scenario::of([
        "20( compute:6000 post:1 take:2 )",
        "kernel:work sync 20( pool:1 kernel:work sync post:2 )",
    ])
    .sim("kernel_ns=5ms")
    .options("--off-cpu")
    .says(says("gpu-idle").named("waiting for work from another thread", "blas_thread_server"))
    .never(&["blas_thread_server"]);

    /// Two threads feed one GPU in turns, each in its own way.
    two_threads_in_turns => Scenario::of([
        "kernel:work sync 15( take:0 compute:5000 kernel:work sync post:1 )",
        "kernel:work sync 15( nap:5000 kernel:work sync post:0 take:1 )",
    ])
    .sim("kernel_ns=4ms")
    .options("--off-cpu")
    .says(idle("compute").place("nap"));

    /// A thread computes all the time, beside the one that sleeps.
    a_bystander_that_computes => Scenario::of(["kernel:work sync 20( nap:5000 kernel:work sync )", "compute:150000"])
        .sim("kernel_ns=5ms")
        .options("--off-cpu")
        .says(idle("nap"))
        .never(&["compute"]);

    /// Threads of a pool without work wait for nothing that costs time.
    an_idle_pool_beside_sleep => Scenario::of(["kernel:work sync 20( nap:5000 kernel:work sync )", "pool", "pool"])
        .sim("kernel_ns=5ms")
        .options("--off-cpu")
        .says(idle("nap"))
        .never(&["blas_thread_server"]), not_listed_among_waits;

    /// A thread prefetches and waits for its copies, beside one that sleeps: it keeps no GPU waiting.
    a_prefetching_thread_that_waits => Scenario::of([
        "kernel:work sync 20( nap:10000 kernel:work sync )",
        "150( copy:200000 sync nap:500 )",
    ])
    .sim("kernel_ns=5ms,copy_gbps=1")
    .options("--off-cpu")
    .says(says("gpu-idle").words(&["% nap"]).at("nap"))
    .never(&["synchronise"])
    .unsteady();
}

/// Threads of a pool without work are not waiting for a lock.
fn not_listed_among_waits(Recorded { report, .. }: Recorded) {
    let waits = report["events"].as_array().expect("events").iter().find(|event| event["name"] == "off-cpu");
    let waits = waits.expect("waits");
    let stacks = waits["top_stacks"].as_array().expect("stacks");
    assert!(stacks.iter().all(|stack| !stack["path"].to_string().contains("blas_thread_server")), "{stacks:?}");
    // Both wait for nearly all of the recording.
    assert!(number(&waits["waiting_for_work"], "sum") > number(&report["idle"][0], "span_ns"), "{waits}");
}
