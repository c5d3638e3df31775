//! Requests as they come, responses as they go (RFC 9112, the part that a scraper uses).

use std::time::{SystemTime, UNIX_EPOCH};

use crate::clock::http_date;

/// The longest head of a request, in bytes.
pub(super) const LONGEST_HEAD: usize = 16 * 1024;
/// The most header fields.
const MOST_FIELDS: usize = 100;

/// What may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The whole answer.
    Get,
    /// Its head only.
    Head,
}

/// A request that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked.
    pub method: Method,
    /// For what: the path without its query.
    pub path: String,
    fields: Vec<(String, String)>,
    pub(super) keep_alive: bool,
}

/// Why a request is answered without being understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Malformed,
    Method,
    TooLong,
    Version,
}

impl Refusal {
    pub(super) fn response(self) -> Response {
        match self {
            Self::Malformed => Response::text(400, "this is not a request that warpscope understands\n"),
            Self::Method => Response::text(405, "only GET and HEAD are answered here\n"),
            Self::TooLong => Response::text(431, "the request's head is too long\n"),
            Self::Version => Response::text(505, "only HTTP/1.0 and HTTP/1.1 are spoken here\n"),
        }
    }
}

impl Request {
    /// A header field's values, joined by commas as if they stood in one line; empty if there is none.
    pub fn header(&self, name: &str) -> String {
        let values = self.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        values.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Reads a request from the beginning of `input`. `None`: the rest of the head has not come yet. Otherwise also says
    /// how many bytes it took.
    pub(super) fn parse(input: &[u8]) -> Option<(Result<Self, Refusal>, usize)> {
        // Empty lines before a request are to be ignored.
        let start = input.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(input.len());
        let head = &input[start..];
        let Some(length) = head_length(head) else {
            return (input.len() >= LONGEST_HEAD).then_some((Err(Refusal::TooLong), input.len()));
        };
        if length > LONGEST_HEAD {
            return Some((Err(Refusal::TooLong), input.len()));
        }
        Some((Self::of_head(&head[..length]), start + length))
    }

    fn of_head(head: &[u8]) -> Result<Self, Refusal> {
        let head = str::from_utf8(head).map_err(|_| Refusal::Malformed)?;
        let mut lines = head.lines();
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Refusal::Malformed);
        };
        let newer = match version {
            "HTTP/1.1" => true,
            "HTTP/1.0" => false,
            _ if version.starts_with("HTTP/") => return Err(Refusal::Version),
            _ => return Err(Refusal::Malformed),
        };
        let fields = fields(lines)?;
        let method = match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            _ if !method.is_empty() && method.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-') => {
                return Err(Refusal::Method);
            }
            _ => return Err(Refusal::Malformed),
        };
        let mut request = Self { method, path: path(target)?, fields, keep_alive: newer };
        if newer && request.header("host").is_empty() {
            return Err(Refusal::Malformed);
        }
        let has_body = !matches!(request.header("content-length").as_str(), "" | "0")
            || !request.header("transfer-encoding").is_empty();
        let close = request.header("connection").split(',').any(|word| word.trim().eq_ignore_ascii_case("close"));
        // A body means nothing here, and is not worth finding the end of.
        request.keep_alive &= !has_body && !close;
        Ok(request)
    }
}

/// The bytes of a head with the empty line that ends it.
fn head_length(input: &[u8]) -> Option<usize> {
    let mut ends = input.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(place, _)| place);
    let mut before = ends.next()?;
    for end in ends {
        if matches!(&input[before + 1..end], [] | [b'\r']) {
            return Some(end + 1);
        }
        before = end;
    }
    None
}

fn fields<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Vec<(String, String)>, Refusal> {
    let mut fields = Vec::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(Refusal::Malformed)?;
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) || value.contains(|c: char| c.is_control() && c != '\t') {
            return Err(Refusal::Malformed);
        }
        if fields.len() == MOST_FIELDS {
            return Err(Refusal::TooLong);
        }
        fields.push((name.to_owned(), value.trim().to_owned()));
    }
    Ok(fields)
}

fn path(target: &str) -> Result<String, Refusal> {
    if target.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err(Refusal::Malformed);
    }
    // Proxies send the whole address.
    let path = match target.strip_prefix("http://") {
        None => target,
        Some(rest) => rest.find('/').map_or("/", |slash| &rest[slash..]),
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if path.starts_with('/') { Ok(path.to_owned()) } else { Err(Refusal::Malformed) }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Such as 200.
    pub status: u16,
    /// The body's type.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// Plain text.
    pub fn text(status: u16, body: &str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    /// The bytes to send.
    pub(super) fn bytes(&self, method: Method, keep_alive: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            431 => "Request Header Fields Too Large",
            500 => "Internal Server Error",
            503 => "Service Unavailable",
            505 => "HTTP Version Not Supported",
            _ => "",
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let allow = if self.status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let connection = if keep_alive { "" } else { "Connection: close\r\n" };
        let head = format!(
            "HTTP/1.1 {} {reason}\r\nDate: {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\
             X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n{allow}{connection}\r\n",
            self.status,
            http_date(now),
            self.content_type,
            self.body.len()
        );
        let mut bytes = head.into_bytes();
        if method == Method::Get {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Request, Refusal> {
        Request::parse(text.as_bytes()).expect("a whole head").0
    }

    /// Check what a scraper and a browser send.
    #[test]
    fn good_requests() {
        let text = "\r\nGET /metrics?name=a HTTP/1.1\r\nHost: gpu1:9400\r\nAccept: a/b\r\naccept:  c/d \r\n\r\nGET";
        let (request, length) = Request::parse(text.as_bytes()).expect("whole");
        let request = request.expect("good");
        assert_eq!(length, text.len() - 3);
        assert_eq!((request.method, request.path.as_str(), request.keep_alive), (Method::Get, "/metrics", true));
        assert_eq!(request.header("ACCEPT"), "a/b, c/d");
        assert_eq!(
            parse("HEAD http://gpu1 HTTP/1.1\nHost: gpu1\n\n").map(|r| (r.method, r.path)),
            Ok((Method::Head, "/".to_owned()))
        );
        assert_eq!(parse("GET / HTTP/1.0\r\n\r\n").map(|r| r.keep_alive), Ok(false));
        assert_eq!(parse("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n").map(|r| r.keep_alive), Ok(false));
        assert_eq!(parse("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n").map(|r| r.keep_alive), Ok(false));
    }

    /// Check that what is not a good request has its own answer.
    #[test]
    fn bad_requests() {
        for (text, refusal) in [
            ("POST / HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::Method),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", Refusal::Version),
            ("GET / HTTP/1.1\r\n\r\n", Refusal::Malformed),
            ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", Refusal::Malformed),
            ("GET ../x HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::Malformed),
            ("GET /\u{7} HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::Malformed),
            ("hello\r\n\r\n", Refusal::Malformed),
        ] {
            assert_eq!(parse(text), Err(refusal), "{text:?}");
        }
        assert_eq!(Request::parse(b"GET / HTTP/1.1\r\nHost: a\r\n"), None);
        assert_eq!(Request::parse(&[b'a'; LONGEST_HEAD]), Some((Err(Refusal::TooLong), LONGEST_HEAD)));
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(MOST_FIELDS));
        assert_eq!(parse(&many), Err(Refusal::TooLong));
    }

    proptest! {
        /// Check that no bytes make the parser panic, and that it never takes more than there is.
        #[test]
        fn any_bytes(input in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some((_, length)) = Request::parse(&input) {
                prop_assert!(length <= input.len());
            }
        }

        /// Check the same for what almost is a request.
        #[test]
        fn almost_requests(input in "(GET|HEAD|P)? ?[/ab?#:]{0,5} ?HTTP/1.[012]?\r?\n(Host|A\u{e4})?:? ?[ab\t]{0,3}\r?\n\r?\n?") {
            if let Some((_, length)) = Request::parse(input.as_bytes()) {
                prop_assert!(length <= input.len());
            }
        }
    }
}
