//! `hang`: ranks that wait, ranks that have not arrived, and where these are.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::support::{
    Ended, Running, Scene,
    programs::{libraries, sources},
    pythons::{Python, installed},
    scene::number,
    wait_until,
};

/// The processes of a job.
struct Job {
    ranks: Vec<Running>,
}

fn train() -> PathBuf {
    sources().join("programs/stuck/train.py")
}

/// The line of the program with this comment.
fn line(of: &str) -> usize {
    let text = fs::read_to_string(train()).expect("the program");
    1 + text.lines().position(|line| line.ends_with(&format!("# line of {of}"))).expect("the line")
}

/// A frame of the program: `load (train.py:31)`.
fn at(function: &str, of: &str) -> String {
    format!("{function} (train.py:{})", line(of))
}

/// Whether the first thread of a process waits.
fn waits(pid: libc::pid_t) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") S "))
}

impl Job {
    /// Starts a job, and waits until each rank is where its words say. A rank that is `gone` has no process.
    fn start(scene: &Scene, python: &Python, ranks: &[&str], port: u16) -> Self {
        let present = ranks.iter().enumerate().filter(|(_, words)| **words != "gone");
        let start = |(rank, words): (usize, &&str)| {
            let mut command = scene.grouped(scene.bare(&python.path));
            command
                .arg(train())
                .args(words.split(' '))
                .env("LD_LIBRARY_PATH", libraries())
                .env("PYTHONDONTWRITEBYTECODE", "1");
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
            for (name, value) in
                [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", ranks.len()), ("LOCAL_WORLD_SIZE", ranks.len())]
            {
                command.env(name, value.to_string());
            }
            let mut running = Running::start(&mut command);
            assert_eq!(running.stdout_line(), "ready");
            if !["poll", "spin", "work", "steps"].iter().any(|runs| words.starts_with(runs)) {
                wait_until("it waits", || waits(running.pid()));
            }
            running
        };
        Self { ranks: present.map(start).collect() }
    }

    /// Options that select its processes.
    fn options(&self) -> Vec<String> {
        self.ranks.iter().flat_map(|rank| ["-p".to_owned(), rank.pid().to_string()]).collect()
    }
}

fn python() -> Python {
    installed().pop().expect("there is one")
}

/// Runs `hang --json` with options.
fn hang(scene: &Scene, options: &[String], status: i32) -> Value {
    let options = [&["hang".to_owned(), "--json".to_owned()], options].concat();
    let ended = Ended::of(&mut scene.warpscope(&options)).exits(status);
    assert_eq!(ended.err(), "", "nothing is missing");
    serde_json::from_str(ended.out()).expect("JSON")
}

fn only_job(seen: &Value) -> &Value {
    let jobs = seen["jobs"].as_array().expect("jobs");
    assert_eq!(jobs.len(), 1, "{seen}");
    &jobs[0]
}

/// Check, with every Python, that ranks wait that stay in a call in any way, and that the one that is elsewhere is named with its
/// line.
#[test]
fn the_missing_rank_is_named_with_its_line() {
    let elsewhere = [("load", "load", "sleep"), ("work", "work", "running"), ("lock", "enter", "lock")];
    for (python, (word, function, state)) in installed().iter().zip(elsewhere.iter().cycle()) {
        let scene = Scene::new();
        let job = Job::start(&scene, python, &["wait", "poll", word, "spin"], 29500);
        let seen = hang(&scene, &job.options(), 3);
        let job = only_job(&seen);
        assert_eq!((&job["verdict"], number(job, "world_size")), (&"not_arrived".into(), 4), "{python}: {job}");
        for (index, rank) in job["ranks"].as_array().expect("ranks").iter().enumerate() {
            let (frame, doing, call) = match index {
                2 => (at(function, word), "elsewhere", Value::Null),
                _ => (at("main", "all_reduce"), "in_collective", "all_reduce".into()),
            };
            assert_eq!(rank["place"]["frame"], frame, "{python}: {rank}");
            assert_eq!(
                (number(rank, "rank"), &rank["doing"], &rank["call"]),
                (index as u64, &doing.into(), &call),
                "{python}: {rank}"
            );
            assert!(index == 2 || rank["throughout"] == true, "{python}: {rank}");
        }
        // Up to 3.10, Python sleeps in `select`.
        let state = if *word == "load" && python.minor < 11 { "events" } else { state };
        assert_eq!(job["ranks"][2]["state"], state, "{python}: {job}");
        let text = job["text"].as_str().expect("a sentence");
        assert!(text.starts_with("3 of 4 ranks wait in all_reduce; rank 2 (pid "), "{python}: {text}");
        assert!(text.contains(&format!("has not arrived: {}", at(function, word))), "{python}: {text}");
    }
}

/// Check the text: the verdict first, then each rank, then the native and Python stack of the one that has not arrived.
#[test]
fn the_text_begins_with_the_verdict() {
    let scene = Scene::new();
    let job = Job::start(&scene, &python(), &["wait", "load"], 29500);
    let arguments = [vec!["hang".to_owned()], job.options()].concat();
    let ended = Ended::of(&mut scene.warpscope(&arguments)).exits(3);
    let text = ended.out();
    assert!(text.starts_with("1 of 2 ranks waits in all_reduce; rank 1 (pid "), "{text}");
    let (load, main) = (at("load", "load"), at("main", "all_reduce"));
    let places =
        [format!("in all_reduce at {main}\n"), "nanosleep".to_owned(), format!("    {load}\n"), "_start".to_owned()];
    let found: Vec<usize> =
        places.iter().map(|place| text.find(place).unwrap_or_else(|| panic!("no {place} in {text}"))).collect();
    assert!(found.is_sorted(), "{text}");
}

/// Check that a rank without a process is missed, and that a job in which no rank is missing is not said to be stuck.
#[test]
fn gone_ranks_are_missed() {
    let scene = Scene::new();
    let job = Job::start(&scene, &python(), &["wait", "wait", "gone"], 29500);
    let seen = hang(&scene, &job.options(), 3);
    let job = only_job(&seen);
    assert_eq!(
        (&job["text"], &job["gone"]),
        (&"2 of 3 ranks wait in all_reduce; rank 2 has no process on its host".into(), &Value::from(vec![2]))
    );
    let scene = Scene::new();
    let job = Job::start(&scene, &python(), &["wait", "spin"], 29500);
    let seen = hang(&scene, &job.options(), 0);
    assert_eq!(only_job(&seen)["text"], format!("all 2 ranks wait in all_reduce at {}", at("main", "all_reduce")));
}

/// Check, with every Python, that ranks that spend their time in a call, but return from it, do not wait.
#[test]
fn ranks_that_make_progress_do_not_wait() {
    for python in installed() {
        let scene = Scene::new();
        let job = Job::start(&scene, &python, &["steps", "steps"], 29500);
        let seen = hang(&scene, &job.options(), 0);
        assert_eq!(only_job(&seen)["verdict"], "none_waits", "{python}: {seen}");
    }
}

/// Check that ranks in different calls are reported.
#[test]
fn different_calls_are_reported() {
    let scene = Scene::new();
    let job = Job::start(&scene, &python(), &["wait", "broadcast"], 29500);
    let seen = hang(&scene, &job.options(), 3);
    let (reduce, broadcast) = (at("main", "all_reduce"), at("main", "broadcast"));
    let expected = format!(
        "all 2 ranks wait, in different places: rank 0 in all_reduce at {reduce}; rank 1 in broadcast at {broadcast}"
    );
    assert_eq!(only_job(&seen)["text"], expected);
}

/// Check that two jobs are kept apart, that the ranks of a control group are found, and that their workers are no ranks.
#[test]
fn jobs_are_found_and_kept_apart() {
    let scene = Scene::new();
    let group = scene.group().expect("a control group").path().to_owned();
    let python = python();
    let _first = Job::start(&scene, &python, &["wait worker", "load"], 29500);
    let _second = Job::start(&scene, &python, &["wait", "wait"], 29501);
    let seen = hang(&scene, &["--cgroup".to_owned(), group.to_string_lossy().into_owned()], 3);
    let jobs = seen["jobs"].as_array().expect("jobs");
    let verdicts: Vec<_> = jobs
        .iter()
        .map(|job| (job["verdict"].as_str().expect("a verdict"), job["ranks"].as_array().expect("ranks").len()))
        .collect();
    assert_eq!(verdicts, [("not_arrived", 2), ("together", 2)], "{seen}");
}

/// Starts four ranks of a native program, and looks at them when all of them stay where they are.
fn native_job(form: &str, script: &str, status: i32) -> Value {
    let scene = Scene::new();
    let group = scene.group().expect("a control group").path().to_owned();
    let mut command = scene.bare_cuda("nccl");
    command.args(["4", "1", form]).env("WARPSCOPE_SIM", script);
    let mut program = Running::start(command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", "29500"));
    for _ in 0..4 {
        assert_eq!(program.stdout_line(), "ready");
    }
    let members = fs::read_to_string(group.join("cgroup.procs")).expect("the group's processes");
    let members: Vec<libc::pid_t> = members.lines().map(|pid| pid.parse().expect("a pid")).collect();
    wait_until("all wait", || members.iter().all(|pid| waits(*pid)));
    hang(&scene, &["--cgroup".to_owned(), group.to_string_lossy().into_owned()], status)
}

/// Check that a kernel that never starts leaves all ranks waiting in the same place: which one is to blame cannot be seen from outside.
#[test]
fn stuck_kernels_have_no_culprit() {
    let seen = native_job("stuck", "devices=4,nccl_stuck=1:1", 0);
    assert_eq!(only_job(&seen)["text"], "all 4 ranks wait for the GPU in cudaDeviceSynchronize at finish");
}

/// Check that ranks that wait for the GPU, in whose operation one rank does not take part, are told from that rank, by native frames.
#[test]
fn ranks_wait_for_the_gpu() {
    let seen = native_job("absent", "devices=4", 3);
    let job = only_job(&seen);
    let text = job["text"].as_str().expect("a sentence");
    assert!(text.starts_with("3 of 4 ranks wait for the GPU in cudaDeviceSynchronize; rank 1 (pid "), "{text}");
    assert!(text.ends_with("has not arrived: load_batch, waiting"), "{text}");
    assert_eq!(job["ranks"][0]["place"]["frame"], "finish");
}

/// Check that a process that waits is not even woken, and that its threads are where they were.
#[test]
fn processes_are_not_disturbed() {
    let scene = Scene::new();
    let job = Job::start(&scene, &python(), &["wait", "lock"], 29500);
    let switches = || -> Vec<String> {
        let status = |rank: &Running| fs::read_to_string(format!("/proc/{}/status", rank.pid())).expect("it runs");
        let of = |status: String| status.lines().filter(|line| line.contains("ctxt_switches")).collect::<String>();
        job.ranks.iter().map(status).map(of).collect()
    };
    let before = switches();
    hang(&scene, &job.options(), 3);
    assert_eq!(switches(), before);
}

/// Check that the files of several hosts are joined, in any order.
#[test]
fn files_of_hosts_are_joined() {
    let scene = Scene::new();
    let job = Job::start(&scene, &python(), &["wait", "load", "wait"], 29500);
    let options = job.options();
    for (file, pids) in [("a.json", &options[..4]), ("b.json", &options[4..])] {
        let arguments = [&["hang", "-q", "-o", file].map(str::to_owned)[..], pids].concat();
        assert_eq!(Ended::of(&mut scene.warpscope(&arguments)).out(), "");
    }
    let host: Value = serde_json::from_str(&scene.read("a.json")).expect("JSON");
    let own = host["hosts"][0]["host"].as_str().expect("a name");
    let renamed = scene.read("b.json").replace(&format!("\"host\": \"{own}\""), "\"host\": \"other\"");
    fs::write(scene.path("b.json"), renamed).expect("written");
    let seen = hang(&scene, &["b.json".to_owned(), "a.json".to_owned()], 3);
    let text = only_job(&seen)["text"].as_str().expect("a sentence");
    let expected = format!("has not arrived: {}, sleeping", at("load", "load"));
    assert!(text.starts_with("2 of 3 ranks wait in all_reduce; rank 1 (pid ") && text.ends_with(&expected), "{text}");
    assert_eq!(only_job(&seen)["ranks"][2]["host"], "other");
    Ended::of(&mut scene.warpscope(&["hang", "a.json", "a.json"])).exits(1).says(&["a.json", "is in two files"]);
}

/// Check that wrong arguments and wrong files are refused with a sentence.
#[test]
fn wrong_input_is_refused() {
    let scene = Scene::new();
    let refused = |arguments: &[&str], words: &[&str]| {
        Ended::of(&mut scene.warpscope(&[&["hang"], arguments].concat())).exits(1).says(words);
    };
    refused(&[], &["which processes", "--all"]);
    refused(&["-p", "4194305"], &["cannot look at process 4194305"]);
    refused(&["--cgroup", "/no/such/group"], &["no rank was found", "/no/such/group"]);
    refused(&["none.json"], &["none.json", "No such file"]);
    for (name, text, words) in [
        ("other.json", "{\"a\": 1}".to_owned(), "not written by `warpscope hang`"),
        ("binary.json", "\u{1b}[2J\0".to_owned(), "not written by `warpscope hang`"),
        ("deep.json", "[".repeat(1 << 20), "not written by `warpscope hang`"),
        ("newer.json", "{\"warpscope_hang\": 7, \"hosts\": []}".to_owned(), "version 7"),
    ] {
        fs::write(scene.path(name), text).expect("written");
        refused(&[name], &[name, words]);
    }
    let large = fs::File::create(scene.path("large.json")).expect("a file");
    large.set_len(65 << 20).expect("a sparse file");
    refused(&["large.json"], &["large.json", "larger than"]);
}
