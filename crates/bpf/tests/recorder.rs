//! Real programs in a real kernel (needs root): processes are followed from their first instruction, CPUs are sampled,
//! and mappings are seen.

use std::{
    process::{Command, Stdio},
    sync::Mutex,
};

use bpf::{HitKey, HitPoint, HitSource, HitSum, HitWeight, MapEvent, Mappings, Options, Origin, Record, Recorder};

/// All tests follow the children of this process, so they run one at a time.
static ONE: Mutex<()> = Mutex::new(());

fn record(options: &Options, command: &mut Command) -> (Vec<Record>, Vec<MapEvent>) {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut recorder = Recorder::start(options).expect("recorder");
    let mut mappings = Mappings::watch(bpf::Share::RECORDING).expect("mappings");
    recorder.follow_children().expect("follow");
    let mut child = command.spawn().expect("spawn");
    recorder.forget_children().expect("forget");
    child.wait().expect("wait");
    let mut records = Vec::new();
    while recorder.drain(|r| records.push(r)) {}
    assert_eq!(recorder.losses(), bpf::Losses { walks: recorder.losses().walks, ..Default::default() });
    (records, mappings.drain())
}

/// Check that a shell, the programs it runs, and their exits are reported: each fork and exec is a new image, in order.
#[test]
fn follows_forks_and_execs() {
    let options = Options { ring_bytes: 1 << 20, ..Options::default() };
    let (records, mappings) = record(&options, Command::new("sh").args(["-c", "ls / >/dev/null; true"]));
    let images: Vec<_> = records
        .iter()
        .filter_map(|r| match r {
            Record::Process(new) => Some((new.image, new.parent, new.origin, new.comm.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(images.len(), 4, "{images:?}");
    assert_eq!(images[0].1, 0);
    assert_eq!((images[1].1, images[1].2, images[1].3), (images[0].0, Origin::Exec, "sh"));
    assert_eq!((images[2].1, images[2].2), (images[1].0, Origin::Fork));
    assert_eq!((images[3].1, images[3].2, images[3].3), (images[2].0, Origin::Exec, "ls"));
    let exits = records.iter().filter(|r| matches!(r, Record::Exit { .. })).count();
    assert_eq!(exits, 2, "the shell and ls end; an exec is not an exit");
    let pid = records.iter().find_map(|r| match r {
        Record::Process(new) if new.image == images[3].0 => Some(new.pid),
        _ => None,
    });
    let pid = pid.expect("ls");
    let exec = mappings.iter().position(|m| matches!(m, MapEvent::Exec { pid: p, .. } if *p == pid)).expect("exec");
    let mapped = |suffix: &str| {
        mappings[exec..].iter().any(|m| matches!(m, MapEvent::Mapped(m) if m.pid == pid && m.path.ends_with(suffix)))
    };
    assert!(mapped("/ls") && mapped("libc.so.6"), "{mappings:?}");
}

/// Check that a busy process is sampled, and that each distinct stack is sent once.
#[test]
fn samples_a_busy_process() {
    let options = Options { sample_hz: Some(997), ring_bytes: 1 << 25, ..Options::default() };
    let (records, _) =
        record(&options, Command::new("sh").args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]));
    let mut stacks = std::collections::HashSet::new();
    for record in &records {
        // No tables are loaded: the shell's stacks arrive raw.
        let id = match record {
            Record::Stack(stack) => stack.id,
            Record::RawStack(stack) => stack.id,
            _ => continue,
        };
        assert!(stacks.insert(id), "stack {id:x} came twice");
    }
    let samples: Vec<_> =
        records.iter().filter_map(|r| if let Record::Sample { stack, .. } = r { Some(*stack) } else { None }).collect();
    assert!(samples.len() > 20, "{} samples", samples.len());
    assert!(samples.iter().all(|s| *s == 0 || stacks.contains(s)));
}

/// Check that so much of a deep stack is copied that it can be walked beyond a frame of 100 KiB, and that the copy of a
/// shallow one is small.
#[test]
fn deep_stacks_are_copied_completely() {
    const SOURCE: &str = "
        #include <time.h>
        __attribute__((noinline)) void spin(void) { for (clock_t end = clock() + CLOCKS_PER_SEC / 2; clock() < end;); }
        int main(int argc, char **argv) {
            volatile char frame[100 << 10];
            for (unsigned i = 0; i < sizeof frame; i++) frame[i] = (char)argc;
            spin();
            return frame[argc] - argc;
        }";
    let directory = tempfile::tempdir().expect("a directory");
    let (source, program) = (directory.path().join("deep.c"), directory.path().join("deep"));
    std::fs::write(&source, SOURCE).expect("a file");
    assert!(Command::new("cc").arg("-O1").arg(&source).arg("-o").arg(&program).status().expect("cc").success());
    let options = Options { sample_hz: Some(499), ring_bytes: 1 << 20, ..Options::default() };
    let (records, _) = record(&options, &mut Command::new(program));
    let copied = records.iter().filter_map(|record| match record {
        Record::RawStack(stack) => Some(stack.bytes.len()),
        _ => None,
    });
    let copied: Vec<usize> = copied.collect();
    assert!(copied.iter().filter(|bytes| **bytes > 100 << 10).count() > 20, "{copied:?}");
    assert!(copied.iter().all(|bytes| *bytes <= 128 << 10), "{copied:?}");
}

/// Records the writes of a shell that writes 5 bytes three times, and 10 bytes once. Returns the sums in the kernel,
/// and what arrived through the ring. The keys of the sums were announced there, each once.
fn writes(room: u32) -> (Vec<(HitKey, HitSum)>, Vec<HitSum>) {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let options = Options { hits: Some(room), ring_bytes: 1 << 22, ..Options::default() };
    let mut recorder = Recorder::start(&options).expect("recorder");
    let id = bpf::tracefs::read("events/syscalls/sys_enter_write/id").expect("tracefs");
    // common fields (8), the number of the system call (8), fd (8), buf (8), count.
    let weight = HitWeight { source: HitSource::Field(32), size: 8, signed: false };
    recorder.describe_hits(7, HitPoint { weight: Some(weight), ..HitPoint::default() }).expect("a description");
    recorder.watch_hits_at(id.trim().parse().expect("a number"), 7).expect("a tracepoint");
    recorder.follow_children().expect("follow");
    let mut child = Command::new("sh")
        .args(["-c", "for i in 1 2 3; do printf abcde; done; printf 0123456789"])
        .stdout(Stdio::null())
        .spawn()
        .expect("spawn");
    recorder.forget_children().expect("forget");
    child.wait().expect("wait");
    let sums = recorder.hit_sums();
    let (mut announced, mut sent) = (Vec::new(), Vec::new());
    while recorder.drain(|record| match record {
        Record::Hit(hit) if hit.sum == HitSum::default() => announced.push(hit.key),
        Record::Hit(hit) => sent.push(hit.sum),
        _ => {}
    }) {}
    assert_eq!(recorder.losses().hits, 0);
    assert_eq!(sums.len(), announced.len());
    assert!(sums.iter().all(|(key, _)| key.point == 7 && key.stack != 0 && announced.contains(key)));
    (sums, sent)
}

fn total(sums: impl Iterator<Item = HitSum>) -> (u64, u64, u64) {
    sums.fold((0, 0, 0), |(count, weight, outside), sum| {
        (count + sum.count, weight + sum.weight, outside + sum.outside)
    })
}

/// Check that hits of a tracepoint are summed in the kernel by stack, weighted by a field of its record.
#[test]
fn tracepoint_hits_are_summed_by_stack() {
    let (sums, sent) = writes(1000);
    assert_eq!(total(sums.iter().map(|(_, sum)| *sum)), (4, 25, 0));
    assert_eq!(sent, []);
}

/// Check that hits are sent one by one if the kernel has no room for another stack, and that none is lost.
#[test]
fn hits_without_room_are_sent_one_by_one() {
    let (sums, sent) = writes(1);
    assert_eq!(sums.len(), 1);
    assert!(!sent.is_empty() && sent.iter().all(|sum| sum.count == 1));
    assert_eq!(total(sums.iter().map(|(_, sum)| *sum).chain(sent)), (4, 25, 0));
}
