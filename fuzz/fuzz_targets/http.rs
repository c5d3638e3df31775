//! Requests of scrapers, complete and partial.
#![cfg_attr(feature = "libfuzzer", no_main)]

use monitor::{http::Request, openmetrics::Format};

warpscope_fuzz::target!(|bytes: &[u8]| {
    if let Some((request, length)) = Request::parse(bytes) {
        assert!(length <= bytes.len() && length > 0);
        if let Ok(request) = request {
            assert!(request.path.starts_with('/'));
            request.parameter("pid");
            Format::negotiate(&request.header("accept"));
            // The parser waits for the rest of a partial request, and never reads it as another one.
            let before = Request::parse(&bytes[..length - 1]);
            assert!(before.is_none_or(|(before, _)| before.is_err()), "a part is a request too");
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        Format::negotiate(text);
    }
});
