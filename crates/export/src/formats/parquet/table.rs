//! One table: a Parquet file that is written in groups of rows.
//!
//! Every column may contain nulls. There is no compression: the encodings remove most of what it would.

use std::{
    collections::HashMap,
    io::{self, Write},
    ops::Range,
};

use super::{encoding, thrift};

/// The most rows of a group, and the most bytes of the texts in one: what is in memory at a time.
const ROWS: usize = 1 << 16;
const TEXT: usize = 8 << 20;

/// Enumerators of the format.
const INT64: i32 = 2;
const BYTE_ARRAY: i32 = 6;
const OPTIONAL: i32 = 1;
const UTF8: i32 = 0;
const UNCOMPRESSED: i32 = 0;
const PLAIN: i32 = 0;
const RLE: i32 = 3;
const DELTA_BINARY_PACKED: i32 = 5;
const RLE_DICTIONARY: i32 = 8;
const DATA_PAGE: i32 = 0;
const DICTIONARY_PAGE: i32 = 2;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// 64 bits, signed: the difference of two unsigned numbers may be an error in SQL.
    Number,
    Text,
}

/// A value.
#[derive(Clone, Copy)]
pub(super) enum Cell<'a> {
    Number(i64),
    Text(&'a str),
    Null,
}

impl From<u64> for Cell<'_> {
    /// A number that does not fit was invented by somebody.
    fn from(value: u64) -> Self {
        Self::Number(value.try_into().unwrap_or(i64::MAX))
    }
}

impl From<u32> for Cell<'_> {
    fn from(value: u32) -> Self {
        Self::Number(value.into())
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value)
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A table that is being written.
pub(super) struct Table<'a> {
    out: Box<dyn Write + 'a>,
    written: u64,
    columns: Vec<Column>,
    rows: usize,
    groups: Vec<Group>,
    page: Vec<u8>,
}

struct Column {
    name: &'static str,
    /// 1 for each value, 0 for each null.
    present: Vec<u32>,
    values: Values,
}

enum Values {
    Numbers(Vec<i64>),
    Texts(Texts),
}

/// The texts of a group: each distinct one is stored once.
#[derive(Default)]
struct Texts {
    indexes: Vec<u32>,
    /// The number of each text, and where it begins in the dictionary.
    known: HashMap<Box<str>, (u32, usize)>,
    /// As it is written: length and bytes of each text.
    dictionary: Vec<u8>,
    /// Where the text of the last row is: most rows repeat it.
    last: Range<usize>,
}

impl Texts {
    fn push(&mut self, text: &str) {
        if let Some(&last) = self.indexes.last()
            && self.dictionary[self.last.clone()] == *text.as_bytes()
        {
            self.indexes.push(last);
            return;
        }
        let (number, at) = match self.known.get(text) {
            Some(&known) => known,
            None => {
                let new = (self.known.len() as u32, self.dictionary.len() + 4);
                self.dictionary.extend_from_slice(&(text.len() as u32).to_le_bytes());
                self.dictionary.extend_from_slice(text.as_bytes());
                self.known.insert(text.into(), new);
                new
            }
        };
        self.last = at..at + text.len();
        self.indexes.push(number);
    }
}

/// A group that has been written.
struct Group {
    rows: u64,
    bytes: u64,
    chunks: Vec<Chunk>,
}

/// A column of a group that has been written.
struct Chunk {
    dictionary: Option<u64>,
    data: u64,
    bytes: u64,
    rows: u64,
    nulls: u64,
    /// The smallest and the largest number: readers skip groups by them.
    range: Option<(i64, i64)>,
}

impl<'a> Table<'a> {
    /// Begins a table.
    pub fn new(mut out: Box<dyn Write + 'a>, columns: &[(&'static str, Kind)]) -> io::Result<Self> {
        out.write_all(b"PAR1")?;
        let column = |&(name, kind): &(&'static str, Kind)| Column {
            name,
            present: Vec::new(),
            values: match kind {
                Kind::Number => Values::Numbers(Vec::new()),
                Kind::Text => Values::Texts(Texts::default()),
            },
        };
        let columns = columns.iter().map(column).collect();
        Ok(Self { out, written: 4, columns, rows: 0, groups: Vec::new(), page: Vec::new() })
    }

    /// Adds a row.
    pub fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        debug_assert_eq!(cells.len(), self.columns.len());
        let mut full = self.rows + 1 == ROWS;
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            let present = match (&mut column.values, cell) {
                (Values::Numbers(numbers), Cell::Number(number)) => {
                    numbers.push(*number);
                    true
                }
                (Values::Texts(texts), Cell::Text(text)) => {
                    texts.push(text);
                    full |= texts.dictionary.len() > TEXT;
                    true
                }
                (_, Cell::Null) => false,
                _ => unreachable!("a cell of {} has the wrong type", column.name),
            };
            column.present.push(present.into());
        }
        self.rows += 1;
        if full { self.group() } else { Ok(()) }
    }

    /// Writes the rows so far.
    fn group(&mut self) -> io::Result<()> {
        let (rows, from) = (std::mem::take(&mut self.rows), self.written);
        let mut columns = std::mem::take(&mut self.columns);
        let chunks = columns.iter_mut().map(|column| self.chunk(column)).collect::<io::Result<_>>()?;
        self.columns = columns;
        self.groups.push(Group { rows: rows as u64, bytes: self.written - from, chunks });
        Ok(())
    }

    fn chunk(&mut self, column: &mut Column) -> io::Result<Chunk> {
        let (from, rows) = (self.written, column.present.len());
        let mut page = std::mem::take(&mut self.page);
        page.clear();
        let mut levels = Vec::new();
        encoding::runs(&mut levels, 1, &column.present);
        let (mut dictionary, mut range, values);
        (dictionary, range) = (None, None);
        let encoding = match &mut column.values {
            Values::Numbers(numbers) => {
                values = numbers.len();
                range = numbers.iter().min().copied().zip(numbers.iter().max().copied());
                with_levels(&mut page, &levels);
                encoding::deltas(&mut page, numbers);
                numbers.clear();
                DELTA_BINARY_PACKED
            }
            Values::Texts(texts) => {
                values = texts.indexes.len();
                dictionary = Some(self.written);
                self.page(&texts.dictionary, |header| {
                    header.i32(1, DICTIONARY_PAGE);
                    sizes(header, &texts.dictionary);
                    header.structure(7, |page| {
                        page.i32(1, texts.known.len() as i32);
                        page.i32(2, PLAIN);
                        page.unset(3);
                    });
                })?;
                let width = (32 - (texts.known.len() as u32).saturating_sub(1).leading_zeros()).max(1);
                with_levels(&mut page, &levels);
                page.push(width as u8);
                encoding::runs(&mut page, width, &texts.indexes);
                *texts = Texts::default();
                RLE_DICTIONARY
            }
        };
        let data = self.written;
        self.page(&page, |header| {
            header.i32(1, DATA_PAGE);
            sizes(header, &page);
            header.structure(5, |page| {
                page.i32(1, rows as i32);
                page.i32(2, encoding);
                page.i32(3, RLE);
                page.i32(4, RLE);
            });
        })?;
        column.present.clear();
        self.page = page;
        let nulls = (rows - values) as u64;
        Ok(Chunk { dictionary, data, bytes: self.written - from, rows: rows as u64, nulls, range })
    }

    fn page(&mut self, contents: &[u8], header: impl FnOnce(&mut thrift::Struct<'_>)) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(64);
        thrift::structure(&mut bytes, header);
        self.out.write_all(&bytes)?;
        self.out.write_all(contents)?;
        self.written += (bytes.len() + contents.len()) as u64;
        Ok(())
    }

    /// Writes the rest, and what the file contains.
    pub fn finish(mut self) -> io::Result<()> {
        if self.rows > 0 {
            self.group()?;
        }
        let mut footer = Vec::new();
        thrift::structure(&mut footer, |file| self.metadata(file));
        let length = (footer.len() as u32).to_le_bytes();
        footer.extend_from_slice(&length);
        footer.extend_from_slice(b"PAR1");
        self.out.write_all(&footer)?;
        self.out.flush()
    }

    fn metadata(&self, file: &mut thrift::Struct<'_>) {
        file.i32(1, 2);
        let elements: Vec<Option<&Column>> = [None].into_iter().chain(self.columns.iter().map(Some)).collect();
        file.structures(2, &elements, |column, element| match column {
            None => {
                element.bytes(4, b"schema");
                element.i32(5, self.columns.len() as i32);
            }
            Some(column) => {
                element.i32(1, column.physical());
                element.i32(3, OPTIONAL);
                element.bytes(4, column.name.as_bytes());
                if column.physical() == BYTE_ARRAY {
                    element.i32(6, UTF8);
                    element.structure(10, |logical| logical.structure(1, |_| {}));
                }
            }
        });
        file.i64(3, self.groups.iter().map(|group| group.rows).sum());
        file.structures(4, &self.groups, |group, out| {
            let chunks: Vec<(&Column, &Chunk)> = self.columns.iter().zip(&group.chunks).collect();
            out.structures(1, &chunks, |(column, chunk), out| {
                out.i64(2, chunk.dictionary.unwrap_or(chunk.data));
                out.structure(3, |out| chunk.metadata(column, out));
            });
            out.i64(2, group.bytes);
            out.i64(3, group.rows);
        });
        file.bytes(6, concat!("warpscope version ", env!("CARGO_PKG_VERSION")).as_bytes());
        // The order of a column's type: only then are the ranges used.
        file.structures(7, &self.columns, |_, order| order.structure(1, |_| {}));
    }
}

impl Column {
    fn physical(&self) -> i32 {
        match self.values {
            Values::Numbers(_) => INT64,
            Values::Texts(_) => BYTE_ARRAY,
        }
    }
}

impl Chunk {
    fn metadata(&self, column: &Column, out: &mut thrift::Struct<'_>) {
        out.i32(1, column.physical());
        match self.dictionary {
            Some(_) => out.numbers(2, &[PLAIN, RLE, RLE_DICTIONARY]),
            None => out.numbers(2, &[RLE, DELTA_BINARY_PACKED]),
        }
        out.texts(3, &[column.name]);
        out.i32(4, UNCOMPRESSED);
        out.i64(5, self.rows);
        out.i64(6, self.bytes);
        out.i64(7, self.bytes);
        out.i64(9, self.data);
        if let Some(at) = self.dictionary {
            out.i64(11, at);
        }
        out.structure(12, |statistics| {
            statistics.i64(3, self.nulls);
            if let Some((least, most)) = self.range {
                statistics.bytes(5, &most.to_le_bytes());
                statistics.bytes(6, &least.to_le_bytes());
            }
        });
    }
}

/// Appends which values are present, with their length.
fn with_levels(page: &mut Vec<u8>, levels: &[u8]) {
    page.extend_from_slice(&(levels.len() as u32).to_le_bytes());
    page.extend_from_slice(levels);
}

fn sizes(header: &mut thrift::Struct<'_>, contents: &[u8]) {
    header.i32(2, contents.len() as i32);
    header.i32(3, contents.len() as i32);
}
