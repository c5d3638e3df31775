//! The tests need root: they use the kernel's maps.

use std::{arch::asm, fs::File, os::unix::fs::FileExt};

use bpf::RawStack;
use elf::Budget;

use super::*;
use crate::process::procfs;

fn maps() -> UnwindMaps {
    let recorder = bpf::Recorder::start(&bpf::Options { ring_bytes: 1 << 20, ..bpf::Options::default() });
    recorder.expect("BPF programs load").unwind_maps().expect("maps")
}

fn raw(image: u32) -> RawStack {
    RawStack { image, ..RawStack::default() }
}

/// Check that stacks of a process that ended before its mappings were read release their slots, as do those of a
/// process that was never reported, and that a live process keeps its own until its mappings arrive.
#[test]
fn slots_of_ended_processes_are_released() {
    const SLOTS: usize = 4;
    let mut unwinding =
        Unwinding::new(maps(), SLOTS, Duration::ZERO, Early::start(&Budget::RECORDING, false).expect("a thread"));
    unwinding.born(ProcessId(1), None);
    unwinding.born(ProcessId(2), None);
    for image in [1, 1, 2, 99] {
        unwinding.raw(raw(image));
    }
    unwinding.died(ProcessId(1));
    let mut walked = Vec::new();
    for _ in 0..3 {
        unwinding.settle(&Files::new(0), true, &mut |stack| walked.push(stack.raw.image), &mut |_| ());
    }
    assert_eq!(walked, [1, 1, 99]);
    for _ in 0..SLOTS {
        unwinding.raw(raw(2));
    }
    assert_eq!(unwinding.raw_dropped(), 1, "the living process still holds one slot");
}

/// Returns the stack of this thread as the kernel would send it.
#[inline(never)]
fn own_stack() -> RawStack {
    let (ip, sp, bp, bx): (u64, u64, u64, u64);
    // SAFETY: reads registers only.
    unsafe {
        asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", "mov {}, rbx", out(reg) ip, out(reg) sp, out(reg) bp, out(reg) bx);
    }
    let mut bytes = vec![0; 32 << 10];
    let length =
        File::open("/proc/self/mem").and_then(|memory| memory.read_at(&mut bytes, sp & !4095)).expect("a stack");
    bytes.truncate(length);
    let mut general = [0; 16];
    (general[3], general[6], general[7]) = (bx, bp, sp);
    RawStack { image: 1, ip, general, bytes, time: bpf::now(), ..RawStack::default() }
}

/// A few frames below the test, so that its stack is not trivial.
#[inline(never)]
fn deeper(levels: u32) -> RawStack {
    let stack = if levels == 0 { own_stack() } else { deeper(levels - 1) };
    std::hint::black_box(levels);
    stack
}

struct Scene {
    unwinding: Unwinding,
    files: Files,
}

impl Scene {
    /// This process as image 1.
    fn new(limit: u64, on_demand: bool) -> Self {
        let budget = Budget { tables: limit, ..Budget::DAEMON };
        let unwinding = Unwinding::new(maps(), 16, Duration::ZERO, Early::start(&budget, on_demand).expect("a thread"));
        let mut scene = Self { unwinding, files: Files::new(1024) };
        scene.unwinding.born(ProcessId(1), None);
        for mapping in procfs::mappings(std::process::id(), ProcessId(1)) {
            let file = scene.files.mapped(&mapping, std::process::id());
            scene.unwinding.mapped(&mapping, file, &scene.files);
        }
        scene
    }

    fn walk(&mut self, stack: &RawStack) -> (Vec<u64>, unwind::Ended) {
        self.unwinding.raw(RawStack { bytes: stack.bytes.clone(), kernel: Vec::new(), ..*stack });
        let begin = Instant::now();
        let mut result = None;
        while result.is_none() {
            assert!(begin.elapsed() < Duration::from_secs(60), "the stack is still waiting");
            self.unwinding.settle(
                &self.files,
                true,
                &mut |walked| result = Some((walked.user, walked.ended)),
                &mut |_| (),
            );
            if result.is_none()
                && let Some(finished) = self.unwinding.compiler.wait(Duration::from_millis(100))
            {
                self.unwinding.finish(finished);
            }
        }
        // Functions that were guessed and turned out not to be on the stack may still be compiled.
        while self.unwinding.files.values().any(Progress::is_pending) {
            assert!(begin.elapsed() < Duration::from_secs(60), "a table is still being compiled");
            if let Some(finished) = self.unwinding.compiler.wait(Duration::from_millis(100)) {
                self.unwinding.finish(finished);
            }
        }
        result.expect("walked")
    }

    fn kept(&self) -> u64 {
        self.unwinding.compiler.room.kept()
    }
}

/// Check that a stack walked with functions compiled on demand is the same as one walked with whole tables, that only a
/// small part of the tables is compiled, that the limit holds, and that unused tables are removed.
#[test]
fn tables_on_demand_are_small_and_give_the_same_stacks() {
    let (shallow, deep) = (deeper(3), deeper(40));
    let mut whole = Scene::new(1 << 30, false);
    let expected = [whole.walk(&shallow), whole.walk(&deep)];
    assert!(expected.iter().all(|(_, ended)| *ended == unwind::Ended::Whole), "{expected:?}");
    assert!(expected[1].0.len() > 40);

    let mut on_demand = Scene::new(1 << 20, true);
    assert_eq!(on_demand.kept(), 0, "mappings alone need no table");
    assert_eq!([on_demand.walk(&shallow), on_demand.walk(&deep)], expected);
    let kept = on_demand.kept();
    assert!(kept > 0 && kept < whole.kept() / 10, "{kept} of {} bytes", whole.kept());
    // The kernel's walker has them, too.
    on_demand.unwinding.next_growth = Instant::now();
    on_demand.unwinding.settle(&on_demand.files, true, &mut |_| (), &mut |_| ());
    let published = |progress: &Progress| matches!(progress, Progress::Growing(growing) if growing.place.is_some());
    assert!(on_demand.unwinding.files.values().any(published));
    assert_eq!(on_demand.walk(&deep), expected[1]);
    assert_eq!(on_demand.kept(), kept, "known functions are not compiled again");

    assert!(!on_demand.unwinding.forget_unused().is_empty(), "mapped files stay open");
    assert_eq!(on_demand.kept(), kept, "mapped files keep their tables");
    on_demand.unwinding.died(ProcessId(1));
    on_demand.unwinding.settle(&on_demand.files, true, &mut |_| (), &mut |_| ());
    assert!(on_demand.unwinding.forget_unused().is_empty());
    assert_eq!(on_demand.kept(), 0);
}

/// Check that tables are removed when they reach their limit, and that stacks are still right.
#[test]
fn the_limit_of_tables_holds() {
    let stacks: Vec<_> = (0..8).map(|level| deeper(3 * level)).collect();
    let mut whole = Scene::new(1 << 30, false);
    let mut wide = Scene::new(1 << 20, true);
    wide.walk(&stacks[0]);
    // Less than the functions of one stack need.
    let limit = wide.kept() / 2;
    let mut small = Scene::new(limit, true);
    for stack in &stacks {
        assert_eq!(small.walk(stack), whole.walk(stack));
        assert!(small.kept() <= limit, "{} of {limit} bytes", small.kept());
    }
}

/// Check that a raw stack that is read after the end of its process still finds the mappings: one read of the rings may bring the
/// end, and leave stacks in their ring.
#[test]
fn raw_stacks_may_be_read_after_the_end() {
    let stack = deeper(3);
    let mut scene = Scene::new(1 << 30, false);
    let expected = scene.walk(&stack);
    scene.unwinding.died(ProcessId(1));
    scene.unwinding.settle(&scene.files, false, &mut |_| (), &mut |_| ());
    assert_eq!(scene.walk(&stack), expected);
    assert!(scene.unwinding.images.is_empty(), "it is forgotten once everything has been read");
}

/// Check that images with thousands of mappings leave room for others in the walker's map, and are published when there is room.
#[test]
fn images_with_many_mappings_leave_room() {
    const MAPPINGS: u64 = 8000;
    let early = Early::start(&Budget::RECORDING, false).expect("a thread");
    let mut unwinding = Unwinding::new(maps(), 16, Duration::ZERO, early);
    let files = Files::new(0);
    let map = |unwinding: &mut Unwinding, image: u32, count: u64| {
        unwinding.born(ProcessId(image), None);
        for place in 0..count {
            let (start, end) = (place << 13, (place << 13) + 4096);
            let (process, path, build_id) = (ProcessId(image), String::new(), Vec::new());
            unwinding.mapped(&Mapping { process, time: 0, start, end, offset: 0, path, build_id }, None, &files);
        }
    };
    for image in 1..=20 {
        map(&mut unwinding, image, MAPPINGS);
    }
    map(&mut unwinding, 100, 20);
    let mut published = Vec::new();
    unwinding.settle(&files, true, &mut |_| (), &mut |image| published.push(image));
    assert!(published.contains(&ProcessId(100)) && published.len() < 20, "{published:?}");
    assert!(!unwinding.is_compiling(ProcessId(100)));
    let waits = (1..=20).map(ProcessId).filter(|image| unwinding.is_compiling(*image)).count();
    assert_eq!(waits, 21 - published.len());
}
