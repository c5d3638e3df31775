//! Sends packets over the connection. Only the sender thread does.

use core::ptr;

use crate::{lifecycle, sys};

/// No deadline: the exit handler that waits for the sender has its own.
pub const FOREVER: u64 = u64::MAX;

/// The peer has disconnected.
pub struct Disconnected;

/// What became of a packet.
pub enum Sent {
    /// It was sent.
    Whole,
    /// The socket is full.
    Blocked,
    /// The packet can never be sent: its records are lost.
    Refused,
}

/// Sends a packet, without waiting.
pub fn send(packet: &[u8]) -> Result<Sent, Disconnected> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the bytes are valid for the call.
    let sent = unsafe { libc::send(lifecycle::socket(), packet.as_ptr().cast(), packet.len(), flags) };
    if sent >= 0 {
        return Ok(Sent::Whole);
    }
    match sys::errno() {
        libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM => Ok(Sent::Blocked),
        libc::EMSGSIZE => Ok(Sent::Refused),
        _ => Err(Disconnected),
    }
}

/// Waits for space in the socket; false if the deadline has passed, or the process exits and there is a deadline.
pub fn await_room(deadline: u64) -> bool {
    let Some(left) = deadline.checked_sub(sys::now()).filter(|left| *left > 0) else { return false };
    wait_for_room(left);
    deadline == FOREVER || !lifecycle::is_exiting()
}

/// Waits for space in the socket. Always waits briefly, because memory can be short while the socket has space.
pub fn wait_for_room(nanoseconds: u64) {
    let mut poll = libc::pollfd { fd: lifecycle::socket(), events: libc::POLLOUT, revents: 0 };
    let milliseconds = (nanoseconds / 1_000_000).clamp(1, 100) as i32;
    // SAFETY: one entry, valid for the call.
    let ready = unsafe { libc::poll(&mut poll, 1, milliseconds) };
    if ready > 0 {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
        // SAFETY: the time is initialised; the remainder is not wanted.
        unsafe { libc::nanosleep(&pause, ptr::null_mut()) };
    }
}
