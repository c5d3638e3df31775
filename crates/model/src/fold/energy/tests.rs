//! Tests of the division of energy among kernels.

use proptest::prelude::*;

use super::*;
use crate::{
    event::{
        Activity, Device, DeviceIdentity, Event, KernelName, Launch, LaunchKind, ProcessId, SessionId, StackId, Work,
    },
    fold::Fold,
    profile::{Profile, What},
};

const GPU: Uuid = Uuid(7);
const MS: u64 = 1_000_000;

fn key(kernel: u32) -> GpuKey {
    let (process, stack) = (ProcessId(1), Some(StackId(2)));
    GpuKey { process, stack, capture: None, what: What::Kernel(kernel), device: 0, stream: 7, range: 0 }
}

fn reading(time: u64, millijoules: u64) -> Event {
    Event::Energy(Energy { gpu: GPU, time, millijoules })
}

/// Returns the events of one kernel: its launch, and its run.
fn ran(correlation: u32, name: u32, start: u64, end: u64) -> [Event; 2] {
    let session = SessionId(0);
    let launch = Launch {
        session,
        correlation,
        kind: LaunchKind::Kernel,
        process: ProcessId(1),
        time: start,
        stack: StackId(u64::from(name) + 1),
        ..Launch::default()
    };
    let work = Work::Kernel { name, grid: [1; 3], block: [32, 1, 1], registers: 8, shared_memory: 0 };
    [
        Event::Launch(launch),
        Event::Activity(Activity { session, correlation, stream: 7, start, end, work, ..Activity::default() }),
    ]
}

fn device(index: u32, uuid: u128, gpu: Uuid) -> Event {
    let identity = DeviceIdentity { uuid: Uuid(uuid), gpu, ..DeviceIdentity::default() };
    Event::Device(Device { session: SessionId(0), index, name: "H200".into(), identity })
}

fn profile(events: impl IntoIterator<Item = Event>) -> Profile {
    let mut fold = Fold::new();
    fold.push(&device(0, GPU.0, GPU));
    for (id, name) in [(1, "a"), (2, "b")] {
        fold.push(&Event::KernelName(KernelName { session: SessionId(0), id, name: name.into() }));
    }
    events.into_iter().for_each(|event| fold.push(&event));
    fold.finish()
}

/// Returns the microjoules of each kernel.
fn of_kernels(profile: &Profile) -> BTreeMap<&str, u64> {
    let mut sums = BTreeMap::new();
    for (key, weight) in &profile.gpu {
        let kernel = key.what.kernel().expect("a kernel") as usize;
        *sums.entry(&*profile.kernel_names[kernel].text).or_default() += weight.microjoules;
    }
    sums
}

// readings  0         100        200        300 ms
//           |  1000 mJ |  2000 mJ |  500 mJ  |
// a            =================                     20 to 180
// b                      ====                        120 to 160
// busy         ##################                    80 of the first 100, 80 of the second
/// Check that energy follows the time of kernels in each interval, that concurrent kernels share it, and that the rest is
/// idle, whether kernels arrive before or after the readings.
#[test]
fn energy_follows_time() {
    let readings = [reading(0, 5_000), reading(100 * MS, 6_000), reading(200 * MS, 8_000), reading(300 * MS, 8_500)];
    let kernels = || [ran(1, 1, 20 * MS, 180 * MS), ran(2, 2, 120 * MS, 160 * MS)].concat();
    let [first, rest @ ..] = readings.clone();
    let late = profile(readings.into_iter().chain(kernels()));
    let early = profile([first].into_iter().chain(kernels()).chain(rest));
    for profile in [late, early] {
        let first_a = 800_000;
        // 80 and 40 ms of kernels share 80 % of 2 J.
        let (second_a, second_b) = (1_066_666, 533_334);
        assert_eq!(of_kernels(&profile), [("a", first_a + second_a), ("b", second_b)].into());
        let [gpu] = &profile.energy[..] else { panic!("{:?}", profile.energy) };
        assert_eq!((gpu.label.as_str(), gpu.total_uj), ("0", 3_500_000));
        assert_eq!((gpu.kernels_uj, gpu.idle_uj), (2_400_000, 1_100_000));
        assert_eq!((gpu.ns, gpu.busy_ns, gpu.readings, gpu.changes), (300 * MS, 160 * MS, 4, 3));
        assert_eq!((gpu.shortest_change_ns, gpu.smallest_change_uj), (100 * MS, 500_000));
        assert_eq!((gpu.outside_ns, gpu.late_ns, gpu.resets), (0, 0, 0));
        let ledger = profile.ledger.energy.expect("energy was recorded");
        assert_eq!((ledger.total_uj, ledger.kernels_uj, ledger.idle_uj), (3_500_000, 2_400_000, 1_100_000));
    }
}

/// Check that a reading that shows no change joins the next interval, that a reset is counted, and that kernels outside the
/// readings get nothing.
#[test]
fn counters_step_and_reset() {
    let readings = [(100, 50), (200, 50), (300, 90), (400, 10), (500, 30), (450, 99)];
    let events = readings.map(|(time, millijoules)| reading(time * MS, millijoules));
    let kernels = [ran(1, 1, 50 * MS, 110 * MS), ran(2, 2, 490 * MS, 520 * MS)].concat();
    let profile = profile(events.into_iter().chain(kernels));
    // a: 10 of the 200 ms in which 40 mJ were used. b: 10 of the 100 ms in which 20 mJ were used.
    assert_eq!(of_kernels(&profile), [("a", 2_000), ("b", 2_000)].into());
    let gpu = &profile.energy[0];
    assert_eq!((gpu.total_uj, gpu.kernels_uj, gpu.idle_uj), (60_000, 4_000, 56_000));
    assert_eq!((gpu.readings, gpu.changes, gpu.resets, gpu.outside_ns), (5, 3, 1, 70 * MS));
}

/// Check that instances of a partitioned GPU share the energy of their GPU, and that GPUs without work are left out.
#[test]
fn instances_share_the_energy_of_their_gpu() {
    let mut on_second = ran(2, 2, MS, 101 * MS);
    let Event::Activity(activity) = &mut on_second[1] else { panic!("an activity") };
    activity.device = 1;
    let other = |time, millijoules| Event::Energy(Energy { gpu: Uuid(99), time, millijoules });
    let instances = [device(0, 71, GPU), device(1, 72, GPU)];
    let readings = [reading(MS, 0), other(MS, 0), reading(101 * MS, 10), other(101 * MS, 10)];
    let mut fold = Fold::new();
    let events = instances.into_iter().chain(readings).chain(ran(1, 1, MS, 101 * MS)).chain(on_second);
    events.for_each(|event| fold.push(&event));
    let profile = fold.finish();
    assert_eq!(profile.energy.len(), 1);
    assert_eq!((profile.energy[0].kernels_uj, profile.energy[0].idle_uj), (10_000, 0));
    assert!(profile.gpu.values().all(|weight| weight.microjoules == 5_000), "{:?}", profile.gpu);
}

/// Check that kernels in intervals that were closed are counted, and that memory is bounded.
#[test]
fn late_kernels_are_counted() {
    let mut meter = Meter::default();
    for time in 0..=MAX_OPEN as u64 + 10 {
        meter.read(time * MS, time);
    }
    assert_eq!(meter.open.len(), MAX_OPEN);
    meter.add(0, 12 * MS, key(1));
    assert_eq!(meter.energy.late_ns, 10 * MS);
    for _ in 0..MAX_PARTS + 10 {
        meter.add(20 * MS, 21 * MS, key(1));
    }
    assert!(meter.parts <= MAX_PARTS);
    for _ in 0..MAX_AHEAD + 10 {
        meter.add(u64::MAX - 5, u64::MAX, key(1));
    }
    assert_eq!(meter.ahead.len(), MAX_AHEAD);
    let (sums, energy) = meter.finish();
    assert_eq!((energy.total_uj, sums[&key(1)]), ((MAX_OPEN as u64 + 10) * 1000, energy.kernels_uj));
    assert_eq!(energy.kernels_uj + energy.idle_uj, energy.total_uj);
}

proptest! {
    /// Check that the parts always add up to the difference of the counter, and that no time of a kernel gets lost: it has
    /// energy, or is counted as outside or late.
    #[test]
    fn parts_add_up(
        steps in proptest::collection::vec((1u64..1000, 0u64..100_000), 0..50),
        kernels in proptest::collection::vec((0u64..30_000, 0u64..3_000, 0u32..9, 0usize..50), 0..200),
    ) {
        let mut meter = Meter::default();
        let (mut time, mut millijoules) = (1_000, 77);
        meter.read(time, millijoules);
        for (at, (pause, more)) in steps.iter().enumerate() {
            for &(start, length, kernel, _) in kernels.iter().filter(|kernel| kernel.3 == at) {
                meter.add(start, start + length, key(kernel));
            }
            (time, millijoules) = (time + pause, millijoules + more);
            meter.read(time, millijoules);
        }
        let (sums, energy) = meter.finish();
        prop_assert_eq!(energy.total_uj, (millijoules - 77) * 1000);
        prop_assert_eq!(energy.kernels_uj + energy.idle_uj, energy.total_uj);
        prop_assert_eq!(sums.values().sum::<u64>(), energy.kernels_uj);
    }
}
