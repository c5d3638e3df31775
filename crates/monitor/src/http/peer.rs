//! Identifies the client of a connection for fair sharing.

use std::net::{IpAddr, Ipv4Addr, TcpStream};

use super::owner::{Owner, Owners};

/// The unit that shares slots and rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// A user of this machine. All users share the same addresses, and each can use many.
    User(u32),
    /// A client on this machine whose user the kernel does not report.
    Local,
    /// Another machine.
    V4(Ipv4Addr),
    /// A site's network: one machine can have any number of addresses in it.
    V6([u16; 4]),
}

impl Peer {
    /// Returns the peer of a connection; `None` if it has already closed its end, so that an answer would not be read.
    pub(super) fn of(stream: &TcpStream, owners: Option<&Owners>) -> Option<Self> {
        let (here, there) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
        let address = there.ip().to_canonical();
        if !address.is_loopback() && address != here.ip().to_canonical() {
            return Some(Self::of_address(address));
        }
        match owners.map_or(Owner::Unknown, |owners| owners.of(there, here)) {
            Owner::User(user) => Some(Self::User(user)),
            // Translated addresses may look local although no socket here has them.
            Owner::None if address.is_loopback() => None,
            Owner::None | Owner::Unknown => Some(Self::Local),
        }
    }

    fn of_address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Check that addresses of one site are one peer, and those of different machines are not.
    #[test]
    fn addresses_of_a_site_are_one_peer() {
        let of = |text: &str| Peer::of_address(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    /// Check that the kernel reports the user of a local connection, over IPv4 and IPv6, and that a closed connection
    /// has no user.
    #[test]
    fn local_connections_have_a_user() {
        let owners = Owners::open().expect("sock_diag");
        // SAFETY: takes nothing, and cannot fail.
        let ours = unsafe { libc::geteuid() };
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).expect("a port");
            let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
            let (stream, _) = listener.accept().expect("a connection");
            assert_eq!(Peer::of(&stream, Some(&owners)), Some(Peer::User(ours)), "{address}");
            assert_eq!(Peer::of(&stream, None), Some(Peer::Local));
            drop(client);
            assert_eq!(Peer::of(&stream, Some(&owners)), None, "{address}");
        }
        // A dual-stack socket sees IPv4 addresses as IPv6 ones.
        let Ok(listener) = TcpListener::bind("[::]:0") else { return };
        let port = listener.local_addr().expect("an address").port();
        let _client = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let (stream, _) = listener.accept().expect("a connection");
        assert_eq!(Peer::of(&stream, Some(&owners)), Some(Peer::User(ours)));
    }
}
