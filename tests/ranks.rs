//! Ranks of a distributed program: their work, their communication, and which ranks the others waited for.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{
    Ended, Scene, folded,
    jsonl::Events,
    program,
    scene::{lost, number},
};

const ROUNDS: u64 = 30;
/// The program numbers its ranks from here.
const FIRST: u64 = 4;

fn record(scene: &Scene, ranks: u64, form: &str) {
    let outputs = "--sim -q --gpu-only -o x.wscope -o x.jsonl -o x.folded -o x.json -o x.svg";
    let command = format!("{} {ranks} {ROUNDS} {form}", program("ranks"));
    let script = format!("devices={ranks},kernel[*nccl*]=40us,kernel[compute]=5us");
    Ended::of(scene.record(outputs, &command).env("WARPSCOPE_SIM", script)).exits(0);
}

/// The starts of the collective kernels of each rank, in order.
fn starts(events: &Events) -> BTreeMap<u64, Vec<u64>> {
    let rank_of: BTreeMap<u64, u64> = events.of("rank").map(|e| (number(e, "session"), number(e, "rank"))).collect();
    let mut starts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for kernel in events.of("kernel").filter(|e| e["name"].as_str().is_some_and(|name| name.contains("nccl"))) {
        starts.entry(rank_of[&number(kernel, "session")]).or_default().push(number(kernel, "ts_ns"));
    }
    starts.values_mut().for_each(|all| all.sort_unstable());
    starts
}

fn rows(report: &Value) -> &[Value] {
    report["ranks"].as_array().expect("ranks")
}

/// Check that each rank has its own work and GPU, and that all ranks wait for the one that starts last, to the nanosecond.
#[test]
fn ranks_wait_for_the_last_one() {
    const RANKS: u64 = 3;
    let scene = Scene::new();
    record(&scene, RANKS, "");
    let report = scene.report("x.wscope");
    assert_eq!(lost(&report), 0, "{}", report["lost"]);
    let starts = starts(&Events::read(&scene.read("x.jsonl")));
    let last = FIRST + RANKS - 1;
    for (rank, row) in (FIRST..).zip(rows(&report)) {
        let local = rank - FIRST;
        assert_eq!((number(row, "rank"), number(row, "local_rank")), (rank, local));
        assert_eq!(
            (row["variable"].as_str(), &row["devices"]),
            (Some("RANK"), &serde_json::json!([local.to_string()]))
        );
        let (computed, communicated) = ((local + 1) * ROUNDS, ROUNDS);
        assert_eq!(
            (number(row, "launches"), number(row, "operations")),
            (computed + communicated, computed + communicated)
        );
        let (compute_ns, communication_ns) = (computed * 5_000, communicated * 40_000);
        assert_eq!(
            (number(row, "communication_kernels"), number(row, "communication_ns")),
            (communicated, communication_ns)
        );
        // One stream, so nothing overlaps.
        assert_eq!(number(row, "gpu_time_ns"), compute_ns + communication_ns);
        assert_eq!(number(row, "busy_ns"), compute_ns + communication_ns);
        let waited: u64 = starts[&rank].iter().zip(&starts[&last]).map(|(own, last)| last - own).sum();
        assert_eq!(
            (number(row, "waited_ns"), number(row, "started_last")),
            (waited, if rank == last { ROUNDS } else { 0 })
        );
        let expected =
            if rank == last { serde_json::json!([]) } else { serde_json::json!([{ "rank": last, "ns": waited }]) };
        assert_eq!(row["waited_for"], expected);
        // Each starts its kernel after the previous rank's has ended.
        assert!(waited >= (last - rank) * ROUNDS * 40_000);
    }
    assert_eq!(rows(&report).len() as u64, RANKS);
    let communication = &report["communication"];
    assert_eq!(
        (number(communication, "kernels"), number(communication, "ns")),
        (RANKS * ROUNDS, RANKS * ROUNDS * 40_000)
    );
    assert_eq!((number(communication, "collectives"), number(communication, "unassigned")), (ROUNDS, 0));
    let run = Ended::of(&mut scene.warpscope(&["report", "x.wscope"])).exits(0);
    let text = run.out();
    assert!(text.contains(&format!("rank {last} started last in {ROUNDS} of {ROUNDS} collectives")), "{text}");
}

/// Check that ranks are frames above their processes, and that one rank can be selected in every format.
#[test]
fn one_rank_can_be_selected() {
    let scene = Scene::new();
    record(&scene, 2, "");
    let text = scene.read("x.folded");
    let all = folded::read(&text);
    assert!(all.iter().all(|line| line.frames[0].starts_with("[rank ")), "{all:?}");
    let outputs = ["-o", "one.folded", "-o", "one.jsonl", "-o", "one.json"];
    Ended::of(scene.warpscope(&["export", "x.wscope", "--rank", "5"]).args(outputs)).exits(0);
    // With one rank the frame would say nothing.
    let text = scene.read("one.folded");
    let one = folded::read(&text);
    assert!(one.iter().all(|line| line.frames[0] == "ranks"), "{one:?}");
    let sum = |lines: &[folded::Line<'_>]| lines.iter().map(|line| line.weight).sum::<u64>();
    let of_rank = |rank: &str| {
        let lines = all.iter().filter(|line| line.frames[0] == rank).cloned().collect::<Vec<_>>();
        sum(&lines)
    };
    assert_eq!(sum(&one), of_rank("[rank 5]"));
    assert_eq!(Events::read(&scene.read("one.jsonl")).of("kernel").count() as u64, 3 * ROUNDS);
    assert!(scene.read("x.json").contains("ranks (rank 4)") && !scene.read("one.json").contains("(rank 4)"));
    let report = |rank: &str| scene.warpscope(&["report", "x.wscope", "--json", "--rank", rank]);
    let json: Value = serde_json::from_str(Ended::of(&mut report("4")).exits(0).out()).expect("JSON");
    assert_eq!((number(&json, "kernels"), number(&json, "launches")), (2 * ROUNDS, 2 * ROUNDS));
    assert_eq!(number(&json, "gpu_busy_ns"), ROUNDS * 45_000);
    assert!(Ended::of(&mut report("9")).exits(1).err().contains("no rank 9; it has: 4, 5"));
}

/// Check that a process that gets its rank when it runs another program counts as a process of that rank.
#[test]
fn programs_started_with_a_rank_are_counted() {
    let scene = Scene::new();
    let command = ["3", "4"].map(|rank| format!("RANK={rank} {} 1 1 1 1 100 || exit 1; ", program("truth"))).concat();
    Ended::of(&mut scene.record_words("--sim -q -o x.wscope", &["sh", "-c", &command])).exits(0);
    let of_rank = Ended::of(&mut scene.warpscope(&["report", "x.wscope", "--json", "--rank", "3"])).exits(0);
    let json: Value = serde_json::from_str(of_rank.out()).expect("JSON");
    assert_eq!((number(&json, "processes"), number(&scene.report("x.wscope"), "processes")), (1, 3));
}

/// Check that nothing is claimed about collectives that the ranks ran unequally often.
#[test]
fn unequal_collectives_are_not_assigned() {
    let scene = Scene::new();
    record(&scene, 2, "uneven");
    let report = scene.report("x.wscope");
    let communication = &report["communication"];
    assert_eq!((number(communication, "collectives"), number(communication, "unassigned")), (0, 2 * ROUNDS + 1));
    assert!(rows(&report).iter().all(|row| number(row, "waited_ns") == 0));
}

/// Check that the first variable that is set is used, that a rank that is no number is ignored, and that MPS is named.
#[test]
fn ranks_come_from_the_environment() {
    let scene = Scene::new();
    let one = format!("{} 1 1 keep", program("ranks"));
    let environments = [
        "SLURM_PROCID=7 SLURM_LOCALID=3",
        "SLURM_PROCID=0 OMPI_COMM_WORLD_RANK=8 CUDA_MPS_PIPE_DIRECTORY=/nowhere",
        "RANK=none PMI_RANK=9",
        "RANK=",
    ];
    let command: String = environments.iter().map(|environment| format!("{environment} {one} || exit 1; ")).collect();
    Ended::of(&mut scene.record_words("--sim -q -o x.wscope", &["sh", "-c", &command])).exits(0);
    let report = scene.report("x.wscope");
    let found: Vec<_> = rows(&report)
        .iter()
        .map(|row| (number(row, "rank"), row["local_rank"].as_u64(), row["variable"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(found, [(7, Some(3), "SLURM_PROCID"), (8, None, "OMPI_COMM_WORLD_RANK"), (9, None, "PMI_RANK")]);
    assert_eq!(number(&report, "mps_processes"), 1);
}
