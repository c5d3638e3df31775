//! Answers of receivers of profiles: a status (two bytes), a type, a line feed, contents.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::time::SystemTime;

use push::answer::{Answer, Received};

warpscope_fuzz::target!(|bytes: &[u8]| {
    if let Some((status, rest)) = bytes.split_first_chunk() {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let (head, body) = (String::from_utf8_lossy(&rest[..end]), &rest[end..]);
        let received = Received {
            status: u16::from_be_bytes(*status),
            content_type: head.trim_start_matches('\0'),
            retry_after: &head,
            location: &head,
            body: body.strip_prefix(b"\n").unwrap_or(body),
        };
        let words = match Answer::of(&received, SystemTime::UNIX_EPOCH, &str::to_owned) {
            Answer::Busy(words, _) | Answer::Unreachable(words) | Answer::Unclear(words) | Answer::Refused(words) => {
                words
            }
            Answer::Accepted(words) => words.unwrap_or_default(),
            Answer::TooLarge => String::new(),
        };
        assert!(words.chars().count() < 1_000 && !words.contains(|c: char| c.is_control()), "{words:?}");
    }
});
