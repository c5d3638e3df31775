//! What is pushed: the stacks and sums are those of the other formats, whoever decodes them.

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    process::Command,
};

use analysis::{
    View,
    flame_tree::{Flame, MemoryView},
    weighted::series::{AllSeries, Type},
};
use export::{
    Format,
    profiles::{Batch, Source, otlp, pyroscope},
};
use fixtures::fold;
use model::{
    event::{Event, Rank, SessionId},
    memory::{Amount, DeviceMemory, Moment, Use},
    profile::Profile,
};
use support::{pprof::Pprof, proto::Message};

/// Amounts by type, labels and path, outermost first.
type Sums = BTreeMap<(String, BTreeMap<String, String>, Vec<String>), u64>;

/// The example recording, in which one of the two processes has a rank and communicates.
fn events() -> Vec<Event> {
    let mut events = fixtures::events();
    let (session, variable) = (SessionId(1), "RANK".to_owned());
    let end = events.len() - 1;
    events.insert(end, Event::Rank(Rank { session, rank: Some(3), local: None, variable, mps: false }));
    events
}

fn series(profile: &Profile, events: &[Event]) -> AllSeries {
    AllSeries::of(profile, View::default(), Box::new(events.iter().cloned()))
}

fn common() -> BTreeMap<String, String> {
    let labels = [("service.name", "serve"), ("host.name", "gpu-box"), ("k8s.pod.uid", "1-2")];
    labels.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Reads a request as the schema of OTLP says.
fn of_otlp(request: &[u8]) -> Sums {
    let request = Message::read(request);
    let dictionary = request.message(2).expect("a dictionary");
    let strings = dictionary.texts(5);
    let text = |index: Option<u64>| strings[index.unwrap_or(0) as usize].to_owned();
    let (functions, locations) = (dictionary.messages(3), dictionary.messages(2));
    let (stacks, mappings) = (dictionary.messages(7), dictionary.messages(1));
    let attributes = dictionary.messages(6);
    for table in [&functions, &locations, &stacks, &mappings, &attributes, &dictionary.messages(4)] {
        assert!(table[0].0.is_empty(), "index 0 means that there is none");
    }
    assert_eq!(strings[0], "");
    for mapping in &mappings {
        assert!(mapping.numbers(5).iter().all(|attribute| (1..attributes.len() as u64).contains(attribute)));
    }
    let name = |location: &u64| {
        let location = &locations[*location as usize];
        assert!((location.number(1).unwrap_or(0) as usize) < mappings.len());
        text(functions[location.message(3).expect("a line").number(1).expect("a function") as usize].number(1))
    };
    let mut sums = Sums::new();
    for resource in request.messages(1) {
        let attribute = |a: &Message<'_>| {
            let value = a.message(2).expect("a value").text(1).expect("a text").to_owned();
            (a.text(1).expect("a key").to_owned(), value)
        };
        let labels: BTreeMap<String, String> =
            resource.message(1).expect("a resource").messages(1).iter().map(attribute).collect();
        let scope = resource.message(2).expect("a scope");
        assert_eq!(scope.message(1).expect("its name").text(1), Some("warpscope"));
        for profile in scope.messages(2) {
            let kind = text(profile.message(1).expect("a type").number(1));
            assert_eq!(profile.message(5), profile.message(1), "Pyroscope uses the type of the period");
            assert!(profile.number(6) > Some(0) && profile.number(3) > Some(0));
            for sample in profile.messages(2) {
                let path = stacks[sample.number(1).expect("a stack") as usize].numbers(1);
                let path: Vec<String> = path.iter().rev().map(name).collect();
                *sums.entry((kind.clone(), labels.clone(), path)).or_default() += sample.numbers(4)[0];
            }
        }
    }
    sums
}

/// Reads a request as the schemas of Pyroscope and pprof say.
fn of_pyroscope(request: &[u8]) -> Sums {
    let mut sums = Sums::new();
    for series in Message::read(request).messages(1) {
        let label = |label: &Message<'_>| {
            (label.text(1).expect("a name").to_owned(), label.text(2).expect("a value").to_owned())
        };
        let mut labels: BTreeMap<String, String> = series.messages(1).iter().map(label).collect();
        labels.remove("__name__").expect("a name");
        let sample = series.message(2).expect("a profile");
        assert_eq!(sample.text(2).expect("an id").len(), 36);
        let pprof = Pprof::read(sample.bytes(1).expect("a profile"));
        assert_eq!(pprof.types.len(), 1);
        for (path, sample_labels, amounts) in pprof.samples {
            assert!(sample_labels.is_empty());
            *sums.entry((pprof.types[0].0.clone(), labels.clone(), path)).or_default() += amounts[0];
        }
    }
    sums
}

/// Returns the sums without labels and without frames that are labels.
fn plain(sums: &Sums) -> BTreeMap<(String, Vec<String>), u64> {
    let mut plain = BTreeMap::new();
    for ((kind, _, path), amount) in sums {
        *plain.entry((kind.clone(), path.clone())).or_default() += amount;
    }
    plain
}

/// Check that OTLP and Pyroscope get the same stacks and sums, that those of each type are those of the pprof file, and that idle
/// time and memory are those of their flame graphs.
#[test]
fn sums_are_those_of_the_other_formats() {
    let events = events();
    let profile = fold(&events);
    let (all, labels) = (series(&profile, &events), common());
    let source = Source { profile: &profile, all: &all, labels: &labels };
    let batches = Batch::all(&source);
    assert_eq!(batches.len(), 1);
    let otlp = of_otlp(&otlp::encode(&source, &batches[0]));
    let pyroscope = of_pyroscope(&pyroscope::encode(&source, &batches[0]).expect("encoded"));
    assert_eq!(plain(&otlp), plain(&pyroscope));

    let pprof = Pprof::read(&support::bytes(Format::Pprof, &events, View::default()));
    let mut expected: BTreeMap<(String, Vec<String>), u64> = BTreeMap::new();
    for (kind, name) in [("gpu", "gpu_time"), ("launches", "gpu_launches"), ("cpu", "cpu")] {
        let at = pprof.types.iter().position(|(name, _)| name == kind).expect(kind);
        for (path, _, amounts) in pprof.samples.iter().filter(|(_, _, amounts)| amounts[at] > 0) {
            let path = path.iter().filter(|frame| !frame.starts_with("[rank "));
            let path = path.map(|frame| frame.replace("[GPU0_", "[GPU_").replace("[GPU1_", "[GPU_")).collect();
            *expected.entry((name.to_owned(), path)).or_default() += amounts[at];
        }
    }
    let same = ["gpu_time", "gpu_launches", "cpu"];
    let pushed: BTreeMap<_, _> =
        plain(&otlp).into_iter().filter(|((kind, _), _)| same.contains(&kind.as_str())).collect();
    assert_eq!(pushed, expected);

    let total = |kind: Type| all.series.iter().filter(|series| series.kind == kind).map(|series| series.total()).sum();
    let flame = |flame: Flame| -> u64 { flame.lines.iter().map(|line| line.weight.amount).sum() };
    let idle: u64 = total(Type::GpuIdle);
    assert!(idle > 0);
    assert_eq!(idle, flame(Flame::of_idle(&profile)));
    assert_eq!(total(Type::GpuMemory), flame(Flame::of_memory(&profile, MemoryView::Peak)));
}

/// Check that the rank and the GPU are labels, that nothing has a pid, and that Pyroscope gets the names that Grafana shows.
#[test]
fn series_have_stable_labels() {
    let events = events();
    let profile = fold(&events);
    let (all, labels) = (series(&profile, &events), common());
    let source = Source { profile: &profile, all: &all, labels: &labels };
    let batch = &Batch::all(&source)[0];
    let pushed = of_pyroscope(&pyroscope::encode(&source, batch).expect("encoded"));
    let names: BTreeSet<&str> = pushed.keys().flat_map(|(_, labels, _)| labels.keys().map(String::as_str)).collect();
    assert_eq!(names, BTreeSet::from(["service_name", "host", "k8s_pod_uid", "rank", "device"]));
    let of_gpu = pushed.keys().filter(|(kind, ..)| kind == "gpu_time").map(|(_, labels, _)| labels);
    assert!(of_gpu.clone().all(|labels| labels["device"].starts_with("GPU-")), "{pushed:?}");
    let ranks: BTreeSet<_> = of_gpu.map(|labels| labels.get("rank").cloned()).collect();
    assert_eq!(ranks, BTreeSet::from([None, Some("3".to_owned())]));
    let pids: Vec<String> = profile.processes.values().map(|info| info.pid.to_string()).collect();
    for (_, labels, path) in pushed.keys() {
        assert!(labels.values().all(|value| !pids.contains(value)));
        assert!(
            path.iter().all(|frame| !frame.starts_with("[rank ") && pids.iter().all(|pid| !frame.contains(pid))),
            "{path:?}"
        );
    }
}

/// Check that a batch that is split again and again still has every stack once, down to one stack, and that ids differ.
#[test]
fn split_batches_lose_nothing() {
    let events = events();
    let profile = fold(&events);
    let (all, labels) = (series(&profile, &events), common());
    let source = Source { profile: &profile, all: &all, labels: &labels };
    let whole = Batch::all(&source).remove(0);
    let mut expected = of_otlp(&otlp::encode(&source, &whole));
    let (mut pending, mut ids) = (vec![whole], BTreeSet::new());
    while let Some(batch) = pending.pop() {
        match batch.split() {
            Some((first, second)) => {
                assert_eq!(first.stacks() + second.stacks(), batch.stacks());
                assert!(first.stacks().abs_diff(second.stacks()) <= 1);
                pending.extend([first, second]);
            }
            None => {
                let request = otlp::encode(&source, &batch);
                for (key, amount) in of_otlp(&request) {
                    assert_eq!(expected.remove(&key), Some(amount), "{key:?}");
                }
                let message = Message::read(&request);
                let scope = message.message(1).and_then(|resource| resource.message(2)).expect("a scope");
                let id = scope.message(2).expect("a profile").bytes(7).expect("an id").to_vec();
                assert!(id.len() == 16 && ids.insert(id));
            }
        }
    }
    assert!(expected.is_empty(), "{expected:?}");
}

/// Check that large recordings are divided so that no batch has more stacks or bytes than receivers accept, and that nothing is
/// lost by that.
#[test]
fn batches_are_bounded() {
    let events = events();
    let profile = fold(&events);
    let mut all = series(&profile, &events);
    let frame = all.frames[0].clone();
    let first = all.frames.len() as u32;
    // 30,000 stacks, and 6,000 functions with names of a kilobyte.
    all.frames.extend(
        (0..6_000)
            .map(|i| analysis::weighted::Frame { name: format!("{i}{}", "x".repeat(1_000)).into(), ..frame.clone() }),
    );
    let stacks = (0..30_000_u32).map(|i| (vec![first + i % 6_000, first + i / 6_000, first + i % 7], u64::from(i) + 1));
    all.series.truncate(1);
    all.series[0].stacks = stacks.collect();
    let labels = common();
    let source = Source { profile: &profile, all: &all, labels: &labels };
    let batches = Batch::all(&source);
    assert_eq!(batches.iter().map(Batch::stacks).sum::<usize>(), 30_000);
    let mut total = 0;
    for batch in &batches {
        let request = otlp::encode(&source, batch);
        assert!(batch.stacks() <= 8_000 && request.len() <= 1 << 20, "{} {}", batch.stacks(), request.len());
        total += of_otlp(&request).values().sum::<u64>();
    }
    assert_eq!(total, all.series[0].total());
}

/// Check that opentelemetry-proto, where it is installed (`pip install opentelemetry-proto`), reads the same stacks and sums, and
/// that no field is unknown to it.
#[test]
fn the_official_schema_reads_the_request() {
    const SCRIPT: &str = r"
import json, sys
try:
    from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest
    from google.protobuf.unknown_fields import UnknownFieldSet
except ImportError:
    sys.exit(77)
request = ExportProfilesServiceRequest.FromString(open(sys.argv[1], 'rb').read())
def known(message):
    assert len(UnknownFieldSet(message)) == 0, message
    for field, value in message.ListFields():
        if field.message_type:
            for part in value if field.is_repeated else [value]:
                known(part)
known(request)
tables, rows = request.dictionary, []
for resource in request.resource_profiles:
    labels = {a.key: a.value.string_value for a in resource.resource.attributes}
    for profile in (p for scope in resource.scope_profiles for p in scope.profiles):
        for sample in profile.samples:
            stack = tables.stack_table[sample.stack_index]
            lines = [tables.location_table[at].lines[0] for at in reversed(stack.location_indices)]
            path = [tables.string_table[tables.function_table[line.function_index].name_strindex] for line in lines]
            rows.append([tables.string_table[profile.sample_type.type_strindex], labels, path, sum(sample.values)])
print(json.dumps(rows))
";
    let events = events();
    let profile = fold(&events);
    let (all, labels) = (series(&profile, &events), common());
    let source = Source { profile: &profile, all: &all, labels: &labels };
    let request = otlp::encode(&source, &Batch::all(&source)[0]);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("request");
    fs::write(&file, &request).expect("written");
    let python = std::env::var("WARPSCOPE_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let run: io::Result<_> = Command::new(python).args(["-c", SCRIPT]).arg(&file).output();
    let run = match run {
        Ok(run) if run.status.code() != Some(77) => run,
        _ => return support::coverage::not_covered("OTLP's schema: `pip install opentelemetry-proto`"),
    };
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    type Row = (String, BTreeMap<String, String>, Vec<String>, u64);
    let rows: Vec<Row> = serde_json::from_slice(&run.stdout).expect("rows");
    let read: Sums = rows.into_iter().map(|(kind, labels, path, amount)| ((kind, labels, path), amount)).collect();
    assert_eq!(read, of_otlp(&request));
}

/// Check that communication is the time of NCCL's kernels, and that memory has the GPU that holds it.
#[test]
fn communication_and_memory_have_series() {
    let events = events();
    let mut profile = fold(&events);
    assert!(series(&profile, &events).series.iter().all(|series| series.kind != Type::Communication));
    let (key, _) =
        profile.gpu.iter().find(|(key, _)| key.what.kernel().is_some() && key.stack.is_some()).expect("a kernel");
    let (what, process, stack) = (key.what, key.process, key.stack.expect("a stack"));
    profile.kernel_names[what.kernel().expect("a kernel") as usize].mangled =
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL".into();
    let held = DeviceMemory {
        peak: Moment { time: 1, bytes: [0; 3], holders: vec![(Use::Tensor, stack, Amount { bytes: 4096, count: 2 })] },
        ..DeviceMemory::default()
    };
    profile.memory.devices.insert((process, 0), held);
    let all = series(&profile, &events);
    let of = |kind: Type| all.series.iter().filter(move |series| series.kind == kind);
    let nccl: u64 = profile.gpu.iter().filter(|(key, _)| key.what == what).map(|(_, weight)| weight.ns).sum();
    assert_eq!(of(Type::Communication).map(|series| series.total()).sum::<u64>(), nccl);
    let memory: Vec<_> = of(Type::GpuMemory).map(|series| (series.device.as_deref(), series.total())).collect();
    let session = profile.sessions.iter().find(|(_, info)| info.process == process).expect("a session").0;
    let device = &profile.devices[&profile.device(*session, 0)];
    assert_eq!(memory, [(Some(device.uuid.as_str()), 4096)]);
}
