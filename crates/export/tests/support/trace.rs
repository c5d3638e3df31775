//! A small hand-made trace: a program that registers its kernels, allocates, copies, launches and waits, a thread whose
//! calls fail, requests to the driver, switches, tracepoints, GPU work, and every error case.
#![allow(dead_code, reason = "each test file uses its part of it")]

use model::{calls::Memory, event::*};

use super::{MS, START, US};

const APP: ProcessId = ProcessId(1);
const STEPS: u64 = 4;
const MAIN: u32 = 900;
const LOADER: u32 = 901;
const STUB: u64 = 0x40_1200;
const PLAIN_STUB: u64 = 0x40_1300;
const HANDLE: u64 = 0x5577_0000_1000;

const FUNCTIONS: [(Layer, &str, &str, bool); 15] = [
    (Layer::Library, "/usr/local/cuda/lib64/libcudart.so.12", "__cudaRegisterFunction", false),
    (Layer::Library, "/usr/local/cuda/lib64/libcudart.so.12", "cudaMalloc", true),
    (Layer::Library, "/usr/local/cuda/lib64/libcudart.so.12", "cudaFree", true),
    (Layer::Library, "/usr/local/cuda/lib64/libcudart.so.12", "cudaMemcpy", true),
    (Layer::Library, "/usr/local/cuda/lib64/libcudart.so.12", "cudaLaunchKernel", true),
    (Layer::Library, "/usr/local/cuda/lib64/libcudart.so.12", "cudaDeviceSynchronize", true),
    (Layer::Library, "/usr/lib/libcuda.so.1", "cuMemAlloc_v2", true),
    (Layer::Library, "/usr/lib/libcuda.so.1", "cuLaunchKernel", true),
    (Layer::Library, "/usr/lib/libcuda.so.1", "cuModuleGetFunction", true),
    (Layer::Driver, "nvidiactl", "NV_ESC_RM_CONTROL", true),
    (Layer::Driver, "nvidiactl", "NV_ESC_RM_ALLOC", true),
    (Layer::Driver, "nvidia0", "mmap", true),
    (Layer::Point, "sched", "sched_process_fork", true),
    (Layer::Kernel, "nvidia", "nv_\u{1b}[31mopen", true),
    (Layer::Library, "/opt/evil\n.so", "evil \"name\"\n\u{202e}<b>", true),
];

/// Returns the number of a function, by its name.
fn number(name: &str) -> FunctionId {
    FunctionId(FUNCTIONS.iter().position(|(_, _, known, _)| *known == name).expect("a function of the trace") as u32)
}

/// Returns a successful call of the main thread.
fn call(name: &str, depth: u8, at: u64, length: u64, words: &[u64]) -> Call {
    Call {
        function: number(name),
        process: APP,
        tid: MAIN,
        cpu: 3,
        depth,
        nested: false,
        enclosed: false,
        start: START + at,
        end: START + at + length,
        result: 0,
        out: None,
        launch: None,
        launches: false,
        around: 0,
        stack: None,
        words: words.to_vec(),
        payload: Vec::new(),
    }
}

/// The same, nested in another call.
fn within(outer: u64, call: Call) -> Call {
    Call { around: START + outer, ..call }
}

fn start(mode: Mode) -> Vec<Event> {
    let mut events = vec![
        Event::Start(Start {
            time: START,
            wall_clock: 1_760_000_000_000_000_000,
            version: "0.1.0".into(),
            host: "gpu-box".into(),
            command: ["./train", "--steps", "10"].map(Into::into).into(),
            mode,
            frequency: 0,
        }),
        super::process(APP, 0, MAIN, "train"),
        Event::Thread(Thread { process: APP, tid: LOADER, comm: "data loader".into() }),
    ];
    for (id, (layer, library, name, shown)) in FUNCTIONS.into_iter().enumerate() {
        let (library, name) = (library.into(), name.into());
        events.push(Event::Function(Function {
            id: FunctionId(id as u32),
            layer,
            library,
            name,
            shown,
            ..Function::default()
        }));
    }
    events
}

/// Returns the trace, in order of arrival.
pub fn events() -> Vec<Event> {
    let mut events = start(Mode::Trace);
    events.extend([
        Event::Session(Session { id: SessionId(0), process: APP, cupti: 26, driver: 13000 }),
        Event::Device(Device { session: SessionId(0), index: 0, name: "NVIDIA H200".into(), ..Device::default() }),
        Event::KernelName(KernelName { session: SessionId(0), id: 1, name: "matmul(float*, int)".into() }),
    ]);
    events.extend(stack());
    events.extend(names());
    events.extend(memory());
    for step in 0..STEPS {
        events.extend(launch(step));
    }
    events.extend(trouble());
    events.extend([
        Event::Totals(Totals {
            session: SessionId(0),
            launches: 1 + STEPS,
            kernels: STEPS,
            kernel_ns: 0,
            copies: 1,
            memsets: 0,
            syncs: 0,
            dropped_by_cupti: 0,
            dropped_queue_full: 0,
            invalid: 0,
            nameless: 0,
            buffers_refused: 0,
            dropped_launches: 0,
            ended: true,
        }),
        Event::Loss(Loss { cause: LossCause::RingCalls, count: 2 }),
        Event::End(End { time: START + 60 * MS, status: Some(0) }),
    ]);
    events
}

/// The single stack of the launches.
fn stack() -> Vec<Event> {
    let named = |address, name: &str| {
        let names = vec![NamedFrame { kind: FrameKind::Native, name: name.into(), module: "train".into() }];
        Event::Symbol(Symbol { process: APP, frame: Frame::User(address), since: 0, names })
    };
    let frames = vec![Frame::User(0x40_1010), Frame::User(0x40_1000)];
    let stack = Stack { id: StackId(1), process: APP, time: START, frames, end: StackEnd::Whole };
    vec![Event::Stack(stack), named(0x40_1000, "main"), named(0x40_1010, "step(Model&)")]
}

/// The calls from which kernels get their names.
fn names() -> Vec<Event> {
    let registered = Call {
        payload: b"matmul(float*, int)\0".to_vec(),
        ..call("__cudaRegisterFunction", 0, 1, 100, &[7, STUB, 0, 0, 0])
    };
    let found = Call {
        payload: b"fill_kernel\0".to_vec(),
        out: Some(HANDLE),
        ..call("cuModuleGetFunction", 0, 200 * US, 9 * US, &[0x7ffd_0000, 0x5577_0000_0800, 0x7f00_0000_1000])
    };
    vec![Event::Call(registered), Event::Call(found)]
}

/// An allocation, down to the driver, and a copy.
fn memory() -> Vec<Event> {
    let mut control = vec![0; 32];
    control[8..12].copy_from_slice(&0x2080_0102_u32.to_le_bytes());
    let mut alloc = vec![0; 32];
    alloc[12..16].copy_from_slice(&0x003e_u32.to_le_bytes());
    let control = Call {
        payload: control,
        ..call("NV_ESC_RM_CONTROL", 2, 1_050 * US, 120 * US, &[0xffff_ffff_c020_462a, 0x7ffd_1000, 0])
    };
    let alloc = Call {
        payload: alloc,
        result: (-22_i64).cast_unsigned(),
        ..call("NV_ESC_RM_ALLOC", 2, 1_200 * US, 30 * US, &[0xc030_462b, 0x7ffd_2000, 0])
    };
    let map = Call { result: 0x7f00_0000_0000, ..call("mmap", 2, 1_250 * US, 45 * US, &[2 << 20, 3, 0]) };
    let inner = Call {
        nested: true,
        enclosed: true,
        out: Some(0x7f12_0000_0000),
        ..call("cuMemAlloc_v2", 1, 1_020 * US, 400 * US, &[0x7ffd_0008, 16 << 20])
    };
    let outer = Call { out: Some(0x7f12_0000_0000), ..call("cudaMalloc", 0, MS, 450 * US, &[0x7ffd_0008, 16 << 20]) };
    let copy = Call {
        launch: Some((SessionId(0), 1)),
        launches: true,
        ..call("cudaMemcpy", 0, 2 * MS, 900 * US, &[0x7f12_0000_0000, 0x7f34_0000, 16 << 20, 1])
    };
    let off_cpu = Switch {
        process: APP,
        tid: MAIN,
        cpu: 4,
        depth: 1,
        start: START + 2_100 * US,
        end: START + 2_800 * US,
        preempted: false,
        state: 1,
        stack: None,
        around: START + 2 * MS,
    };
    let work = Work::Copy { direction: Direction::HtoD, bytes: 16 << 20, source: 1, destination: 3, peer: None };
    vec![
        Event::Call(within(1_020 * US, control)),
        Event::Call(within(1_020 * US, alloc)),
        Event::Call(within(1_020 * US, map)),
        Event::Call(within(MS, inner)),
        Event::Call(outer),
        Event::Launch(super::launch_of(APP, MAIN, 1, LaunchKind::Copy, 2 * MS + 5 * US, 1)),
        Event::Switch(off_cpu),
        super::activity(0, 1, 0, 7, 2_050 * US, 800 * US, work),
        Event::Call(copy),
    ]
}

/// One step: a launch in a launch, the kernel, a wait.
fn launch(step: u64) -> Vec<Event> {
    let at = 5 * MS + step * 4 * MS;
    let correlation = 10 + step as u32;
    let dims = [4 | 2 << 32, 1, 64 | 1 << 32, 1];
    let [grid, depth, block, thickness] = dims;
    let inner = Call {
        nested: true,
        enclosed: true,
        ..call("cuLaunchKernel", 1, at + 3 * US, 4 * US, &[HANDLE, 4, 2, 1, 64, 1, 1, 256, 0, 0, 0])
    };
    let outer = Call {
        launch: Some((SessionId(0), correlation)),
        launches: true,
        stack: Some(StackId(1)),
        // The last has a host function that was never registered.
        ..call(
            "cudaLaunchKernel",
            0,
            at,
            8 * US + step * 300,
            &[if step == STEPS - 1 { PLAIN_STUB } else { STUB }, grid, depth, block, thickness, 0x7ffd_3000, 256, 0],
        )
    };
    let work = Work::Kernel { name: 1, grid: [4, 2, 1], block: [64, 1, 1], registers: 40, shared_memory: 256 };
    vec![
        Event::Launch(super::launch_of(APP, MAIN, correlation, LaunchKind::Kernel, at + US, 1)),
        Event::Call(within(at, inner)),
        Event::Call(outer),
        super::activity(0, correlation, 0, 7, at + 30 * US, MS + step * 1000, work),
        Event::Call(call("cudaDeviceSynchronize", 0, at + 20 * US, 1_050 * US, &[])),
    ]
}

/// Calls that fail, never end, were never declared, or have a hostile name.
fn trouble() -> Vec<Event> {
    let fails = Call { result: 2, tid: LOADER, ..call("cudaMalloc", 0, 50 * MS, 70 * US, &[0x7ffd_0008, 1 << 40]) };
    let evil =
        Call { result: 0xffff_ffff_8000_0000, ..call("evil \"name\"\n\u{202e}<b>", 0, 51 * MS, 3 * US, &[1, 2]) };
    let kernel = call("nv_\u{1b}[31mopen", 1, 51 * MS + 10 * US, 2 * US, &[0xffff_8881_0000_0000]);
    let point = Call {
        payload: "parent=900 child=905 comm=\"a\u{1b}b\"".into(),
        end: START + 52 * MS,
        ..call("sched_process_fork", 0, 52 * MS, 0, &[])
    };
    let undeclared = Call { function: FunctionId(99), ..call("cudaFree", 0, 53 * MS, US, &[]) };
    let unknown_process = Call { process: ProcessId(77), tid: 5, ..call("cudaFree", 0, 54 * MS, US, &[0]) };
    let unfinished = Call { end: 0, tid: LOADER, ..call("cudaDeviceSynchronize", 0, 55 * MS, 0, &[]) };
    let preempted = Switch {
        process: APP,
        tid: LOADER,
        cpu: 1,
        depth: 0,
        start: START + 49 * MS,
        end: START + 49_500 * US,
        preempted: true,
        state: 0,
        stack: None,
        around: 0,
    };
    // The call around this one is lost.
    let kernel = within(51 * MS + 5 * US, kernel);
    let calls = [fails, evil, kernel, point, undeclared, unknown_process, unfinished];
    let mut events: Vec<Event> = calls.into_iter().map(Event::Call).collect();
    events.push(Event::Switch(preempted));
    events
}

/// The same program with only sums.
pub fn sums() -> Vec<Event> {
    let mut events = start(Mode::TraceSums);
    let sum = |name: &str, class: u32, count: u64, errors: u64, ns: u64, bytes: u64| {
        let mut buckets = vec![0; model::histogram::BUCKETS];
        buckets[40] = count / 2;
        buckets[44] = count - count / 2;
        let own = if name == "cudaMalloc" { ns - 33 * MS } else { ns };
        Event::Sum(Sum {
            function: number(name),
            process: APP,
            class,
            nested: false,
            count,
            errors,
            ns,
            max_ns: 2 * ns / count,
            min_ns: 36_000,
            bytes,
            self_ns: own,
            outer_ns: ns,
            buckets,
        })
    };
    events.extend([
        sum("cudaMalloc", 0, 100, 3, 45 * MS, 97 << 20),
        sum("cudaFree", 0, 90, 0, 9 * MS, 0),
        sum("cudaMemcpy", 1, 40, 0, 36 * MS, 40 << 24),
        sum("cudaMemcpy", 2, 4, 0, 3 * MS, 4 << 20),
        sum("cudaLaunchKernel", 0, 10_000, 0, 80 * MS, 0),
        sum("NV_ESC_RM_CONTROL", 0, 300, 1, 33 * MS, 0),
        Event::ErrorSum(ErrorSum { function: number("cudaMalloc"), code: 2, enclosed: false, count: 3 }),
        Event::ErrorSum(ErrorSum {
            function: number("NV_ESC_RM_CONTROL"),
            code: (-22_i32).cast_unsigned(),
            enclosed: false,
            count: 1,
        }),
        Event::MemorySum(MemorySum {
            process: APP,
            space: 0,
            memory: Memory {
                allocations: 97,
                bytes: 97 << 20,
                failed: 3,
                frees: 90,
                live: 7,
                live_bytes: 7 << 20,
                peak_bytes: 20 << 20,
                ..Memory::default()
            },
        }),
        Event::KernelSum(KernelSum { process: APP, kernel: None, count: 10_000 }),
        Event::End(End { time: START + 900 * MS, status: Some(0) }),
    ]);
    events
}

/// A trace without calls.
pub fn nothing() -> Vec<Event> {
    let mut events = start(Mode::Trace);
    events.truncate(2);
    events
}
