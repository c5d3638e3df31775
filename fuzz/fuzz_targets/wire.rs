//! Packets of the injected library.
#![cfg_attr(feature = "libfuzzer", no_main)]

use wire::Message;

warpscope_fuzz::target!(|packet: &[u8]| {
    let mut rest = packet;
    while let Ok(Some(_)) = Message::next(&mut rest) {
        assert!(rest.len() < packet.len());
    }
});
