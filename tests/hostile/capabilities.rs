//! Attacks by a user who may run a binary with file capabilities (`setcap cap_bpf,cap_perfmon+ep`): none of the user's own code
//! runs with them.

use std::{ffi::CString, fs, os::unix::ffi::OsStrExt, path::Path, process::Command};

use crate::support::{
    Ended, Running, Scene,
    attacker::Attacker,
    program,
    programs::{self, WARPSCOPE},
};

/// Gives a file CAP_BPF and CAP_PERFMON, permitted and effective, as `setcap` does.
fn set_capabilities(path: &Path) {
    /// `VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE`; then permitted and inheritable, by words of 32 bits.
    const VALUE: [u32; 5] = [0x0200_0001, 0, 0, 1 << (38 - 32) | 1 << (39 - 32), 0];
    let bytes: Vec<u8> = VALUE.iter().flat_map(|word| word.to_le_bytes()).collect();
    let path = CString::new(path.as_os_str().as_bytes()).expect("a path");
    // SAFETY: both names end in 0, and the value has its length.
    let result = unsafe {
        libc::setxattr(path.as_ptr(), c"security.capability".as_ptr(), bytes.as_ptr().cast(), bytes.len(), 0)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// An attacker with a setcap copy of the binary, and with a library that notes the capabilities of whoever loads it.
struct Setup {
    scene: Scene,
    attacker: Attacker,
}

impl Setup {
    fn new() -> Self {
        let (scene, attacker) = (Scene::new(), Attacker::new());
        programs::copy(WARPSCOPE, scene.path("warpscope"));
        set_capabilities(&scene.path("warpscope"));
        programs::copy(program("stalled"), attacker.path("stalled"));
        let setup = Self { scene, attacker };
        let log = format!("-DLOG=\"{}\"", setup.text("log"));
        let flags = ["-shared", "-fPIC", "-Wall", &log, "-o"];
        let source = programs::sources().join("hostile/loaded.c");
        programs::run(Command::new("cc").args(flags).arg(setup.attacker.path("loaded.so")).arg(source));
        setup
    }

    fn text(&self, name: &str) -> String {
        self.attacker.path(name).into_os_string().into_string().expect("the path is text")
    }

    /// The binary with capabilities, run by the attacker.
    fn warpscope(&self, words: &str) -> Command {
        let mut command = self.attacker.command(self.scene.path("warpscope"));
        command.args(words.split(' ')).env("WARPSCOPE_SIM", format!("meter={}", self.text("meter")));
        command
    }

    /// Asserts that the attacker's code ran since the last call, and that it had no capability.
    #[track_caller]
    fn ran_without_capabilities(&self) {
        let log = fs::read_to_string(self.attacker.path("log")).expect("the attacker's code ran");
        let none = |line: &str| line.ends_with("\t0000000000000000");
        assert!(!log.is_empty() && log.lines().all(none), "{log}");
        fs::remove_file(self.attacker.path("log")).expect("it is there");
    }

    #[track_caller]
    fn did_not_run(&self) {
        assert!(!self.attacker.path("log").exists(), "{:?}", fs::read_to_string(self.attacker.path("log")));
    }
}

/// Check that the process that samples counters, started by the attacker, gives up its capabilities before it loads the
/// attacker's library, whatever its arguments, and that it heeds no variable that makes the driver load one.
#[test]
fn the_sampling_process_runs_own_code_without_capabilities() {
    let setup = Setup::new();
    let library = setup.text("loaded.so");
    for command in ["sample-counters", "check-counters"] {
        // Of these, the second word is a driver, or where the driver is from; the third is libcupti.
        for words in [format!("{library} {library}"), format!("driver {library}"), format!("simulated {library}")] {
            Ended::of(&mut setup.warpscope(&format!("{command} {words}")));
        }
        setup.ran_without_capabilities();
        let mut injecting = setup.warpscope(&format!("{command} simulated"));
        Ended::of(injecting.env("CUDA_INJECTION64_PATH", &library)).exits(0);
        setup.did_not_run();
    }
}

/// Check that a recording with the attacker's libcupti loads it without capabilities, and that the NVML that warpscope itself
/// then loads is not the one that the attacker has put in its place, in the private directory, which is the attacker's.
#[test]
fn own_libraries_are_not_loaded_with_capabilities() {
    let setup = Setup::new();
    let mut record = setup.warpscope("record --sim --counters --gpu-only -o x.wscope -- ./stalled");
    let ended = Ended::of(record.env("WARPSCOPE_CUPTI", setup.text("loaded.so"))).exits(0);
    setup.ran_without_capabilities();
    assert!(ended.err().contains("counters come from NVML (GPM)"), "{}", ended.err());
}

/// Check that the capabilities open no file that the attacker cannot open without them, for reading or writing, and that no
/// library is loaded into a process of another user.
#[test]
fn capabilities_open_no_files() {
    let setup = Setup::new();
    let secret = setup.attacker.secret();
    let secret = secret.display();
    for words in [
        format!("report {secret}"),
        format!("trace --list --lib {secret}"),
        "record -q -o /root/x.wscope -- true".into(),
    ] {
        let ended = Ended::of(&mut setup.warpscope(&words));
        assert!((ended.out().to_owned() + ended.err()).contains("Permission denied"), "{words}: {}", ended.err());
    }
    assert!(!Path::new("/root/x.wscope").exists());
    setup.attacker.secret_is_untouched();

    let (input, end) = std::io::pipe().expect("a pipe");
    let mut command = setup.scene.bare(program("registered"));
    let mut target = Running::start(command.stdin(input).env("LD_LIBRARY_PATH", programs::libraries()));
    assert_eq!(target.stdout_line(), "ready");
    let pid = target.pid();
    let ended = Ended::of(&mut setup.warpscope(&format!("record -p {pid} -d 0.5 -o x.wscope")));
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    assert!(!maps.contains("memfd:"), "{}", ended.err());
    drop(end);
    target.wait().exits(0);
}
