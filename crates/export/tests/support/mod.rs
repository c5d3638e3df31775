//! A small hand-made recording: an inference server with two processes on two GPUs, and every error case.
#![allow(dead_code, reason = "each test file uses its part of it")]

pub mod counted;
pub mod html;
pub mod parquet;
pub mod perfetto;
pub mod pprof;
pub mod proto;
pub mod sql;
pub mod trace;

use std::{fs, io, path::Path};

use analysis::{Events, View};
use export::Format;
use model::{event::*, fold::Fold, profile::Profile};

/// The recording's start, CLOCK_MONOTONIC.
pub const START: u64 = 5_000_000_000;
pub const MS: u64 = 1_000_000;
pub const US: u64 = 1_000;

const PYTHON: ProcessId = ProcessId(1);
const WORKER: ProcessId = ProcessId(2);

/// Returns the events of the recording, in order of arrival.
pub fn events() -> Vec<Event> {
    let mut events = vec![
        Event::Start(Start {
            time: START,
            wall_clock: 1_760_000_000_000_000_000,
            version: "0.1.0".into(),
            host: "gpu-box".into(),
            command: ["python3", "serve.py", "--model", "qwen3<0.6B>"].map(Into::into).into(),
            mode: Mode::Merged,
            frequency: 99,
        }),
        process(PYTHON, 0, 4711, "python3"),
        process(WORKER, 1, 4712, "tok worker"),
        Event::Thread(Thread { process: PYTHON, tid: 4711, comm: "python3".into() }),
        Event::Thread(Thread { process: PYTHON, tid: 4720, comm: "pt_main thread".into() }),
        Event::Session(Session { id: SessionId(0), process: PYTHON, cupti: 26, driver: 13000 }),
        Event::Session(Session { id: SessionId(1), process: WORKER, cupti: 26, driver: 13000 }),
        device(0, 0, 0),
        device(0, 1, 1),
        device(1, 0, 0),
    ];
    events.extend(names());
    events.extend(stacks());
    events.extend(cpu());
    events.extend(gpu());
    events.extend([
        Event::Loss(Loss { cause: LossCause::RingSamples, count: 3 }),
        Event::Note(Note { text: "no kernel symbols: run as root to name kernel frames".into() }),
        Event::Totals(Totals {
            session: SessionId(0),
            launches: 42,
            kernels: 39,
            kernel_ns: 0,
            copies: 2,
            memsets: 1,
            syncs: 1,
            dropped_by_cupti: 7,
            dropped_queue_full: 0,
            invalid: 0,
            nameless: 0,
            buffers_refused: 0,
            dropped_launches: 0,
            ended: true,
        }),
        Event::Totals(Totals {
            session: SessionId(1),
            launches: 5,
            kernels: 3,
            kernel_ns: 0,
            copies: 0,
            memsets: 0,
            syncs: 0,
            dropped_by_cupti: 0,
            dropped_queue_full: 0,
            invalid: 0,
            nameless: 0,
            buffers_refused: 0,
            dropped_launches: 0,
            ended: false,
        }),
        Event::Exit(Exit { process: WORKER, time: START + 90 * MS }),
        Event::End(End { time: START + 100 * MS, status: Some(0) }),
    ]);
    events
}

/// A session's own index of one of the machine's GPUs.
fn device(session: u32, index: u32, gpu: u32) -> Event {
    let uuid = Uuid(0x5f3c_2d1e_0b6a_4d2f_9c1b_7a8e_6d5c_0000 + u128::from(gpu));
    Event::Device(Device {
        session: SessionId(session),
        index,
        name: "NVIDIA H200".into(),
        identity: DeviceIdentity {
            uuid,
            gpu: uuid,
            pci: 0x3b00 + u64::from(gpu),
            machine_index: Some(gpu),
            ..DeviceIdentity::default()
        },
    })
}

fn process(id: ProcessId, parent: u32, pid: u32, comm: &str) -> Event {
    Event::Process(Process {
        id,
        parent: ProcessId(parent),
        origin: Origin::default(),
        pid,
        time: START + MS,
        comm: comm.into(),
    })
}

fn names() -> Vec<Event> {
    let name =
        |session, id, name: &str| Event::KernelName(KernelName { session: SessionId(session), id, name: name.into() });
    vec![
        name(0, 1, "matmul_kernel(float*, float const*, float const*, int, int)"),
        name(
            0,
            2,
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int, std::array<char*, 1>)",
        ),
        name(0, 3, "evil;kernel \"quoted\" <b>&amp;\n\u{1b}[31m 5"),
        name(1, 1, "matmul_kernel(float*, float const*, float const*, int, int)"),
    ]
}

/// Stacks by number, outermost first; `k:` is a kernel frame. 1 and 9 have the same names.
const STACKS: [(u64, ProcessId, &[&str]); 9] = [
    (
        1,
        PYTHON,
        &["_start", "main", "generate(Model&)", "forward(Transformer*, int, int)", "matmul", "cudaLaunchKernel"],
    ),
    (
        2,
        PYTHON,
        &["_start", "main", "generate(Model&)", "forward(Transformer*, int, int)", "rmsnorm", "cudaLaunchKernel"],
    ),
    (3, PYTHON, &["_start", "main", "load_weights", "cudaMemcpy"]),
    (4, PYTHON, &["_start", "main", "generate(Model&)", "sample <[u8; 8]>"]),
    (5, PYTHON, &["_start", "main", "load_weights", "read", "k:entry_SYSCALL_64", "k:do_syscall_64", "k:vfs_read"]),
    (6, WORKER, &["_start", "[libtok.so]", "encode"]),
    (7, WORKER, &["_start", "[libtok.so]", "embed", "cuLaunchKernel"]),
    (8, PYTHON, &["_start", "main", "generate(Model&)", "cudaGraphLaunch"]),
    (
        9,
        PYTHON,
        &["_start", "main", "generate(Model&)", "forward(Transformer*, int, int)", "matmul", "cudaLaunchKernel"],
    ),
];

fn stacks() -> Vec<Event> {
    let mut events = Vec::new();
    for (number, process, names) in STACKS {
        let mut frames = Vec::new();
        for (depth, name) in names.iter().enumerate() {
            let address = number * 0x1000 + depth as u64;
            let (frame, image, kind, name) = match name.strip_prefix("k:") {
                Some(name) => (Frame::Kernel(address), ProcessId(0), FrameKind::Kernel, name),
                None => (Frame::User(address), process, FrameKind::Native, *name),
            };
            frames.insert(0, frame);
            let named = NamedFrame { kind, name: name.into(), module: "app".into() };
            events.push(Event::Symbol(Symbol { process: image, frame, since: 0, names: vec![named] }));
        }
        let stack = Stack { id: StackId(number), process, time: START + MS, frames, end: StackEnd::Whole };
        events.push(Event::Stack(stack));
    }
    events
}

fn cpu() -> Vec<Event> {
    let sample = |process, tid, cpu, at, stack| {
        let (time, stack) = (START + at, StackId(stack));
        Event::Sample(Sample { process, tid, cpu, time, stack, weight: 10_101_010 })
    };
    vec![
        sample(PYTHON, 4711, 3, 10 * MS, 4),
        sample(PYTHON, 4720, 5, 11 * MS, 5),
        sample(PYTHON, 4711, 2, 20 * MS, 4),
        sample(WORKER, 4712, 7, 21 * MS, 6),
        // A stack whose frames were lost, of a thread without a name.
        sample(PYTHON, 4799, 0, 30 * MS, 77),
    ]
}

pub fn launch(session: u32, correlation: u32, kind: LaunchKind, at: u64, stack: u64) -> Event {
    let (process, tid) = if session == 0 { (PYTHON, 4720) } else { (WORKER, 4712) };
    let (session, time, stack) = (SessionId(session), START + at, StackId(stack));
    Event::Launch(Launch { session, correlation, kind, process, tid, cpu: 5, time, stack, rate: 0 })
}

fn launch_of(process: ProcessId, tid: u32, correlation: u32, kind: LaunchKind, at: u64, stack: u64) -> Launch {
    Launch {
        session: SessionId(0),
        correlation,
        kind,
        process,
        tid,
        cpu: 5,
        time: START + at,
        stack: StackId(stack),
        rate: 0,
    }
}

pub fn activity(session: u32, correlation: u32, device: u32, stream: u32, at: u64, length: u64, work: Work) -> Event {
    let (start, end) = if at == 0 { (0, 0) } else { (START + at, START + at + length) };
    let (session, context) = (SessionId(session), 1);
    Event::Activity(Activity {
        session,
        correlation,
        device,
        context,
        stream,
        start,
        end,
        graph: 0,
        graph_node: 0,
        work,
    })
}

pub fn kernel(name: u32) -> Work {
    Work::Kernel { name, grid: [128, 1, 1], block: [256, 1, 1], registers: 40, shared_memory: 49_152 }
}

fn gpu() -> Vec<Event> {
    let mut events = Vec::new();
    let copy = |direction, bytes| Work::Copy { direction, bytes, source: 1, destination: 3, peer: None };
    events.push(launch(0, 1, LaunchKind::Copy, 5 * MS, 3));
    events.push(activity(0, 1, 0, 7, 5 * MS + 20 * US, 3 * MS, copy(Direction::HtoD, 100 << 20)));
    events.push(launch(0, 2, LaunchKind::Memset, 9 * MS, 3));
    events.push(activity(0, 2, 0, 7, 9 * MS + 9 * US, 2_500, Work::Memset { bytes: 4096, value: 0, memory: 3 }));
    for step in 0..12_u64 {
        let (at, id) = (20 * MS + step * 2 * MS, 10 + 3 * step as u32);
        // This activity arrives before its launch.
        events.push(activity(0, id + 2, 1, 7, at + 40 * US, 150_333, kernel(1)));
        // Two stacks with the same names alternate. The second launch begins within the displayed length of the first.
        events.push(launch(0, id, LaunchKind::Kernel, at, if step % 2 == 0 { 1 } else { 9 }));
        events.push(launch(0, id + 2, LaunchKind::Kernel, at + 300, 1));
        events.push(launch(0, id + 1, LaunchKind::Kernel, at + 4 * US, 2));
        events.push(activity(0, id, 0, 7, at + 30 * US, 1_400_000 + step, kernel(1)));
        events.push(activity(0, id + 1, 0, 7, at + 1_440 * US, 60_400, kernel(2)));
    }
    // A graph with two nodes: the creation of the first was seen.
    let session = SessionId(0);
    events.push(launch(0, 59, LaunchKind::Kernel, 59 * MS, 1));
    events.push(Event::NodeCreated(NodeCreated { session, node: 9, mark: 59, own: false }));
    events.push(Event::Captured(Captured { session, correlation: 59 }));
    events.push(Event::NodeCopied(NodeCopied { session, node: 1, original: 9, time: START + 59 * MS }));
    // One launch, two kernels that overlap on one stream.
    events.push(launch(0, 60, LaunchKind::Graph, 60 * MS, 8));
    for (at, name) in [(60_050, 1), (60_100, 2)] {
        let mut node = activity(0, 60, 0, 13, at * US, 400 * US, kernel(name));
        if let Event::Activity(activity) = &mut node {
            (activity.graph, activity.graph_node) = (1, u64::from(name));
        }
        events.push(node);
    }
    events.push(launch(0, 61, LaunchKind::Kernel, 62 * MS, 2));
    events.push(activity(0, 61, 0, 7, 62 * MS + 10 * US, 300_700, kernel(3)));
    events.push(launch(0, 62, LaunchKind::Copy, 63 * MS, 3));
    events.push(activity(0, 62, 0, 7, 63 * MS + 10 * US, 44_000, copy(Direction::DtoH, 600_000)));
    let wait = Sync {
        session: SessionId(0),
        correlation: 63,
        kind: 3,
        context: 1,
        stream: 7,
        start: START + 63 * MS,
        end: START + 64 * MS,
    };
    events.push(Event::Sync(wait));
    // The worker: one normal launch, one pending, one failed, one without times, one captured, one activity never
    // launched.
    events.push(launch(1, 1, LaunchKind::Kernel, 70 * MS, 7));
    events.push(activity(1, 1, 0, 7, 70 * MS + 15 * US, 500 * US, kernel(1)));
    events.push(launch(1, 2, LaunchKind::Kernel, 71 * MS, 7));
    events.push(launch(1, 3, LaunchKind::Kernel, 72 * MS, 7));
    events.push(Event::Failed(Failed { session: SessionId(1), correlation: 3, code: 719 }));
    events.push(launch(1, 4, LaunchKind::Kernel, 73 * MS, 7));
    events.push(activity(1, 4, 0, 7, 0, 0, kernel(1)));
    // Reported before its launch.
    events.push(Event::Captured(Captured { session: SessionId(1), correlation: 5 }));
    events.push(launch(1, 5, LaunchKind::Kernel, 74 * MS, 7));
    events.push(activity(1, 99, 0, 7, 80 * MS, 250 * US, kernel(42)));
    events
}

/// Returns the profile of some events.
pub fn fold(events: &[Event]) -> Profile {
    let mut fold = Fold::new();
    events.iter().for_each(|event| fold.push(event));
    fold.finish()
}

/// Returns the recording in a format.
pub fn bytes(format: Format, events: &[Event], view: View) -> Vec<u8> {
    let mut out = Vec::new();
    let mut open = || -> io::Result<Events<'_>> { Ok(Box::new(events.iter().cloned())) };
    export::write(format, &analysis::Flames::new(&fold(events)), view, &mut open, &mut out).expect("export");
    out
}

/// Returns the recording in a format, as text.
pub fn export(format: Format, events: &[Event], view: View) -> String {
    String::from_utf8(bytes(format, events, view)).expect("UTF-8")
}

/// Decompresses gzip.
pub fn gunzip(gz: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(gz), &mut bytes).expect("gzip");
    bytes
}

/// Reports something that this machine cannot test. `./test` prints a summary.
pub fn not_covered(what: &str) {
    match std::env::var_os("WARPSCOPE_NOT_COVERED") {
        None => eprintln!("not covered: {what}"),
        Some(path) => {
            let mut file = fs::OpenOptions::new().append(true).create(true).open(path).expect("the file opens");
            io::Write::write_all(&mut file, format!("{what}\n").as_bytes()).expect("written");
        }
    }
}

/// Compares with a golden file, or rewrites it.
#[track_caller]
pub fn check(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, actual).expect("write the golden file");
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let differs = expected.lines().zip(actual.lines()).position(|(a, b)| a != b);
    let line = differs.unwrap_or(expected.lines().count().min(actual.lines().count()));
    assert!(
        expected == actual,
        "{name} differs from line {}:\nexpected: {}\nactual:   {}",
        line + 1,
        expected.lines().nth(line).unwrap_or("(end)"),
        actual.lines().nth(line).unwrap_or("(end)"),
    );
}
