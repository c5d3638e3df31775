//! Kernel names: each distinct name is sent once and then identified by a number.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, PoisonError};

use wire::MAX_TEXT;

/// The maximum number of names, and their maximum total bytes.
const NAMES: usize = 65_536;
const BYTES: usize = 16 << 20;

/// The names seen in this process.
pub static NAMES_SEEN: Names = Names::new(NAMES, BYTES);

/// The result of interning a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// Its number. The name itself is in the queue, before anything added from now on.
    Id(u32),
    /// The table has no room for it.
    Full,
    /// It is new and could not be queued: it is treated as not seen.
    Unsent,
}

/// A bounded table of interned names.
pub struct Names {
    most: usize,
    most_bytes: usize,
    table: Mutex<Table>,
}

struct Table {
    ids: Option<HashMap<Box<[u8]>, u32, BuildHasherDefault<Fnv>>>,
    bytes: usize,
}

impl Names {
    /// An empty table of at most `most` names with `most_bytes` bytes.
    pub const fn new(most: usize, most_bytes: usize) -> Self {
        Self { most, most_bytes, table: Mutex::new(Table { ids: None, bytes: 0 }) }
    }

    /// Forgets all names: a new session has not sent any.
    pub fn clear(&self) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        *table = Table { ids: None, bytes: 0 };
    }

    /// Returns the number of a name. A new name is passed to `send` as a message; the table keeps it only if that
    /// succeeds. The lock is held meanwhile, so no thread can use a number whose name is not in the queue yet.
    pub fn intern(&self, name: &[u8], send: impl FnOnce(&[u8]) -> bool) -> Named {
        self.intern_within(self.most, name, wire::encode_name, send)
    }

    /// The same with another kind of message, which `encode` writes, and at most `most` names.
    pub fn intern_within(
        &self,
        most: usize,
        name: &[u8],
        encode: fn(u32, &[u8], &mut [u8]),
        send: impl FnOnce(&[u8]) -> bool,
    ) -> Named {
        let name = &name[..name.len().min(MAX_TEXT)];
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let table = &mut *table;
        let ids = table.ids.get_or_insert_with(HashMap::default);
        if let Some(id) = ids.get(name) {
            return Named::Id(*id);
        }
        let mut owned = Vec::new();
        // A failed allocation must not abort the program: such a name gets no number.
        if ids.len() >= most.min(self.most)
            || table.bytes + name.len() > self.most_bytes
            || ids.try_reserve(1).is_err()
            || owned.try_reserve_exact(name.len()).is_err()
        {
            return Named::Full;
        }
        owned.extend_from_slice(name);
        let id = ids.len() as u32 + 1;
        let mut message = [0; 7 + MAX_TEXT];
        encode(id, name, &mut message);
        if !send(&message[..wire::text_size(name)]) {
            return Named::Unsent;
        }
        table.bytes += name.len();
        ids.insert(owned.into_boxed_slice(), id);
        Named::Id(id)
    }
}

/// FNV-1a: short, and adequate for a table of mangled names.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Message;

    /// Equal content is one name with one message, regardless of its address.
    #[test]
    fn equal_names_share_a_number() {
        let names = Names::new(10, 1000);
        let mut sent = Vec::new();
        let mut intern = |text: &[u8]| {
            names.intern(text, |message| {
                sent.push(message.to_vec());
                true
            })
        };
        assert_eq!(intern(b"matmul"), Named::Id(1));
        assert_eq!(intern(b"softmax"), Named::Id(2));
        let copy = Vec::from(*b"matmul");
        assert_eq!(intern(&copy), Named::Id(1));
        assert_eq!(sent.len(), 2);
        assert_eq!(Message::next(&mut &sent[1][..]), Ok(Some(Message::Name(2, b"softmax"))));
    }

    /// The table accepts a limited number of names and bytes, then no new ones; known names still resolve.
    #[test]
    fn the_table_is_bounded() {
        let names = Names::new(2, 8);
        assert_eq!(names.intern(b"123456789", |_| true), Named::Full);
        assert_eq!(names.intern(b"a", |_| true), Named::Id(1));
        assert_eq!(names.intern(b"bb", |_| true), Named::Id(2));
        assert_eq!(names.intern(b"c", |_| true), Named::Full);
        assert_eq!(names.intern(b"bb", |_| true), Named::Id(2));
    }

    /// A name that could not be queued is retried with the next kernel that has it.
    #[test]
    fn an_unsent_name_is_retried() {
        let names = Names::new(2, 8);
        assert_eq!(names.intern(b"a", |_| false), Named::Unsent);
        assert_eq!(names.intern(b"b", |_| true), Named::Id(1));
        assert_eq!(names.intern(b"a", |_| true), Named::Id(2));
    }

    /// Names longer than the wire limit are truncated to fit.
    #[test]
    fn long_names_are_truncated() {
        let names = Names::new(2, 1 << 20);
        let mut length = 0;
        let sent = |message: &[u8]| {
            length = message.len();
            true
        };
        assert_eq!(names.intern(&[b'x'; MAX_TEXT + 5], sent), Named::Id(1));
        assert_eq!(length, 7 + MAX_TEXT);
        assert_eq!(names.intern(&[b'x'; MAX_TEXT], |_| false), Named::Id(1));
    }
}
