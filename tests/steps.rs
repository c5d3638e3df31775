//! Steps: the iterations of programs that know them.

use std::{collections::BTreeMap, fs::File, io::BufReader};

use model::{event::Event, recording::Reader};
use serde_json::Value;

use crate::support::{Ended, Scene, program, scene::number};

/// What a program says: the times around the first launch of each step, by thread, since the start of the recording.
type Truth = BTreeMap<u64, Vec<(u64, u64)>>;

fn record(scene: &Scene, shape: &str, steps: u64) -> Truth {
    record_with(scene, "--gpu-only", shape, steps)
}

fn record_with(scene: &Scene, options: &str, shape: &str, steps: u64) -> Truth {
    let command = format!("{} {shape} {steps}", program("loops"));
    let mut record = scene.record(&format!("--sim -q {options} -o x.wscope"), &command);
    let run = Ended::of(record.env("WARPSCOPE_SIM", "kernel_ns=20us,kernel[longer]=300ms")).exits(0);
    let file = File::open(scene.path("x.wscope")).expect("the recording can be opened");
    let start = Reader::new(BufReader::new(file)).expect("it is a recording").find_map(|event| match event {
        Event::Start(start) => Some(start.time),
        _ => None,
    });
    let start = start.expect("it has a start");
    let mut truth = Truth::new();
    for line in run.out().lines() {
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().expect("a number"));
        let mut next = || numbers.next().expect("three numbers");
        let (thread, before, after) = (next(), next(), next());
        truth.entry(thread).or_default().push((before - start, after - start));
    }
    truth
}

fn json(scene: &Scene, options: &[&str]) -> Value {
    let run = Ended::of(&mut scene.warpscope(&[&["report", "--json", "x.wscope"], options].concat())).exits(0);
    serde_json::from_str(run.out()).unwrap_or_else(|error| panic!("{options:?}: {error}"))
}

/// The steps of each thread, in order.
fn steps(scene: &Scene, options: &[&str]) -> Vec<Vec<Value>> {
    let rows = json(scene, &[&["--by", "steps"], options].concat());
    let mut threads: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for row in rows.as_array().expect("rows") {
        threads.entry(row["tid"].to_string()).or_default().push(row.clone());
    }
    threads.values_mut().for_each(|rows| rows.sort_by_key(|row| number(row, "step")));
    threads.into_values().collect()
}

/// Check that each step begins with the launch with which the program began it.
#[track_caller]
fn assert_truth(truth: &Truth, found: &[Vec<Value>], shape: &str) {
    assert_eq!(found.len(), truth.len(), "{shape}: threads with steps");
    for (thread, truth) in truth.values().enumerate() {
        let is = |found: &&Vec<Value>| {
            found.len() == truth.len()
                && found.iter().zip(truth).all(|(row, (from, to))| (*from..=*to).contains(&number(row, "start_ns")))
        };
        assert!(found.iter().any(|found| is(&found)), "{shape}: steps of thread {thread}: {found:?}, not {truth:?}");
    }
}

/// Check that steps begin exactly with their first launch, whatever the loop is like, and that their launches add up.
#[test]
fn steps_begin_with_their_first_launch() {
    let shapes = ["plain", "single", "nested", "same", "jitter", "warmup", "early", "changes", "threads", "replay"];
    for shape in shapes {
        let scene = Scene::new();
        let truth = record(&scene, shape, 60);
        let found = steps(&scene, &[]);
        assert_truth(&truth, &found, shape);
        let total = number(&json(&scene, &[]), "launches");
        let in_steps: u64 = found.iter().flatten().map(|row| number(row, "launches")).sum();
        let before = match shape {
            "warmup" | "replay" => 3,
            _ => 0,
        };
        assert_eq!(in_steps + before, total, "{shape}");
    }
}

/// Check that a program without a loop has no steps, and that this is said.
#[test]
fn a_program_without_a_loop_has_no_steps() {
    let scene = Scene::new();
    record(&scene, "straight", 1);
    assert!(json(&scene, &[]).get("steps").is_none());
    let run = Ended::of(&mut scene.warpscope(&["report", "--by", "steps", "x.wscope"])).exits(0);
    run.says(&["the table is empty: no loop has most of the launches"]);
    let run = Ended::of(&mut scene.warpscope(&["report", "--step", "3", "x.wscope"])).exits(1);
    run.says(&["no loop has most of the launches"]);
}

/// Check how long steps take: warm-up is left out and named, the slowest is found, and selecting it selects its work.
#[test]
fn the_slowest_step() {
    let scene = Scene::new();
    record(&scene, "slow", 40);
    let report = json(&scene, &[]);
    let summary = &report["steps"];
    assert_eq!(number(summary, "count"), 40);
    assert_eq!(number(&summary["slowest"], "step"), 7);
    assert!(number(summary, "p99_ns") >= 300_000_000 && number(summary, "median_ns") < 100_000_000, "{summary}");
    let text = Ended::of(&mut scene.warpscope(&["report", "x.wscope"])).exits(0);
    assert!(text.out().contains("40 steps of slow"), "{}", text.out());
    assert!(text.out().contains("slowest step 7 "), "{}", text.out());

    let all = steps(&scene, &[]);
    // On a busy machine, the next ones may be slow as well.
    let warm_up: Vec<u64> =
        all[0].iter().filter(|row| row["note"] == "warm-up").map(|row| number(row, "step")).collect();
    assert_eq!((warm_up[..2].to_vec(), warm_up.len() as u64), (vec![1, 2], number(summary, "warm_up")));
    let seventh = &all[0][6];
    for select in ["7", "slowest"] {
        let part = json(&scene, &["--step", select]);
        assert_eq!(part["filters"][0], format!("--step {select}"));
        assert_eq!(number(&part, "wall_ns"), number(seventh, "ns"));
        assert_eq!(number(&part, "launches"), number(seventh, "launches"));
        assert!(part.get("steps").is_none(), "a part has no steps of its own");
        let selected = steps(&scene, &["--step", select]);
        assert_eq!(selected, [vec![seventh.clone()]]);
    }
    let busy = |row: &Value| number(row, "busy_ns") + number(row, "idle_ns") == number(row, "ns");
    assert!(all[0].iter().all(busy));
    assert!(number(seventh, "idle_ns") >= 290_000_000, "{seventh}");
    let table = Ended::of(&mut scene.warpscope(&["report", "--by", "steps", "x.wscope"])).exits(0);
    let explained = table.out().lines().find(|line| line.starts_with("step 7: ")).expect("an explanation");
    assert!(explained.contains(" ms idle, for an unknown reason"), "there are no samples: {explained}");
    let run = Ended::of(&mut scene.warpscope(&["report", "--step", "41", "x.wscope"])).exits(1);
    run.says(&["has steps 1 to 40"]);
}

/// Check that what makes single steps slow is found: computation by samples, a wait by its interval, a longer kernel; and that it is
/// said of no other step.
#[test]
fn slow_steps_are_explained() {
    let scene = Scene::new();
    record_with(&scene, "--off-cpu", "outliers", 60);
    let report = json(&scene, &[]);
    let outliers = report["steps"]["outliers"].as_array().expect("outliers");
    let seeded = [
        (10, "idle", "cause", "running", "parse"),
        (15, "idle", "cause", "waiting", "read_file"),
        (20, "kernel", "name", "longer", "outliers"),
    ];
    for (step, kind, key, mut is, place) in seeded {
        let outlier = outliers.iter().find(|outlier| outlier["step"] == step);
        let outlier = outlier.unwrap_or_else(|| panic!("step {step} is slow: {outliers:?}"));
        let first = &outlier["differences"][0];
        // On a busy machine, what computes longer also waits for a CPU longer.
        if is == "running" && first["reason"] == "[waiting for a CPU]" {
            is = "waiting";
        }
        assert_eq!(
            (&first["kind"], &first[key], &first["place"]),
            (&kind.into(), &is.into(), &place.into()),
            "{outlier}"
        );
        assert!(number(first, "more_ns") >= 250_000_000, "{outlier}");
    }
    let names_others = |outlier: &&Value| {
        let seeded = seeded.iter().find(|(step, ..)| outlier["step"] == *step);
        let differences = outlier["differences"].as_array().expect("differences");
        let is = |name: &str| differences.iter().any(|d| d["place"] == name || d["name"] == name);
        is("read_file") && seeded.is_none_or(|seeded| seeded.4 != "read_file")
            || is("longer") && seeded.is_none_or(|seeded| seeded.3 != "longer")
    };
    assert_eq!(outliers.iter().find(names_others), None);
    let text = Ended::of(&mut scene.warpscope(&["report", "--by", "steps", "x.wscope"])).exits(0);
    assert!(text.out().contains(" ms idle in read_file ["), "{}", text.out());
}

/// Check that a reader can say what a step is: the calls of a function, or the iterations of its loop.
#[test]
fn functions_and_ranges_can_be_steps() {
    let scene = Scene::new();
    let truth = record(&scene, "nested", 30);
    assert_truth(&truth, &steps(&scene, &["--step", "nested"]), "nested");
    let calls = steps(&scene, &["--step", "micro_batch"]);
    assert_eq!(calls.iter().map(Vec::len).collect::<Vec<_>>(), [120]);
    assert!(calls[0].iter().all(|row| number(row, "launches") == 3));
    let run = Ended::of(&mut scene.warpscope(&["report", "--by", "steps", "--step", "nothing", "x.wscope"])).exits(1);
    run.says(&["--step nothing: the recording has no launch in a function with this name"]);
    let run = Ended::of(&mut scene.warpscope(&["report", "--by", "steps", "--step", "nvtx:a", "x.wscope"])).exits(1);
    run.says(&["the recording has no NVTX ranges"]);

    let rounds = format!("{} 50", program("nvtx"));
    Ended::of(scene.record("--sim -q --gpu-only --nvtx -o x.wscope", &rounds).env("WARPSCOPE_SIM", "kernel_ns=3us"))
        .exits(0);
    let ranges = steps(&scene, &["--step", "nvtx:forward"]);
    assert_eq!(ranges[0].iter().map(|row| number(row, "kernels")).collect::<Vec<_>>(), [2; 50]);
}

/// Check that a phase can be selected: the parts of all phases are the whole, and a reader can add functions.
#[test]
fn a_phase_is_selected() {
    let scene = Scene::new();
    record(&scene, "nested", 30);
    let phases = json(&scene, &["--by", "phases"]);
    let rows = phases.as_array().expect("rows");
    let count = |phase: &str| rows.iter().find(|row| row["phase"] == phase).map(|row| number(row, "count"));
    assert_eq!((count("forward"), count("backward"), count("other")), (Some(240), Some(120), Some(60)));
    for (phase, kernels) in [("forward", 240), ("backward", 120)] {
        let part = json(&scene, &["--phase", phase]);
        assert_eq!((number(&part, "kernels"), number(&part, "launches")), (kernels, kernels));
        assert_eq!(part["filters"][0], format!("--phase {phase}"));
    }
    let both = json(&scene, &["--phase", "forward", "--phase", "backward"]);
    assert_eq!(number(&both, "launches"), 360);
    let run = Ended::of(&mut scene.warpscope(&["report", "--phase", "decode", "x.wscope"])).exits(1);
    run.says(&["the recording has no such phase; it has: backward, forward, other"]);

    std::fs::write(scene.path("rules.txt"), "optimizer update # of this program\n").expect("written");
    let rules = ["--phase-rules", "rules.txt"];
    let part = json(&scene, &[&["--phase", "optimizer"], &rules[..]].concat());
    assert_eq!(number(&part, "kernels"), 30);
    std::fs::write(scene.path("rules.txt"), "optimizer\n").expect("written");
    let run = Ended::of(&mut scene.warpscope(&[&["report", "x.wscope"], &rules[..]].concat())).exits(1);
    run.says(&["cannot use rules.txt: line 1: expected PHASE FUNCTION [FILE]"]);
}
