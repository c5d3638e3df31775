//! The monitor's configuration.
#![no_main]

use metrics::config::Settings;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(error) = Settings::parse(text).and_then(Settings::options) {
        assert!(!error.is_empty());
    }
});
