use model::hang::{Frame, Host, Process, RankPlace, State, Thread};

use super::{Hang, Verdict, file, sentence::ranks};

fn frame(text: &str) -> Frame {
    let python = text.contains(".py:");
    let file = match text {
        text if text.contains("distributed_c10d.py") => {
            "/usr/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
        }
        text if text.contains("c10d_logger.py") => "/usr/lib/python3.12/site-packages/torch/distributed/c10d_logger.py",
        _ if python => "/home/me/train.py",
        _ => "libfoo.so",
    };
    Frame { name: text.into(), file: file.into(), python }
}

/// A process of a job of four ranks, with one thread; frames innermost first.
fn process(rank: u32, state: State, frames: &[&str], ran: bool, kept: u32) -> Process {
    let frames: Vec<Frame> = frames.iter().map(|text| frame(text)).collect();
    let thread = Thread { tid: 100 + rank, state, ran, kept, whole: true, frames, ..Thread::default() };
    let place = RankPlace {
        job: "job".into(),
        rank: Some(rank),
        world_size: Some(4),
        local_rank: Some(rank),
        local_world_size: Some(4),
    };
    Process {
        pid: 100 + rank,
        name: "python3".into(),
        program: "python3".into(),
        place,
        ended: false,
        threads: vec![thread],
    }
}

const REDUCE: &[&str] = &[
    "poll",
    "all_reduce (distributed_c10d.py:2810)",
    "wrapper (c10d_logger.py:83)",
    "step (train.py:40)",
    "main (train.py:9)",
];
const SAVE: &[&str] = &["poll", "broadcast (distributed_c10d.py:99)", "save (train.py:70)", "main (train.py:9)"];
const LOAD: &[&str] = &["clock_nanosleep", "load (train.py:31)", "main (train.py:9)"];
const SYNC: &[&str] =
    &["poll", "cuStreamSynchronize", "cudaStreamSynchronize", "step (train.py:41)", "main (train.py:9)"];

fn waits(rank: u32) -> Process {
    process(rank, State::Events, REDUCE, false, 5)
}

fn host(processes: Vec<Process>) -> Host {
    Host { host: "a".into(), watched_ns: 500_000_000, processes, ..Host::default() }
}

fn verdict(processes: Vec<Process>) -> (Verdict, String) {
    let hosts = [host(processes)];
    let hang = Hang::of(&hosts);
    assert_eq!(hang.jobs.len(), 1);
    let job = &hang.jobs[0];
    assert_eq!(hang.is_stuck(), matches!(job.verdict, Verdict::NotArrived | Verdict::Apart));
    (job.verdict, job.text.clone())
}

/// Check that the rank that is elsewhere is named with its line, while others wait.
#[test]
fn the_missing_rank_is_named() {
    let (verdict, text) = verdict(vec![waits(0), waits(1), process(2, State::Sleep, LOAD, false, 3), waits(3)]);
    assert_eq!(verdict, Verdict::NotArrived);
    let expected =
        "3 of 4 ranks wait in all_reduce; rank 2 (pid 102 on a) has not arrived: load (train.py:31), sleeping";
    assert_eq!(text, expected);
}

/// Check that a rank without a process is missing on this host, and only not found if it may be on another one.
#[test]
fn ranks_without_a_process_are_missing() {
    let (found, text) = verdict(vec![waits(0), waits(1), waits(3)]);
    assert_eq!(
        (found, &*text),
        (Verdict::NotArrived, "3 of 4 ranks wait in all_reduce; rank 2 has no process on its host")
    );
    let mut elsewhere = vec![waits(0), waits(1)];
    elsewhere.iter_mut().for_each(|process| process.place.local_world_size = Some(2));
    let (found, text) = verdict(elsewhere);
    let expected = "all 2 ranks that were found wait in all_reduce at step (train.py:40); ranks 2-3 were not found: look at their \
                    hosts, too";
    assert_eq!((found, &*text), (Verdict::Together, expected));
}

/// Check that ranks in different calls, or at different lines, are not said to wait for each other in the same place.
#[test]
fn different_places_are_reported() {
    let apart = vec![waits(0), waits(1), waits(2), process(3, State::Events, SAVE, false, 4)];
    let (found, text) = verdict(apart);
    let expected = "all 4 ranks wait, in different places: ranks 0-2 in all_reduce at step (train.py:40); rank 3 in broadcast at \
                    save (train.py:70)";
    assert_eq!((found, &*text), (Verdict::Apart, expected));
    let (found, text) = verdict((0..4).map(waits).collect());
    assert_eq!((found, &*text), (Verdict::Together, "all 4 ranks wait in all_reduce at step (train.py:40)"));
}

/// Check that a rank that ran waits only if the code around the call stayed where it was.
#[test]
fn only_calls_that_did_not_return_are_waits() {
    let moving = |kept| process(0, State::Running, SYNC, true, kept);
    let others = || (1..4).map(|rank| process(rank, State::Running, SYNC, true, 2));
    let (found, text) = verdict(std::iter::once(moving(2)).chain(others()).collect());
    let expected = "all 4 ranks wait for the GPU in cudaStreamSynchronize at step (train.py:41)";
    assert_eq!((found, &*text), (Verdict::Together, expected));
    let (found, text) = verdict(std::iter::once(moving(1)).chain(others()).collect());
    assert_eq!(found, Verdict::NotArrived);
    assert!(
        text.ends_with("waiting for the GPU in cudaStreamSynchronize at step (train.py:41) at first, then it returned"),
        "{text}"
    );
    let counted = |returned| {
        let mut one = moving(1);
        one.threads[0].returned = Some(returned);
        verdict(std::iter::once(one).chain(others()).collect()).0
    };
    assert_eq!((counted(0), counted(1)), (Verdict::Together, Verdict::NotArrived), "a count proves more than looks");
    let all = (0..4).map(|rank| process(rank, State::Running, SYNC, true, 1)).collect();
    assert_eq!(verdict(all), (Verdict::NoneWaits, "no rank stayed in a wait for 500 ms".into()));
}

/// Check that a thread that waits for the GPU speaks for its process only if the first thread waits for another thread.
#[test]
fn other_threads_speak_for_one_that_waits_for_them() {
    let with = |state| {
        let mut one = process(0, state, LOAD, false, 3);
        one.threads.push(process(0, State::Running, SYNC, false, 5).threads.remove(0));
        verdict(vec![one, waits(1), waits(2), waits(3)]).0
    };
    assert_eq!((with(State::Lock), with(State::Sleep)), (Verdict::Apart, Verdict::NotArrived));
}

/// Check that jobs are kept apart, and that the files of several hosts are joined.
#[test]
fn hosts_are_joined_and_jobs_are_not() {
    let part = |name: &str, processes: Vec<Process>| Host { host: name.into(), ..host(processes) };
    let mut other = waits(0);
    other.place.job = "other".into();
    let first = [part("a", vec![waits(0), waits(1), other])];
    let second = [part("b", vec![waits(2), process(3, State::Running, LOAD, true, 1)])];
    let mut hosts = Vec::new();
    for seen in [&first, &second] {
        let mut bytes = Vec::new();
        file::write(&mut bytes, &Hang::of(seen), seen).expect("written");
        file::read(&bytes, &mut hosts).expect("read");
    }
    assert_eq!(hosts, [&first[..], &second[..]].concat());
    let hang = Hang::of(&hosts);
    let texts: Vec<&str> = hang.jobs.iter().map(|job| job.text.as_str()).collect();
    assert!(texts[0].starts_with("3 of 4 ranks wait in all_reduce; rank 3 (pid 103 on b)"), "{texts:?}");
    assert!(texts[1].starts_with("1 of 4 ranks waits"), "{texts:?}");
}

/// Check that other files, and files that were changed, are refused with a sentence.
#[test]
fn other_files_are_refused() {
    let refusal = |text: &str| file::read(text.as_bytes(), &mut Vec::new()).expect_err("refused").to_string();
    assert!(refusal("{}").starts_with("it was not written by `warpscope hang`"));
    assert!(refusal("\u{1b}[2J").starts_with("it was not written"));
    assert!(refusal(&"[".repeat(100_000)).starts_with("it was not written"));
    assert!(refusal(r#"{"warpscope_hang": 2, "hosts": []}"#).contains("version 2"));
    let host = r#"{"host": "a", "boot": "", "time_ns": 0, "watched_ns": 0, "processes": [], "notes": []}"#;
    assert!(
        refusal(&format!(r#"{{"warpscope_hang": 1, "hosts": [{host}, {host}]}}"#)).contains("host a is in two files")
    );
    // A size that an environment invented costs nothing.
    let mut large = waits(0);
    large.place.world_size = Some(u32::MAX);
    assert_eq!(verdict(vec![large]).0, Verdict::Together);
}

/// Check that numbers of ranks are shortened.
#[test]
fn ranks_are_listed_in_runs() {
    assert_eq!(ranks(&[2]), "rank 2");
    assert_eq!(ranks(&[0, 1, 2, 5, 7, 8]), "ranks 0-2, 5, 7-8");
    assert!(ranks(&(0..100).map(|n| 2 * n).collect::<Vec<_>>()).ends_with("14, ..."));
    assert_eq!(ranks(&[u32::MAX, 0]), "ranks 4294967295, 0");
}
