//! The owner of a connection on this machine: the kernel returns the user of a socket by its addresses (sock_diag(7)).

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// `SOCK_DIAG_BY_FAMILY`, the only request type used.
const BY_FAMILY: u16 = 20;
/// `struct nlmsghdr`, and `struct inet_diag_req_v2` after it.
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 56;
/// Offsets in `struct inet_diag_msg`, after the header.
const USER: usize = HEADER + 64;
const INODE: usize = HEADER + 68;

/// The owner of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A process of this user.
    User(u32),
    /// There is no such socket, or no process has it open any longer.
    None,
    /// The kernel does not report it.
    Unknown,
}

/// Looks up owners through the kernel.
pub(super) struct Owners(OwnedFd);

impl Owners {
    /// Opens a socket for queries.
    pub(super) fn open() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: a new descriptor, checked and not owned elsewhere.
        unsafe {
            let socket = libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG);
            if socket < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(OwnedFd::from_raw_fd(socket))) }
        }
    }

    /// Returns the owner of the TCP socket with these addresses: its own and its peer's.
    pub(super) fn of(&self, own: SocketAddr, peer: SocketAddr) -> Owner {
        let request = request(own, peer);
        let mut answer = [0_u8; 1024];
        // SAFETY: both buffers are valid for their lengths. The kernel answers before `send` returns, and nothing else
        // writes to this socket, so the call does not wait.
        let length = unsafe {
            let sent = libc::send(self.0.as_raw_fd(), request.as_ptr().cast(), request.len(), 0);
            if sent < 0 { sent } else { libc::recv(self.0.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) }
        };
        usize::try_from(length).map_or(Owner::Unknown, |length| read(&answer[..length.min(answer.len())]))
    }
}

fn request(own: SocketAddr, peer: SocketAddr) -> [u8; REQUEST] {
    let (own_address, peer_address) = (own.ip().to_canonical(), peer.ip().to_canonical());
    let family = if own_address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut bytes = [0; REQUEST];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(0, &(REQUEST as u32).to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    put(HEADER, &[family as u8, libc::IPPROTO_TCP as u8]);
    // Sockets in any state.
    put(HEADER + 4, &u32::MAX.to_ne_bytes());
    put(HEADER + 8, &own.port().to_be_bytes());
    put(HEADER + 10, &peer.port().to_be_bytes());
    for (at, address) in [(HEADER + 12, own_address), (HEADER + 28, peer_address)] {
        match address {
            IpAddr::V4(address) => put(at, &address.octets()),
            IpAddr::V6(address) => put(at, &address.octets()),
        }
    }
    // Any cookie.
    put(HEADER + 48, &[0xff; 8]);
    bytes
}

fn read(answer: &[u8]) -> Owner {
    let word = |at: usize| answer.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let kind = answer.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
    match (kind, word(USER), word(INODE)) {
        (Some(BY_FAMILY), Some(_), Some(0)) => Owner::None,
        (Some(BY_FAMILY), Some(user), Some(_)) => Owner::User(user),
        // An error message starts with the error number.
        (Some(kind), ..) if i32::from(kind) == libc::NLMSG_ERROR => {
            let no_socket = word(HEADER).is_some_and(|error| error.cast_signed() == -libc::ENOENT);
            if no_socket { Owner::None } else { Owner::Unknown }
        }
        _ => Owner::Unknown,
    }
}
