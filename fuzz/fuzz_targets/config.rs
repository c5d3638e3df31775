//! The monitor's configuration.
#![cfg_attr(feature = "libfuzzer", no_main)]

use monitor::config::Settings;

warpscope_fuzz::target!(|text: &str| {
    if let Err(error) = Settings::parse(text).and_then(Settings::options) {
        assert!(!error.is_empty());
    }
});
