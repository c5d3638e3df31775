//! Numbers and text as bytes: LEB128, zigzag, length-prefixed UTF-8.

/// Encodes a signed number as an unsigned one that is small when the signed one is near 0.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[inline]
pub fn put(out: &mut Vec<u8>, value: impl Into<u64>) {
    let mut value = value.into();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes the difference between two arbitrary numbers.
#[inline]
pub fn put_distance(out: &mut Vec<u8>, from: u64, to: u64) {
    put(out, zigzag(to.wrapping_sub(from) as i64));
}

/// Writes the difference between two correlation ids, which may wrap.
#[inline]
pub fn put_distance32(out: &mut Vec<u8>, from: u32, to: u32) {
    put(out, zigzag(i64::from(to.wrapping_sub(from) as i32)));
}

#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads what the functions above write. `None`: the bytes are invalid.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    pub fn distance(&mut self, from: u64) -> Option<u64> {
        Some(from.wrapping_add(unzigzag(self.u64()?) as u64))
    }

    #[inline]
    pub fn distance32(&mut self, from: u32) -> Option<u32> {
        let distance: i32 = unzigzag(self.u64()?).try_into().ok()?;
        Some(from.wrapping_add(distance as u32))
    }

    #[inline]
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u64()?.try_into().ok()?;
        let (head, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(head)
    }

    /// Reads several values, preceded by their number. Allocates no more than the remaining bytes could hold.
    #[inline]
    pub fn several<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count: usize = self.u64()?.try_into().ok()?;
        if count > self.left() {
            return None;
        }
        let mut all = Vec::with_capacity(count.min(256));
        for _ in 0..count {
            all.push(one(self)?);
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that numbers at the limits of every length round-trip, and that an overlong number is rejected.
    #[test]
    fn numbers_round_trip() {
        let edges = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit]).chain([u64::MAX]);
        for value in edges {
            let mut out = Vec::new();
            put(&mut out, value);
            put_distance(&mut out, value, 5);
            put_distance32(&mut out, value as u32, 5);
            let mut cursor = Cursor::new(&out);
            assert_eq!(cursor.u64(), Some(value));
            assert_eq!(cursor.distance(value), Some(5));
            assert_eq!(cursor.distance32(value as u32), Some(5));
            assert_eq!(cursor.left(), 0);
        }
        assert_eq!(Cursor::new(&[0xff; 10]).u64(), None);
        assert_eq!(Cursor::new(&[0x80; 3]).u64(), None);
    }
}
