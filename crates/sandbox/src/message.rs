//! Messages with descriptors, over a pair of sockets.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

/// The most descriptors of a message: the socket of a request and its files.
pub(crate) const MOST: usize = 32;
/// Room for their control message.
const CONTROL: usize = 256;

/// Control messages are aligned like their headers.
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// Returns two connected sockets that no executed program inherits.
pub(crate) fn pair(kind: libc::c_int) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: a buffer for two descriptors, which are new and ours.
    unsafe {
        if libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Repeats a call that a signal interrupted.
fn uninterrupted(mut call: impl FnMut() -> isize) -> isize {
    loop {
        match call() {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

/// Sends one byte with descriptors.
pub(crate) fn send(socket: RawFd, byte: u8, descriptors: &[RawFd]) -> io::Result<()> {
    if descriptors.len() > MOST {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut data = [byte];
    let mut part = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = Control([0; CONTROL]);
    // SAFETY: the header and everything it points to are valid for the call, and the control buffer has room for `MOST` descriptors.
    // All zeroes is a valid header.
    let sent = unsafe {
        let mut header: libc::msghdr = MaybeUninit::zeroed().assume_init();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        if !descriptors.is_empty() {
            let size = size_of_val(descriptors) as u32;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(size) as _;
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(size) as _;
            std::ptr::copy_nonoverlapping(
                descriptors.as_ptr().cast::<u8>(),
                libc::CMSG_DATA(first),
                size_of_val(descriptors),
            );
        }
        uninterrupted(|| libc::sendmsg(socket, &raw const header, libc::MSG_NOSIGNAL))
    };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives one byte with descriptors. `None`: the other end is closed.
pub(crate) fn receive(socket: RawFd) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    let mut data = [0];
    let mut part = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = Control([0; CONTROL]);
    let mut descriptors = Vec::new();
    // SAFETY: as in `send`; the kernel writes no more than the lengths given, and the received descriptors are new and ours.
    let received = unsafe {
        let mut header: libc::msghdr = MaybeUninit::zeroed().assume_init();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL as _;
        let received = uninterrupted(|| libc::recvmsg(socket, &raw mut header, libc::MSG_CMSG_CLOEXEC));
        let mut next = if received > 0 { libc::CMSG_FIRSTHDR(&raw const header) } else { std::ptr::null_mut() };
        while let Some(message) = next.as_ref() {
            if (message.cmsg_level, message.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = message.cmsg_len - libc::CMSG_LEN(0) as usize;
                let first = libc::CMSG_DATA(next).cast::<RawFd>();
                for index in 0..bytes / size_of::<RawFd>() {
                    descriptors.push(OwnedFd::from_raw_fd(first.add(index).read_unaligned()));
                }
            }
            next = libc::CMSG_NXTHDR(&raw const header, next);
        }
        received
    };
    match received {
        0 => Ok(None),
        1.. => Ok(Some((data[0], descriptors))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes calls on a socket fail after this time.
pub(crate) fn set_timeout(socket: &OwnedFd, time: std::time::Duration) {
    let time = libc::timeval { tv_sec: time.as_secs() as _, tv_usec: time.subsec_micros() as _ };
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        // SAFETY: a valid value of the given size.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const time).cast(),
                size_of_val(&time) as libc::socklen_t,
            );
        }
    }
}
