//! GPUs are identified by their UUIDs, whatever numbers processes give them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::support::{
    Ended, Scene,
    jsonl::Events,
    program,
    programs::WARPSCOPE,
    scene::{lost, number},
};

/// The UUID of a simulated GPU.
fn uuid(gpu: u32) -> String {
    format!("GPU-77617270-7363-6f70-6520-73696d2020{gpu:02x}")
}

/// The UUID of an instance of a simulated GPU.
fn instance(gpu: u32, instance: u32) -> String {
    format!("MIG-77617270-7363-6f70-6520-73696d20{instance:02x}{gpu:02x}")
}

/// Runs the programs at the same time, each with its environment: a command for the shell.
fn together(programs: &[(&str, String)]) -> String {
    let start = |(environment, command): &(&str, String)| format!("{environment} {command} & jobs=\"$jobs $!\"; ");
    let all: String = programs.iter().map(start).collect();
    format!("{all} for job in $jobs; do wait $job || exit 1; done")
}

/// The ground-truth program: kernels only, each of 3 us.
fn truth(threads: u64, devices: u64, launches: u64) -> String {
    format!("{} 1 {threads} 1 {devices} {launches} --kernels", program("truth"))
}

fn record(scene: &Scene, script: &str, command: &str) {
    let outputs = "--sim -q --gpu-only -o x.wscope -o x.jsonl -o x.folded -o x.json";
    Ended::of(scene.record_words(outputs, &["sh", "-c", command]).env("WARPSCOPE_SIM", script)).exits(0);
}

/// The union of the intervals of each device's kernels, and their number.
fn busy(events: &Events) -> BTreeMap<u64, (u64, u64)> {
    let mut intervals: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for kernel in events.of("kernel") {
        let start = number(kernel, "ts_ns");
        intervals.entry(number(kernel, "device")).or_default().push((start, start + number(kernel, "dur_ns")));
    }
    let union = |mut all: Vec<(u64, u64)>| {
        let count = all.len() as u64;
        all.sort_unstable();
        let (mut sum, mut until) = (0, 0);
        for (start, end) in all {
            sum += end.saturating_sub(start.max(until));
            until = until.max(end);
        }
        (sum, count)
    };
    intervals.into_iter().map(|(device, all)| (device, union(all))).collect()
}

/// The devices of a report that worked: label, UUID, kernels. Asserts that their busy times are the unions of their kernels'
/// intervals, that their times are the sums, and that the imbalance follows.
#[track_caller]
fn working(scene: &Scene) -> Vec<(String, String, u64)> {
    let report = scene.report("x.wscope");
    assert_eq!(lost(&report), 0, "{}", report["lost"]);
    let busy = busy(&Events::read(&scene.read("x.jsonl")));
    let all = report["devices"].as_array().expect("devices").iter();
    let devices: Vec<&Value> = all.filter(|device| number(device, "streams") > 0).collect();
    for device in &devices {
        let (ns, kernels) = busy[&number(device, "index")];
        assert_eq!((number(device, "busy_ns"), number(device, "kernels")), (ns, kernels), "{device}");
        assert_eq!(number(device, "time_ns"), kernels * 3_000, "{device}");
    }
    let times: Vec<f64> = busy.values().map(|(ns, _)| *ns as f64).collect();
    let most = times.iter().copied().fold(0.0, f64::max);
    let imbalance = most * times.len() as f64 / times.iter().sum::<f64>() - 1.0;
    let reported = report["gpu_imbalance"].as_f64().expect("an imbalance");
    assert!((reported - imbalance).abs() < 1e-9, "{reported} is not {imbalance}");
    let text = |device: &Value, key: &str| device[key].as_str().unwrap_or_default().to_owned();
    devices.iter().map(|d| (text(d, "label"), text(d, "uuid"), number(d, "kernels"))).collect()
}

fn gpu_frames(scene: &Scene) -> BTreeSet<String> {
    let frame = |line: &str| line.split(';').next_back()?.split_once(' ').map(|(frame, _)| frame.to_owned());
    scene.read("x.folded").lines().filter_map(frame).collect()
}

fn rows(rows: &[(&str, String, u64)]) -> Vec<(String, String, u64)> {
    rows.iter().map(|(label, uuid, kernels)| ((*label).to_owned(), uuid.clone(), *kernels)).collect()
}

/// Check that two processes that call different GPUs "device 0", one of them by its UUID, are two GPUs with their own times.
#[test]
fn ranks_on_different_gpus_are_distinguished() {
    let scene = Scene::new();
    let other = format!("CUDA_VISIBLE_DEVICES={}", uuid(2));
    let command = together(&[("CUDA_VISIBLE_DEVICES=3", truth(2, 1, 400)), (&other, truth(2, 1, 1_000))]);
    record(&scene, "devices=4,kernel_ns=3us", &command);
    assert_eq!(working(&scene), rows(&[("0", uuid(2), 2_000), ("1", uuid(3), 800)]));
    assert_eq!(scene.report("x.wscope")["device_numbering"], "pci");
    assert_eq!(gpu_frames(&scene), ["[GPU0_Kernel]", "[GPU1_Kernel]"].map(str::to_owned).into());
    let timeline = scene.read("x.json");
    assert!(timeline.contains("GPU 0: Simulated GPU 2") && timeline.contains("GPU 1: Simulated GPU 3"));
}

/// Check that GPUs have the numbers of the machine where the driver lists its GPUs.
#[test]
fn gpus_have_the_numbers_of_the_machine() {
    let scene = Scene::new();
    let gpus = (0..4).map(|gpu| {
        let directory = format!("/proc/driver/nvidia/gpus/0000:{:02x}:00.0", gpu + 1);
        format!("mkdir -p {directory}; printf 'Model: X\\nGPU UUID: \\t {}\\n' > {directory}/information; ", uuid(gpu))
    });
    let listed = format!("mount -t tmpfs none /proc/driver || exit 9; {} exec \"$@\"", gpus.collect::<String>());
    let command =
        together(&[("CUDA_VISIBLE_DEVICES=3", truth(1, 1, 200)), ("CUDA_VISIBLE_DEVICES=1", truth(1, 1, 300))]);
    let outputs = ["record", "--sim", "-q", "--gpu-only", "-o", "x.wscope", "-o", "x.jsonl", "-o", "x.folded", "--"];
    let mut run = scene.bare("unshare");
    run.args(["--mount", "sh", "-c", &listed, "sh", WARPSCOPE]).args(outputs).args(["sh", "-c", &command]);
    Ended::of(run.env("WARPSCOPE_SIM", "devices=4,kernel_ns=3us")).exits(0);
    assert_eq!(working(&scene), rows(&[("1", uuid(1), 300), ("3", uuid(3), 200)]));
    assert_eq!(scene.report("x.wscope")["device_numbering"], "machine");
    assert_eq!(gpu_frames(&scene), ["[GPU1_Kernel]", "[GPU3_Kernel]"].map(str::to_owned).into());
}

/// Check that one GPU with different numbers in two processes is one GPU: it is busy whenever either uses it.
#[test]
fn processes_that_share_a_gpu_are_summed() {
    let scene = Scene::new();
    let command =
        together(&[("CUDA_VISIBLE_DEVICES=1", truth(2, 1, 700)), ("CUDA_VISIBLE_DEVICES=0,1", truth(2, 2, 500))]);
    record(&scene, "devices=2,kernel_ns=3us", &command);
    assert_eq!(working(&scene), rows(&[("0", uuid(0), 500), ("1", uuid(1), 1_900)]));
}

/// Check that instances of a partitioned GPU are separate devices, named by their GPU.
#[test]
fn instances_are_named() {
    let scene = Scene::new();
    let visible: Vec<String> = (0..2).map(|at| format!("CUDA_VISIBLE_DEVICES={}", instance(1, at))).collect();
    let command = together(&[(&visible[0], truth(1, 1, 200)), (&visible[1], truth(1, 1, 300))]);
    record(&scene, "devices=2,mig=2,kernel_ns=3us", &command);
    assert_eq!(working(&scene), rows(&[("0:0", instance(1, 0), 200), ("0:1", instance(1, 1), 300)]));
    assert_eq!(gpu_frames(&scene), ["[GPU0:0_Kernel]", "[GPU0:1_Kernel]"].map(str::to_owned).into());
    let report = scene.report("x.wscope");
    for device in report["devices"].as_array().expect("devices") {
        assert_eq!(
            (device["gpu_uuid"].as_str(), device["name"].as_str()),
            (Some(&*uuid(1)), Some("Simulated GPU 1 MIG 1g.10gb"))
        );
    }
}
