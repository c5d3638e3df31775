//! How messages are encoded: a tag, then the fields in order, little-endian.

use crate::packet::Malformed;

/// A fixed-size field of a message.
pub(crate) trait Scalar: Copy + Default {
    const SIZE: usize;
    fn put(self, out: &mut [u8]);
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! scalar {
    ($($type:ty),*) => {$(
        impl Scalar for $type {
            const SIZE: usize = size_of::<$type>();
            fn put(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                let mut raw = [0; size_of::<$type>()];
                raw.copy_from_slice(bytes);
                Self::from_le_bytes(raw)
            }
        }
    )*};
}

scalar!(u8, u16, u32, u64, u128);

/// Takes `count` bytes off the front of `bytes`.
pub(crate) fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], Malformed> {
    let (head, tail) = bytes.split_at_checked(count).ok_or(Malformed)?;
    *bytes = tail;
    Ok(head)
}

/// Declares fixed-size messages: the struct, its tag, its size, its encoder and its decoder.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident = $tag:literal { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)*
            }

            impl $name {
                /// Bytes on the wire, tag included.
                pub const SIZE: usize = 1 $(+ size_of::<$type>())*;

                /// Writes the message to the front of `out`, which must hold at least [`Self::SIZE`] bytes.
                pub fn encode(&self, out: &mut [u8]) {
                    out[0] = $tag;
                    let mut at = 1;
                    $(
                        Scalar::put(self.$field, &mut out[at..at + size_of::<$type>()]);
                        at += size_of::<$type>();
                    )*
                    debug_assert_eq!(at, Self::SIZE);
                }

                fn decode(bytes: &mut &[u8]) -> Result<Self, Malformed> {
                    Ok(Self { $($field: Scalar::get(take(bytes, <$type as Scalar>::SIZE)?),)* })
                }
            }
        )*

        /// Any message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Message<'a> {
            $($(#[$doc])* $name($name),)*
            /// A kernel's name: the id that later [`Kernel`] messages use, and the (mangled) text.
            Name(u32, &'a [u8]),
            /// A device's index and its name.
            Device(u32, &'a [u8]),
            /// A message for the user; [`Notice`] is its kind.
            Notice(Notice, &'a [u8]),
            /// A function that CUPTI has a callback for: its number (see [`crate::calls::function`]) and its name.
            Function(u32, &'a [u8]),
            /// A stall reason: its index, and CUPTI's name.
            StallReason(u32, &'a [u8]),
            /// Bytes of a cubin: its number, and the bytes that follow those sent before.
            CubinPart(u32, &'a [u8]),
            /// A path of NVTX ranges: its id; then the id of the path around it (4 bytes), the length of its category's name
            /// (1 byte), that name, and its own name.
            RangeName(u32, &'a [u8]),
            /// A time in which another client used CUPTI: its number in the session, which a later message may repeat.
            Pause(u32, Pause<'a>),
        }

        impl<'a> Message<'a> {
            /// Takes the next message off the front of a packet; `None` at its end.
            pub fn next(packet: &mut &'a [u8]) -> Result<Option<Self>, Malformed> {
                let Some((&tag, rest)) = packet.split_first() else { return Ok(None) };
                *packet = rest;
                let message = match tag {
                    $($tag => Message::$name($name::decode(packet)?),)*
                    text::NAME => {
                        let (id, text) = text::decode(packet)?;
                        Message::Name(id, text)
                    }
                    text::DEVICE => {
                        let (id, text) = text::decode(packet)?;
                        Message::Device(id, text)
                    }
                    text::NOTICE => {
                        let (code, text) = text::decode(packet)?;
                        Message::Notice(Notice::from_code(code).ok_or(Malformed)?, text)
                    }
                    text::FUNCTION => {
                        let (number, text) = text::decode(packet)?;
                        Message::Function(number, text)
                    }
                    text::STALL_REASON => {
                        let (index, text) = text::decode(packet)?;
                        Message::StallReason(index, text)
                    }
                    text::CUBIN_PART => {
                        let (number, bytes) = text::decode(packet)?;
                        Message::CubinPart(number, bytes)
                    }
                    text::RANGE_NAME => {
                        let (id, text) = text::decode(packet)?;
                        Message::RangeName(id, text)
                    }
                    text::PAUSE => {
                        let (number, text) = text::decode(packet)?;
                        Message::Pause(number, Pause::decode(text)?)
                    }
                    _ => return Err(Malformed),
                };
                Ok(Some(message))
            }
        }
    };
}

pub(crate) use messages;

#[cfg(test)]
mod tests {
    use crate::*;

    /// Every kind of message survives the round trip, several to a packet.
    #[test]
    fn messages_round_trip() {
        let kernel =
            Kernel { correlation: 7, start: 1 << 40, end: (1 << 40) + 5, name: 3, graph_node: 9, ..Default::default() };
        let mut packet = [0; 1024];
        kernel.encode(&mut packet);
        let mut at = Kernel::SIZE;
        encode_name(3, b"_Z6matmulPf", &mut packet[at..]);
        at += text_size(b"_Z6matmulPf");
        encode_notice(Notice::NoCupti, b"no libcupti", &mut packet[at..]);
        at += text_size(b"no libcupti");
        let pause = Pause { from: 5, to: u64::MAX, name: b"torch.profiler" };
        pause.encode(2, &mut packet[at..]);
        at += pause.size();
        let captured = Captured { correlation: 8 };
        captured.encode(&mut packet[at..]);
        at += Captured::SIZE;
        let mut rest = &packet[..at];
        assert_eq!(Message::next(&mut rest), Ok(Some(Message::Kernel(kernel))));
        assert_eq!(Message::next(&mut rest), Ok(Some(Message::Name(3, b"_Z6matmulPf"))));
        assert_eq!(Message::next(&mut rest), Ok(Some(Message::Notice(Notice::NoCupti, b"no libcupti"))));
        assert_eq!(Message::next(&mut rest), Ok(Some(Message::Pause(2, pause))));
        assert_eq!(Message::next(&mut rest), Ok(Some(Message::Captured(captured))));
        assert_eq!(Message::next(&mut rest), Ok(None));
    }

    /// A packet truncated at any byte is an error, not a panic.
    #[test]
    fn truncated_packets_are_malformed() {
        let mut packet = [0; Totals::SIZE];
        Totals::default().encode(&mut packet);
        for length in 1..packet.len() {
            assert_eq!(Message::next(&mut &packet[..length]), Err(Malformed));
        }
        assert_eq!(Message::next(&mut &[255, 0, 0][..]), Err(Malformed));
    }
}
