//! Attaches to real processes, compiled here from C. Needs the right to trace them.

mod support;

use std::{
    env, fs,
    hash::{BuildHasher, RandomState},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use attach::{Attach, Error};
use support::{Program, attach, library};

/// For attempts that must fail: how long to search for a safe point. It does not change the outcome.
const SHORT: Duration = Duration::from_millis(100);

/// Attaches 30 times to a program with 32 threads that check their registers and their system calls of one kind.
fn visit_waiting_threads(kind: &str) {
    let program = Program::start("busy.c", &[], &[kind]);
    let library = library();
    let before = program.descriptors();
    let mut longest = Duration::ZERO;
    for round in 0..30 {
        let loaded = attach(&program, &library, c"entry", &[1, 2, 3]).load();
        let loaded = loaded.unwrap_or_else(|error| panic!("round {round}, longest stop {longest:?}: {error}"));
        assert_eq!(loaded.result, 6 << 32 | u64::from(program.pid()), "round {round}");
        longest = longest.max(loaded.stopped);
    }
    println!("longest stop: {longest:?}");
    program.wait_for_threads(33);
    assert_eq!(program.descriptors(), before);
    assert!(program.finish().starts_with("ok "));
}

/// Check that `nanosleep`, which the kernel restarts with the time that is left, is not changed by visits.
#[test]
fn visits_do_not_change_nanosleep() {
    visit_waiting_threads("0");
}

/// Check the same for `poll`.
#[test]
fn visits_do_not_change_poll() {
    visit_waiting_threads("1");
}

/// Check the same for `futex`.
#[test]
fn visits_do_not_change_futex() {
    visit_waiting_threads("2");
}

/// Check the same for `epoll_wait`, which the kernel does not restart.
#[test]
fn visits_do_not_change_epoll_wait() {
    visit_waiting_threads("3");
}

/// Check that calls that the time limit interrupts leave nothing behind: the program shares one CPU with threads that have a far higher
/// priority, so that it makes some of these calls long after it was released.
#[test]
fn interrupted_visits_leave_nothing() {
    let program = Program::start("busy.c", &[], &["1"]);
    let library = library();
    let before = program.descriptors();
    program.starve();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                support::use_first_cpu(0);
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let mut longest = Duration::ZERO;
        for round in 0..10 {
            let loaded = attach(&program, &library, c"entry", &[1, 2, 3]).load();
            longest =
                longest.max(loaded.map_or_else(|error| panic!("round {round}: {error}"), |loaded| loaded.stopped));
        }
        done.store(true, Ordering::Relaxed);
        println!("longest stop: {longest:?}");
    });
    program.wait_for_threads(33);
    assert_eq!(program.descriptors(), before);
    assert!(program.finish().starts_with("ok "));
}

/// Check that a program survives when the attaching process is killed at 30 random moments.
#[test]
fn killed_attachers_do_no_harm() {
    let program = Program::start("busy.c", &[], &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("library");
    fs::write(&path, library()).expect("the library");
    let before = program.descriptors();
    for round in 0..30_u64 {
        let mut attacher = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", "attacher", "--include-ignored"])
            .env("ATTACH_PID", program.pid().to_string())
            .env("ATTACH_LIBRARY", &path)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("the attacher");
        thread::sleep(Duration::from_micros(RandomState::new().hash_one(round) % 60_000));
        attacher.kill().expect("kill the attacher");
        attacher.wait().expect("its end");
    }
    // The last one can be followed by an ordinary one.
    attach(&program, &fs::read(&path).expect("the library"), c"entry", &[]).load().expect("attach");
    program.wait_for_threads(33);
    assert!(program.descriptors() <= before + 30, "at most one file for each that was killed");
    assert!(program.finish().starts_with("ok "));
}

/// Attaches until it is killed: the process that `killed_attachers_do_no_harm` kills.
#[test]
#[ignore = "started by killed_attachers_do_no_harm"]
fn attacher() {
    let Some(pid) = env::var("ATTACH_PID").ok().and_then(|pid| pid.parse().ok()) else { return };
    let library = fs::read(env::var("ATTACH_LIBRARY").expect("a path")).expect("the library");
    let limit = Duration::from_secs(60);
    loop {
        let attach = Attach {
            pid,
            library: &library,
            name: "library.so",
            entry: c"entry",
            argument: &[],
            patience: limit,
            answer: limit,
        };
        attach.load().expect("attach");
    }
}

/// Check that a process can end at any moment of attaching.
#[test]
fn process_may_exit_meanwhile() {
    let library = library();
    for round in 0..50_u64 {
        let program = Program::start("cases.c", &[], &[]);
        let attach = attach(&program, &library, c"entry", &[]);
        thread::scope(|scope| {
            let attaching = scope.spawn(|| attach.load());
            thread::sleep(Duration::from_micros(RandomState::new().hash_one(round) % 5_000));
            program.kill();
            match attaching.join().expect("no panic") {
                Ok(_) | Err(Error::Exited(_) | Error::Zombie(_) | Error::Interrupted { .. }) => {}
                // What was being read or written has disappeared.
                Err(Error::Io { .. } | Error::NoLoader { .. }) => {}
                Err(error) => panic!("round {round}: {error}"),
            }
        });
    }
}

/// Check that a process whose other thread loads libraries all the time can be entered.
#[test]
fn libraries_are_loaded_beside_other_loads() {
    let program = Program::start("cases.c", &[], &["loads"]);
    let library = library();
    for _ in 0..20 {
        let loaded = attach(&program, &library, c"entry", &[5]).load().expect("attach");
        assert_eq!(loaded.result, 5 << 32 | u64::from(program.pid()));
    }
    assert_eq!(program.finish(), "ok\n");
}

/// Check that the target runs on while the new thread waits for a lock of the loader, and that it loads afterwards.
#[test]
fn held_lock_of_the_loader_delays_only_the_new_thread() {
    let program = Program::start("cases.c", &[], &["locked"]);
    let library = library();
    let attach = Attach { answer: SHORT, ..attach(&program, &library, c"entry", &[]) };
    assert!(matches!(attach.load(), Err(Error::NoAnswer(_))));
    assert_eq!(program.finish(), "ok\n");
}

/// Check that no thread of the target is stopped while the function runs.
#[test]
fn function_runs_beside_the_target() {
    let program = Program::start("cases.c", &[], &[]);
    let loaded = attach(&program, &library(), c"slow", &[]).load().expect("attach");
    assert_eq!(loaded.result, 7);
    assert_eq!(program.finish(), "ok\n");
}

/// Check that a library is loaded once, and that another one of the same name is a different library.
#[test]
fn loaded_libraries_are_used_again() {
    let program = Program::start("cases.c", &[], &[]);
    let mut library = library();
    let calls = |library: &[u8]| attach(&program, library, c"count", &[]).load().expect("attach").result;
    assert_eq!([calls(&library), calls(&library), calls(&library)], [1, 2, 3]);
    // Bytes behind the end of a library mean nothing to the loader.
    library.push(1);
    assert_eq!([calls(&library), calls(&library)], [1, 2]);
    assert_eq!(program.finish(), "ok\n");
}

/// Check that the loader's own message is reported for bad libraries and missing functions.
#[test]
fn messages_of_the_loader_are_reported() {
    let program = Program::start("cases.c", &[], &[]);
    let before = program.descriptors();
    let message = |library: &[u8], entry| attach(&program, library, entry, &[]).load().expect_err("fails").to_string();
    assert!(message(b"not a library", c"entry").contains("could not load the library: /proc/self/fd/"));
    assert!(message(&library(), c"missing").contains("undefined symbol: missing"));
    program.wait_for_threads(1);
    assert_eq!(program.descriptors(), before);
    assert_eq!(program.finish(), "ok\n");
}

/// Returns the message for a process that must be refused, and checks that it runs on.
fn refused(source: &str, options: &[&str], arguments: &[&str]) -> String {
    let program = Program::start(source, options, arguments);
    let library = library();
    let attach = Attach { patience: SHORT, ..attach(&program, &library, c"entry", &[]) };
    let message = attach.load().expect_err("refused").to_string();
    assert_eq!(program.finish(), "ok\n");
    message.replace(&attach.pid.to_string(), "PID")
}

/// Check that each process that could be harmed is refused with a sentence that says why.
#[test]
fn unsuitable_processes_are_refused() {
    let seccomp = refused("cases.c", &[], &["seccomp"]);
    assert!(seccomp.starts_with("process PID runs under seccomp"), "{seccomp}");
    let traced = refused("cases.c", &[], &["traced"]);
    assert!(traced.starts_with("process PID is already traced by process"), "{traced}");
    let zombie = refused("cases.c", &[], &["zombie"]);
    assert!(zombie.starts_with("process PID is a zombie"), "{zombie}");
    let child = refused("cases.c", &[], &["vfork"]);
    assert!(child.starts_with("process PID shares its memory with its parent"), "{child}");
    let handler = refused("cases.c", &[], &["handler"]);
    assert_eq!(handler, "process PID had no thread at a safe point: a thread was in a signal handler");
    let fixed = refused("cases.c", &["-static"], &[]);
    assert!(fixed.starts_with("process PID cannot load libraries: it has no C library"), "{fixed}");
    let narrow = refused("narrow.c", &["-m32", "-mno-avx", "-nostdlib", "-static", "-fno-pie", "-no-pie"], &[]);
    assert_eq!(narrow, "process PID is not a 64-bit x86 process");
}

/// Check that nothing is loaded into a set-user-id program: another user controls its environment.
#[test]
fn privileged_programs_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = support::compile(folder.path(), "cases.c", &[]);
    for (place, mode) in [(folder.path(), 0o755), (&path, 0o4755)] {
        fs::set_permissions(place, fs::Permissions::from_mode(mode)).expect("it is ours");
    }
    let program = Program::of(Command::new(&path).uid(65534));
    assert!(matches!(attach(&program, &library(), c"entry", &[]).load(), Err(Error::Privileged(_))));
    assert_eq!(program.finish(), "ok\n");
}

/// Check that a process may execute another program at any moment of attaching: it is not harmed.
#[test]
fn process_may_execute_a_program_meanwhile() {
    let program = Program::start("cases.c", &[], &["execs"]);
    let library = library();
    for round in 0..100 {
        let attach = Attach { patience: SHORT, answer: SHORT, ..attach(&program, &library, c"entry", &[]) };
        match attach.load() {
            Ok(_)
            | Err(Error::Exited(_) | Error::Zombie(_) | Error::Interrupted { .. } | Error::NoSafePoint { .. }) => {}
            // The new program has not loaded its libraries, has closed the memory file, or has other memory.
            Err(Error::NoLoader { .. } | Error::NoAnswer(_) | Error::Replaced(_) | Error::Io { .. }) => {}
            Err(error) => panic!("round {round}: {error}"),
        }
    }
    assert_eq!(program.finish(), "ok\n");
}

/// Check that a process in uninterruptible sleep, here the parent of a `vfork`, is given up and runs on.
#[test]
fn uninterruptible_sleep_is_given_up() {
    let program = Program::start("cases.c", &[], &["vfork"]);
    let library = library();
    let attach = Attach { pid: program.parent(), patience: SHORT, ..attach(&program, &library, c"entry", &[]) };
    assert!(matches!(attach.load(), Err(Error::NoSafePoint { .. })));
    assert_eq!(program.finish(), "ok\n");
}

/// Check that a stopped process is refused and stays stopped.
#[test]
fn stopped_processes_stay_stopped() {
    let program = Program::start("cases.c", &[], &[]);
    program.signal(libc::SIGSTOP);
    program.wait_for_state('T');
    assert!(matches!(attach(&program, &library(), c"entry", &[]).load(), Err(Error::Stopped(_))));
    program.wait_for_state('T');
    program.signal(libc::SIGCONT);
    assert_eq!(program.finish(), "ok\n");
}
