//! The connection to warpscope.

use core::mem::{size_of, zeroed};
use core::sync::atomic::{AtomicBool, Ordering};

use wire::Refusal;

use crate::{calls, known_stacks, launches, lifecycle, python, sys};

/// The longest wait while the listener's backlog is full.
const PATIENCE: u64 = 2_000_000_000;

/// Why there is no session, and the error number with the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub Refusal, pub i32);

/// Connects to the socket at `path` if its listener is trusted. Never waits longer than [`PATIENCE`].
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
    // SAFETY: makes a descriptor, nothing else.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(Refused(Refusal::Socket, sys::errno()));
    }
    let error = match wait_in_line(socket, &address) {
        Ok(()) if !peer_is_trusted(socket) => Refused(Refusal::Peer, sys::errno()),
        // SAFETY: changes a flag of our descriptor.
        Ok(()) if unsafe { libc::fcntl(socket, libc::F_SETFL, libc::O_NONBLOCK) } == 0 => return Ok(socket),
        Ok(()) => Refused(Refusal::Socket, sys::errno()),
        Err(error) => Refused(Refusal::Connect, error),
    };
    // SAFETY: the descriptor is ours.
    unsafe { libc::close(socket) };
    Err(error)
}

/// Connects a blocking socket. While the backlog is full, the kernel admits those that wait in the order of their arrival:
/// other processes that connect all the time cannot shut this one out, as they could if it retried.
fn wait_in_line(socket: i32, address: &libc::sockaddr_un) -> Result<(), i32> {
    let deadline = sys::now() + PATIENCE;
    loop {
        // Zero would mean no limit.
        let left = deadline.saturating_sub(sys::now()).max(1_000);
        let most = libc::timeval { tv_sec: (left / 1_000_000_000) as _, tv_usec: (left % 1_000_000_000 / 1_000) as _ };
        // SAFETY: both values are initialised, and each call gets its value's own length. Without the limit, nothing connects.
        let connected = unsafe {
            let length = size_of::<libc::timeval>() as libc::socklen_t;
            let option = (&raw const most).cast();
            let limited = libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_SNDTIMEO, option, length) == 0;
            let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
            limited && libc::connect(socket, (&raw const *address).cast(), length) == 0
        };
        match sys::errno() {
            _ if connected => return Ok(()),
            // A signal handler ran.
            libc::EINTR if sys::now() < deadline => {}
            error => return Err(error),
        }
    }
}

/// Creates a connection for warpscope to take: our end and its end.
pub fn pair() -> Result<(i32, i32), Refused> {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: there is room for both descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return Err(Refused(Refusal::Socket, sys::errno()));
    }
    WELCOMED.store(false, Ordering::SeqCst);
    Ok((ends[0], ends[1]))
}

/// Waits until warpscope has read this process's code mappings, so that the very first stack can be walked. That takes
/// about a millisecond. Returns false if the welcome has not arrived in time.
pub fn await_welcome(socket: i32, milliseconds: u32) -> bool {
    let deadline = sys::now() + u64::from(milliseconds) * 1_000_000;
    while !WELCOMED.load(Ordering::Acquire) && sys::now() < deadline {
        let mut poll = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
        // The sender may be the one that receives the welcome, so this thread wakes up regularly.
        // SAFETY: one entry; the call is bounded by its timeout.
        let ready = unsafe { libc::poll(&raw mut poll, 1, 10) };
        if ready == 1 {
            let answer = receive(socket);
            let disconnected = answer.is_none() && poll.revents & (libc::POLLHUP | libc::POLLERR) != 0;
            if disconnected || answer == Some(wire::FINISH) {
                return false;
            }
            if answer == Some(wire::TAKEN) {
                lifecycle::close_other_end();
            }
        }
    }
    WELCOMED.load(Ordering::Acquire)
}

/// Whether the welcome has arrived.
static WELCOMED: AtomicBool = AtomicBool::new(false);

/// Receives what warpscope has sent, without waiting; `None` if there is nothing. The memories that come with a welcome
/// are opened.
pub fn receive(socket: i32) -> Option<u8> {
    /// Space for the header of a control message and the descriptors, with the alignment of the header.
    #[repr(C, align(8))]
    struct Control([u8; 32]);
    /// The most descriptors of a welcome.
    const MOST: usize = 4;
    let mut control = Control([0; 32]);
    let mut answer = 0_u8;
    let mut bytes = libc::iovec { iov_base: (&raw mut answer).cast(), iov_len: 1 };
    // SAFETY: all zeros is a value of this type.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut bytes;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    // SAFETY: the message points to locals; the header, if there is one, is within `control`, and a message of this
    // type has as many descriptors as its length says.
    let descriptors = unsafe {
        if libc::recvmsg(socket, &mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) <= 0 {
            return None;
        }
        let mut descriptors = [-1; MOST];
        if let Some(header) = libc::CMSG_FIRSTHDR(&raw const message).as_ref()
            && (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)
        {
            let count = header.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize) / size_of::<i32>();
            let data = libc::CMSG_DATA(header).cast::<i32>();
            for (index, descriptor) in descriptors.iter_mut().enumerate().take(count) {
                *descriptor = data.add(index).read_unaligned();
            }
        }
        descriptors
    };
    for descriptor in descriptors.into_iter().filter(|descriptor| *descriptor >= 0) {
        // Each recognises its memory by the size.
        known_stacks::open(descriptor);
        launches::open(descriptor);
        calls::open(descriptor);
        // SAFETY: the descriptor came with the message, and is ours.
        unsafe { libc::close(descriptor) };
    }
    if answer == wire::WELCOME {
        python::prepare();
        WELCOMED.store(true, Ordering::Release);
    }
    Some(answer)
}

/// Whether the peer runs as root or as our own user: no other user may see what this program does.
pub fn peer_is_trusted(socket: i32) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` is writable and `length` is its length.
    let got =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &mut length) };
    // SAFETY: only reads the user id.
    let own = unsafe { libc::geteuid() };
    let trusted = got == 0 && (peer.uid == 0 || peer.uid == own);
    if !trusted {
        sys::set_errno(libc::EACCES);
    }
    trusted
}
