//! Parses requests and formats responses (RFC 9112, the part that scrapers use).

use std::{sync::Arc, time::SystemTime};

use super::Peer;

/// The maximum length of a request head, in bytes.
pub(super) const MAX_HEAD: usize = 16 * 1024;
/// The maximum number of header fields.
const MAX_FIELDS: usize = 100;

/// The supported methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// The whole response.
    Get,
    /// Only its head.
    Head,
    /// The whole response to a request that changes something.
    Post,
}

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its method.
    pub method: Method,
    /// Its path, without the query.
    pub path: String,
    /// The text after the question mark; empty if there is none.
    pub query: String,
    /// The client.
    pub peer: Peer,
    /// The host that the client wants to reach, with or without a port; empty if it does not say.
    pub(super) authority: String,
    fields: Vec<(String, String)>,
    pub(super) keep_alive: bool,
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not an HTTP request.
    Malformed,
    /// Its method is not supported.
    Method,
    /// Its head is too long.
    TooLong,
    /// It uses another version of HTTP.
    Version,
    /// It is meant for another machine.
    Host,
}

impl Refusal {
    /// Returns the response.
    pub fn response(self) -> Response {
        match self {
            Self::Malformed => Response::text(400, "malformed request\n"),
            Self::Method => Response::text(405, "only GET and HEAD are supported\n"),
            Self::TooLong => Response::text(431, "the request head is too long\n"),
            Self::Host => Response::text(421, "this is not the host of the request: use localhost\n"),
            Self::Version => Response::text(505, "only HTTP/1.0 and HTTP/1.1 are supported\n"),
        }
    }
}

impl Request {
    /// Returns the value of a query parameter, as written.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.split('&').filter_map(|pair| pair.split_once('=')).find(|(known, _)| *known == name).map(|(_, v)| v)
    }

    /// Returns a header field's values, joined with commas; empty if there is none.
    pub fn header(&self, name: &str) -> String {
        let values = self.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        values.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Parses a request at the beginning of `input`, and returns the number of bytes consumed. `None` if the head is
    /// incomplete.
    pub fn parse(input: &[u8]) -> Option<(Result<Self, Refusal>, usize)> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut head = httparse::Request::new(&mut fields);
        let refused = |refusal| Some((Err(refusal), input.len()));
        match head.parse(input) {
            // What is a line for us must be one for a proxy as well.
            Ok(httparse::Status::Complete(length)) if has_bare_line_feed(&input[..length]) => {
                refused(Refusal::Malformed)
            }
            Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD => Some((Self::of(&head), length)),
            Ok(httparse::Status::Partial) if input.len() < MAX_HEAD => None,
            Ok(_) | Err(httparse::Error::TooManyHeaders) => refused(Refusal::TooLong),
            Err(httparse::Error::Version) => refused(Refusal::Version),
            Err(_) => refused(Refusal::Malformed),
        }
    }

    /// Returns the request with its peer set.
    pub(super) fn from(self, peer: Peer) -> Self {
        Self { peer, ..self }
    }

    fn of(head: &httparse::Request<'_, '_>) -> Result<Self, Refusal> {
        let newer = head.version == Some(1);
        let field = |field: &httparse::Header<'_>| {
            (field.name.to_owned(), String::from_utf8_lossy(field.value).trim().to_owned())
        };
        let method = match head.method {
            Some("GET") => Method::Get,
            Some("HEAD") => Method::Head,
            Some("POST") => Method::Post,
            _ => return Err(Refusal::Method),
        };
        let (authority, path, query) = target(head.path.unwrap_or_default())?;
        let fields: Vec<(String, String)> = head.headers.iter().map(field).collect();
        let given = |name: &str| fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name)).count();
        let (hosts, lengths, codings) = (given("host"), given("content-length"), given("transfer-encoding"));
        // A proxy may read these in another way, and see another request.
        if hosts > 1 || lengths > 1 || lengths + codings > 1 {
            return Err(Refusal::Malformed);
        }
        let authority = authority.unwrap_or_default().to_owned();
        let mut request = Self { method, path, query, peer: Peer::Local, authority, fields, keep_alive: newer };
        let (host, length) = (request.header("host"), request.header("content-length"));
        if newer && host.is_empty() || lengths > 0 && !is_number(&length) {
            return Err(Refusal::Malformed);
        }
        // The absolute URL of a request takes precedence.
        if request.authority.is_empty() {
            request.authority = host;
        }
        let has_body = codings > 0 || length.contains(|digit| digit != '0');
        let close = request.header("connection").split(',').any(|word| word.trim().eq_ignore_ascii_case("close"));
        // Bodies are not supported; closing the connection avoids having to find the body's end.
        request.keep_alive &= !has_body && !close;
        Ok(request)
    }
}

fn has_bare_line_feed(head: &[u8]) -> bool {
    head.first() == Some(&b'\n') || head.windows(2).any(|pair| pair[1] == b'\n' && pair[0] != b'\r')
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Splits a request's target into host, path and query.
fn target(target: &str) -> Result<(Option<&str>, String, String), Refusal> {
    // Proxies send the absolute URL.
    let (authority, target) = match target.strip_prefix("http://") {
        None => (None, target),
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
            (Some(authority).filter(|authority| !authority.is_empty()), if path.starts_with('/') { path } else { "/" })
        }
    };
    let target = target.split('#').next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if path.starts_with('/') { Ok((authority, path.to_owned(), query.to_owned())) } else { Err(Refusal::Malformed) }
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code, such as 200.
    pub status: u16,
    /// The body's type.
    pub content_type: &'static str,
    /// The body.
    pub body: Arc<[u8]>,
    /// All clients with the same pending request may share this response.
    pub shared: bool,
    /// Further header fields.
    pub fields: Vec<(&'static str, String)>,
}

impl Response {
    /// Creates a plain text response for one client.
    pub fn text(status: u16, body: &str) -> Self {
        let body = body.as_bytes().into();
        Self { status, content_type: "text/plain; charset=utf-8", body, shared: false, fields: Vec::new() }
    }

    /// Returns it with another header field, whose value is one line.
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.fields.push((name, value.to_owned()));
        self
    }

    /// Formats the head to send before the body.
    pub(super) fn head(&self, keep_alive: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            202 => "Accepted",
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            409 => "Conflict",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            500 => "Internal Server Error",
            503 => "Service Unavailable",
            505 => "HTTP Version Not Supported",
            _ => "",
        };
        let date = httpdate::fmt_http_date(SystemTime::now());
        let allow = if self.status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let connection = if keep_alive { "" } else { "Connection: close\r\n" };
        let others: String = self.fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!(
            "HTTP/1.1 {} {reason}\r\nDate: {date}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\
             X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n{allow}{others}{connection}\r\n",
            self.status,
            self.content_type,
            self.body.len()
        );
        head.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Request, Refusal> {
        Request::parse(text.as_bytes()).expect("a whole head").0
    }

    /// Check the requests of scrapers and browsers.
    #[test]
    fn valid_requests_are_parsed() {
        let text = "\r\nGET /metrics?name=a HTTP/1.1\r\nHost: gpu1:9400\r\nAccept: a/b\r\naccept:  c/d \r\n\r\nGET";
        let (request, length) = Request::parse(text.as_bytes()).expect("whole");
        let request = request.expect("good");
        assert_eq!(length, text.len() - 3);
        assert_eq!((request.method, request.path.as_str(), request.keep_alive), (Method::Get, "/metrics", true));
        assert_eq!((request.parameter("name"), request.parameter("a")), (Some("a"), None));
        assert_eq!(request.header("ACCEPT"), "a/b, c/d");
        assert_eq!(
            parse("HEAD http://gpu1 HTTP/1.1\r\nHost: gpu2\r\n\r\n").map(|r| (r.method, r.path, r.authority)),
            Ok((Method::Head, "/".to_owned(), "gpu1".to_owned()))
        );
        assert_eq!(parse("GET / HTTP/1.0\r\n\r\n").map(|r| r.keep_alive), Ok(false));
        assert_eq!(parse("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n").map(|r| r.keep_alive), Ok(false));
        for (field, keep_alive) in [
            ("Content-Length: 5", false),
            ("Content-Length: 0", true),
            ("Content-Length: 00", true),
            ("Transfer-Encoding: chunked", false),
            ("Transfer-Encoding:", false),
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
            assert_eq!(parse(&text).map(|r| r.keep_alive), Ok(keep_alive), "{field}");
        }
    }

    /// Check that each kind of invalid request gets its own response.
    #[test]
    fn invalid_requests_are_rejected() {
        for (text, refusal) in [
            ("PUT / HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::Method),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", Refusal::Version),
            ("GET / HTTP/1.1\r\n\r\n", Refusal::Malformed),
            ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", Refusal::Malformed),
            ("GET ../x HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::Malformed),
            ("GET /\u{7} HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::Malformed),
            ("hello\r\n\r\n", Refusal::Malformed),
            // What another server might read as another request.
            ("GET / HTTP/1.1\nHost: a\n\n", Refusal::Malformed),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: b\nContent-Length: 5\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n", Refusal::Malformed),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                Refusal::Malformed,
            ),
        ] {
            assert_eq!(parse(text), Err(refusal), "{text:?}");
        }
        assert_eq!(Request::parse(b"GET / HTTP/1.1\r\nHost: a\r\n"), None);
        assert_eq!(Request::parse(&[b'a'; MAX_HEAD]), Some((Err(Refusal::TooLong), MAX_HEAD)));
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(MAX_FIELDS));
        assert_eq!(parse(&many), Err(Refusal::TooLong));
    }

    proptest! {
        /// Check that no input makes the parser panic or consume more than there is.
        #[test]
        fn any_bytes_are_parsed_without_panic(input in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some((_, length)) = Request::parse(&input) {
                prop_assert!(length <= input.len());
            }
        }

        /// Check the same for input that resembles a request.
        #[test]
        fn almost_requests_are_parsed_without_panic(input in "(GET|HEAD|P)? ?[/ab?#:]{0,5} ?HTTP/1.[012]?\r?\n(Host|A\u{e4})?:? ?[ab\t]{0,3}\r?\n\r?\n?") {
            if let Some((_, length)) = Request::parse(input.as_bytes()) {
                prop_assert!(length <= input.len());
            }
        }
    }
}
