//! The Perfetto trace: read as trace_processor reads it, and with Perfetto's own schema where that is installed.

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use analysis::View;
use export::Format;
use fixtures::job::{HostClock, Job, Late};
use model::event::{Energy, Event};
use support::{
    perfetto::{Slice, Trace},
    proto::Message,
};

fn trace(events: &[Event]) -> Trace {
    Trace::read(&support::bytes(Format::Perfetto, events, View::default()))
}

/// Check that GPU work is on the tracks of its streams, with its times, and adds up to the profile's time.
#[test]
fn work_is_on_its_stream() {
    let events = fixtures::events();
    let (trace, profile) = (trace(&events), fixtures::fold(&events));
    let streams: Vec<_> = trace.tracks.values().filter(|(name, _)| name.starts_with("stream ")).collect();
    let parents: BTreeSet<&str> = streams.iter().map(|(_, parent)| trace.tracks[parent].0.as_str()).collect();
    assert_eq!(parents.into_iter().collect::<Vec<_>>(), ["GPU 0: NVIDIA H200", "GPU 1: NVIDIA H200"]);
    let work: Vec<_> =
        trace.slices.iter().filter(|slice| trace.tracks[&slice.track].0.starts_with("stream ")).collect();
    let gpu: u64 = profile.gpu.values().map(|weight| weight.ns).sum();
    assert_eq!(work.iter().map(|slice| slice.end.expect("an end") - slice.start).sum::<u64>(), gpu);
    let ledger = &profile.ledger;
    assert_eq!(work.len() as u64, ledger.kernels + ledger.copies + ledger.memsets - ledger.zero_time);
    let worker = trace.on("stream 7 (tok_worker 4712)");
    assert_eq!((worker[0].start, worker[0].end), (70_015_000, Some(70_515_000)));
    assert_eq!(worker[0].name, "matmul_kernel(float*, float const*, float const*, int, int)");
    let shape = "grid 128x1x1, block 256x1x1, 40 registers, 49152 bytes of shared memory";
    assert_eq!(worker[0].arguments["shape"], shape);
    let copy = work.iter().find(|slice| slice.name == "Memcpy HtoD").expect("a copy");
    assert_eq!(copy.arguments["bytes"], (100 << 20).to_string());
}

/// Check that each launch is on its thread with its stack, and that an arrow leads from it to its work.
#[test]
fn arrows_lead_from_launches_to_work() {
    let events = fixtures::events();
    let (trace, profile) = (trace(&events), fixtures::fold(&events));
    let launches: Vec<_> = trace.slices.iter().filter(|slice| slice.name.starts_with("launch ")).collect();
    assert_eq!(launches.len() as u64, profile.ledger.launches);
    let from: BTreeMap<u64, &Slice> = launches.iter().map(|slice| (slice.flows[0], *slice)).collect();
    assert_eq!(from.len(), launches.len(), "each has its own");
    let mut arrows = 0;
    for slice in trace.slices.iter().filter(|slice| !slice.name.starts_with("launch ")) {
        for flow in &slice.flows {
            let launch = from[flow];
            assert!(launch.start <= slice.start, "{launch:?} {slice:?}");
            assert!(launch.stack.last().is_some_and(|name| name.starts_with("cu")), "{launch:?}");
            arrows += 1;
        }
    }
    assert_eq!(arrows, profile.ledger.activities_matched - profile.ledger.zero_time);
    assert_eq!(trace.on("tok worker 4712/4712").iter().filter(|slice| slice.name == "launch kernel").count(), 5);
    // A node of a graph has the stack that created it.
    let node = trace.slices.iter().find(|slice| slice.start == 60_050_000).expect("the node");
    assert_eq!(node.stack.last().map(String::as_str), Some("cudaLaunchKernel"));
}

/// Check that arrows connect the kernels of all members of an operation, and no others.
#[test]
fn arrows_connect_ranks() {
    let job = Job { hosts: vec![HostClock::default()], steps: 2, late: Late::Nobody, late_ns: 0, seed: 1 };
    let (events, truth) = job.events();
    let trace = trace(&events[0]);
    let is_launch = |slice: &&Slice| slice.name.starts_with("launch ");
    let launches: BTreeSet<u64> = trace.slices.iter().filter(is_launch).flat_map(|slice| slice.flows.clone()).collect();
    let mut members: BTreeMap<u64, Vec<&Slice>> = BTreeMap::new();
    for slice in &trace.slices {
        for flow in slice.flows.iter().filter(|flow| !launches.contains(flow)) {
            assert!(slice.name.starts_with("nccl"), "{slice:?}");
            members.entry(*flow).or_default().push(slice);
        }
    }
    assert_eq!(members.len(), truth.len());
    for slices in members.values() {
        let tracks: BTreeSet<u64> = slices.iter().map(|slice| slice.track).collect();
        let ends: BTreeSet<Option<u64>> = slices.iter().map(|slice| slice.end).collect();
        assert_eq!((slices.len(), tracks.len(), ends.len()), (8, 8, 1), "each rank has one, and all end together");
    }
}

/// Check CPU samples, waits, counters and the ledger.
#[test]
fn samples_waits_counters_and_ledger() {
    let events = fixtures::events();
    let (trace, profile) = (trace(&events), fixtures::fold(&events));
    let cpu: u64 = profile.cpu.values().map(|weight| weight.ns).sum();
    assert_eq!(trace.samples.iter().map(|(.., weight, _)| *weight).sum::<u64>(), cpu);
    let (time, pid, tid, _, stack) = &trace.samples[1];
    assert_eq!((*time, *pid, *tid), (11_000_000, 4711, 4720));
    assert_eq!(stack.last().map(String::as_str), Some("vfs_read_[k]"));
    let waits = trace.on("GPU waits");
    assert_eq!(
        (waits[0].name.as_str(), waits[0].start, waits[0].end),
        ("stream synchronize", 63_000_000, Some(64_000_000))
    );
    let about = trace.on("warpscope");
    let ledger: serde_json::Value = serde_json::from_str(&about[0].arguments["ledger"]).expect("JSON");
    assert_eq!(ledger, serde_json::to_value(&profile.ledger).expect("JSON"));
    let names: BTreeSet<&str> = trace.counters.keys().map(|track| trace.tracks[track].0.as_str()).collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["operations in progress, average", "threads on a CPU, average"]);
}

/// Check that a GPU has the power between the readings of its energy counter that differ, in watts.
#[test]
fn power_is_on_its_gpu() {
    let mut events = fixtures::events();
    let start = fixtures::fold(&events).start.expect("a start").time;
    let gpu = events.iter().find_map(|event| match event {
        Event::Device(device) if device.identity.machine_index == Some(0) => Some(device.identity.gpu),
        _ => None,
    });
    let gpu = gpu.expect("GPU 0");
    let readings = [(0, 1_000), (40, 9_000), (80, 9_000), (120, 17_000)].map(|(milliseconds, millijoules)| {
        Event::Energy(Energy { gpu, time: start + milliseconds * 1_000_000, millijoules })
    });
    events.splice(1..1, readings);
    let trace = trace(&events);
    let power: Vec<_> = trace.counters.iter().filter(|(track, _)| trace.tracks[track].0 == "power (NVML)").collect();
    let [(track, watts)] = power[..] else { panic!("{power:?}") };
    assert_eq!(watts, &[200.0, 100.0]);
    assert_eq!(trace.tracks[&trace.tracks[track].1].0, "GPU 0: NVIDIA H200");
}

/// Check that calls of a trace have their true lengths and arguments.
#[test]
fn calls_have_their_true_lengths() {
    let events = fixtures::trace::events();
    let bytes = support::bytes(Format::Perfetto, &events, View::default());
    // A call that never returns has no end, so the slices are not checked for that here.
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("cudaLaunchKernel") && text.contains("libcudart.so.12"));
    let open = events.iter().filter(|event| matches!(event, Event::Call(call) if call.end == 0)).count();
    let packets = Message::read(&bytes);
    let kinds = packets.messages(1).iter().filter_map(|packet| packet.message(11)?.number(9)).collect::<Vec<_>>();
    let count = |kind| kinds.iter().filter(|known| **known == kind).count();
    assert_eq!(count(1), count(2) + open);
}

/// Check that a slice takes at most 50 bytes, with its launch, arrow and arguments.
#[test]
fn slices_take_few_bytes() {
    let mut events = fixtures::events();
    let end = events.pop().expect("an end");
    let count = 20_000;
    for at in 0..count {
        let (time, id) = (100 * fixtures::MS + u64::from(at) * 10 * fixtures::US, 1_000 + at);
        events.push(fixtures::launch(0, id, model::event::LaunchKind::Kernel, time, 1));
        events.push(fixtures::activity(0, id, 0, 7, time + 5_000, 4_000, fixtures::kernel(1)));
    }
    events.push(end);
    let whole = support::bytes(Format::Perfetto, &events, View::default()).len();
    let rest = support::bytes(Format::Perfetto, &fixtures::events(), View::default()).len();
    let each = (whole - rest) as f64 / f64::from(2 * count);
    assert!(each <= 50.0, "{each} bytes");
}

/// Check that Perfetto's schema, where it is installed (`pip install perfetto`), reads the file without unknown fields.
#[test]
fn the_official_schema_reads_the_trace() {
    const SCRIPT: &str = r"
import sys
try:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema
    from google.protobuf.unknown_fields import UnknownFieldSet
except ImportError:
    sys.exit(77)
trace = schema.Trace()
trace.ParseFromString(open(sys.argv[1], 'rb').read())
def known(message):
    assert len(UnknownFieldSet(message)) == 0, message
    for field, value in message.ListFields():
        if field.message_type:
            for part in value if field.is_repeated else [value]:
                known(part)
known(trace)
begins = sum(p.track_event.type == schema.TrackEvent.TYPE_SLICE_BEGIN for p in trace.packet)
samples = sum(p.perf_sample.timebase_count for p in trace.packet)
print(begins, samples)
";
    let events = fixtures::events();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("run.pftrace");
    fs::write(&file, support::bytes(Format::Perfetto, &events, View::default())).expect("written");
    let python = std::env::var("WARPSCOPE_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let run = Command::new(python).args(["-c", SCRIPT]).arg(&file).output();
    let run = match run {
        Ok(run) if run.status.code() != Some(77) => run,
        _ => return support::coverage::not_covered("Perfetto's schema: `pip install perfetto`"),
    };
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let profile = fixtures::fold(&events);
    let trace = trace(&events);
    let begins = trace.slices.iter().filter(|slice| slice.end.is_some()).count();
    let samples: u64 = profile.cpu.values().map(|weight| weight.ns).sum();
    assert_eq!(String::from_utf8_lossy(&run.stdout).trim(), format!("{begins} {samples}"));
}

/// Check that the compressed files contain the others.
#[test]
fn compressed_files_contain_the_others() {
    let events = fixtures::events();
    for (plain, compressed) in [(Format::Perfetto, Format::PerfettoGz), (Format::Chrome, Format::ChromeGz)] {
        let expected = support::bytes(plain, &events, View::default());
        assert_eq!(support::gunzip(&support::bytes(compressed, &events, View::default())), expected);
    }
}
