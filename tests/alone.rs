//! Tests that disturb the whole machine, and with it other tests: `./test` runs them one by one, after the others.

use std::{fs, process::Command, ptr};

use crate::support::{Running, Scene, folded, program, programs, scene::number, wait_until};

/// Check that launches from a library have their whole stacks even if the record of its mapping was lost, because others on
/// the machine mapped files until the rings were full. The stacks used to end in the library.
#[test]
#[ignore = "fills rings that all recordings share: ./test runs it after the others"]
fn lost_mappings_are_read_again() {
    let scene = Scene::new();
    let source = programs::sources().join("programs/late.c");
    let options = ["-DLIBRARY", "-O1", "-shared", "-fPIC", "-fno-optimize-sibling-calls", "-o"];
    programs::run(Command::new("cc").args(options).arg(scene.path("liblate.so")).arg(source));
    let command = format!("{} ./liblate.so go stop", program("late"));
    let mut run = Running::start(&mut scene.record("--sim -q --gpu-only -o x.wscope -o x.folded", &command));
    assert_eq!(run.stdout_line(), "ready");

    // Meanwhile, the stacks of all launches must fit into the ring of copied stacks.
    run.signal(libc::SIGSTOP);
    fill_rings();
    fs::write(scene.path("go"), "").expect("a file");
    assert_eq!(run.stdout_line(), "launched");
    run.signal(libc::SIGCONT);
    // It keeps the files of all mappings that it knows.
    let kept = || {
        let files = fs::read_dir(format!("/proc/{}/fd", run.pid())).expect("its descriptors");
        files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|path| path.ends_with("liblate.so")))
    };
    wait_until("the library is known", kept);
    fs::write(scene.path("stop"), "").expect("a file");
    run.wait().exits(0);

    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "launches"), number(&report, "matched")), (200, 200));
    assert!(report["lost"]["mappings"].as_u64() > Some(0), "{}", report["lost"]);
    assert_eq!(report["gpu_stack_ends"], serde_json::json!({"whole": 200}));
    for line in folded::read(&scene.read("x.folded")) {
        let launcher = line.launcher();
        let inner = launcher.iter().position(|frame| *frame == "late_inner").expect("the library's function");
        assert_eq!(launcher[..inner].last_chunk(), Some(&["main", "late_outer"]), "{launcher:?}");
    }
}

/// Maps code on each CPU until its ring of mapping records is certainly full.
fn fill_rings() {
    const RECORDS: usize = 40_000;
    let executable = fs::File::open("/proc/self/exe").expect("our own program");
    // SAFETY: the set is a local; the mapping is new and is removed at once.
    unsafe {
        let mut before: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&before), &mut before), 0);
        for cpu in (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &before)) {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut one);
            assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &one), 0);
            for _ in 0..RECORDS {
                let (protection, flags) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE);
                let file = std::os::fd::AsRawFd::as_raw_fd(&executable);
                let mapped = libc::mmap(ptr::null_mut(), 4096, protection, flags, file, 0);
                assert_ne!(mapped, libc::MAP_FAILED);
                libc::munmap(mapped, 4096);
            }
        }
        libc::sched_setaffinity(0, size_of_val(&before), &before);
    }
}
