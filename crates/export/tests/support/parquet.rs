//! A reader of Parquet files, independent of the writer: as much as the tables of warpscope use.

use std::collections::BTreeMap;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Number(i64),
    Text(String),
}

/// The columns of a table by name, and its number of rows.
#[derive(Debug)]
pub struct Table {
    pub columns: BTreeMap<String, Vec<Value>>,
    pub rows: usize,
    pub groups: usize,
}

impl Table {
    /// Returns the numbers of a column that are not null.
    pub fn numbers(&self, column: &str) -> Vec<i64> {
        let number = |value: &Value| if let Value::Number(number) = value { Some(*number) } else { None };
        self.columns[column].iter().filter_map(number).collect()
    }

    /// Returns the texts of a column that are not null.
    pub fn texts(&self, column: &str) -> Vec<&str> {
        let texts = self.columns[column].iter().filter_map(|value| match value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Reads a file.
    pub fn read(bytes: &[u8]) -> Self {
        let at = bytes.len() - 8;
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize;
        let file = Input(&bytes[at - length..at]).structure();
        let names: Vec<String> = file.list(2)[1..].iter().map(|element| element.text(4)).collect();
        let mut columns: BTreeMap<String, Vec<Value>> = names.iter().map(|name| (name.clone(), Vec::new())).collect();
        for group in file.list(4) {
            for chunk in group.list(1) {
                let chunk = chunk.field(3);
                let (from, size) = (chunk.number(11).unwrap_or(chunk.number(9).expect("data")), chunk.number(7));
                let mut pages = Input(&bytes[from as usize..(from + size.expect("a size")) as usize]);
                let values = read_chunk(&mut pages, chunk.number(5).expect("values") as usize);
                let Thrift::List(path) = chunk.field(3) else { panic!("a path") };
                let Thrift::Bytes(name) = &path[0] else { panic!("a name") };
                columns.get_mut(&String::from_utf8_lossy(name).into_owned()).expect("a column").extend(values);
            }
        }
        let rows = file.number(3).expect("rows") as usize;
        assert!(columns.values().all(|values| values.len() == rows), "as many values as rows");
        Self { columns, rows, groups: file.list(4).len() }
    }
}

fn read_chunk(pages: &mut Input<'_>, count: usize) -> Vec<Value> {
    let (mut dictionary, mut values) = (Vec::new(), Vec::new());
    while !pages.0.is_empty() {
        let header = pages.structure();
        let page = pages.take(header.number(3).expect("a size") as usize);
        if header.number(1) == Some(2) {
            let mut page = Input(page);
            while !page.0.is_empty() {
                let length = u32::from_le_bytes(page.take(4).try_into().expect("4 bytes"));
                dictionary.push(String::from_utf8(page.take(length as usize).to_vec()).expect("UTF-8"));
            }
            assert_eq!(Some(dictionary.len() as i64), header.field(7).number(1));
            continue;
        }
        let rows = header.field(5).number(1).expect("values") as usize;
        let mut page = Input(page);
        let length = u32::from_le_bytes(page.take(4).try_into().expect("4 bytes")) as usize;
        let present = Input(page.take(length)).runs(1, rows);
        let some = present.iter().filter(|level| **level == 1).count();
        let found: Vec<Value> = match header.field(5).number(2) {
            Some(5) => page.deltas().into_iter().map(Value::Number).collect(),
            Some(8) => {
                let width = u32::from(page.take(1)[0]);
                page.runs(width, some).into_iter().map(|at| Value::Text(dictionary[at as usize].clone())).collect()
            }
            other => panic!("encoding {other:?}"),
        };
        assert_eq!(found.len(), some);
        let mut found = found.into_iter();
        values
            .extend(present.iter().map(|level| if *level == 1 { found.next().expect("a value") } else { Value::Null }));
    }
    assert_eq!(values.len(), count);
    values
}

/// A value of Thrift's compact protocol.
enum Thrift {
    Number(i64),
    Bytes(Vec<u8>),
    List(Vec<Thrift>),
    Struct(BTreeMap<u8, Thrift>),
}

impl Thrift {
    fn get(&self, id: u8) -> Option<&Self> {
        let Self::Struct(fields) = self else { panic!("a structure") };
        fields.get(&id)
    }

    fn field(&self, id: u8) -> &Self {
        self.get(id).unwrap_or_else(|| panic!("field {id}"))
    }

    fn number(&self, id: u8) -> Option<i64> {
        self.get(id).map(|value| if let Self::Number(number) = value { *number } else { panic!("field {id}") })
    }

    fn text(&self, id: u8) -> String {
        let Self::Bytes(bytes) = self.field(id) else { panic!("field {id}") };
        String::from_utf8(bytes.clone()).expect("UTF-8")
    }

    fn list(&self, id: u8) -> &[Self] {
        let Self::List(items) = self.field(id) else { panic!("field {id}") };
        items
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn varint(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.take(1)[0];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }

    fn zigzag(&mut self) -> i64 {
        let value = self.varint();
        (value >> 1) as i64 ^ -((value & 1) as i64)
    }

    fn structure(&mut self) -> Thrift {
        let (mut fields, mut id) = (BTreeMap::new(), 0);
        loop {
            let header = self.take(1)[0];
            if header == 0 {
                return Thrift::Struct(fields);
            }
            assert!(header >> 4 > 0, "a short field header");
            id += header >> 4;
            fields.insert(id, self.value(header & 15));
        }
    }

    fn value(&mut self, of: u8) -> Thrift {
        match of {
            1 | 2 => Thrift::Number((of == 1).into()),
            5 | 6 => Thrift::Number(self.zigzag()),
            8 => {
                let length = self.varint() as usize;
                Thrift::Bytes(self.take(length).to_vec())
            }
            9 => {
                let header = self.take(1)[0];
                let count = if header >> 4 == 15 { self.varint() } else { u64::from(header >> 4) };
                Thrift::List((0..count).map(|_| self.value(header & 15)).collect())
            }
            12 => self.structure(),
            other => panic!("type {other}"),
        }
    }

    fn unpack(&mut self, width: u32, count: usize) -> Vec<u64> {
        let bytes = self.take((width as usize * count).div_ceil(8));
        let bit = |at: usize| u64::from(bytes[at / 8] >> (at % 8) & 1);
        let number = |at: usize| (0..width as usize).map(|low| bit(at * width as usize + low) << low).sum();
        (0..count).map(number).collect()
    }

    fn runs(&mut self, width: u32, count: usize) -> Vec<u64> {
        let mut values = Vec::new();
        while values.len() < count {
            let header = self.varint();
            if header & 1 == 1 {
                values.extend(self.unpack(width, (header >> 1) as usize * 8));
            } else {
                let bytes = self.take(width.div_ceil(8) as usize);
                let value = bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
                values.extend(std::iter::repeat_n(value, (header >> 1) as usize));
            }
        }
        values.truncate(count);
        values
    }

    fn deltas(&mut self) -> Vec<i64> {
        let (block, parts, count) = (self.varint() as usize, self.varint() as usize, self.varint() as usize);
        let mut values = vec![self.zigzag()];
        while values.len() < count {
            let least = self.zigzag();
            for width in self.take(parts).to_vec() {
                if values.len() >= count {
                    break;
                }
                for delta in self.unpack(width.into(), block / parts) {
                    values.push(values[values.len() - 1].wrapping_add(least).wrapping_add(delta as i64));
                }
            }
        }
        values.truncate(count);
        values
    }
}
