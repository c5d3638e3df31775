//! Packets of the injected library.
#![no_main]

use wire::Message;

libfuzzer_sys::fuzz_target!(|packet: &[u8]| {
    let mut rest = packet;
    while let Ok(Some(_)) = Message::next(&mut rest) {
        assert!(rest.len() < packet.len());
    }
});
