//! Whole sessions: this binary runs itself again as the target, in which CUPTI is played by functions of the test, and reads
//! at the other end of a real socket.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it")]

mod fake;

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use cupti::ids::{resource, result, sync_kind};
use inject::Found;
use wire::{Message, Notice};

const ROLE: &str = "WARPSCOPE_TEST_ROLE";

/// The listening end, in a directory of its own.
struct Listener {
    socket: OwnedFd,
    directory: PathBuf,
}

impl Listener {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, SeqCst);
        let name = format!("warpscope-inject-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("socket");
        // SAFETY: the address is initialised and as long as said; the descriptor is owned at once.
        let socket = unsafe {
            let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            let mut address: libc::sockaddr_un = std::mem::zeroed();
            address.sun_family = libc::AF_UNIX as u16;
            for (to, from) in address.sun_path.iter_mut().zip(path.to_str().unwrap().bytes()) {
                *to = from as libc::c_char;
            }
            let length = size_of_val(&address) as u32;
            assert_eq!(libc::bind(socket, (&raw const address).cast(), length), 0);
            assert_eq!(libc::listen(socket, 8), 0);
            OwnedFd::from_raw_fd(socket)
        };
        Self { socket, directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.join("socket")
    }

    fn accept(&self) -> OwnedFd {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry; the descriptor accepted is owned at once.
        unsafe {
            assert_eq!(libc::poll(&mut poll, 1, 20_000), 1, "the target did not connect");
            let (none, length) = (std::ptr::null_mut(), std::ptr::null_mut());
            let socket = libc::accept4(self.socket.as_raw_fd(), none, length, libc::SOCK_CLOEXEC);
            assert!(socket >= 0);
            let most = libc::timeval { tv_sec: 60, tv_usec: 0 };
            let length = size_of_val(&most) as u32;
            libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const most).cast(), length);
            OwnedFd::from_raw_fd(socket)
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.directory).ok();
    }
}

/// A target process in one of the roles below, connected.
struct Target {
    process: Child,
    output: BufReader<ChildStdout>,
    socket: Option<OwnedFd>,
    _listener: Listener,
}

impl Target {
    fn run(role: &str) -> Self {
        let listener = Listener::new();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "target", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(wire::SOCKET_VARIABLE, listener.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let socket = Some(listener.accept());
        Self { process, output, socket, _listener: listener }
    }

    /// Waits until the target prints `line`.
    fn wait_for_line(&mut self, line: &str) {
        let mut got = String::new();
        while !got.contains(line) {
            got.clear();
            assert_ne!(self.output.read_line(&mut got).unwrap(), 0, "the target ended before {line:?}");
        }
    }

    /// Reads to the end of the connection.
    fn read(&self) -> Told {
        let mut told = Told::default();
        while self.read_packet(&mut told) {}
        told
    }

    fn read_packet(&self, told: &mut Told) -> bool {
        let mut packet = vec![0; wire::MAX_PACKET + 1];
        let socket = self.socket.as_ref().unwrap().as_raw_fd();
        // SAFETY: the buffer is as long as said.
        let got = unsafe { libc::recv(socket, packet.as_mut_ptr().cast(), packet.len(), 0) };
        assert!(got >= 0 && got as usize <= wire::MAX_PACKET);
        told.take(&packet[..got as usize]);
        got > 0
    }

    /// The target ended well, and said nothing of its own accord on stderr.
    fn ended_well(mut self) {
        drop(self.socket.take());
        let Self { process, .. } = self;
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

/// Everything a connection said.
#[derive(Default)]
struct Told {
    first: bool,
    hello: Option<wire::Hello>,
    kernels: Vec<(u32, String)>,
    kernel_count: u64,
    names: HashMap<u32, String>,
    syncs: Vec<wire::Sync>,
    failed: Vec<wire::Failed>,
    captured: Vec<u32>,
    totals: wire::Totals,
    notices: Vec<(Notice, String)>,
    goodbyes: Vec<u32>,
}

impl Told {
    fn take(&mut self, mut packet: &[u8]) {
        while let Some(message) = Message::next(&mut packet).unwrap() {
            assert!(self.goodbyes.is_empty(), "{message:?} after the goodbye");
            match message {
                Message::Hello(hello) => {
                    assert!(!self.first, "hello comes first");
                    self.hello = Some(hello);
                }
                Message::Kernel(kernel) => {
                    self.kernel_count += 1;
                    let name = if kernel.name == 0 { "" } else { &self.names[&kernel.name] };
                    if self.kernels.len() < 100 {
                        self.kernels.push((kernel.correlation, name.into()));
                    }
                }
                Message::Name(id, text) => {
                    let text = String::from_utf8(text.into()).unwrap();
                    assert!(self.names.insert(id, text).is_none(), "a name is sent once");
                }
                Message::Sync(sync) => self.syncs.push(sync),
                Message::Failed(failed) => self.failed.push(failed),
                Message::Captured(captured) => self.captured.push(captured.correlation),
                Message::Totals(totals) => self.totals = totals,
                Message::Notice(notice, text) => {
                    self.notices.push((notice, String::from_utf8(text.into()).unwrap()));
                }
                Message::Goodbye(goodbye) => self.goodbyes.push(goodbye.pid),
                other => panic!("unexpected {other:?}"),
            }
            self.first = true;
        }
    }

    fn notice(&self, wanted: Notice) -> &str {
        self.notices.iter().find(|(notice, _)| *notice == wanted).map_or("", |(_, text)| text)
    }
}

/// Not a test of its own: the target process, when this binary runs itself.
#[test]
fn target() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let path = std::env::var(wire::SOCKET_VARIABLE).unwrap();
    let socket = inject::connect(Path::new(&path).as_os_str().as_encoded_bytes()).expect("connects");
    let library = Found::Library(fake::functions(), "/fake/libcupti.so.13".into());
    match role.as_str() {
        "launches" => {
            inject::start(socket, library, 13000);
            launch_all();
        }
        "graphs" => {
            inject::start(socket, library, 13000);
            assert!(fake::logged().contains(&"callback 3 13".into()));
            build_graphs();
        }
        "no nodes" => {
            fake::NODES_RESULT.store(result::NOT_INITIALIZED, SeqCst);
            inject::start(socket, library, 13000);
            fake::launch(1, 0, 0);
        }
        "late" => {
            fake::LATE.store(true, SeqCst);
            inject::start(socket, library, 13000);
            fake::launch(1, 0, 0);
        }
        "clock" => {
            fake::CLOCK_RESULT.store(7, SeqCst);
            inject::start(socket, library, 13000);
        }
        "subscriber" => {
            fake::SUBSCRIBE_RESULT.store(39, SeqCst);
            inject::start(socket, library, 13000);
            assert_eq!(fake::logged().last().map(String::as_str), Some("subscribe"), "and nothing after");
        }
        "nothing" => assert_eq!(inject::start(socket, Found::Nothing("tried /usr/local".into()), 12080), None),
        "peer" => {
            inject::start(socket, library, 13000);
            fake::launch(1, 0, 0);
            println!("launched");
            fake::wait_for("unsubscribe");
            assert!(fake::logged().contains(&"disable 10".into()));
            // The program goes on as before.
            fake::launch(2, 0, 0);
            let (buffer, _) = fake::request();
            fake::complete(buffer, fake::put_kernel(buffer, 2, fake::name("late"), 1, 2));
        }
        "fork" => fork(socket, library),
        "descriptors" => close_all(socket, library),
        "flood" => {
            inject::start(socket, library, 13000);
            flood(1_000_000);
            println!("flooded");
        }
        "flood and wait" => {
            inject::start(socket, library, 13000);
            flood(1_000_000);
            println!("flooded");
            std::io::stdin().read_line(&mut String::new()).unwrap();
        }
        other => panic!("no role {other}"),
    }
}

fn launch_all() {
    // SAFETY: errno belongs to this thread.
    unsafe { *libc::__errno_location() = 42 };
    fake::launch(1, 0, 0);
    fake::launch(2, 700, 700);
    // The runtime made good what the driver refused.
    fake::launch(3, 0, 201);
    fake::synchronize(7, 0);
    // It did not wait.
    fake::synchronize(9, 700);
    let (buffer, size) = fake::request();
    assert_eq!(size, 1 << 20);
    let (first, second) = (fake::name("_Z6matmulPf"), fake::name("_Z6matmulPf"));
    let mut at = fake::put_kernel(buffer, 1, first, 1000, 1500);
    // SAFETY: all of it lies within the buffer's 1 MiB.
    unsafe {
        at += fake::put_kernel(buffer.add(at), 3, second, 2000, 2100);
        at += fake::put_kernel(buffer.add(at), 4, first, 0, 0);
        at += fake::put_kernel(buffer.add(at), 5, first, 9, 8);
        at += fake::put_kernel(buffer.add(at), 6, std::ptr::null(), 10, 20);
    }
    fake::DROPPED.store(3, SeqCst);
    fake::complete(buffer, at);
    // SAFETY: as above.
    assert_eq!(unsafe { *libc::__errno_location() }, 42);
    let (again, _) = fake::request();
    assert_eq!(again, buffer, "buffers are used again");
    let at = fake::put_kernel(again, 8, fake::name("_Z4lastv"), 5000, 0);
    fake::AT_EXIT_VALID.store(at, SeqCst);
    fake::AT_EXIT.store(again, SeqCst);
}

fn build_graphs() {
    fake::launch(1, 0, 0);
    // Captured, and one that is more than one node.
    fake::launch_around(2, (0, 0), fake::node_created);
    fake::launch_around(3, (0, 0), || (0..3).for_each(|_| fake::node_created()));
    // Not captured: nodes added by hand, or by another thread, or copied; the graph's own launch.
    fake::node_created();
    fake::launch(4, 0, 0);
    fake::launch_around(5, (0, 0), || std::thread::spawn(fake::node_created).join().unwrap());
    fake::launch_around(6, (0, 0), || fake::node(resource::GRAPH_NODE_CLONED));
    fake::graph_launch(7, fake::node_created);
    // A call that fails has failed, whatever it did before.
    fake::launch_around(8, (901, 901), fake::node_created);
    fake::launch(9, 0, 0);
}

fn fork(socket: i32, library: Found) {
    inject::start(socket, library, 13000);
    fake::launch(1, 0, 0);
    // SAFETY: the child calls only what a program may call there, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        fake::launch(2, 0, 0);
        fake::launch(3, 1, 1);
        let (buffer, _) = fake::request();
        fake::complete(buffer, fake::put_kernel(buffer, 2, std::ptr::null(), 1, 2));
        // The parent's connection must be closed here.
        let open = (3..1024).any(is_socket);
        // SAFETY: runs the exit handlers, which is what is being tested.
        unsafe { libc::exit(if open { 1 } else { 7 }) };
    }
    let before = Instant::now();
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 7);
    // Waiting for its sender's thread, which it lacks, would take two seconds.
    assert!(before.elapsed() < Duration::from_secs(2), "the child's exit waited for a thread it lacks");
}

fn is_socket(descriptor: i32) -> bool {
    // SAFETY: asks about a number that may or may not be a descriptor; all zeros is a value of the type.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        libc::fstat(descriptor, &mut status) == 0 && status.st_mode & libc::S_IFMT == libc::S_IFSOCK
    }
}

/// The program closes every descriptor, as daemons do, and gets the number for a socket of its own.
fn close_all(socket: i32, library: Found) {
    inject::start(socket, library, 13000);
    let ours = (3..1024).find(|d| is_socket(*d)).unwrap();
    let mut pair = [0; 2];
    // SAFETY: the number is given to one end of the new pair in one step.
    unsafe {
        assert_eq!(libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()), 0);
        assert_eq!(libc::dup2(pair[0], ours), ours);
    }
    fake::launch(1, 0, 0);
    fake::wait_for("unsubscribe");
    let mut byte = 0u8;
    // SAFETY: the byte is writable.
    let got = unsafe { libc::recv(pair[1], (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) };
    assert_eq!(got, -1, "nothing was written to the program's own socket");
    assert!(is_socket(ours), "which is still open");
}

/// Delivers so many kernels, a full buffer at a time.
fn flood(kernels: u32) {
    let name = fake::name("flood");
    let mut sent = 0;
    while sent < kernels {
        let (buffer, size) = fake::request();
        let mut at = 0;
        while sent < kernels && at + 216 <= size {
            // SAFETY: the record fits, as just checked.
            at += fake::put_kernel(unsafe { buffer.add(at) }, sent, name, 100, 101);
            sent += 1;
        }
        fake::complete(buffer, at);
    }
}

/// Launches, failures, good and bad records and the flush at exit all arrive, each counted once.
#[test]
fn a_session_from_hello_to_goodbye() {
    let target = Target::run("launches");
    let pid = target.process.id();
    let told = target.read();
    target.ended_well();
    let hello = told.hello.unwrap();
    assert_eq!((hello.version, hello.pid, hello.cupti), (wire::VERSION, pid, 130_001));
    assert_eq!((hello.driver, hello.clock_offset), (13000, 0));
    assert_ne!(hello.session, 0);
    assert_eq!(told.notice(Notice::Library), "/fake/libcupti.so.13");
    assert_eq!(told.notice(Notice::CuptiFailed), "cuptiActivityEnable(22): CUPTI_ERROR_TEST (33)");
    let matmul = String::from("_Z6matmulPf");
    let expected = [(1, matmul.clone()), (3, matmul.clone()), (4, matmul), (6, String::new()), (8, "_Z4lastv".into())];
    assert_eq!(told.kernels, expected);
    let waits: Vec<_> = told.syncs.iter().map(|wait| (wait.correlation, wait.kind, wait.context)).collect();
    assert_eq!(waits, [(7, sync_kind::STREAM, 1)], "the driver's call within the runtime's is the same wait");
    assert!(told.syncs[0].start > 0 && told.syncs[0].end >= told.syncs[0].start);
    assert_eq!(told.failed, [wire::Failed { correlation: 2, code: 700 }]);
    let expected = wire::Totals {
        launches: 3,
        kernels: 6,
        kernel_ns: 610,
        syncs: 1,
        dropped_by_cupti: 3,
        zero_time: 1,
        unfinished: 1,
        invalid: 1,
        nameless: 1,
        failed: 1,
        ..Default::default()
    };
    assert_eq!(told.totals, expected);
    assert_eq!(told.goodbyes, [pid]);
}

/// A launch that became a graph node is told as captured; graphs built or launched in any other way are not.
#[test]
fn captured_launches_are_told() {
    let target = Target::run("graphs");
    let told = target.read();
    target.ended_well();
    assert_eq!(told.captured, [2, 3]);
    assert_eq!(told.failed, [wire::Failed { correlation: 8, code: 901 }]);
    assert_eq!((told.totals.launches, told.totals.failed, told.totals.dropped_queue_full), (9, 1, 0));
}

/// A release that does not tell of graph nodes is no reason to complain.
#[test]
fn graph_nodes_may_be_refused() {
    let target = Target::run("no nodes");
    let told = target.read();
    target.ended_well();
    let complaints = |text: &str| text.contains("cuptiEnableCallback");
    assert!(!told.notices.iter().any(|(_, text)| complaints(text)), "{:?}", told.notices);
    assert_eq!((told.totals.launches, told.goodbyes.len()), (1, 1));
}

/// Work that has no buffer yet when the program exits is flushed all the same.
#[test]
fn the_exit_flush_needs_no_buffer() {
    let target = Target::run("late");
    let told = target.read();
    target.ended_well();
    assert_eq!(told.kernels, [(1, "late".into())]);
}

/// A clock that CUPTI does not take is measured instead.
#[test]
fn a_foreign_clock_is_measured() {
    let target = Target::run("clock");
    let told = target.read();
    target.ended_well();
    let offset = told.hello.unwrap().clock_offset.cast_signed();
    assert!((offset + 3_600_000_000_000).abs() < 50_000_000, "{offset}");
    assert!(told.notice(Notice::ForeignClock).contains("CUPTI_ERROR_TEST (7)"));
}

/// Another subscriber is named, and left in peace.
#[test]
fn another_subscriber_is_named() {
    let target = Target::run("subscriber");
    let told = target.read();
    target.ended_well();
    assert_eq!(told.notice(Notice::OtherSubscriber), "CUPTI for Kineto");
    assert_eq!(told.goodbyes.len(), 1);
}

/// Without libcupti the session says so, and goodbye.
#[test]
fn no_library_is_told() {
    let target = Target::run("nothing");
    let told = target.read();
    target.ended_well();
    assert_eq!(told.hello.unwrap().cupti, 0);
    assert_eq!(told.notice(Notice::NoCupti), "tried /usr/local");
    assert_eq!(told.goodbyes.len(), 1);
}

/// When warpscope goes away the library lets go of CUPTI, and the program ends as if nothing had been.
#[test]
fn the_target_outlives_its_peer() {
    let mut target = Target::run("peer");
    let mut told = Told::default();
    assert!(target.read_packet(&mut told));
    assert!(told.hello.is_some());
    target.wait_for_line("launched");
    target.socket = None;
    target.ended_well();
}

/// A forked child leaves the session to its parent.
#[test]
fn a_forked_child_is_silent() {
    let target = Target::run("fork");
    let pid = target.process.id();
    let told = target.read();
    target.ended_well();
    assert_eq!((told.totals.launches, told.totals.kernels, told.totals.failed), (1, 0, 0));
    assert_eq!(told.goodbyes, [pid]);
}

/// A program that closes our descriptor and uses its number finds its own files untouched.
#[test]
fn a_descriptor_lost_is_not_used() {
    let target = Target::run("descriptors");
    let told = target.read();
    target.ended_well();
    assert_eq!(told.goodbyes, []);
}

/// A reader that falls behind loses records, and every one of them is counted.
#[test]
fn losses_are_counted_exactly() {
    let mut target = Target::run("flood and wait");
    target.wait_for_line("flooded");
    let mut told = Told::default();
    while told.kernel_count + told.totals.dropped_queue_full < 1_000_000 {
        assert!(target.read_packet(&mut told));
    }
    assert!(told.totals.dropped_queue_full > 0);
    // Only now may the target exit: at exit it would wait for a slow reader, but not for ever.
    drop(target.process.stdin.take());
    while target.read_packet(&mut told) {}
    target.ended_well();
    assert_eq!(told.totals.kernels, 1_000_000);
    assert_eq!(told.kernel_count + told.totals.dropped_queue_full, 1_000_000);
    assert_eq!(told.goodbyes.len(), 1);
}

/// A reader that never reads holds the exit up for no longer than the deadline.
#[test]
fn a_stalled_reader_does_not_hold_the_exit() {
    let mut target = Target::run("flood");
    target.wait_for_line("flooded");
    let since = Instant::now();
    assert!(target.process.wait().unwrap().success());
    let waited = since.elapsed();
    assert!(waited > Duration::from_millis(1500) && waited < Duration::from_secs(60), "{waited:?}");
}
