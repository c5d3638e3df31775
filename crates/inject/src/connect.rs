//! The connection to warpscope.

use core::mem::{size_of, zeroed};

use wire::Refusal;

use crate::sys;

/// How long a listener whose backlog is full is asked again.
const PATIENCE: u64 = 200_000_000;

/// Why there is no session, and the error number that says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub Refusal, pub i32);

/// Connects to the socket at `path`, if somebody trustworthy listens there. Never waits longer than [`PATIENCE`].
pub fn connect(path: &[u8]) -> Result<i32, Refused> {
    // SAFETY: all zeros is a value of this type.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if path.is_empty() || path.len() >= address.sun_path.len() {
        return Err(Refused(Refusal::Connect, libc::ENAMETOOLONG));
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = *from as libc::c_char;
    }
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: makes a descriptor, nothing else.
    let socket = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if socket < 0 {
        return Err(Refused(Refusal::Socket, sys::errno()));
    }
    let deadline = sys::now() + PATIENCE;
    loop {
        let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        // SAFETY: the address is initialised and as long as said.
        let connected = unsafe { libc::connect(socket, (&raw const address).cast(), length) } == 0;
        if connected && peer_is_trusted(socket) {
            return Ok(socket);
        }
        let error = sys::errno();
        // A Unix socket answers at once: EAGAIN means a full backlog.
        if connected || !matches!(error, libc::EAGAIN | libc::EINTR) || sys::now() >= deadline {
            // SAFETY: the descriptor is ours.
            unsafe { libc::close(socket) };
            return Err(Refused(if connected { Refusal::Peer } else { Refusal::Connect }, error));
        }
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        // SAFETY: the time is initialised; the remainder is not wanted.
        unsafe { libc::nanosleep(&pause, core::ptr::null_mut()) };
    }
}

/// Waits until warpscope has learnt where this process's code lies, so that the very first stack can be walked. That takes
/// about a millisecond; whatever happens, the program goes on after [`wire::WELCOME_PATIENCE_MS`].
pub fn await_welcome(socket: i32) {
    let mut poll = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
    let mut answer = 0_u8;
    // SAFETY: one entry; one byte of room; neither call takes longer than said.
    unsafe {
        if libc::poll(&raw mut poll, 1, wire::WELCOME_PATIENCE_MS) == 1 {
            libc::recv(socket, (&raw mut answer).cast(), 1, libc::MSG_DONTWAIT);
        }
    }
}

/// Whether the other end is root's or our own: nobody else is told what this program does.
pub fn peer_is_trusted(socket: i32) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` is writable and as long as said.
    let got =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &mut length) };
    // SAFETY: asks only for the user id.
    let own = unsafe { libc::geteuid() };
    let trusted = got == 0 && (peer.uid == 0 || peer.uid == own);
    if !trusted {
        sys::set_errno(libc::EACCES);
    }
    trusted
}
