//! Requests and answers as bytes: fixed-size numbers, and lengths before what they count.

use std::{ops::Range, time::Duration};

/// A value that can be sent to a worker and back.
pub trait Plain: Sized {
    /// Appends it. Every value takes at least one byte.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads it. `None`: the bytes are invalid.
    fn get(from: &mut Bytes<'_>) -> Option<Self>;

    /// Appends several.
    fn put_all(all: &[Self], out: &mut Vec<u8>) {
        all.iter().for_each(|one| one.put(out));
    }

    /// Reads several.
    fn get_all(from: &mut Bytes<'_>, count: usize) -> Option<Vec<Self>> {
        // Memory grows with what was read, not with what is claimed.
        let mut all = Vec::with_capacity(count.min(256));
        for _ in 0..count {
            all.push(Self::get(from)?);
        }
        Some(all)
    }
}

/// The bytes that are left to read.
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// Takes the next bytes.
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }
}

/// Returns a value as bytes.
pub(crate) fn bytes(value: &impl Plain) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

/// Reads a value from all of the bytes.
pub(crate) fn read<T: Plain>(bytes: &[u8]) -> Option<T> {
    let mut bytes = Bytes(bytes);
    T::get(&mut bytes).filter(|_| bytes.0.is_empty())
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Plain for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn get(from: &mut Bytes<'_>) -> Option<Self> {
                Some(Self::from_le_bytes(from.take(size_of::<Self>())?.try_into().ok()?))
            }
        }
    )*};
}

numbers!(u16, u32, u64, i16, i64);

impl Plain for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    fn get(from: &mut Bytes<'_>) -> Option<Self> {
        from.take(1)?.first().copied()
    }
    fn put_all(all: &[Self], out: &mut Vec<u8>) {
        out.extend_from_slice(all);
    }
    fn get_all(from: &mut Bytes<'_>, count: usize) -> Option<Vec<Self>> {
        from.take(count).map(<[u8]>::to_vec)
    }
}

impl Plain for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn get(from: &mut Bytes<'_>) -> Option<Self> {
        u8::get(from).map(|byte| byte != 0)
    }
}

impl Plain for Duration {
    fn put(&self, out: &mut Vec<u8>) {
        (self.as_secs(), self.subsec_nanos()).put(out);
    }
    fn get(from: &mut Bytes<'_>) -> Option<Self> {
        let (seconds, nanoseconds) = <(u64, u32)>::get(from)?;
        (nanoseconds < 1_000_000_000).then(|| Self::new(seconds, nanoseconds))
    }
}

impl<T: Plain> Plain for Range<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.start.put(out);
        self.end.put(out);
    }
    fn get(from: &mut Bytes<'_>) -> Option<Self> {
        Some(T::get(from)?..T::get(from)?)
    }
}

impl<T: Plain> Plain for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        T::put_all(self, out);
    }
    fn get(from: &mut Bytes<'_>) -> Option<Self> {
        let count = usize::try_from(u64::get(from)?).ok()?;
        if count > from.0.len() {
            return None;
        }
        T::get_all(from, count)
    }
}

impl Plain for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        out.extend_from_slice(self.as_bytes());
    }
    fn get(from: &mut Bytes<'_>) -> Option<Self> {
        let length = usize::try_from(u64::get(from)?).ok()?;
        std::str::from_utf8(from.take(length)?).ok().map(str::to_owned)
    }
}

impl<T: Plain> Plain for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn get(from: &mut Bytes<'_>) -> Option<Self> {
        Some(if bool::get(from)? { Some(T::get(from)?) } else { None })
    }
}

impl<T: Plain, E: Plain> Plain for Result<T, E> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_ok().put(out);
        match self {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }
    fn get(from: &mut Bytes<'_>) -> Option<Self> {
        Some(if bool::get(from)? { Ok(T::get(from)?) } else { Err(E::get(from)?) })
    }
}

macro_rules! tuples {
    ($(($($name:ident),*))*) => {$(
        impl<$($name: Plain),*> Plain for ($($name,)*) {
            fn put(&self, out: &mut Vec<u8>) {
                #[allow(non_snake_case)]
                let ($($name,)*) = self;
                $($name.put(out);)*
            }
            fn get(from: &mut Bytes<'_>) -> Option<Self> {
                Some(($($name::get(from)?,)*))
            }
        }
    )*};
}

tuples!((A, B)(A, B, C)(A, B, C, D));

/// Implements [`Plain`] for structures: their fields, in this order.
#[macro_export]
macro_rules! plain {
    ($($type:ty { $($field:ident),* $(,)? })*) => {$(
        impl $crate::Plain for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::Plain::put(&self.$field, out);)*
            }
            fn get(from: &mut $crate::Bytes<'_>) -> Option<Self> {
                $(let $field = $crate::Plain::get(from)?;)*
                Some(Self { $($field),* })
            }
        }
    )*};
}

#[cfg(test)]
mod tests {
    use super::*;

    type All = (Vec<(u64, Option<String>)>, Result<Vec<u8>, String>, Vec<bool>);

    fn sample() -> All {
        (vec![(1, Some("é".into())), (u64::MAX, None)], Ok(vec![1, 2, 3]), vec![true, false])
    }

    /// Check that values round-trip.
    #[test]
    fn values_round_trip() {
        assert_eq!(read::<All>(&bytes(&sample())), Some(sample()));
    }

    /// Check that every truncation, bytes behind the end, and lengths beyond the end are rejected.
    #[test]
    fn invalid_bytes_are_rejected() {
        let whole = bytes(&sample());
        for length in 0..whole.len() {
            assert_eq!(read::<All>(&whole[..length]), None, "{length}");
        }
        assert_eq!(read::<All>(&[&whole[..], &[0]].concat()), None);
        assert_eq!(read::<Vec<Vec<u8>>>(&u64::MAX.to_le_bytes()), None);
        assert_eq!(read::<String>(&bytes(&vec![0xff_u8])), None, "not UTF-8");
    }
}
