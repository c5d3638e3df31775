//! Where to push: `otlp=URL`, `pyroscope=URL`.

use std::{fmt, net::IpAddr, str::FromStr};

use ureq::http::Uri;

/// What a receiver understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP profiles over HTTP.
    Otlp,
    /// Pyroscope's push API.
    Pyroscope,
}

/// A receiver. Its address contains no credentials, so it can be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// What it understands.
    pub protocol: Protocol,
    uri: Uri,
}

/// Why a receiver cannot be used. It does not contain the address, which may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither of the protocols.
    #[error("--push expects otlp=URL or pyroscope=URL, such as otlp=http://localhost:4318")]
    Protocol,
    /// Not an address.
    #[error("--push expects a URL that begins with http:// or https://, such as pyroscope=http://localhost:4040")]
    Url,
    /// A password in the address.
    #[error(
        "the URL of --push contains a user name or password, which other users can see in the list of processes: put it into a \
         file, USER:PASSWORD in one line, and use --push-basic-file"
    )]
    Password,
    /// A query.
    #[error("the URL of --push contains a query (?): put keys into a file of headers, and use --push-header-file")]
    Query,
}

impl FromStr for Receiver {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (protocol, url) = text.split_once('=').ok_or(Error::Protocol)?;
        let protocol = match protocol {
            "otlp" => Protocol::Otlp,
            "pyroscope" => Protocol::Pyroscope,
            _ => return Err(Error::Protocol),
        };
        if url.split_once("://").is_some_and(|(_, rest)| rest.split('/').next().unwrap_or_default().contains('@')) {
            return Err(Error::Password);
        }
        if url.contains(['?', '#']) {
            return Err(Error::Query);
        }
        let uri: Uri = url.parse().map_err(|_| Error::Url)?;
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        if !is_http || uri.host().is_none_or(str::is_empty) {
            return Err(Error::Url);
        }
        Ok(Self { protocol, uri })
    }
}

impl Receiver {
    /// Returns the address that requests are posted to: `path` below the given one, unless that ends in it.
    pub fn url(&self, path: &str) -> String {
        let url = self.uri.to_string();
        let url = url.trim_end_matches('/');
        if url.ends_with(path) { url.to_owned() } else { format!("{url}{path}") }
    }

    /// Returns the server: scheme, host and port.
    pub fn server(&self) -> (&str, &str, u16) {
        let port = self.uri.port_u16().unwrap_or(if self.is_https() { 443 } else { 80 });
        (self.uri.scheme_str().unwrap_or_default(), self.host(), port)
    }

    /// Returns the host.
    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    /// Whether requests are encrypted.
    pub fn is_https(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// Whether nobody on the way can read requests: they are encrypted, or do not leave the machine.
    pub fn is_private(&self) -> bool {
        self.is_https() || is_loopback(self.host())
    }
}

/// Whether a host is this machine.
pub fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

impl fmt::Display for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Otlp => "otlp",
            Protocol::Pyroscope => "pyroscope",
        };
        write!(f, "{protocol}={}", self.uri.to_string().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(text: &str) -> Receiver {
        text.parse().expect(text)
    }

    /// Check that the path of the protocol is added to an address, behind a prefix, and only once.
    #[test]
    fn paths_are_added() {
        for (url, expected) in [
            ("http://localhost:4318", "http://localhost:4318/v1"),
            ("http://localhost:4318/", "http://localhost:4318/v1"),
            ("https://x/prefix", "https://x/prefix/v1"),
            ("https://x/prefix/v1", "https://x/prefix/v1"),
            ("https://[::1]:1/v1/", "https://[::1]:1/v1"),
        ] {
            assert_eq!(receiver(&format!("otlp={url}")).url("/v1"), expected);
        }
    }

    /// Check that unusable addresses are rejected, and that no error contains the password of one.
    #[test]
    fn unusable_addresses_are_rejected() {
        for (text, expected) in [
            ("http://localhost", Error::Protocol),
            ("parca=http://localhost", Error::Protocol),
            ("otlp=localhost:4318", Error::Url),
            ("otlp=ftp://localhost", Error::Url),
            ("otlp=http://", Error::Url),
            ("otlp=http://a b", Error::Url),
            ("otlp=https://me:secret@host/", Error::Password),
            ("otlp=https://secret@host", Error::Password),
            ("pyroscope=https://host/?token=secret", Error::Query),
            ("pyroscope=https://host/#secret", Error::Query),
        ] {
            assert_eq!(text.parse::<Receiver>(), Err(expected), "{text}");
            assert!(!expected.to_string().contains("secret"));
        }
    }

    /// Check that only addresses of this machine count as private without encryption.
    #[test]
    fn private_addresses_are_known() {
        for (url, expected) in [
            ("https://host", true),
            ("http://localhost:1", true),
            ("http://127.0.0.9", true),
            ("http://[::1]", true),
            ("http://host", false),
            ("http://10.0.0.1", false),
            ("http://localhost.evil", false),
        ] {
            assert_eq!(receiver(&format!("otlp={url}")).is_private(), expected, "{url}");
        }
        assert_eq!(receiver("pyroscope=https://a.b/c").to_string(), "pyroscope=https://a.b/c");
        assert_eq!(receiver("otlp=http://a.b:1").to_string(), "otlp=http://a.b:1");
        assert_eq!(receiver("pyroscope=https://a.b/c").server(), ("https", "a.b", 443));
    }
}
