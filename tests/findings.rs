//! What is said about programs whose bottleneck is known, and what must not be said.
//!
//! Each test is one program: the scripts of its threads, the simulated GPU, and all findings that it must give. Shares must
//! be within 3 points of what the program itself measures. Every program is also reported in parts (`--kernel`, `--tid`,
//! `--path`), where nothing may be concluded from what is left out. docs/findings.md lists the rules.

mod scenario;

use std::process::Command;

use scenario::{Recorded, Says, Scenario, findings, json};

use crate::support::{
    Ended, Scene,
    programs::{run, sources},
    pythons::installed,
    scene::number,
};

/// Words that make sense in a Python program with PyTorch only.
const TORCH: [&str; 6] = ["torch", "DataLoader", "loss.item", "non_blocking", "pin_memory=", "autocast"];

/// Kernels of 20 ms, all of them queued: the GPU is busy all the time.
#[test]
fn nothing_is_said_about_a_busy_gpu() {
    Scenario { threads: &["30( kernel:work ) sync"], sim: "kernel_ns=20ms", ..Scenario::default() }.check();
}

/// The same with copies beside the kernels.
#[test]
fn nothing_is_said_about_copies_beside_kernels() {
    let threads = ["30( kernel:work ) sync", "20( copy:1000000 sync nap:5000 )"];
    Scenario { threads: &threads, sim: "kernel_ns=20ms", ..Scenario::default() }.check();
}

/// A thread computes while its GPU is idle, on a CPU or waiting for one. It is a C program, and gets no advice about PyTorch.
#[test]
fn computation_is_blamed() {
    Scenario {
        threads: &["kernel:work sync 20( compute:5000 kernel:work sync )"],
        sim: "kernel_ns=5ms",
        options: "--off-cpu",
        says: &[Says { kind: "gpu-idle", place: Some("compute"), words: &["ahead of time"] }],
        never: &TORCH,
    }
    .check();
}

/// A thread sleeps while its GPU is idle.
#[test]
fn a_wait_is_blamed() {
    Scenario {
        threads: &["kernel:work sync 20( nap:5000 kernel:work sync )"],
        sim: "kernel_ns=5ms",
        options: "--off-cpu",
        says: &[Says { kind: "gpu-idle", place: Some("nap"), ..Says::default() }],
        never: &TORCH,
    }
    .check();
}

/// A thread prefetches with small copies, and sleeps in between, while another one computes: the former is a bystander.
#[test]
fn a_prefetching_thread_is_not_blamed() {
    Scenario {
        threads: &["kernel:work sync 20( compute:8000 kernel:work sync )", "40( copy:65536 sync nap:4000 )"],
        sim: "kernel_ns=2ms",
        options: "--off-cpu",
        says: &[Says { kind: "gpu-idle", place: Some("compute"), ..Says::default() }],
        never: &["nap", "fewer"],
    }
    .check();
}

/// The thread that launches waits for one that loads and copies: its wait is blamed.
#[test]
fn a_starved_consumer_is_blamed_by_its_wait() {
    Scenario {
        threads: &[
            "kernel:work sync 20( take:0 kernel:work sync post:1 )",
            "20( load:6000 copy:65536 sync post:0 take:1 )",
        ],
        sim: "kernel_ns=5ms",
        options: "--off-cpu",
        says: &[Says { kind: "gpu-idle", words: &["% take"], ..Says::default() }],
        never: &["fewer"],
    }
    .check();
}

/// Nothing is known about the thread that ends a gap, but another one computed all the time.
#[test]
fn another_thread_that_ran_is_named() {
    let threads = ["kernel:work sync import:400000 post:0", "take:0 kernel:work sync"];
    let says = |advice| Says { kind: "gpu-idle", words: advice, ..Says::default() };
    Scenario {
        threads: &threads,
        sim: "kernel_ns=5ms",
        says: &[says(&["while another thread ran import_module", "record with --off-cpu"])],
        ..Scenario::default()
    }
    .check();
    // The waits of a thread are recorded from its first launch on, which ends the gap.
    Scenario {
        threads: &threads,
        sim: "kernel_ns=5ms",
        options: "--off-cpu",
        says: &[says(&["while another thread ran import_module"])],
        never: &["record with --off-cpu"],
    }
    .check();
}

/// One launch of many is slow, because its kernel runs for the first time.
#[test]
fn one_slow_launch_is_not_a_pattern() {
    Scenario {
        threads: &["kernel:work sync late:other sync 80( kernel:work ) sync"],
        sim: "kernel_ns=5ms,slow=cuLaunchKernelEx:325ms",
        says: &[Says { kind: "gpu-idle", words: &["one launch of", "first use of a kernel"], ..Says::default() }],
        never: &["fewer"],
        ..Scenario::default()
    }
    .check();
}

/// GPUs that are idle alike have one finding, and the one that is not has another.
#[test]
fn gpus_that_are_alike_have_one_finding() {
    let threads: Vec<String> = (0..8)
        .map(|gpu| {
            let (rounds, nap) = if gpu == 7 { (2, 250_000) } else { (10, 40_000) };
            format!("device:{gpu} kernel:work sync {rounds}( nap:{nap} kernel:work sync )")
        })
        .collect();
    let threads: Vec<&str> = threads.iter().map(String::as_str).collect();
    let idle = |words| Says { kind: "gpu-idle", words, ..Says::default() };
    Scenario {
        threads: &threads,
        sim: "kernel_ns=20ms",
        options: "--off-cpu",
        says: &[
            idle(&["GPUs 0 to 6 idle", "% nap"]),
            idle(&["GPU 7 idle", "% nap"]),
            Says { kind: "imbalance", ..Says::default() },
        ],
        ..Scenario::default()
    }
    .check();
}

/// Ranks are equally busy, but one of them works three times as long.
#[test]
fn a_rank_that_ends_late_is_named() {
    let threads: Vec<String> = [1, 10, 11, 2]
        .map(|rank| {
            let nap = if rank == 11 { 240_000 } else { 40_000 };
            format!("rank:{rank} kernel:work sync 8( nap:{nap} kernel:work sync )")
        })
        .to_vec();
    let threads: Vec<&str> = threads.iter().map(String::as_str).collect();
    let idle = Says { kind: "gpu-idle", ..Says::default() };
    let Recorded { scene, report } = Scenario {
        threads: &threads,
        sim: "devices=16,kernel_ns=20ms",
        says: &[
            idle,
            Says { kind: "gpu-idle", ..Says::default() },
            Says { kind: "imbalance", words: &["rank 11 worked until"], ..Says::default() },
        ],
        ..Scenario::default()
    }
    .check();
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

/// Threads of a pool without work are not waiting for a lock.
#[test]
fn idle_pools_are_not_listed_among_waits() {
    let Recorded { report, .. } = Scenario {
        threads: &["kernel:work sync 20( nap:5000 kernel:work sync )", "pool", "pool"],
        sim: "kernel_ns=5ms",
        options: "--off-cpu",
        says: &[Says { kind: "gpu-idle", place: Some("nap"), ..Says::default() }],
        ..Scenario::default()
    }
    .check();
    let waits = report["events"].as_array().expect("events").iter().find(|event| event["name"] == "off-cpu");
    let waits = waits.expect("waits");
    let stacks = waits["top_stacks"].as_array().expect("stacks");
    assert!(stacks.iter().all(|stack| !stack["path"].to_string().contains("blas_thread_server")), "{stacks:?}");
    // Both wait for nearly all of the recording.
    assert!(number(&waits["waiting_for_work"], "sum") > number(&report["idle"][0], "span_ns"), "{waits}");
}

/// A kernel that alternates with a short one has no sample of its own, but nearly all of each.
#[test]
fn alternating_kernels_are_judged() {
    let Recorded { report, .. } = Scenario {
        threads: &["2000( kernel:work kernel:short ) sync"],
        sim: "kernel[work]=190us,kernel[short]=10us,pm[work]=90:5:20:50:25,pm[short]=10:0:5:1:1,meter={scene}meter",
        options: "--counters --gpu-only",
        says: &[Says { kind: "memory-bound", words: &["work"], ..Says::default() }],
        ..Scenario::default()
    }
    .check();
    let all = &report["kernels_by_counters"];
    let working = number(&all["samples"], "samples") - number(&all["samples"], "idle");
    assert!(number(&all["samples"], "mostly") > working / 2, "{all}");
    let row = &all["kernels"][0];
    assert_eq!((row["kernel"].as_str(), row["verdict"].as_str()), (Some("work"), Some("memory bound")), "{all}");
    let others = row["others_share"].as_f64().expect("a share");
    assert!((0.03..0.07).contains(&others), "{others}");
}

/// Advice names PyTorch's functions in a Python program that has loaded it, and in no other.
#[test]
fn advice_fits_the_program() {
    let scene = Scene::new();
    let python = installed().pop().expect("at least one");
    let script = sources().join("programs/idle.py").canonicalize().expect("it is there");
    let library = scene.text("libtorch_python.so");
    run(Command::new("cc").args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(&library));
    for loaded in [false, true] {
        let command = format!("{python} {} 120", script.display());
        let mut record = scene.record("--sim -q --off-cpu -o x.wscope", &command);
        if loaded {
            record.env("LD_PRELOAD", &library);
        }
        Ended::of(record.env("WARPSCOPE_SIM", "kernel_ns=1ms")).exits(0);
        let report = scene.report("x.wscope");
        let advice: Vec<&str> = findings(&report).filter_map(|finding| finding["advice"].as_str()).collect();
        let names_torch = advice.iter().any(|advice| TORCH.iter().any(|word| advice.contains(word)));
        assert_eq!(names_torch, loaded, "{advice:?}");
        assert!(findings(&report).any(|finding| finding["kind"] == "synchronization"), "{advice:?}");
        std::fs::remove_file(scene.path("x.wscope")).expect("it is there");
    }
}

/// Every output of a part says which part it is, and a part of a trace concludes nothing from calls that are not in it.
#[test]
fn every_output_names_its_filters() {
    let Recorded { scene, .. } = Scenario {
        threads: &["kernel:work sync 20( compute:3000 kernel:work kernel:other sync )"],
        sim: "kernel_ns=3ms",
        options: "--off-cpu",
        says: &[Says { kind: "gpu-idle", place: Some("compute"), ..Says::default() }],
        ..Scenario::default()
    }
    .check();
    let texts = ["x.svg", "x.json", "x.jsonl", "x.speedscope.json", "x.profile.json", "x.pftrace"];
    let mut export = scene.warpscope(&["export", "x.wscope", "--kernel", "work", "-o", "x.html"]);
    let run = Ended::of(export.args(texts.iter().flat_map(|file| ["-o", file]))).exits(0);
    assert!(run.err().contains("only a part is shown: --kernel work"), "{}", run.err());
    for file in texts {
        let bytes = std::fs::read(scene.path(file)).expect("it is there");
        assert!(String::from_utf8_lossy(&bytes).contains("--kernel work"), "{file}");
    }
    assert!(scene.read("x.html").contains("<title>[--kernel work] "));
    let diff = json(&scene, &["diff", "--json", "--kernel", "work", "x.wscope", "x.wscope"]);
    assert_eq!(diff["filters"], serde_json::json!(["--kernel work"]));

    let findings = crate::support::program("findings");
    let threads = [findings.as_str(), "kernel:work sync 5( nap:5000 kernel:other sync )"];
    Ended::of(&mut scene.trace_words("--sim -q -o t.wscope", &threads)).exits(0);
    let report = |options: &[&str]| {
        Ended::of(&mut scene.warpscope(&[&["report", "t.wscope"], options].concat())).exits(0).out().to_owned()
    };
    assert!(report(&[]).contains("outside CUDA"), "{}", report(&[]));
    let part = report(&["--kernel", "work"]);
    assert!(!part.contains("outside CUDA") && part.contains("--kernel work"), "{part}");
}
