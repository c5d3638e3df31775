//! System calls on the socket that injected libraries connect to.
//!
//! The socket is in a private directory with a random name, and both sides check the other's credentials. Its type is
//! SEQPACKET: a packet arrives completely or not at all, so a target killed in the middle of a send leaves no partial
//! message. Credentials are read with libc: the pid of a peer outside our pid namespace is 0, which rustix cannot
//! express.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags};

/// Accepts the next connection.
pub fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?)
}

/// Returns the peer's credentials, as reported by the kernel. Not with rustix, whose process ids are never 0: that of a peer
/// outside of our pid namespace is.
pub fn credentials(socket: &OwnedFd) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer is as long as `length` says.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if answer == 0 { Ok(peer) } else { Err(io::Error::last_os_error()) }
}

/// Returns whether a descriptor is one of a pair of sockets that this process has created, not a connection to another one.
pub fn is_pair_of(socket: &OwnedFd, pid: u32) -> bool {
    credentials(socket).is_ok_and(|peer| u32::try_from(peer.pid) == Ok(pid))
}

/// Receives the next packet; length 0 means end of stream.
pub fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for its length.
    let length = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
    if length < 0 { Err(io::Error::last_os_error()) } else { Ok(length as usize) }
}

/// Sends one byte and at most two descriptors, without blocking. Errors are ignored: the peer may have exited.
pub fn send_with(socket: &OwnedFd, byte: u8, descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(descriptors));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = rustix::net::sendmsg(socket, &[io::IoSlice::new(&[byte])], &mut control, flags);
}

/// Sends one byte, without blocking. Errors are ignored: the peer may have exited.
pub fn send_byte(fd: RawFd, byte: u8) {
    // SAFETY: one byte, on a socket of ours that does not block.
    unsafe { libc::send(fd, [byte].as_ptr().cast(), 1, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
}
