//! Attacks on attaching by the process that is entered: root touches no file for it, and is not blocked.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    process::{Child, ChildStdout, Stdio},
};

use crate::support::{Ended, Scene, attacker::Attacker, program, programs};

/// A program of the attacker's on the simulated GPU.
pub(super) struct Target {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Target {
    /// Starts `programs/NAME` as the attacker. Other users may have no access to the build directory.
    fn start(attacker: &Attacker, name: &str, arguments: &[PathBuf]) -> Self {
        programs::copy(program(name), attacker.path(name));
        for library in fs::read_dir(programs::libraries()).expect("libraries").flatten() {
            fs::copy(library.path(), attacker.path(&library.file_name().to_string_lossy())).expect("a copy");
        }
        let mut command = attacker.command(attacker.path(name));
        command
            .args(arguments)
            .env("LD_LIBRARY_PATH", attacker.path(""))
            .stdin(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = command.spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut target = Self { child, output };
        assert_eq!(target.line(), "ready\n");
        target
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line
    }

    fn says(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("its input");
        input.write_all(line.as_bytes()).expect("it reads");
    }

    /// A short `record -p`, as root.
    fn record(&self, scene: &Scene) -> Ended {
        let pid = self.pid().to_string();
        let words = ["record", "--gpu-only", "-d", "0.05", "-o", "x.wscope", "-p", &pid];
        Ended::of(&mut scene.warpscope(&words)).exits(0)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `programs/swaps`, with its connection to a service of another process.
pub(super) fn swaps(attacker: &Attacker) -> (Target, UnixStream) {
    let path = attacker.path("service");
    let _ = fs::remove_file(&path);
    let service = UnixListener::bind(&path).expect("a socket");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("it is ours");
    let target = Target::start(attacker, "swaps", &[attacker.secret(), path]);
    (target, service.accept().expect("the target connects").0)
}

/// Check that root writes to no file but the memory file that it has created in the target. Here, threads of the target replace it
/// by a file that only root may write, a pipe, or another memory file. Root used to open what the number referred to, and wrote
/// the injected library to it.
#[test]
#[ignore = "a race for the processors: ./test runs it after the others"]
fn replaced_files_are_not_written() {
    let scene = Scene::new();
    let mut refused = 0;
    for with in ["path\n"; 10].into_iter().chain(["pipe\n", "same\n"].repeat(2)) {
        // A target that replaces the file too late may harm itself.
        let attacker = Attacker::new();
        let (mut target, _service) = swaps(&attacker);
        target.says(with);
        assert!(target.line().starts_with("swapped "));
        let run = target.record(&scene);
        refused += usize::from(run.err().contains("has replaced the memory file that was created in it"));
        attacker.secret_is_untouched();
    }
    assert!(refused > 0, "no file was replaced in time");
}

/// Check that root sends nothing on a connection that is not the injected library's: the target passes one to a service, which
/// may trust what root sends.
#[test]
#[ignore = "a race for the processors: ./test runs it after the others"]
fn connections_to_others_are_not_taken() {
    let scene = Scene::new();
    let mut refused = 0;
    for _ in 0..6 {
        let attacker = Attacker::new();
        let (mut target, mut service) = swaps(&attacker);
        target.says("forge\n");
        assert_eq!(target.line(), "swapped 0\n");
        let run = target.record(&scene);
        refused += usize::from(run.err().contains("the injected library's connection was replaced"));
        drop(target);
        let mut received = Vec::new();
        service.read_to_end(&mut received).expect("the end");
        assert_eq!(received, b"");
    }
    assert!(refused > 0, "no answer was forged in time");
}
