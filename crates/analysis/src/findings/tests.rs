//! Profiles that have one problem each, and the same without it.

mod communication;
mod kernels;

use model::{
    event::{Direction, End, Frame, FrameKind, Mode, NamedFrame, ProcessId, Stack, StackEnd, StackId, Start, Symbol},
    idle::{Cause, Charge, IdleWeight, Phase},
    memory::{Amount, DeviceMemory, Moment, Use},
    profile::{CpuWeight, DeviceInfo, GpuKey, GpuWeight, KernelText, Profile, What},
};

use super::{Finding, Gain, Kind, Severity, findings};
use crate::{Flames, View, collectives, family::Family, idle, memory, occupancy, user_code::UserCode};

const IMAGE: ProcessId = ProcessId(1);
const SECOND: u64 = 1_000_000_000;

/// A recording of 10 s in which nothing is wrong: one GPU that is always busy, with kernels of 1 ms.
fn healthy() -> Profile {
    let start = Start {
        time: 0,
        wall_clock: 0,
        version: String::new(),
        host: String::new(),
        command: vec!["python3".into()],
        mode: Mode::Merged,
        frequency: 999,
    };
    let end = End { time: 10 * SECOND, status: Some(0) };
    let mut profile = Profile { start: Some(start), end: Some(end), ..Profile::default() };
    profile.kernel_names.push(KernelText { mangled: "work".into(), text: "work".into() });
    let names = ["step (train.py:42)", "load (data.py:88)", "cudaStreamSynchronize", "load (data.py:89)"];
    for (name, number) in names.into_iter().zip(1..) {
        let frame = Frame::Python(number);
        let named = NamedFrame { kind: FrameKind::Python, name: name.into(), module: "/home/me/x.py".into() };
        profile.symbols.add(Symbol { process: ProcessId(0), frame, since: 0, names: vec![named] });
        let (id, frames, end) = (StackId(number.into()), vec![frame], StackEnd::Whole);
        profile.stacks.insert(&Stack { id, process: IMAGE, time: 0, frames, end });
    }
    add_device(&mut profile, 0, 10 * SECOND);
    add_work(&mut profile, What::Kernel(0), 10_000, 10 * SECOND);
    profile
}

fn add_device(profile: &mut Profile, number: u32, busy_ns: u64) {
    let streams = [(model::event::SessionId(0), 1, 7)].into();
    let label = number.to_string();
    profile
        .devices
        .insert(number, DeviceInfo { label, busy_ns, kernel_busy_ns: busy_ns, streams, ..DeviceInfo::default() });
}

fn add_work(profile: &mut Profile, what: What, count: u64, ns: u64) {
    let key = GpuKey { process: IMAGE, stack: Some(StackId(1)), capture: None, what, device: 0, stream: 7, range: 0 };
    profile.gpu.insert(key, GpuWeight { count, ns, max_ns: ns / count, ..GpuWeight::default() });
}

/// Makes the GPU idle for some seconds, for one reason.
fn add_idle(profile: &mut Profile, seconds: u64, cause: Cause, stack: Option<u64>) {
    let device = profile.devices.get_mut(&0).expect("it exists");
    let ns = seconds * SECOND;
    device.idle.ns[Phase::Between as usize] += ns;
    device.busy_ns -= ns;
    device.kernel_busy_ns -= ns;
    let charge = Charge { phase: Phase::Between, process: IMAGE, tid: 7, cause, stack: stack.map(StackId) };
    device.idle.parts.push((charge, IdleWeight { ns, ..IdleWeight::default() }));
}

fn found(profile: &Profile) -> Vec<Finding> {
    let code = UserCode::new(profile);
    let (idle, memory, shapes) = (idle::of(profile, &code), memory::of(profile, &code), occupancy::all(profile));
    findings(profile, &code, &idle, &memory, &shapes, &collectives::late(profile, &code))
}

fn kinds(profile: &Profile) -> Vec<Kind> {
    found(profile).iter().map(|finding| finding.kind).collect()
}

/// Check that a recording without a problem has no findings, nor an empty one.
#[test]
fn nothing_is_said_about_healthy_recordings() {
    assert_eq!(found(&healthy()), []);
    assert_eq!(found(&Profile::default()), []);
}

/// Check the text about an idle GPU: its share, its causes by line, largest first, and the basis.
#[test]
fn idle_gpus_come_first_and_name_the_line() {
    let mut profile = healthy();
    add_idle(&mut profile, 1, Cause::Running, Some(2));
    add_idle(&mut profile, 1, Cause::Running, Some(4));
    add_idle(&mut profile, 1, Cause::Launching, Some(1));
    add_idle(&mut profile, 1, Cause::Unknown, None);
    let [finding] = &found(&profile)[..] else { panic!("one finding") };
    assert_eq!(finding.title, "GPU 0 idle 40 % of 10.0 s: 20 % load (data.py), 10 % [unknown], 10 % launching");
    let numbers: Vec<String> = finding.evidence.iter().map(super::Evidence::text).collect();
    let expected = ["idle 4.00 s", "from intervals 1.00 s", "from samples 2.00 s", "without evidence 1.00 s"];
    assert_eq!(numbers, expected);
    assert_eq!(finding.place.as_ref().map(|place| place.frame.as_str()), Some("load (data.py:88)"));
    assert!(finding.advice.contains("ahead of time"), "{}", finding.advice);

    add_device(&mut profile, 1, SECOND);
    assert_eq!(kinds(&profile), [Kind::GpuIdle, Kind::Imbalance]);
}

/// Check that idle time of an unknown cause has the colour of the unknown, and no frame that says again that it is idle.
#[test]
fn unknown_idle_time_looks_unknown() {
    let mut profile = healthy();
    add_idle(&mut profile, 1, Cause::Unknown, None);
    let flame = Flames::new(&profile).of(View { idle: true, ..View::default() });
    let frames: Vec<Vec<&str>> =
        flame.lines.iter().map(|line| line.frames.iter().map(|frame| &**frame).collect()).collect();
    assert_eq!(frames, [["GPU 0", "[unknown_process]", "[unknown]"]]);
    assert_eq!(flame.families["[unknown]"], Family::Unknown);
}

/// Check that findings are ordered by what they could gain: at most what the recording shows.
#[test]
fn findings_are_ordered_by_their_gain() {
    let mut profile = healthy();
    add_idle(&mut profile, 2, Cause::Running, Some(2));
    let gain = |ns, severity| Some(Gain { ns, severity });
    let [idle] = &found(&profile)[..] else { panic!("one finding") };
    assert_eq!(idle.gain, gain(2 * SECOND, Severity::High));
    // Dividing the work of 8 s and 1 s evenly takes 4.5 s.
    add_device(&mut profile, 1, SECOND);
    let [imbalance, idle] = &found(&profile)[..] else { panic!("two findings") };
    assert_eq!((imbalance.kind, imbalance.gain), (Kind::Imbalance, gain(7 * SECOND / 2, Severity::High)));
    assert_eq!(idle.kind, Kind::GpuIdle);
    let of = |ns| Gain::of(ns, &profile);
    assert_eq!(of(20 * SECOND), gain(10 * SECOND, Severity::High));
    assert_eq!(of(SECOND), gain(SECOND, Severity::Medium));
    assert_eq!(of(SECOND / 10), gain(SECOND / 10, Severity::Low));
}

/// Check that GPUs that are idle alike have one finding, with the range of their shares, and that others have their own.
#[test]
fn idle_gpus_that_are_alike_have_one_finding() {
    let mut profile = healthy();
    let one = profile.devices[&0].clone();
    for (device, seconds) in [(0, 4), (1, 4), (2, 3), (3, 9), (5, 4)] {
        profile.devices.insert(0, one.clone());
        add_idle(&mut profile, seconds, Cause::Running, Some(2));
        let info = DeviceInfo { label: device.to_string(), ..profile.devices[&0].clone() };
        profile.devices.insert(100 + device, info);
    }
    profile.devices = std::mem::take(&mut profile.devices)
        .into_iter()
        .filter_map(|(number, info)| Some((number.checked_sub(100)?, info)))
        .collect();
    let idle: Vec<String> =
        found(&profile).into_iter().filter(|f| f.kind == Kind::GpuIdle).map(|finding| finding.title).collect();
    let expected = [
        "GPU 3 idle 90 % of 10.0 s: 90 % load (data.py:88)",
        "GPUs 0, 1, 2 and 5 idle 30 to 40 % (GPU 2 30 %, the others 40 %): on average 38 % load (data.py:88)",
    ];
    assert_eq!(idle, expected);
    profile.devices.retain(|number, _| *number < 2 || *number == 5);
    assert!(
        found(&profile)[0].title.starts_with("GPUs 0, 1 and 5 idle 40 %: on average"),
        "{}",
        found(&profile)[0].title
    );
    profile.devices.retain(|number, _| *number < 2);
    assert!(found(&profile)[0].title.starts_with("GPUs 0 and 1 idle 40 %: on average"), "{}", found(&profile)[0].title);
}

/// Check that one slow launch is named as such, and that only short gaps are advised against.
#[test]
fn one_slow_launch_is_no_pattern() {
    let mut profile = healthy();
    add_idle(&mut profile, 2, Cause::Launching, Some(1));
    let mut advice = |gaps, longest_ns, first_use| {
        let device = profile.devices.get_mut(&0).expect("it exists");
        let weight = &mut device.idle.parts[0].1;
        (weight.gaps, weight.longest_ns, weight.first_use) = (gaps, longest_ns, first_use);
        let [finding] = &found(&profile)[..] else { panic!("one finding") };
        (finding.title.clone(), finding.advice.clone())
    };
    let (title, text) = advice(81, SECOND + 1, true);
    assert!(title.ends_with(": 10 % one launch of 1.00 s at step (train.py:42), 10 % launching"), "{title}");
    assert!(text.contains("the first use of a kernel loads its module"), "{text}");
    assert!(advice(81, SECOND + 1, false).1.contains("not a pattern"));
    assert!(advice(81, SECOND - 1, true).1.contains("started late"));
    assert!(advice(200_000, SECOND - 1, true).1.contains("fewer and longer kernels"));
}

/// Check that nothing is concluded about a GPU from a part of what it did, and that shares are those of the whole.
#[test]
fn parts_conclude_nothing_about_the_whole() {
    let mut profile = healthy();
    add_idle(&mut profile, 5, Cause::Launching, Some(1));
    profile.devices.get_mut(&0).expect("it exists").idle.short_gaps = (500_000, 5 * SECOND);
    profile.waits = CpuWeight { count: 2_000, ns: 2 * SECOND };
    add_work(&mut profile, What::Kernel(0), 500_000, 5 * SECOND / 2);
    assert_eq!(kinds(&profile), [Kind::GpuIdle, Kind::LaunchBound, Kind::TinyKernels, Kind::Synchronization]);
    let mut part = profile.clone();
    add_work(&mut part, What::Kernel(0), 100_000, SECOND / 2);
    let part = part.part_of(profile, vec!["--tid 7".into()]);
    let [finding] = &found(&part)[..] else { panic!("one finding") };
    let title = "100,000 kernels of 5.00 µs on average (20.0 % of all) are launched one by one at step (train.py:42)";
    assert_eq!(finding.title, title);
}

/// Check that a GPU is launch-bound only if the gaps are short, many, and longer than its kernels.
#[test]
fn short_gaps_between_shorter_kernels_are_launch_bound() {
    let mut profile = healthy();
    add_idle(&mut profile, 5, Cause::Launching, Some(1));
    assert_eq!(kinds(&profile), [Kind::GpuIdle]);
    profile.devices.get_mut(&0).expect("it exists").idle.short_gaps = (500_000, 5 * SECOND);
    assert_eq!(kinds(&profile), [Kind::GpuIdle], "kernels of 1 ms");
    add_work(&mut profile, What::Kernel(0), 500_000, 5 * SECOND / 2);
    assert_eq!(kinds(&profile), [Kind::GpuIdle, Kind::LaunchBound, Kind::TinyKernels]);
    // Tiny kernels gain the gaps between them, or 10 µs each without their own time, but no more than the GPU is idle.
    let tiny =
        |profile: &Profile| found(profile).into_iter().find(|f| f.kind == Kind::TinyKernels)?.gain.map(|gain| gain.ns);
    assert_eq!(tiny(&profile), Some(5 * SECOND));
    let mut longer = profile.clone();
    longer.devices.get_mut(&0).expect("it exists").idle.short_gaps = (500_000, SECOND);
    assert_eq!(tiny(&longer), Some(5 * SECOND / 2));
    longer.devices.get_mut(&0).expect("it exists").idle.ns[Phase::Between as usize] = SECOND;
    assert_eq!(tiny(&longer), Some(SECOND));
    let title =
        "GPU 0 is launch-bound: 50.0 % of its time is in gaps of 10.0 µs on average, between kernels of 5.00 µs";
    assert_eq!(found(&profile)[1].title, title);
    let title = "500,000 kernels of 5.00 µs on average (100.0 % of all) are launched one by one at step (train.py:42)";
    assert_eq!(found(&profile)[2].title, title);
}

/// Check that waits count only if the GPU is idle, and that their line is that of small copies, or of samples.
#[test]
fn synchronisation_matters_if_the_gpu_is_idle() {
    let mut profile = healthy();
    profile.waits = CpuWeight { count: 2_000, ns: 2 * SECOND };
    profile.cpu.insert((IMAGE, StackId(3)), CpuWeight { count: 9, ns: 9_000_000 });
    assert_eq!(kinds(&profile), []);
    add_idle(&mut profile, 3, Cause::Unknown, None);
    let place = |profile: &Profile| found(profile)[1].place.clone().map(|place| place.frame);
    assert_eq!(kinds(&profile), [Kind::GpuIdle, Kind::Synchronization]);
    assert_eq!(place(&profile).as_deref(), Some("cudaStreamSynchronize"));
    add_work(&mut profile, What::Copy(Direction::DtoH, 8), 1_900, 1_000);
    assert_eq!(place(&profile).as_deref(), Some("step (train.py:42)"));
}

/// Check that copies are reported if no kernel runs meanwhile, and if their memory is not pinned.
#[test]
fn copies_that_cost_time_are_reported() {
    let mut profile = healthy();
    add_work(&mut profile, What::Copy(Direction::HtoD, 1 << 20), 100, 3 * SECOND);
    assert_eq!(kinds(&profile), [], "they overlap");
    profile.devices.get_mut(&0).expect("it exists").kernel_busy_ns = 7 * SECOND;
    assert_eq!(kinds(&profile), [Kind::CopiesAlone]);
    let weight = GpuWeight { count: 100, ns: 3 * SECOND, max_ns: 1, bytes: 9 << 30, microjoules: 0 };
    profile.pageable.insert((IMAGE, Some(StackId(2)), Direction::HtoD), weight);
    assert_eq!(kinds(&profile), [Kind::CopiesAlone, Kind::PageableCopies]);
    let title = "100 copies from pageable memory move 9.00 GiB at 3.00 GiB/s, most at load (data.py:88)";
    assert_eq!(found(&profile)[1].title, title);
}

/// Check that the line that holds most of the peak is named, with its share of the memory in use; not for a small peak.
#[test]
fn memory_peaks_at_a_line() {
    let mut profile = healthy();
    let held = |scale: u64| {
        let amount = |part: u64| Amount { bytes: part * scale, count: 2 };
        let holders = vec![
            (Use::Cached, StackId(2), amount(9)),
            (Use::Tensor, StackId(1), amount(6)),
            (Use::Other, StackId(2), amount(2)),
        ];
        let peak = Moment { time: 3 * SECOND, bytes: [6 * scale, 9 * scale, 2 * scale], holders };
        DeviceMemory { peak, ..DeviceMemory::default() }
    };
    profile.memory.devices.insert((IMAGE, 0), held(100 << 20));
    let all = found(&profile);
    let finding = all.iter().find(|finding| finding.kind == Kind::MemoryPeak).expect("a finding");
    assert_eq!(finding.title, "memory of GPU 0 peaks at 800 MiB after 3.00 s: 75 % allocated by step (train.py:42)");
    assert_eq!(finding.place.as_ref().map(|place| place.frame.as_str()), Some("step (train.py:42)"));
    profile.memory.devices.insert((IMAGE, 0), held(1 << 20));
    assert!(found(&profile).iter().all(|finding| finding.kind != Kind::MemoryPeak));
}
