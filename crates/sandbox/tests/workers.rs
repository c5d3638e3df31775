//! Calls real workers. Without a test harness: the zygote must be forked from a process without threads.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom, Write},
    os::{fd::OwnedFd, unix::fs::FileExt},
    thread,
    time::{Duration, Instant},
};

use sandbox::{Failed, Limits, missing, parse, start};

const LIMITS: Limits = Limits { time: Duration::from_secs(60), answer: 1 << 20 };
const MEMORY: u64 = 1 << 30;

fn main() {
    start(MEMORY).expect("a process");
    assert_eq!(missing(), None, "this kernel restricts everything");
    workers_answer();
    workers_have_no_rights();
    workers_can_do_nothing_else();
    a_worker_that_fails_is_alone();
    a_worker_that_takes_too_long_is_killed();
    answers_are_limited();
    workers_run_at_the_same_time();
    a_zygote_that_is_gone_is_reported();
    println!("ok");
}

/// Check that a worker gets its request and all its files.
fn workers_answer() {
    fn read(offset: &u64, files: &[&File]) -> Vec<String> {
        let one = |file: &&File| {
            let mut bytes = [0; 3];
            file.read_exact_at(&mut bytes, *offset).expect("it is readable");
            let size = { *file }.seek(SeekFrom::End(0)).expect("it is a file");
            format!("{} of {size}", String::from_utf8_lossy(&bytes))
        };
        files.iter().map(one).collect()
    }
    let file = |text: &str| {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(text.as_bytes()).expect("it is writable");
        file
    };
    let (first, second) = (file("0123456"), file("abcdefgh"));
    assert_eq!(parse(read, &2, &[&first, &second], &LIMITS), Ok(vec!["234 of 7".to_owned(), "cde of 8".to_owned()]));
}

/// Check what the kernel says about a worker: no capability, another user, filtered, no descriptor but its socket and its file.
fn workers_have_no_rights() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let reader = File::from(OwnedFd::from(reader));
    no_worker();
    let call = thread::spawn(move || parse(wait, &0, &[&reader], &LIMITS));
    let worker = first_worker();
    let status = fs::read_to_string(format!("/proc/{worker}/status")).expect("it waits");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    // SAFETY: a plain system call.
    if unsafe { libc::geteuid() } == 0 {
        assert_eq!(field("CapBnd:"), ["0000000000000000"]);
        assert_eq!(field("Uid:"), ["65534"; 4]);
        assert_eq!(field("Gid:"), ["65534"; 4]);
        assert_eq!(field("Groups:"), [""; 0]);
    }
    assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), (vec!["1".into()], vec!["2".into()]));
    let mut descriptors: Vec<String> = fs::read_dir(format!("/proc/{worker}/fd"))
        .expect("we may look")
        .filter_map(|entry| Some(fs::read_link(entry.ok()?.path()).ok()?.to_string_lossy().into_owned()))
        .map(|target| target.split(':').next().unwrap_or_default().to_owned())
        .collect();
    descriptors.sort();
    assert_eq!(descriptors, ["pipe", "socket"]);
    drop(writer);
    assert_eq!(call.join().expect("no panic"), Ok(0));
}

/// Waits until the pipe is closed.
fn wait(_: &u64, files: &[&File]) -> u64 {
    let mut file = files[0];
    file.read(&mut [0]).expect("a pipe") as u64
}

/// Waits until the workers of earlier calls are gone: a worker ends after it has answered.
fn no_worker() {
    await_workers(|workers| workers.is_empty().then_some(()));
}

/// Returns the first worker that has given up what the zygote still has: its own filter is the last step.
fn first_worker() -> u32 {
    let before = filters(zygote());
    await_workers(|workers| workers.iter().copied().find(|worker| filters(*worker) > before))
}

/// Returns the number of system call filters of a process.
fn filters(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
    field.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

fn await_workers<T>(answer: impl Fn(&[u32]) -> Option<T>) -> T {
    let zygote = zygote();
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = answer(&children(zygote)) {
            return answer;
        }
        assert!(Instant::now() < end, "the workers did not change");
        thread::yield_now();
    }
}

fn zygote() -> u32 {
    children(std::process::id())[0]
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Check that a worker can neither open, connect, fork, execute, signal nor get memory to execute, nor write to a file.
fn workers_can_do_nothing_else() {
    fn attempts(parent: &u64, files: &[&File]) -> Vec<String> {
        let parent = *parent as libc::pid_t;
        let done = |name: &str, answer: i64| (answer >= 0).then(|| name.to_owned());
        // SAFETY: system calls that must fail, with valid or null arguments.
        unsafe {
            let execute = libc::PROT_READ | libc::PROT_EXEC;
            let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let page = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, private, -1, 0);
            [
                done("open", libc::open(c"/etc/passwd".as_ptr(), libc::O_RDONLY).into()),
                done("stat", fs::metadata("/etc/passwd").map_or(-1, |_| 0)),
                done("socket", libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).into()),
                done("fork", libc::fork().into()),
                done("thread", thread::Builder::new().spawn(|| ()).map_or(-1, |_| 0)),
                done("exec", libc::execve(c"/bin/true".as_ptr(), std::ptr::null(), std::ptr::null()).into()),
                done("signal", libc::kill(parent, 0).into()),
                done("trace", libc::ptrace(libc::PTRACE_ATTACH, parent, 0, 0)),
                done("namespace", libc::unshare(libc::CLONE_NEWUSER).into()),
                done("code", libc::mmap(std::ptr::null_mut(), 4096, execute, private, -1, 0) as i64),
                done("writable code", libc::mprotect(page, 4096, execute).into()),
                done("write", files[0].write_at(b"x", 0).map_or(-1, |_| 0)),
                done("limit", libc::setrlimit(libc::RLIMIT_AS, std::ptr::null()).into()),
            ]
            .into_iter()
            .flatten()
            .collect()
        }
    }
    let file = tempfile::tempfile().expect("a file");
    assert_eq!(parse(attempts, &u64::from(std::process::id()), &[&file], &LIMITS), Ok(vec![]));
}

/// Check that a worker that panics, accesses invalid memory, aborts or needs too much memory is reported, and the next one answers.
fn a_worker_that_fails_is_alone() {
    fn fail(how: &u64, _: &[&File]) -> u64 {
        match how {
            0 => panic!("as requested"),
            // SAFETY: it is not: the process must end.
            1 => unsafe { std::ptr::without_provenance::<u64>(16).read_volatile() },
            2 => std::process::abort(),
            3 => vec![1_u8; MEMORY as usize].iter().map(|byte| u64::from(*byte)).sum(),
            other => *other,
        }
    }
    for how in 0..4 {
        assert_eq!(parse(fail, &how, &[], &LIMITS), Err(Failed::Crashed), "{how}");
    }
    assert_eq!(parse(fail, &4, &[], &LIMITS), Ok(4));
}

/// Check that an endless loop, and a read that blocks, end in time, and leave no process.
fn a_worker_that_takes_too_long_is_killed() {
    fn spin(_: &u64, _: &[&File]) -> u64 {
        loop {
            std::hint::spin_loop();
        }
    }
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let soon = Limits { time: Duration::from_secs(1), ..LIMITS };
    assert_eq!(parse(spin, &0, &[], &soon), Err(Failed::Late(1)));
    assert_eq!(parse(wait, &0, &[&File::from(OwnedFd::from(reader))], &soon), Err(Failed::Late(1)));
    drop(writer);
    no_worker();
}

/// Check that an answer that is too large is not read.
fn answers_are_limited() {
    fn many(length: &u64, _: &[&File]) -> Vec<u8> {
        vec![0; *length as usize]
    }
    assert_eq!(parse(many, &1000, &[], &LIMITS).map(|bytes| bytes.len()), Ok(1000));
    assert_eq!(parse(many, &(2 << 20), &[], &LIMITS), Err(Failed::Malformed));
}

/// Check that calls of several threads do not mix.
fn workers_run_at_the_same_time() {
    fn square(number: &u64, _: &[&File]) -> u64 {
        number * number
    }
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                for number in thread * 100..thread * 100 + 100 {
                    assert_eq!(parse(square, &number, &[], &LIMITS), Ok(number * number));
                }
            });
        }
    });
}

/// Check that a killed zygote is an error, not a call that waits.
fn a_zygote_that_is_gone_is_reported() {
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::kill(zygote().cast_signed(), libc::SIGKILL) }, 0);
    assert_eq!(parse(wait, &0, &[], &LIMITS), Err(Failed::Gone));
}
