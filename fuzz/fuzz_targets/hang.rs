//! What `hang` has written on other hosts.
#![cfg_attr(feature = "libfuzzer", no_main)]

use analysis::hang::{Hang, file};

warpscope_fuzz::target!(|bytes: &[u8]| {
    let mut hosts = Vec::new();
    if file::read(bytes, &mut hosts).is_ok() {
        let text = terminal::hang(&Hang::of(&hosts), true, false, 80);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    }
});
