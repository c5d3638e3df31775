//! Thrift's compact protocol, as far as the metadata of a Parquet file needs it: write-only, numbers and texts in structures.

/// A structure that is being written. Fields are given in ascending order.
pub(super) struct Struct<'a> {
    out: &'a mut Vec<u8>,
    last: u8,
}

/// The type of a field or of the elements of a list.
#[derive(Clone, Copy)]
enum Type {
    False = 2,
    I32 = 5,
    I64 = 6,
    Binary = 8,
    List = 9,
    Struct = 12,
}

/// Writes a structure.
pub(super) fn structure(out: &mut Vec<u8>, fields: impl FnOnce(&mut Struct<'_>)) {
    fields(&mut Struct { out, last: 0 });
    out.push(0);
}

impl Struct<'_> {
    fn field(&mut self, id: u8, of: Type) {
        debug_assert!(id > self.last && id - self.last < 16, "field {id} after {}", self.last);
        self.out.push((id - self.last) << 4 | of as u8);
        self.last = id;
    }

    /// Adds a number of 32 bits, or an enumerator.
    pub fn i32(&mut self, id: u8, value: i32) {
        self.field(id, Type::I32);
        zigzag(self.out, value.into());
    }

    /// Adds a number of 64 bits.
    pub fn i64(&mut self, id: u8, value: u64) {
        self.field(id, Type::I64);
        zigzag(self.out, value as i64);
    }

    /// Adds a flag that is not set.
    pub fn unset(&mut self, id: u8) {
        self.field(id, Type::False);
    }

    /// Adds a text or bytes.
    pub fn bytes(&mut self, id: u8, value: &[u8]) {
        self.field(id, Type::Binary);
        binary(self.out, value);
    }

    /// Adds a structure.
    pub fn structure(&mut self, id: u8, fields: impl FnOnce(&mut Struct<'_>)) {
        self.field(id, Type::Struct);
        structure(self.out, fields);
    }

    /// Adds a list of structures.
    pub fn structures<T>(&mut self, id: u8, items: &[T], write: impl Fn(&T, &mut Struct<'_>)) {
        self.list(id, Type::Struct, items, |out, item| structure(out, |fields| write(item, fields)));
    }

    /// Adds a list of enumerators.
    pub fn numbers(&mut self, id: u8, items: &[i32]) {
        self.list(id, Type::I32, items, |out, item| zigzag(out, (*item).into()));
    }

    /// Adds a list of texts.
    pub fn texts(&mut self, id: u8, items: &[&str]) {
        self.list(id, Type::Binary, items, |out, item| binary(out, item.as_bytes()));
    }

    fn list<T>(&mut self, id: u8, of: Type, items: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
        self.field(id, Type::List);
        if items.len() < 15 {
            self.out.push((items.len() as u8) << 4 | of as u8);
        } else {
            self.out.push(0xf0 | of as u8);
            varint(self.out, items.len() as u64);
        }
        items.iter().for_each(|item| write(self.out, item));
    }
}

fn binary(out: &mut Vec<u8>, value: &[u8]) {
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends a number as LEB128.
pub(super) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number, small ones of either sign in few bytes.
pub(super) fn zigzag(out: &mut Vec<u8>, value: i64) {
    varint(out, (value << 1 ^ value >> 63) as u64);
}
