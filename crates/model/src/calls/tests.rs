use std::collections::BTreeMap;

use cuda::calls::{Direction, KernelRef, Object, Space};

use super::*;
use crate::{
    event::{Call, Event, Function, FunctionId, KernelSum, Layer, MemorySum, ProcessId, SessionId, Sum},
    fold::Fold,
    histogram::Histogram,
};

const PROCESS: ProcessId = ProcessId(1);
const OUT_OF_MEMORY: u64 = 2;

const FUNCTIONS: [(Layer, &str); 12] = [
    (Layer::Library, "cudaMalloc"),
    (Layer::Library, "cuMemAlloc_v2"),
    (Layer::Library, "cudaFree"),
    (Layer::Library, "cudaMallocHost"),
    (Layer::Library, "cudaMemcpy"),
    (Layer::Library, "cudaLaunchKernel"),
    (Layer::Library, "cuLaunchKernel"),
    (Layer::Library, "cuModuleGetFunction"),
    (Layer::Driver, "NV_ESC_RM_CONTROL"),
    (Layer::Library, "__cudaRegisterFunction"),
    (Layer::Library, "__cudaLaunchKernel"),
    (Layer::Library, "cuKernelGetFunction"),
];

fn number(name: &str) -> FunctionId {
    FunctionId(FUNCTIONS.iter().position(|(_, known)| *known == name).unwrap() as u32)
}

/// Returns a call that took `ns` and succeeded.
fn call(name: &str, ns: u64, words: &[u64]) -> Call {
    Call {
        function: number(name),
        process: PROCESS,
        tid: 10,
        cpu: 0,
        depth: 0,
        nested: false,
        enclosed: false,
        start: 1_000,
        end: 1_000 + ns,
        result: 0,
        out: None,
        launch: Some((SessionId(0), 1)),
        launches: false,
        around: 0,
        stack: None,
        words: words.to_vec(),
        payload: Vec::new(),
    }
}

fn malloc(address: u64, bytes: u64) -> Call {
    Call { out: Some(address), ..call("cudaMalloc", 100, &[0x7ffd_0000, bytes]) }
}

fn free(address: u64) -> Call {
    call("cudaFree", 50, &[address])
}

fn inside(call: Call) -> Call {
    Call {
        depth: 1,
        nested: true,
        enclosed: true,
        start: call.start + 1,
        end: call.end + 1,
        around: call.start,
        ..call
    }
}

fn fold(calls: impl IntoIterator<Item = Call>) -> Calls {
    let mut fold = Fold::new();
    for (id, (layer, name)) in FUNCTIONS.into_iter().enumerate() {
        let (id, shown) = (FunctionId(id as u32), !name.starts_with("__"));
        fold.push(&Event::Function(Function {
            id,
            layer,
            library: "lib".into(),
            name: name.into(),
            shown,
            ..Function::default()
        }));
    }
    for call in calls {
        fold.push(&Event::Call(call));
    }
    fold.finish().calls
}

/// Check the test vectors of [`cuda::memory`]: the effect of each call on the accounting.
#[test]
fn memory_accounting_matches_the_test_vectors() {
    use cuda::memory::vectors::{self, Step};
    for vector in vectors::all() {
        let mut fold = Fold::new();
        let mut functions = BTreeMap::<&str, FunctionId>::new();
        // Calls in progress, by thread: function, words, start.
        let mut open = BTreeMap::<u32, Vec<(&str, Vec<u64>, u64)>>::new();
        for (step, time) in vector.steps.into_iter().zip(1..) {
            match step {
                Step::Enter { thread, function, words } => {
                    let id = FunctionId(functions.len() as u32);
                    if !functions.contains_key(function) {
                        functions.insert(function, id);
                        let name = function.into();
                        let function = Function { id, name, shown: true, ..Function::default() };
                        fold.push(&Event::Function(function));
                    }
                    open.entry(thread).or_default().push((function, words, time));
                }
                Step::Return { thread, answer, result } => {
                    let around = open.get_mut(&thread).expect("entered");
                    let (function, words, start) = around.pop().expect("entered");
                    let role = |name: &str| cuda::call(name).expect("known").role;
                    fold.push(&Event::Call(Call {
                        function: functions[function],
                        tid: thread,
                        depth: around.len() as u8,
                        nested: around.iter().any(|(outer, ..)| role(outer) == role(function)),
                        enclosed: !around.is_empty(),
                        start,
                        end: time,
                        result: result.into(),
                        out: answer,
                        words,
                        ..call("cudaFree", 0, &[])
                    }));
                }
            }
        }
        let memory = fold.finish().calls.memory;
        for space in Space::ALL {
            let Memory {
                allocations,
                bytes,
                failed,
                frees,
                failed_frees,
                unknown_frees,
                missed_frees,
                released,
                untracked,
                live,
                live_bytes,
                peak_bytes,
            } = memory.get(&space).copied().unwrap_or_default();
            let found = [
                ("allocations", allocations),
                ("bytes", bytes),
                ("failed", failed),
                ("failed_frees", failed_frees),
                ("frees", frees),
                ("live", live),
                ("live_bytes", live_bytes),
                ("missed_frees", missed_frees),
                ("peak_bytes", peak_bytes),
                ("released", released),
                ("unknown_frees", unknown_frees),
                ("untracked", untracked),
            ];
            let found: BTreeMap<&str, u64> = found.into_iter().filter(|(_, count)| *count > 0).collect();
            let wanted = vector.account.get(space.name()).cloned().unwrap_or_default();
            assert_eq!(found, wanted, "{}: {}", vector.name, space.name());
        }
    }
}

/// Check that a free only releases memory of its own process.
#[test]
fn frees_release_memory_of_their_own_process() {
    let other_process = Call { process: ProcessId(2), ..free(0xa000) };
    let memory = fold([malloc(0xa000, 400), other_process]).memory[&Space::Device];
    assert_eq!((memory.live, memory.live_bytes, memory.frees, memory.unknown_frees), (1, 400, 1, 1));
}

/// Check that failed calls neither allocate nor free, and are counted by result.
#[test]
fn failed_calls_have_no_effect() {
    let no_memory = Call { result: OUT_OF_MEMORY, ..malloc(0xa000, 1 << 40) };
    let not_freed = Call { result: 1, ..free(0xb000) };
    let inner = Call { result: OUT_OF_MEMORY, ..call("cuMemAlloc_v2", 80, &[0x7ffd_0000, 1 << 40]) };
    let calls = fold([inside(inner), no_memory.clone(), no_memory, malloc(0xb000, 8), not_freed]);
    let memory = calls.memory[&Space::Device];
    assert_eq!((memory.allocations, memory.failed, memory.frees, memory.live_bytes), (1, 2, 0, 8));
    assert_eq!(calls.errors, [((number("cudaMalloc"), 2), 2), ((number("cudaFree"), 1), 1)].into());
    assert_eq!(calls.enclosed_errors, [((number("cuMemAlloc_v2"), 2), 1)].into(), "the outer call's error");
    let sum = &calls.sums[&(PROCESS, number("cudaMalloc"))];
    assert_eq!((sum.count, sum.errors, sum.bytes), (3, 2, 8));
}

/// Check that a driver call nested in a runtime call that does the same counts as a call, but not as another allocation
/// or launch.
#[test]
fn nested_calls_count_once() {
    let dims = [4 | 2 << 32, 1, 64 | 1 << 32, 1, 0, 0, 0];
    let inner_alloc = Call { out: Some(0xa000), ..call("cuMemAlloc_v2", 80, &[0x7ffd_0000, 400]) };
    let launch = call("cudaLaunchKernel", 9, &[&[0x40_1000], &dims[..]].concat());
    let inner_launch = call("cuLaunchKernel", 5, &[0x5000, 4, 2, 1, 64, 1, 1, 0, 0, 0, 0]);
    let calls = fold([inside(inner_alloc), malloc(0xa000, 400), inside(inner_launch), launch]);
    let memory = calls.memory[&Space::Device];
    assert_eq!((memory.allocations, memory.live_bytes, memory.peak_bytes), (1, 400, 400));
    assert_eq!(calls.launches.values().sum::<u64>(), 1);
    let inner = &calls.sums[&(PROCESS, number("cuMemAlloc_v2"))];
    assert_eq!((inner.count, inner.nested, inner.inner, inner.ns), (1, 1, 1, 80));
    // A thread's time counts each moment once.
    assert_eq!(calls.threads[&(PROCESS, 10)], ThreadSum { count: 2, ns: 109 });
}

/// Check that copies are summed by direction, and that failed copies move nothing.
#[test]
fn copies_are_summed_by_direction() {
    let copy = |kind: u64, bytes: u64| call("cudaMemcpy", 7, &[0xa000, 0xb000, bytes, kind]);
    let fails = Call { result: 1, ..copy(1, 1 << 30) };
    let calls = fold([copy(1, 100), copy(1, 20), copy(2, 5), fails]);
    assert_eq!(calls.copies[&Direction::HtoD], Moved { count: 2, bytes: 120, ns: 14 });
    assert_eq!(calls.copies[&Direction::DtoH], Moved { count: 1, bytes: 5, ns: 7 });
}

/// Check that calls that never returned are counted, and have no other effect.
#[test]
fn unfinished_calls_are_only_counted() {
    let calls = fold([Call { end: 0, ..malloc(0xa000, 400) }]);
    assert_eq!((calls.unfinished, calls.sums.len(), calls.memory.len()), (1, 0, 0));
}

/// Check that requests to the driver are separated by command; a truncated payload has none.
#[test]
fn requests_are_separated_by_command() {
    let control = |command: u32, ns| {
        let mut payload = vec![0; 32];
        payload[8..12].copy_from_slice(&command.to_le_bytes());
        Call { payload, ..call("NV_ESC_RM_CONTROL", ns, &[0xc020_462a, 0x7ffd_0000, 0]) }
    };
    let fails = Call { result: (-22_i64).cast_unsigned(), ..control(7, 30) };
    let short = Call { payload: vec![0; 11], ..control(7, 100) };
    let calls = fold([control(7, 10), fails, control(8, 5), short]);
    let id = number("NV_ESC_RM_CONTROL");
    let of = |command| {
        let sum = &calls.requests[&(id, command)];
        (sum.count, sum.errors, sum.ns, sum.max_ns, sum.histogram.quantile(0.5))
    };
    assert_eq!(of(Some(7)), (2, 1, 40, 30, 10));
    assert_eq!(of(Some(8)), (1, 0, 5, 5, 5));
    assert_eq!(of(None), (1, 0, 100, 100, 100));
    assert_eq!(calls.sums[&(PROCESS, id)].count, 4);
    // A program may invent commands: none is lost, and memory is bounded.
    let calls = fold((0..10_000).map(|command| control(command, 1)));
    assert!(calls.requests.len() < 5_000);
    assert_eq!(calls.requests.values().map(|sum| sum.count).sum::<u64>(), 10_000);
}

/// Check that a handle stands for the kernel it was last assigned to; a second pass learns handles again and keeps host
/// functions and display names.
#[test]
fn reused_handles_name_the_latest_kernel() {
    let found = |name: &str| Call {
        out: Some(0x5000),
        payload: name.as_bytes().to_vec(),
        ..call("cuModuleGetFunction", 3, &[0x7ffd_0000, 0x4000, 0x7f00])
    };
    let registered =
        Call { payload: b"_Z4gemmPf".to_vec(), ..call("__cudaRegisterFunction", 3, &[1, 0x40_1000, 0, 0, 0]) };
    let mut names = fold([found("first"), found("second"), registered]).names;
    let (handle, stub) = (KernelRef::Handle(0x5000), KernelRef::HostStub(0x40_1000));
    assert_eq!(names.get(PROCESS, handle).map(|name| &**name), Some("second"));
    // A handle may be passed in place of a host function.
    assert_eq!(names.get(PROCESS, KernelRef::HostStub(0x5000)).map(|name| &**name), Some("second"));
    names.make_readable(str::to_uppercase);
    assert_eq!(names.text(PROCESS, stub).map(|name| &**name), Some("_Z4GEMMPF"));
    let mut again = names.for_second_pass();
    assert_eq!((again.get(PROCESS, handle), again.get(ProcessId(2), stub)), (None, None));
    assert_eq!(again.text(PROCESS, stub).map(|name| &**name), Some("_Z4GEMMPF"));
    again.learn(PROCESS, cuda::calls::NameFact::Name { kernel: handle, name: "first".into() });
    assert_eq!(again.text(PROCESS, handle).map(|name| &**name), Some("FIRST"));
}

/// Check that a launch by handle has the name of the host function whose launches contain launches by this handle, as in a trace
/// that began between the two; a handle with two host functions has no name.
#[test]
fn nested_launches_give_handles_the_names_of_host_functions() {
    let pair = |stub, handle| {
        let inner = call("cuLaunchKernel", 5, &[handle, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]);
        let inner = Call { nested: true, depth: 1, start: 1_002, end: 1_007, around: 1_000, ..inner };
        [inner, call("cudaLaunchKernel", 9, &[stub, 1, 1, 1, 1, 0, 0, 0])]
    };
    let alone = |handle| call("cuLaunchKernel", 5, &[handle, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]);
    let mut calls = fold(
        [alone(0x5000)]
            .into_iter()
            .chain(pair(0x40_1000, 0x5000))
            .chain(pair(0x40_1000, 0x6000))
            .chain(pair(0x40_2000, 0x6000)),
    );
    calls.names.name_stub(PROCESS, 0x40_1000, "gemm");
    calls.names.name_stub(PROCESS, 0x40_2000, "sum");
    for names in [calls.names.for_second_pass(), calls.names] {
        let name = |handle| names.get(PROCESS, KernelRef::Handle(handle)).map(|name| &**name);
        assert_eq!([0x5000, 0x6000, 0x7000].map(name), [Some("gemm"), None, None]);
    }
}

/// Check that three nested launches link each handle to the one around it, and that a failed launch links nothing.
#[test]
fn handles_are_linked_through_three_launches() {
    let launch = |function, kernel, start, around, nested| Call {
        nested,
        start,
        end: start + 9 - 2 * u64::from(around != 0),
        around,
        ..call(function, 9, &[kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0])
    };
    let three = |handle, kernel, at| {
        [
            launch("cuLaunchKernel", handle, at + 2, at + 1, true),
            launch("cudaLaunchKernel", kernel, at + 1, at, true),
            launch("__cudaLaunchKernel", kernel, at, 0, false),
        ]
    };
    let failed = three(0x6000, 0x9000, 2_000).map(|call| Call { result: 1, ..call });
    let mut calls = fold(three(0x5000, 0x9000, 1_000).into_iter().chain(failed));
    calls.names.name_stub(PROCESS, 0x9000, "gemm");
    let name = |handle| calls.names.get(PROCESS, KernelRef::Handle(handle)).map(|name| &**name);
    assert_eq!([0x5000, 0x9000, 0x6000].map(name), [Some("gemm"), Some("gemm"), None]);
}

/// Check what is known about handles: the kinds of their objects, the names that the program passed, and what they stand for. A
/// function has the name of its kernel, also if that one gets its name later.
#[test]
fn handles_are_seen() {
    let lookup = |function, out, of| Call { out: Some(out), ..call(function, 3, &[0x7ffd_0000, of]) };
    let named = Call { payload: b"gemm".to_vec(), ..lookup("cuModuleGetFunction", 0x5000, 0x4000) };
    let launch = |handle| call("cuLaunchKernel", 5, &[handle, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]);
    let mut calls = fold([named, lookup("cuKernelGetFunction", 0x6000, 0x7000), launch(0x6000), launch(0x8000)]);
    let mut unnamed: Vec<_> = calls.unnamed_handles().collect();
    unnamed.sort_unstable();
    assert_eq!(unnamed, [0x6000, 0x7000, 0x8000].map(|handle| (PROCESS, handle)));
    let mut seen = calls.seen_handles(PROCESS, 100);
    seen.sort_unstable_by_key(|seen| seen.handle);
    let handle = |handle, object, name: Option<&str>, same_as| SeenHandle {
        handle,
        object,
        name: name.map(Into::into),
        same_as,
    };
    let (function, kernel) = (Some(Object::Function), Some(Object::Kernel));
    assert_eq!(
        seen,
        [
            handle(0x5000, function, Some("gemm"), None),
            handle(0x6000, function, None, Some(0x7000)),
            handle(0x7000, kernel, None, None),
            handle(0x8000, None, None, None),
        ]
    );
    assert_eq!((calls.seen_handles(PROCESS, 2).len(), calls.seen_handles(ProcessId(2), 9).len()), (2, 0));
    calls.names.name_stub(PROCESS, 0x7000, "sum");
    assert_eq!(calls.unnamed_handles().collect::<Vec<_>>(), [(PROCESS, 0x8000)]);
    assert_eq!(calls.names.get(PROCESS, KernelRef::Handle(0x6000)).map(|name| &**name), Some("sum"));
}

/// Check that launched host functions that were never registered are listed as lacking a symbol.
#[test]
fn unregistered_host_functions_are_listed() {
    let launch = |stub| call("cudaLaunchKernel", 9, &[stub, 1, 1, 1, 1, 0, 0, 0]);
    let mut calls = fold([launch(0x40_1000), launch(0x40_1000), launch(0x40_2000)]);
    calls.names.name_stub(PROCESS, 0x40_2000, "gemm");
    assert_eq!(calls.unnamed_stubs().collect::<Vec<_>>(), [(PROCESS, 0x40_1000)]);
}

/// Check that sums made in the kernel equal the sums of individual calls.
#[test]
fn sums_equal_calls() {
    let single = fold([malloc(0xa000, 400), malloc(0xb000, 400), Call { result: 2, ..malloc(0, 400) }]);
    let mut histogram = Histogram::default();
    (0..3).for_each(|_| histogram.add(100));
    let mut summed = fold([]);
    summed.sum(&Sum {
        function: number("cudaMalloc"),
        process: PROCESS,
        class: 0,
        nested: false,
        count: 3,
        errors: 1,
        ns: 300,
        max_ns: 100,
        min_ns: 100,
        bytes: 800,
        self_ns: 300,
        outer_ns: 300,
        buckets: histogram.buckets().to_vec(),
    });
    assert_eq!(summed.sums, single.sums);
    summed.memory_sum(&MemorySum {
        process: PROCESS,
        space: Space::Device as u8,
        memory: single.memory[&Space::Device],
    });
    assert_eq!(summed.memory, single.memory);
    let kernel = Some(KernelRef::Handle(0x5000));
    summed.kernel_sum(KernelSum { process: PROCESS, kernel, count: 7 });
    assert_eq!(summed.launches, [((PROCESS, kernel), 7)].into_iter().collect());
}

/// Check that the slowest calls are kept, longest first, up to the limit.
#[test]
fn slowest_calls_are_kept_longest_first() {
    let calls = fold((0..100).map(|ns| call("cudaFree", (ns * 37) % 100, &[0])));
    let lengths: Vec<u64> = calls.slowest.iter().map(|(ns, _)| ns).collect();
    assert_eq!(lengths, (68..100).rev().collect::<Vec<_>>());
}
