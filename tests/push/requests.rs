//! Reads what was pushed, as the schemas of Pyroscope, pprof and OTLP say.

use std::{collections::BTreeMap, io::Read};

/// Amounts by stack, outermost function first.
pub type Sums = BTreeMap<Vec<String>, u64>;

/// The sums of a profile by the function names of its stacks, from the beginning of the fields of pprof.
pub fn sums(bytes: &[u8]) -> Sums {
    let profile = fields(bytes);
    let strings: Vec<String> = profile
        .iter()
        .filter(|(n, _)| *n == 6)
        .map(|(_, text)| String::from_utf8_lossy(text.bytes()).into_owned())
        .collect();
    let table =
        |field| profile.iter().filter(move |(number, _)| *number == field).map(|(_, value)| fields(value.bytes()));
    let functions: BTreeMap<u64, &str> =
        table(5).map(|f| (number(&f, 1), strings[number(&f, 2) as usize].as_str())).collect();
    let locations: BTreeMap<u64, &str> = table(4)
        .map(|l| {
            let line = l.iter().find(|(number, _)| *number == 4).map(|(_, line)| fields(line.bytes())).expect("a line");
            (number(&l, 1), functions[&number(&line, 1)])
        })
        .collect();
    let mut sums = BTreeMap::new();
    for sample in table(2) {
        let path = packed(&sample, 1).iter().rev().map(|id| locations[id].to_owned()).collect();
        *sums.entry(path).or_default() += packed(&sample, 2)[0];
    }
    sums
}

/// The series of a request to Pyroscope: their labels, and the amounts by stack.
pub fn series(request: &[u8]) -> Vec<(BTreeMap<String, String>, Sums)> {
    let text = |value: &Value<'_>| String::from_utf8_lossy(value.bytes()).into_owned();
    let of = |series: &Value<'_>| {
        let series = fields(series.bytes());
        let labels = series.iter().filter(|(number, _)| *number == 1).map(|(_, label)| {
            let label = fields(label.bytes());
            (text(&label[0].1), text(&label[1].1))
        });
        let sample = series.iter().find(|(number, _)| *number == 2).map(|(_, sample)| fields(sample.bytes()));
        (labels.collect(), sums(&gunzip(sample.expect("a profile")[0].1.bytes())))
    };
    fields(request).iter().map(|(_, series)| of(series)).collect()
}

/// Adds up by type.
pub fn by_type(request: &[u8]) -> BTreeMap<String, Sums> {
    let mut types: BTreeMap<String, Sums> = BTreeMap::new();
    for (labels, sums) in series(request) {
        let of_type = types.entry(labels["__name__"].clone()).or_default();
        sums.into_iter().for_each(|(path, amount)| *of_type.entry(path).or_default() += amount);
    }
    types
}

/// Decompresses gzip.
pub fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut text).expect("gzip");
    text
}

/// All amounts of a compressed request of OTLP, sorted.
pub fn amounts(request: &[u8]) -> Vec<u64> {
    let mut amounts = Vec::new();
    // Resource, scope, profile, sample.
    let of = |message: &[u8], field| -> Vec<Vec<u8>> {
        fields(message).iter().filter(|(number, _)| *number == field).map(|(_, value)| value.bytes().to_vec()).collect()
    };
    for resource in of(&gunzip(request), 1) {
        for scope in of(&resource, 2) {
            for profile in of(&scope, 2) {
                amounts.extend(of(&profile, 2).iter().flat_map(|sample| packed(&fields(sample), 4)));
            }
        }
    }
    amounts.sort_unstable();
    amounts
}

/// A field of a message in the encoding of protocol buffers.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(number) => panic!("{number} is not bytes"),
        }
    }
}

type Fields<'a> = Vec<(u64, Value<'a>)>;

fn fields(mut bytes: &[u8]) -> Fields<'_> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut bytes)),
            1 => {
                let (eight, rest) = bytes.split_at(8);
                bytes = rest;
                Value::Number(u64::from_le_bytes(eight.try_into().expect("8 bytes")))
            }
            _ => {
                let length = varint(&mut bytes) as usize;
                let (inner, rest) = bytes.split_at(length);
                bytes = rest;
                Value::Bytes(inner)
            }
        };
        fields.push((tag >> 3, value));
    }
    fields
}

fn number(fields: &Fields<'_>, wanted: u64) -> u64 {
    fields
        .iter()
        .find_map(|(n, v)| if let (true, Value::Number(v)) = (*n == wanted, v) { Some(*v) } else { None })
        .unwrap_or(0)
}

fn packed(fields: &Fields<'_>, wanted: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    for (_, value) in fields.iter().filter(|(number, _)| *number == wanted) {
        let mut bytes = value.bytes();
        while !bytes.is_empty() {
            numbers.push(varint(&mut bytes));
        }
    }
    numbers
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first().expect("a varint");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if *byte < 0x80 {
            return value;
        }
    }
}
