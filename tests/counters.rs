//! The counters of GPUs by PM sampling, and the verdict of each kernel (`record --counters`), on a GPU whose kernels use
//! known shares of it.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use crate::support::{
    Ended, Scene,
    attacker::{id, with_sudo},
    jsonl::Events,
    program, programs,
    scene::{lost, number},
};

/// `gather` reads memory, and `plain` keeps the tensor pipe busy.
const KERNELS: &str = "kernel[gather]=150ms,kernel[plain]=100ms,pm[gather]=90:5:20:50:25,pm[plain]=100:97:30:19:3";
const OUTPUTS: &str = "-o x.wscope -o x.jsonl -o x.json";

fn record(scene: &Scene, script: &str, options: &str) -> String {
    let script = format!("{KERNELS},meter={},{script}", scene.text("meter"));
    let options = format!("--sim --counters --gpu-only {options} {OUTPUTS}");
    let mut command = scene.record(&options, &program("stalled"));
    Ended::of(command.env("WARPSCOPE_SIM", script.trim_end_matches(','))).exits(0).err().to_owned()
}

/// A sample: beginning, end, and values by metric.
type Sample = (u64, u64, BTreeMap<String, f64>);

fn samples(events: &Events) -> Vec<Sample> {
    let sample = |event: &Value| {
        let values = event["values"].as_array().expect("values").iter();
        let value = |value: &Value| {
            (value["metric"].as_str().expect("a name").to_owned(), value["value"].as_f64().expect("a number"))
        };
        let start = number(event, "ts_ns");
        (start, start + number(event, "dur_ns"), values.map(value).collect())
    };
    events.of("pm").map(sample).collect()
}

/// The kernels that ran: name, beginning and end.
fn kernels(events: &Events) -> Vec<(String, u64, u64)> {
    let kernel = |event: &Value| {
        let start = number(event, "ts_ns");
        (event["name"].as_str().expect("a name").to_owned(), start, start + number(event, "dur_ns"))
    };
    events.of("kernel").map(kernel).collect()
}

/// The kernels in a sample, and for how long they ran. The kernels of one stream do not overlap.
fn ran(kernels: &[(String, u64, u64)], start: u64, end: u64) -> BTreeMap<&str, u64> {
    let mut times = BTreeMap::new();
    for (name, from, to) in kernels {
        let ns = (*to).min(end).saturating_sub((*from).max(start));
        if ns > 0 {
            *times.entry(name.as_str()).or_default() += ns;
        }
    }
    times
}

/// Returns the wall clock less the time since `start`, in nanoseconds: it changes only if the clock is set.
fn wall_clock_at(start: Instant) -> u64 {
    let once = || {
        let (before, real) = (Instant::now(), SystemTime::now());
        let ns = real.duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
        (before.elapsed(), ns - before.duration_since(start).as_nanos() as u64)
    };
    (0..9).map(|_| once()).min().expect("a reading").1
}

/// Check that every sample has the values of the kernels that ran in it, that samples follow one another, and that each
/// kernel gets the samples that are its own, their means, and the verdict that follows from them, in every output.
#[test]
fn kernels_get_the_verdict_of_their_samples() {
    let scene = Scene::new();
    let start = Instant::now();
    let wall_clock = wall_clock_at(start);
    let summary = record(&scene, "", "-o x.pftrace");
    let was_set = wall_clock_at(start).abs_diff(wall_clock);
    assert!(
        summary.contains("PM sampling (CUPTI), every 1.00 ms") && summary.contains("Kernels by counters"),
        "{summary}"
    );
    let events = Events::read(&scene.read("x.jsonl"));
    let (samples, kernels) = (samples(&events), kernels(&events));
    assert_eq!(kernels.len(), 6);
    assert!(samples.len() >= 800, "the kernels alone take 800 ms: {}", samples.len());
    // The clocks are compared anew each second, and the wall clock may be set meanwhile.
    let near = |a: u64, b: u64| a.abs_diff(b) < 50_000 + was_set;
    for pair in samples.windows(2) {
        assert!(near(pair[0].1, pair[1].0), "{pair:?}");
    }
    let used = |name: &str| match name {
        "gather" => [90.0, 5.0, 20.0, 50.0, 25.0],
        _ => [100.0, 97.0, 30.0, 19.0, 3.0],
    };
    let names = ["SM active", "tensor pipe", "instructions issued", "DRAM read", "DRAM write"];
    let mut own: BTreeMap<&str, u64> = BTreeMap::new();
    for (start, end, values) in &samples {
        assert!(near(end - start, 1_000_000), "{start} {end}");
        assert_eq!(values.len(), 10, "two metrics of NVLink are not available: {values:?}");
        let times = ran(&kernels, *start, *end);
        for (place, name) in names.iter().enumerate() {
            let expected: f64 =
                times.iter().map(|(kernel, ns)| used(kernel)[place] * *ns as f64 / (end - start) as f64).sum();
            assert!((values[*name] - expected).abs() < 5.0, "{name} is {} and not {expected}", values[*name]);
        }
        if let Some((kernel, ns)) = times.first_key_value().filter(|_| times.len() == 1)
            && ns * 100 >= (end - start) * 95
        {
            *own.entry(kernel).or_default() += 1;
            if ran(&kernels, start - 50_000, end + 50_000).get(kernel) == Some(&(end - start + 100_000)) {
                assert_eq!(names.map(|name| values[name]), used(kernel), "{kernel}");
            }
        }
    }
    assert!(own["gather"] > 580 && own["plain"] > 180, "{own:?}");

    let report = scene.report("x.wscope");
    let verdicts = &report["kernels_by_counters"];
    let rows = verdicts["kernels"].as_array().expect("rows");
    let row = |name: &str| rows.iter().find(|row| row["kernel"] == name).expect("a row");
    assert_eq!((&row("gather")["verdict"], &row("plain")["verdict"]), (&"memory bound".into(), &"tensor bound".into()));
    for (kernel, dram, sm) in [("gather", 75.0, 90.0), ("plain", 22.0, 100.0)] {
        assert_eq!(number(row(kernel), "samples"), own[kernel], "{kernel}");
        let mean = |key: &str| row(kernel)[key].as_f64().expect("a mean");
        assert!((mean("dram") - dram).abs() < 0.5 && (mean("sm_active") - sm).abs() < 0.5, "{}", row(kernel));
    }
    let assigned = &verdicts["samples"];
    assert_eq!(number(assigned, "samples"), samples.len() as u64);
    assert_eq!(number(assigned, "of_kernels"), own.values().sum::<u64>());
    let parts = ["of_kernels", "mostly", "shared", "partial", "idle"].map(|part| number(assigned, part));
    assert_eq!((parts.iter().sum::<u64>(), number(assigned, "late_ns")), (samples.len() as u64, 0));
    let finding = report["findings"].as_array().expect("findings").iter().find(|f| f["kind"] == "memory-bound");
    let title = finding.expect("a finding")["title"].as_str().expect("a title").to_owned();
    assert!(title.contains("gather") && title.contains("is memory bound at 3.60 TB/s"), "{title}");
    assert_eq!(lost(&report), 0);

    let counters = report["counters"].as_array().expect("counters");
    let active = counters.iter().find(|sum| sum["metric"] == "SM active").expect("a sum");
    assert_eq!((&active["source"], number(active, "intervals")), (&"PM".into(), samples.len() as u64));
    let weight = |sample: &&Sample| (sample.1 - sample.0) as f64;
    let mean = samples.iter().map(|s| weight(&s) * s.2["SM active"]).sum::<f64>()
        / samples.iter().map(|s| weight(&s)).sum::<f64>();
    assert!((active["mean"].as_f64().expect("a mean") - mean).abs() < 1e-6, "{active} {mean}");
    assert_eq!(scene.read("x.json").matches("\"SM active (PM)\"").count(), samples.len());
    Ended::of(&mut scene.warpscope(&["export", "x.wscope", "--table", "verdicts", "-o", "x.csv"])).exits(0);
    let table = scene.read("x.csv");
    assert!(
        table.starts_with("kernel,verdict,ns,gpu_share,samples,") && table.contains("\ngather,memory bound,600000000,"),
        "{table}"
    );
    let pftrace = fs::read(scene.path("x.pftrace")).expect("a trace");
    assert!(pftrace.windows(14).any(|part| part == b"SM active (PM)"));
}

/// Check that without PM sampling the counters come from GPM, with one sentence that says why, and that nothing else of the
/// recording is missing.
#[test]
fn refusals_are_explained() {
    for (script, variable, why) in [
        (
            "pm=permission",
            None,
            "the driver refused PM sampling: load the NVIDIA kernel module with NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("pm=busy", None, "another tool uses the GPU's counters"),
        ("pm=unsupported", None, "CUPTI does not support PM sampling on this GPU"),
        ("", Some("/no/libcupti.so.13"), "WARPSCOPE_CUPTI names no file: /no/libcupti.so.13"),
    ] {
        let scene = Scene::new();
        let script = format!("{KERNELS},meter={},{script}", scene.text("meter"));
        let mut command = scene.record("--sim --counters --gpu-only -o x.wscope", &program("stalled"));
        command.env("WARPSCOPE_SIM", script.trim_end_matches(','));
        // The program itself finds the simulator's library first.
        command.envs(variable.map(|path| ("WARPSCOPE_CUPTI", path)));
        let ended = Ended::of(&mut command).exits(0);
        let note = format!("counters come from NVML (GPM), and kernels get no verdict: {why}");
        assert!(ended.err().contains(&note), "{}", ended.err());
        let report = scene.report("x.wscope");
        assert_eq!((number(&report, "kernels"), number(&report, "gpu_time_ns")), (6, 800_000_000));
        assert!(report["kernels_by_counters"].is_null(), "{}", report["kernels_by_counters"]);
        assert_eq!(report["counters"][0]["source"], "GPM");
    }
}

/// Check that a crash of the library ends the counters, with a note, and nothing else.
#[test]
fn a_crash_ends_only_the_counters() {
    let scene = Scene::new();
    let summary = record(&scene, "pm=crash", "");
    assert!(
        summary.contains("counters end before the recording: signal 6 ended the process that samples them"),
        "{summary}"
    );
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "kernels"), number(&report, "matched"), lost(&report)), (6, 6, 0));
    assert!(!Events::read(&scene.read("x.jsonl")).of("pm").collect::<Vec<_>>().is_empty(), "samples until then");
}

/// Check that a full hardware buffer is in the ledger, and that sampling goes on.
#[test]
fn overflows_are_counted() {
    let scene = Scene::new();
    let summary = record(&scene, "pm_overflow=3", "");
    assert!(summary.contains("1 time the hardware buffer for GPU counters was full: samples are missing"), "{summary}");
    let report = scene.report("x.wscope");
    assert_eq!(number(&report["lost"], "counter_overflows"), 1);
    let samples = samples(&Events::read(&scene.read("x.jsonl")));
    let gaps = samples.windows(2).filter(|pair| pair[1].0 > pair[0].1 + 1_000_000).count();
    assert_eq!(gaps, 1, "between the samples before and after");
}

/// Check that a library that others than root can change is not loaded as root: the process that samples runs as the user who
/// called sudo, and if the driver refuses that, both remedies are named.
#[test]
fn a_users_library_runs_as_the_user() {
    let scene = Scene::new();
    Ended::of(&mut scene.warpscope(&["sim", "--libs", &scene.text("libs")])).exits(0);
    fs::set_permissions(scene.path("libs"), fs::Permissions::from_mode(0o777)).expect("ours");
    programs::copy(program("stalled"), scene.path("stalled"));
    let record = |script: &str, sudo: bool| {
        let script = format!("{KERNELS},meter={},{script}", scene.text("meter"));
        let mut command = scene.record("--sim --counters --gpu-only -o x.wscope", &scene.text("stalled"));
        command.env("WARPSCOPE_CUPTI", scene.path("libs/libcupti.so.13"));
        command.env("WARPSCOPE_SIM", script.trim_end_matches(','));
        let command = if sudo { with_sudo(&mut command) } else { &mut command };
        let ended = Ended::of(command).exits(0);
        let _ = fs::remove_file(scene.path("meter"));
        ended.err().to_owned()
    };
    let owner = format!("pm_owner={}", scene.text("owner"));
    let summary = record(&owner, true);
    assert!(summary.contains("Kernels by counters"), "{summary}");
    assert_eq!(scene.read("owner").trim(), format!("{} {}", id("-u"), "0000000000000000"));
    let summary = record("pm=permission", true);
    assert!(summary.contains("install the CUDA toolkit's CUPTI, or load the NVIDIA kernel module with"), "{summary}");
    let summary = record("", false);
    assert!(summary.contains("is not loaded as root because others than root can change it"), "{summary}");
}

/// Check that a mount that the machine does not trust (`nosuid`), as those of FUSE and of a user's disk, is not believed: its
/// files may be root's in name only.
#[test]
fn files_of_an_untrusted_mount_are_not_loaded_as_root() {
    let scene = Scene::new();
    let libraries = programs::libraries();
    let record = |options: &str| {
        let script = format!(
            "mount -t tmpfs -o mode=755{options} none /mnt && cp {}/* /mnt && exec \"$@\"",
            libraries.display()
        );
        let mut command = scene.bare("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh", programs::WARPSCOPE]);
        command.args("record --sim --counters --gpu-only -o x.wscope --".split(' ')).arg(program("stalled"));
        command.env("WARPSCOPE_SIM", format!("meter={}", scene.text("meter")));
        let ended = Ended::of(command.env("WARPSCOPE_CUPTI", "/mnt/libcupti.so.13")).exits(0);
        ended.err().to_owned()
    };
    let refused = "is not loaded as root because others than root can change it";
    let summary = record("");
    assert!(summary.contains("Kernels by counters") && !summary.contains(refused), "{summary}");
    let summary = record(",nosuid,nodev");
    assert!(summary.contains("counters come from NVML (GPM)") && summary.contains(refused), "{summary}");
}
