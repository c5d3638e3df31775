use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::event::{Call, Function, FunctionId, ProcessId, Shutdown, StackId, Tensor, TensorFreed};

const PROCESS: ProcessId = ProcessId(3);
const MIB: u64 = 1 << 20;
const FUNCTIONS: [&str; 7] =
    ["cudaMalloc", "cudaFree", "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRelease", "cudaSetDevice"];

/// Sends events to the allocations, each 10 ns after the one before.
struct Program {
    allocations: Allocations,
    time: u64,
}

impl Program {
    fn new() -> Self {
        let mut allocations = Allocations::default();
        for (name, id) in FUNCTIONS.iter().zip(0..) {
            allocations.function(&Function {
                id: FunctionId(id),
                name: (*name).to_owned(),
                shown: true,
                ..Function::default()
            });
        }
        Self { allocations, time: 0 }
    }

    fn tick(&mut self) -> u64 {
        self.time += 10;
        self.time
    }

    fn call(&mut self, tid: u32, name: &str, words: &[u64], out: Option<u64>, stack: u64) {
        let function = FunctionId(FUNCTIONS.iter().position(|known| *known == name).expect("a function") as u32);
        let end = self.tick();
        self.allocations.call(&Call {
            function,
            process: PROCESS,
            tid,
            cpu: 0,
            depth: 0,
            nested: false,
            enclosed: false,
            start: end - 5,
            end,
            result: 0,
            out,
            launch: None,
            launches: false,
            around: 0,
            stack: Some(StackId(stack)),
            words: words.to_vec(),
            payload: Vec::new(),
        });
    }

    fn malloc(&mut self, tid: u32, address: u64, bytes: u64, stack: u64) {
        self.call(tid, "cudaMalloc", &[0x7ffd_0000, bytes], Some(address), stack);
    }

    fn tensor(&mut self, tid: u32, address: u64, bytes: u64, stack: u64) {
        let time = self.tick();
        let stack = StackId(stack);
        self.allocations.tensor(&Tensor { process: PROCESS, tid, time, device: 0, address, bytes, stack });
    }

    fn free(&mut self, tid: u32, address: u64) {
        let time = self.tick();
        self.allocations.freed(&TensorFreed { process: PROCESS, tid, time, address });
    }

    fn finish(self) -> (DeviceMemory, Counts) {
        let memory = self.allocations.memory(|_| Some(1_000_000));
        assert!(memory.devices.len() <= 1, "{:?}", memory.devices.keys());
        (memory.devices.into_values().next().unwrap_or_default(), memory.counts)
    }
}

fn holders(moment: &Moment) -> Vec<(Use, u64, u64, u64)> {
    moment.holders.iter().map(|(what, stack, amount)| (*what, stack.0, amount.bytes, amount.count)).collect()
}

/// Check the picture of the documentation: tensors, the rest of their segment, and another library's allocation.
#[test]
fn memory_is_divided_by_use() {
    let mut program = Program::new();
    program.malloc(1, 0x1000_0000, 20 * MIB, 1);
    program.tensor(1, 0x1000_0000, 3 * MIB, 2);
    program.tensor(1, 0x1000_0000 + 10 * MIB, 7 * MIB, 3);
    program.malloc(1, 0x5000_0000, 5 * MIB, 4);
    program.free(1, 0x1000_0000);
    let (memory, counts) = program.finish();
    assert_eq!(memory.peak.bytes, [10 * MIB, 10 * MIB, 5 * MIB]);
    assert_eq!(memory.end.bytes, [7 * MIB, 13 * MIB, 5 * MIB]);
    let cached = (Use::Cached, 1, 13 * MIB, 1);
    assert_eq!(holders(&memory.end), [cached, (Use::Tensor, 3, 7 * MIB, 1), (Use::Other, 4, 5 * MIB, 1)]);
    assert_eq!((memory.most_tensor_bytes, memory.most_held_bytes), (10 * MIB, 25 * MIB));
    assert_eq!((counts.tensors, counts.freed, counts.allocations), (2, 1, 2));
    assert_eq!((memory.end.time, counts.missed_frees + counts.unknown_frees), (1_000_000, 0));
}

/// Check that the peak is in the middle, with the tensors of that time, and that addresses are used again.
#[test]
fn the_peak_is_kept() {
    let mut program = Program::new();
    program.malloc(1, MIB, 2 * MIB, 1);
    for round in 1..=3 {
        for at in 0..round {
            program.tensor(1, MIB + at * 4096, 4000, 10 * round + at);
        }
        (0..round).for_each(|at| program.free(2, MIB + at * 4096));
    }
    program.tensor(1, MIB, 1000, 99);
    let (memory, _) = program.finish();
    let tensors: Vec<_> = holders(&memory.peak).into_iter().filter(|holder| holder.0 == Use::Tensor).collect();
    assert_eq!(tensors, [30, 31, 32].map(|stack| (Use::Tensor, stack, 4096, 1)));
    assert_eq!(memory.peak.time, 10 * (1 + 2 + 4 + 3));
    assert_eq!(memory.end.bytes, [1024, 2 * MIB - 1024, 0]);
}

/// Check that a segment never counts as another library's memory, not even before its first tensor, and that what another
/// library allocates at the same time does.
#[test]
fn segments_are_not_in_use() {
    let mut program = Program::new();
    program.malloc(1, 64 * MIB, 2 * MIB, 1);
    program.tensor(1, 64 * MIB, 512, 2);
    program.malloc(1, 100 * MIB, 20 * MIB, 1);
    program.malloc(2, 200 * MIB, 3 * MIB, 5);
    program.tensor(2, 64 * MIB + 512, 512, 6);
    program.tensor(1, 100 * MIB, 2 * MIB, 3);
    let (memory, _) = program.finish();
    assert_eq!(memory.peak.bytes, [2 * MIB + 1024, 20 * MIB - 1024, 3 * MIB]);
    let mut alone = Program::new();
    alone.malloc(1, MIB, 2 * MIB, 1);
    alone.tensor(1, MIB, 512, 2);
    assert_eq!(alone.finish().0.peak.bytes, [512, 2 * MIB - 512, 0], "the first segment of a process");
}

/// Check that a program without PyTorch has a peak: allocations count as soon as they are made.
#[test]
fn programs_without_tensors_have_a_peak() {
    let mut program = Program::new();
    program.malloc(1, MIB, 100, 1);
    program.malloc(1, 2 * MIB, 30, 2);
    program.call(1, "cudaFree", &[MIB], None, 9);
    program.malloc(1, MIB, 7, 3);
    let (memory, _) = program.finish();
    assert_eq!(holders(&memory.peak), [(Use::Other, 1, 100, 1), (Use::Other, 2, 30, 1)]);
    assert_eq!(holders(&memory.end), [(Use::Other, 2, 30, 1), (Use::Other, 3, 7, 1)]);
    assert_eq!(memory.peak.time, 20);
}

/// Check expandable segments: physical memory counts once, however it is mapped, and until it is unmapped and released.
#[test]
fn mapped_memory_counts_once() {
    let mut program = Program::new();
    for part in 0..2 {
        program.call(1, "cuMemCreate", &[0x7ffd_0000, 2 * MIB], Some(70 + part), 1);
    }
    for part in 0..2 {
        program.call(1, "cuMemMap", &[64 * MIB + part * 2 * MIB, 2 * MIB, 0, 70 + part, 0], None, 2);
    }
    program.tensor(1, 64 * MIB, 3 * MIB + 1, 3);
    program.free(1, 64 * MIB);
    program.call(1, "cuMemRelease", &[71], None, 4);
    program.tensor(1, 64 * MIB, 100, 5);
    program.call(1, "cuMemUnmap", &[66 * MIB, 2 * MIB], None, 4);
    let (memory, counts) = program.finish();
    assert_eq!(memory.peak.bytes, [3 * MIB + 512, MIB - 512, 0], "no block keeps a rest in an expandable segment");
    assert_eq!(memory.end.bytes, [512, 2 * MIB - 512, 0], "the second part is gone");
    assert_eq!((counts.allocations, counts.missed_frees), (2, 0));
}

/// Check that missed events do not add up: memory that is used again, or whose segment was freed, is free; a free of an
/// unknown tensor is counted.
#[test]
fn missed_frees_are_corrected() {
    let mut program = Program::new();
    program.malloc(1, 64 * MIB, 2 * MIB, 1);
    program.tensor(1, 64 * MIB, 1000, 2);
    program.tensor(1, 64 * MIB + 512, 100, 3);
    program.tensor(1, 65 * MIB, 5, 4);
    program.free(1, 12345);
    let missed = |program: Program| {
        let (memory, counts) = program.finish();
        (memory.end.bytes, counts.missed_frees, counts.unknown_frees)
    };
    program.call(1, "cudaFree", &[64 * MIB], None, 9);
    assert_eq!(missed(program), ([0, 0, 0], 3, 1));
}

/// Check that what a program frees while it shuts down was there at the end.
#[test]
fn the_end_is_before_the_shutdown() {
    let mut program = Program::new();
    program.malloc(1, MIB, 2 * MIB, 1);
    program.tensor(1, MIB, 100, 2);
    program.tensor(1, MIB + 512, 100, 3);
    program.free(1, MIB);
    program.allocations.shutdown(&Shutdown { process: PROCESS, time: 77 });
    program.free(1, MIB + 512);
    program.call(1, "cudaFree", &[MIB], None, 9);
    let (memory, counts) = program.finish();
    assert_eq!((memory.end.time, memory.end.bytes), (77, [512, 2 * MIB - 512, 0]));
    assert_eq!((counts.freed, counts.missed_frees), (1, 0));
}

/// Check that tensors of several devices have separate peaks, and that their segments belong to the same device.
#[test]
fn devices_are_separate() {
    let mut program = Program::new();
    program.call(1, "cudaSetDevice", &[1], None, 0);
    program.malloc(2, MIB, 2 * MIB, 1);
    program.allocations.tensor(&Tensor {
        process: PROCESS,
        tid: 2,
        time: 50,
        device: 1,
        address: MIB,
        bytes: 1,
        stack: StackId(2),
    });
    let devices = program.allocations.memory(|_| Some(0)).devices;
    assert_eq!(devices[&(PROCESS, 1)].end.bytes, [512, 2 * MIB - 512, 0]);
    assert_eq!(devices.get(&(PROCESS, 0)).map_or([0; 3], |device| device.end.bytes), [0; 3]);
}

#[derive(Clone, Debug)]
enum Step {
    Tensor { tid: u32, slot: u64, bytes: u64, stack: u64 },
    Free { slot: u64 },
    Malloc { tid: u32, slot: u64, bytes: u64, stack: u64 },
    CudaFree { slot: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let tensor = (1u32..3, 0u64..8, 1u64..3 * MIB, 0u64..5).prop_map(|(tid, slot, bytes, stack)| Step::Tensor {
        tid,
        slot,
        bytes,
        stack,
    });
    let free = (0u64..8).prop_map(|slot| Step::Free { slot });
    let malloc = (1u32..3, 0u64..4, 1u64..9 * MIB, 5u64..9).prop_map(|(tid, slot, bytes, stack)| Step::Malloc {
        tid,
        slot,
        bytes,
        stack,
    });
    let cuda_free = (0u64..4).prop_map(|slot| Step::CudaFree { slot });
    proptest::collection::vec(prop_oneof![3 => tensor, 3 => free, 1 => malloc, 1 => cuda_free], 0..60)
}

proptest! {
    /// Check that for any order of events the sums agree with the holders, the peak with the largest sum of tensors and others,
    /// and tensors and cached memory with the segments.
    #[test]
    fn sums_and_holders_agree(steps in steps()) {
        let mut program = Program::new();
        let mut reference = BTreeMap::new();
        let mut most = 0;
        // One segment, large enough for all slots, that is never freed.
        program.malloc(1, 64 * MIB, 64 * MIB, 100);
        program.tensor(1, 64 * MIB + 60 * MIB, 512, 101);
        for step in &steps {
            match *step {
                Step::Tensor { tid, slot, bytes, stack } => {
                    program.tensor(tid, 64 * MIB + slot * 4 * MIB, bytes, stack);
                    reference.insert(slot, bytes);
                }
                Step::Free { slot } => {
                    program.free(1, 64 * MIB + slot * 4 * MIB);
                    reference.remove(&slot);
                }
                Step::Malloc { tid, slot, bytes, stack } => program.malloc(tid, (1024 + slot * 16) * MIB, bytes, stack),
                Step::CudaFree { slot } => program.call(1, "cudaFree", &[(1024 + slot * 16) * MIB], None, 0),
            }
            most = most.max(reference.values().sum::<u64>());
        }
        let (memory, counts) = program.finish();
        for moment in [&memory.peak, &memory.end] {
            for what in Use::ALL {
                let sum: u64 = moment.holders.iter().filter(|holder| holder.0 == what).map(|holder| holder.2.bytes).sum();
                prop_assert_eq!(sum, moment.of(what));
            }
        }
        prop_assert_eq!(memory.end.of(Use::Tensor) + memory.end.of(Use::Cached), 64 * MIB);
        prop_assert!(memory.peak.in_use() >= memory.end.in_use());
        prop_assert!(memory.most_tensor_bytes >= most && memory.peak.in_use() >= memory.most_tensor_bytes);
        let live = memory.end.holders.iter().filter(|holder| holder.0 == Use::Tensor).map(|holder| holder.2.count).sum::<u64>();
        prop_assert_eq!(live, counts.tensors + counts.unknown_frees - counts.freed - counts.missed_frees);
        prop_assert_eq!(live as usize, reference.len() + 1);
    }
}

/// Check that the memory of a process is the same after it was written as events.
#[test]
fn memory_can_be_written_as_events() {
    let mut program = Program::new();
    program.malloc(1, 64 * MIB, 20 * MIB, 1);
    program.tensor(1, 64 * MIB, 3 * MIB, 2);
    program.tensor(1, 70 * MIB, 5 * MIB, 3);
    program.free(1, 70 * MIB);
    program.tensor(1, 80 * MIB, MIB, 3);
    program.malloc(2, 200 * MIB, 7 * MIB, 4);
    let memory = program.allocations.memory(|_| Some(1_000_000));
    let mut read = Allocations::default();
    memory.events().iter().for_each(|event| read.note(event));
    let devices = read.memory(|_| unreachable!("no allocation was seen")).devices;
    assert_eq!(devices, memory.devices);
    let device = devices.values().next().expect("one device");
    assert_eq!((device.end.in_use(), device.peak.in_use()), (11 * MIB, 11 * MIB));
}

/// Check that what a thread allocated last counts, although it is not decided what for, and that asking changes nothing.
#[test]
fn memory_can_be_asked_for_at_any_time() {
    let mut program = Program::new();
    program.malloc(1, 64 * MIB, 20 * MIB, 1);
    program.tensor(1, 64 * MIB, 3 * MIB, 2);
    program.malloc(1, 100 * MIB, 20 * MIB, 1);
    let now = |program: &Program| {
        let memory = program.allocations.memory(|_| Some(1_000_000));
        memory.devices[&(PROCESS, 0)].end.bytes
    };
    assert_eq!([now(&program), now(&program)], [[3 * MIB, 17 * MIB, 20 * MIB]; 2]);
    program.tensor(1, 100 * MIB, 2 * MIB, 3);
    assert_eq!(now(&program), [5 * MIB, 35 * MIB, 0]);
    assert!(program.allocations.memory(|_| None).devices.is_empty());
    program.allocations.forget(|process| process == PROCESS);
    assert!(program.allocations.memory(|_| Some(1)).devices.is_empty());
}

/// Check which calls had no room for what they should have allocated: outermost ones that allocate GPU memory, of any API, and not
/// those that failed for another reason.
#[test]
fn refused_allocations_are_recognised() {
    let call = |result, nested| Call {
        function: FunctionId(0),
        process: PROCESS,
        tid: 1,
        cpu: 0,
        depth: 0,
        nested,
        enclosed: nested,
        start: 1,
        end: 2,
        result,
        out: None,
        launch: None,
        launches: false,
        around: 0,
        stack: None,
        words: vec![0x7ffd_0000, 5 * MIB, 0, 0],
        payload: Vec::new(),
    };
    let of = |name: &str, result, nested| {
        refused(&Function { name: name.to_owned(), ..Function::default() }, &call(result, nested))
    };
    for name in
        ["cudaMalloc", "cuMemAlloc_v2", "cudaMallocAsync", "cuMemAllocAsync", "cudaMallocManaged", "cuMemCreate"]
    {
        assert_eq!(of(name, 2, false), Some(5 * MIB), "{name}");
        for (result, nested) in [(0, false), (1, false), (801, false), (2, true)] {
            assert_eq!(of(name, result, nested), None, "{name}: {result}");
        }
    }
    for name in ["cudaMallocHost", "cuMemAllocHost_v2", "cuMemAddressReserve", "cudaFree", "cudaLaunchKernel", "malloc"]
    {
        assert_eq!(of(name, 2, false), None, "{name}");
    }
    assert!(of("cudaMallocFromPoolAsync", 2, false).is_some());
}
