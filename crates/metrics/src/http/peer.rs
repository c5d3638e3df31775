//! Who is at the other end of a connection, as far as fairness goes.

use std::net::{IpAddr, Ipv4Addr, TcpStream};

use super::owner::{Owner, Owners};

/// Whoever shares places and turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// A user of this machine. All of them come from the same addresses, and each can use many.
    User(u32),
    /// Somebody on this machine: the kernel does not say who.
    Local,
    /// Another machine.
    V4(Ipv4Addr),
    /// A network of one site: a machine has as many addresses in it as it likes.
    V6([u16; 4]),
}

impl Peer {
    /// The peer of a connection; `None` if it has closed its end already, and nobody is there to read an answer.
    pub(super) fn of(stream: &TcpStream, owners: Option<&Owners>) -> Option<Self> {
        let (here, there) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
        let address = there.ip().to_canonical();
        if !address.is_loopback() && address != here.ip().to_canonical() {
            return Some(Self::of_address(address));
        }
        match owners.map_or(Owner::Unknown, |owners| owners.of(there, here)) {
            Owner::User(user) => Some(Self::User(user)),
            // Translated addresses may look like ours and have no socket here.
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

    /// Check that addresses of one site are one peer, and those of machines are not.
    #[test]
    fn addresses() {
        let of = |text: &str| Peer::of_address(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    /// Check that the kernel says whose a connection of this machine is, over IPv4 and IPv6, and that one that was closed
    /// is nobody's.
    #[test]
    fn users() {
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
