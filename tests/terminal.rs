//! On a terminal: the command owns it as without us, and Ctrl-C reaches the command once.

use std::{
    ffi::CStr,
    fs::File,
    io::{Read, Write},
    os::{
        fd::FromRawFd,
        unix::{fs::OpenOptionsExt, process::CommandExt},
    },
    process::{Command, Stdio},
};

use crate::support::{Running, Scene, program, scene::number};

/// A pseudo-terminal: our end of it, and what came out so far.
struct Terminal {
    master: File,
    text: String,
}

impl Terminal {
    /// Starts a command that has a new terminal for its input and output, as the leader of a session.
    fn start(command: &mut Command) -> (Self, Running) {
        // Not openpty: its descriptors would leak into processes that other tests start at the same time.
        let mut name = [0; 64];
        // SAFETY: the descriptor is new and ours; the name is written to a buffer of the stated length.
        let master = unsafe {
            let master = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
            assert!(master >= 0 && libc::grantpt(master) == 0 && libc::unlockpt(master) == 0, "a pseudo-terminal");
            assert_eq!(libc::ptsname_r(master, name.as_mut_ptr(), name.len()), 0, "the terminal has a name");
            File::from_raw_fd(master)
        };
        // SAFETY: the call above has ended the name with a zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_str().expect("a path");
        let mut options = File::options();
        let slave = options.read(true).write(true).custom_flags(libc::O_NOCTTY).open(name).expect("the terminal opens");
        let end = || Stdio::from(slave.try_clone().expect("a descriptor"));
        command.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: only system calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().expect("it can be started");
        // Our copies of the terminal's other end would keep it open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        (Self { master, text: String::new() }, Running::watch(child))
    }

    fn send(&mut self, bytes: &[u8]) {
        self.master.write_all(bytes).expect("the terminal takes it");
    }

    /// Reads on until `text` has come.
    #[track_caller]
    fn expect(&mut self, text: &str) {
        while !self.text.contains(text) {
            assert!(self.more(), "no `{text}` in:\n{}", self.text);
        }
    }

    /// Reads to the end.
    fn rest(mut self) -> String {
        while self.more() {}
        self.text
    }

    fn more(&mut self) -> bool {
        let mut bytes = [0; 4096];
        // A terminal that nobody has open any more gives EIO.
        let length = self.master.read(&mut bytes).unwrap_or(0);
        self.text.push_str(&String::from_utf8_lossy(&bytes[..length]));
        length > 0
    }
}

/// Ctrl-C on a terminal: the CUDA program cleans up and exits its own way, then the summary comes and all is written.
#[test]
fn control_c() {
    let scene = Scene::new();
    let mut command = scene.record("--sim -o x.wscope -o x.svg", &format!("{} interrupt", program("behave")));
    let (mut terminal, run) = Terminal::start(&mut command);
    terminal.expect("ready");
    terminal.send(b"\x03");
    let text = terminal.rest();
    run.wait().exits(7);
    let (cleaned, matched) = (text.find("cleaned up"), text.find("matched 100 %"));
    assert!(cleaned.is_some() && cleaned < matched, "{text}");
    assert_eq!(scene.files(), ["x.svg", "x.wscope"]);
    let report = scene.report("x.wscope");
    assert_eq!(number(&report, "matched"), number(&report, "launches"));
}

/// Ctrl-C is one SIGINT for the command, not two, and does not end warpscope before the command.
#[test]
fn control_c_comes_once() {
    let scene = Scene::new();
    let script = r#"n=0; trap 'n=$((n+1)); echo "int $n"' INT; echo ready; read line; echo "$line, $n in all"; exit 5"#;
    let (mut terminal, run) = Terminal::start(&mut scene.record_words("-q -o x.svg", &["bash", "-c", script]));
    terminal.expect("ready");
    terminal.send(b"\x03");
    terminal.expect("int 1");
    terminal.send(b"hello\n");
    terminal.expect("hello, 1 in all");
    run.wait().exits(5);
}

/// The command's input and output are still the terminal, and it may read from it.
#[test]
fn the_terminal_is_the_commands() {
    let scene = Scene::new();
    let script = r#"for i in 0 1 2; do test -t $i || echo "no terminal: $i"; done; read line; echo "got $line"; tty > /dev/null"#;
    let (mut terminal, run) = Terminal::start(&mut scene.record_words("-q -o x.svg", &["bash", "-c", script]));
    terminal.send(b"hello\n");
    let text = terminal.rest();
    run.wait().exits(0);
    assert!(text.contains("got hello") && !text.contains("no terminal"), "{text}");
}
