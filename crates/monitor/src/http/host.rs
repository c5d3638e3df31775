//! Which names a request may use for this machine.
//!
//! A web page whose name resolves to 127.0.0.1 (DNS rebinding) can read what is served there, from the browser of a user of
//! this machine. Its requests have the page's name in `Host`.

use std::net::IpAddr;

/// Whether a request names the loopback interface: by address, as `localhost`, or by the name that the server was given. `authority` is a host with or without a port.
pub(super) fn names_loopback(authority: &str, given: &str) -> bool {
    let Some(host) = host(authority) else { return false };
    match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost") || host.eq_ignore_ascii_case(given),
    }
}

/// Returns the host of `host`, `host:port`, `[address]` or `[address]:port`. `None` if it is none of these.
pub(super) fn host(authority: &str) -> Option<&str> {
    let end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(end);
    let port = port.strip_prefix(':').unwrap_or(port);
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    (!host.is_empty() && host.bytes().all(known) && port.bytes().all(|byte| byte.is_ascii_digit())).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the names of the loopback interface are accepted, and that nothing that resembles them is.
    #[test]
    fn only_the_loopback_interface_is_named() {
        for good in ["localhost", "LocalHost:9400", "127.0.0.1:9400", "127.1.2.3", "[::1]:9400", "[::1]", "gpu1:9400"] {
            assert!(names_loopback(good, "gpu1"), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "evil.example:9400",
            "localhost.evil.example",
            "evil.example.localhost:x",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "0.0.0.0:9400",
            "[::]:9400",
            "[::1",
            "localhost:9400:1",
            "evil.example@localhost",
            "localhost, evil.example",
            "gpu2",
        ] {
            assert!(!names_loopback(bad, "gpu1"), "{bad}");
        }
        assert!(!names_loopback("", ""));
    }
}
