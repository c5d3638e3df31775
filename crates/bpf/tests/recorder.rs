//! Real programs in a real kernel (needs root): processes are followed from their first instruction, CPUs are sampled,
//! mappings are seen.

use std::{
    process::{Command, Stdio},
    sync::Mutex,
};

use bpf::{HitPoint, HitSource, HitSum, HitWeight, MapEvent, Mappings, Options, Origin, Record, Recorder};

/// All tests follow the children of this process: one at a time.
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

/// A shell, the programs it runs, and their end: each fork and exec is a new image, in order.
#[test]
fn follows_forks_and_execs() {
    let options = Options { ring_bytes: 1 << 20, ..Options::default() };
    let (records, mappings) = record(&options, Command::new("sh").args(["-c", "ls / >/dev/null; true"]));
    let images: Vec<_> = records
        .iter()
        .filter_map(|r| match r {
            Record::Process { image, parent, origin, comm, .. } => Some((*image, *parent, *origin, comm.as_str())),
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
        Record::Process { image, pid, .. } if *image == images[3].0 => Some(*pid),
        _ => None,
    });
    let pid = pid.expect("ls");
    let exec = mappings.iter().position(|m| matches!(m, MapEvent::Exec { pid: p, .. } if *p == pid)).expect("exec");
    let mapped = |suffix: &str| {
        mappings[exec..].iter().any(|m| matches!(m, MapEvent::Mapped(m) if m.pid == pid && m.path.ends_with(suffix)))
    };
    assert!(mapped("/ls") && mapped("libc.so.6"), "{mappings:?}");
}

/// A busy process is sampled, and each distinct stack comes once.
#[test]
fn samples_a_busy_process() {
    let options = Options { sample_hz: Some(997), ring_bytes: 1 << 25, ..Options::default() };
    let (records, _) =
        record(&options, Command::new("sh").args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]));
    let mut stacks = std::collections::HashSet::new();
    for record in &records {
        // Nobody has told the walker of any table: the shell's stacks come raw.
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

/// Hits of a tracepoint are added up in the kernel by stack, weighted by a field of its record, and each key is announced
/// once before it is read.
#[test]
fn hits_of_a_tracepoint() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let options = Options { hits: true, ring_bytes: 1 << 22, ..Options::default() };
    let mut recorder = Recorder::start(&options).expect("recorder");
    let id =
        bpf::tracefs::read("events/syscalls/sys_enter_write/id").expect("tracefs").trim().parse().expect("a number");
    // common fields (8), the number of the system call (8), fd (8), buf (8), count.
    let weight = HitWeight { source: HitSource::Field(32), size: 8, signed: false };
    recorder.describe_hits(7, HitPoint { weight: Some(weight), ..HitPoint::default() }).expect("a description");
    recorder.watch_hits_at(id, 7).expect("a tracepoint");
    recorder.follow_children().expect("follow");
    let mut child = Command::new("sh")
        .args(["-c", "for i in 1 2 3; do printf abcde; done; printf 0123456789"])
        .stdout(Stdio::null())
        .spawn()
        .expect("spawn");
    recorder.forget_children().expect("forget");
    child.wait().expect("wait");
    let sums = recorder.hit_sums();
    let mut announced = Vec::new();
    while recorder.drain(|record| {
        if let Record::Hit(hit) = record {
            assert_eq!(hit.sum, HitSum::default());
            announced.push(hit.key);
        }
    }) {}
    assert_eq!(recorder.losses().hits, 0);
    let total = |of: fn(&HitSum) -> u64| sums.iter().map(|(_, sum)| of(sum)).sum::<u64>();
    assert_eq!((total(|sum| sum.count), total(|sum| sum.weight), total(|sum| sum.outside)), (4, 25, 0));
    assert_eq!(sums.len(), announced.len());
    assert!(sums.iter().all(|(key, _)| key.point == 7 && key.stack != 0 && announced.contains(key)));
}
