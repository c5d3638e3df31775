//! What an answer means, and what to do about it.

use std::time::{Duration, SystemTime};

use text::names::printable;

/// The most characters of a receiver's words that are shown. Pyroscope names all labels of a series before it says what is wrong.
const MOST_WORDS: usize = 600;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was accepted, perhaps in part: then with the receiver's words about the rest.
    Accepted(Option<String>),
    /// It is too large for the receiver.
    TooLarge,
    /// The receiver has no time: try again, after this time if it said one.
    Busy(String, Option<Duration>),
    /// The receiver was not reached: try again.
    Unreachable(String),
    /// The receiver may have accepted it or not: try again, although it may then be there twice.
    Unclear(String),
    /// It will not be accepted, however often it is sent.
    Refused(String),
}

/// What was received.
#[derive(Clone, Debug, Default)]
pub struct Received<'a> {
    /// The status.
    pub status: u16,
    /// Its type, `Content-Type`.
    pub content_type: &'a str,
    /// `Retry-After`.
    pub retry_after: &'a str,
    /// `Location`.
    pub location: &'a str,
    /// The beginning of the contents.
    pub body: &'a [u8],
}

impl Answer {
    /// Interprets an answer. `redact` removes secrets from what the receiver says.
    pub fn of(received: &Received<'_>, now: SystemTime, redact: &dyn Fn(&str) -> String) -> Self {
        let Received { status, content_type, retry_after, location, body } = *received;
        let words =
            words(content_type, body, redact).map(|words| format!("; the receiver says: {words}")).unwrap_or_default();
        match status {
            200..=299 if content_type.contains("html") => Self::Refused(
                "a web page was returned: the URL is not that of a receiver, or a proxy wants a login".into(),
            ),
            200..=299 => Self::Accepted(partial(content_type, body, redact)),
            300..=399 => Self::Refused(match &*printable(&redact(location)) {
                "" => format!("the receiver redirects elsewhere (status {status}): use the URL of the receiver itself"),
                to => format!("the receiver redirects to {} (status {status}): use that URL", cut(to)),
            }),
            401 | 407 => Self::Refused(format!(
                "the credentials are missing or wrong (status {status}): see --push-token-file, --push-basic-file and --push-tenant{words}"
            )),
            403 => Self::Refused(format!("the credentials do not allow it (status 403){words}")),
            404 | 405 => Self::Refused(format!(
                "there is no receiver of profiles at this URL (status {status}): an OpenTelemetry Collector needs \
                 --feature-gates=service.profilesSupport and a pipeline for profiles{words}"
            )),
            413 => Self::TooLarge,
            408 | 425 | 429 | 500 | 502..=504 => {
                let why = match status {
                    429 => "the receiver limits how much it accepts (status 429)".to_owned(),
                    503 => "the receiver is not available (status 503)".to_owned(),
                    _ => format!("the receiver has an error (status {status})"),
                };
                Self::Busy(format!("{why}{words}"), wait(retry_after, now))
            }
            _ => Self::Refused(format!("the receiver rejects it (status {status}){words}")),
        }
    }
}

/// Returns the time of `Retry-After`: seconds or a date.
fn wait(value: &str, now: SystemTime) -> Option<Duration> {
    match value.trim().parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => Some(httpdate::parse_http_date(value.trim()).ok()?.duration_since(now).unwrap_or_default()),
    }
}

/// Returns what a receiver says about an error, in one line: the text, or the message of a `google.rpc.Status`.
fn words(content_type: &str, body: &[u8], redact: &dyn Fn(&str) -> String) -> Option<String> {
    let bytes = if content_type.contains("protobuf") || content_type.contains("application/proto") {
        bytes(body, 2)?
    } else if content_type.starts_with("text/plain") || content_type.contains("json") {
        body
    } else {
        return None;
    };
    said(bytes, redact)
}

/// Returns what an `ExportProfilesServiceResponse` says about profiles that were not accepted.
fn partial(content_type: &str, body: &[u8], redact: &dyn Fn(&str) -> String) -> Option<String> {
    let partial = bytes(body, 1).filter(|_| content_type.contains("x-protobuf"))?;
    let rejected = number(partial, 1).unwrap_or(0);
    match (rejected, bytes(partial, 2).and_then(|words| said(words, redact))) {
        (0, None) => None,
        (0, Some(words)) => Some(format!("the receiver says: {words}")),
        (count, words) => {
            let words = words.map(|words| format!(": {words}")).unwrap_or_default();
            Some(format!("the receiver rejected {count} of the profiles{words}"))
        }
    }
}

fn said(bytes: &[u8], redact: &dyn Fn(&str) -> String) -> Option<String> {
    // Before anything is cut: half a secret would not be recognised.
    let text = redact(&String::from_utf8_lossy(bytes));
    let line = printable(text.trim()).into_owned();
    (!line.is_empty()).then(|| cut(&line))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_WORDS) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

/// A field of a message in the encoding of protocol buffers.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn bytes(message: &[u8], wanted: u64) -> Option<&[u8]> {
    fields(message).find_map(|(number, field)| match field {
        Field::Bytes(bytes) if number == wanted => Some(bytes),
        _ => None,
    })
}

fn number(message: &[u8], wanted: u64) -> Option<u64> {
    fields(message).find_map(|(number, field)| match field {
        Field::Number(value) if number == wanted => Some(value),
        _ => None,
    })
}

/// Returns the fields of a message, up to the first that is damaged.
fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    std::iter::from_fn(move || {
        let tag = varint(&mut message)?;
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut message)?),
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                Field::Bytes(message.split_off(..length)?)
            }
            _ => return None,
        };
        Some((tag >> 3, field))
    })
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *message.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, content_type: &str, body: &[u8]) -> Answer {
        Answer::of(
            &Received { status, content_type, body, ..Received::default() },
            SystemTime::UNIX_EPOCH,
            &str::to_owned,
        )
    }

    fn refused(answer: Answer) -> String {
        match answer {
            Answer::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    }

    /// Check what each status means, and that a page of a login or of a proxy is not success.
    #[test]
    fn statuses_have_meanings() {
        assert_eq!(answer(200, "application/proto", b""), Answer::Accepted(None));
        assert_eq!(answer(202, "", b"garbage"), Answer::Accepted(None));
        assert!(refused(answer(200, "text/html; charset=utf-8", b"<html>")).contains("web page"));
        assert_eq!(answer(413, "", b""), Answer::TooLarge);
        for status in [408, 429, 500, 502, 503, 504] {
            assert!(matches!(answer(status, "", b""), Answer::Busy(_, None)), "{status}");
        }
        for (status, expected) in [
            (400, "rejects it"),
            (401, "--push-token-file"),
            (403, "do not allow"),
            (404, "service.profilesSupport"),
            (501, "rejects it"),
        ] {
            assert!(refused(answer(status, "", b"")).contains(expected), "{status}");
        }
        let moved = Received { status: 308, location: "https://else\u{1b}[2J/", ..Received::default() };
        let why = refused(Answer::of(&moved, SystemTime::UNIX_EPOCH, &str::to_owned));
        assert!(why.contains("redirects to https://else") && !why.contains('\u{1b}'), "{why}");
    }

    /// Check that a wait is read as seconds and as a date, and that nonsense is none.
    #[test]
    fn waits_are_read() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").expect("a date");
        for (value, expected) in [
            ("120", Some(120)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(wait(value, now), expected.map(Duration::from_secs), "{value}");
        }
    }

    /// Check that the words of a receiver are shown in one short line without control characters, and only if they are text.
    #[test]
    fn words_are_harmless() {
        let said = |content_type, body: &[u8]| refused(answer(400, content_type, body));
        assert!(said("text/plain", b"no\nsuch\x1b[2J tenant\n").ends_with("; the receiver says: no such [2J tenant"));
        assert!(said("application/json", br#"{"code":"x"}"#).ends_with(r#"{"code":"x"}"#));
        // google.rpc.Status: code 3, message.
        assert!(said("application/x-protobuf", b"\x08\x03\x12\x04oops").ends_with("says: oops"));
        assert!(said("application/octet-stream", b"abc").ends_with("(status 400)"));
        assert!(said("text/plain", &[b'x'; 10_000]).len() < MOST_WORDS + 100);
        let body = format!("{}hunter22", "x".repeat(MOST_WORDS - 4));
        let received =
            Received { status: 400, content_type: "text/plain", body: body.as_bytes(), ..Received::default() };
        let why = refused(Answer::of(&received, SystemTime::UNIX_EPOCH, &|text| text.replace("hunter22", "[secret]")));
        assert!(!why.contains("hunt"), "{why}");
        for garbage in [&b"\xff\xff\xff"[..], b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x12\x09ab", b"\x0b"] {
            assert!(said("application/x-protobuf", garbage).ends_with("(status 400)"), "{garbage:?}");
        }
    }

    /// Check that a request that was accepted in part says so.
    #[test]
    fn partial_success_is_noticed() {
        let accepted = |body: &[u8]| answer(200, "application/x-protobuf", body);
        assert_eq!(accepted(b""), Answer::Accepted(None));
        assert_eq!(accepted(b"\x0a\x00"), Answer::Accepted(None));
        let two = "the receiver rejected 2 of the profiles: bad".to_owned();
        assert_eq!(accepted(b"\x0a\x07\x08\x02\x12\x03bad"), Answer::Accepted(Some(two)));
        let warning = "the receiver says: bad".to_owned();
        assert_eq!(accepted(b"\x0a\x05\x12\x03bad"), Answer::Accepted(Some(warning)));
    }
}
