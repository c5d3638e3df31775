//! The other end of a session: starts the target, and reads what it sends.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use wire::{Message, Notice};

/// The variable with the role of the target.
pub const ROLE: &str = "WARPSCOPE_TEST_ROLE";

/// The listening socket, in its own directory.
pub struct Listener {
    socket: OwnedFd,
    directory: PathBuf,
}

impl Listener {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, SeqCst);
        let name = format!("warpscope-inject-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("socket");
        let socket = socket();
        let address = address_of(&path);
        // SAFETY: the address is initialised and its own length is passed.
        unsafe {
            assert_eq!(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32), 0);
            assert_eq!(libc::listen(socket.as_raw_fd(), 8), 0);
        }
        Self { socket, directory }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.join("socket")
    }

    pub fn accept(&self) -> OwnedFd {
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

fn socket() -> OwnedFd {
    // SAFETY: the descriptor is owned at once.
    unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0)) }
}

fn address_of(path: &Path) -> libc::sockaddr_un {
    // SAFETY: all zeros is a value of this type.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    for (to, from) in address.sun_path.iter_mut().zip(path.to_str().unwrap().bytes()) {
        *to = from as libc::c_char;
    }
    address
}

/// Connects to a listener again and again, waiting as long as it takes, until the listener is closed.
pub fn connect_until_closed(path: &Path) {
    let address = address_of(path);
    loop {
        let socket = socket();
        // SAFETY: the address is initialised and its own length is passed.
        let result =
            unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32) };
        if result != 0 {
            return;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.directory).ok();
    }
}

/// A connected target process in one of its roles.
pub struct Target {
    pub process: Child,
    pub output: BufReader<ChildStdout>,
    pub socket: Option<OwnedFd>,
    _listener: Listener,
}

impl Target {
    pub fn run(role: &str) -> Self {
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
    pub fn wait_for_line(&mut self, line: &str) {
        let mut got = String::new();
        while !got.contains(line) {
            got.clear();
            assert_ne!(self.output.read_line(&mut got).unwrap(), 0, "the target ended before {line:?}");
        }
    }

    /// Reads to the end of the connection.
    pub fn read(&self) -> Received {
        let mut received = Received::default();
        while self.read_packet(&mut received) {}
        received
    }

    pub fn read_packet(&self, received: &mut Received) -> bool {
        let mut packet = vec![0; wire::MAX_PACKET + 1];
        let socket = self.socket.as_ref().unwrap().as_raw_fd();
        // SAFETY: the length passed is that of the buffer.
        let got = unsafe { libc::recv(socket, packet.as_mut_ptr().cast(), packet.len(), 0) };
        assert!(got >= 0 && got as usize <= wire::MAX_PACKET);
        received.add(&packet[..got as usize]);
        got > 0
    }

    /// Checks that the target exited successfully and wrote nothing to stderr.
    pub fn ended_well(mut self) {
        drop(self.socket.take());
        let Self { process, .. } = self;
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

/// Everything received on a connection.
#[derive(Default)]
pub struct Received {
    pub first: bool,
    pub hello: Option<wire::Hello>,
    pub kernels: Vec<(u32, String)>,
    pub kernel_count: u64,
    pub names: HashMap<u32, String>,
    pub syncs: Vec<wire::Sync>,
    pub failed: Vec<wire::Failed>,
    pub captured: Vec<u32>,
    /// Nodes created (id, mark, own), copied (id, original), and graphs destroyed.
    pub created: Vec<(u64, u32, u8)>,
    pub copied: Vec<(u64, u64)>,
    pub destroyed: Vec<u32>,
    pub totals: wire::Totals,
    pub cost: wire::Cost,
    pub notices: Vec<(Notice, String)>,
    /// Pauses by their number: from, to, and the other client.
    pub pauses: HashMap<u32, (u64, u64, String)>,
    pub ends: Vec<u32>,
}

impl Received {
    pub fn add(&mut self, mut packet: &[u8]) {
        while let Some(message) = Message::next(&mut packet).unwrap() {
            assert!(self.ends.is_empty(), "{message:?} after the end of the session");
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
                Message::NodeCreated(node) => self.created.push((node.node, node.mark, node.own)),
                Message::NodeCopied(node) => self.copied.push((node.node, node.original)),
                Message::GraphDestroyed(graph) => self.destroyed.push(graph.graph),
                Message::Totals(totals) => self.totals = totals,
                Message::Cost(cost) => {
                    assert!(cost.stacks_ns <= cost.callbacks_ns && cost.process_ns >= self.cost.process_ns, "{cost:?}");
                    self.cost = cost;
                }
                Message::Notice(notice, text) => {
                    self.notices.push((notice, String::from_utf8(text.into()).unwrap()));
                }
                Message::Pause(number, pause) => {
                    self.pauses.insert(number, (pause.from, pause.to, String::from_utf8(pause.name.into()).unwrap()));
                }
                Message::SessionEnd(end) => self.ends.push(end.pid),
                other => panic!("unexpected {other:?}"),
            }
            self.first = true;
        }
    }

    pub fn notice(&self, kind: Notice) -> &str {
        self.notices.iter().find(|(notice, _)| *notice == kind).map_or("", |(_, text)| text)
    }
}
