//! Reads the data of an HTML report as the page does.

use std::{collections::BTreeMap, io::Read};

use flate2::read::ZlibDecoder;
use serde_json::Value;

/// Decodes a block: its header, and its columns by name.
pub fn read(text: &str) -> (Value, BTreeMap<String, Vec<u64>>) {
    let mut bytes = Vec::new();
    ZlibDecoder::new(&*base64(text)).read_to_end(&mut bytes).expect("deflated");
    let (length, rest) = bytes.split_at(4);
    let length = u32::from_le_bytes(length.try_into().expect("4 bytes"));
    let (header, mut rest) = rest.split_at(length as usize);
    let header: Value = serde_json::from_slice(header).expect("JSON");
    let mut columns = BTreeMap::new();
    for column in header["columns"].as_array().expect("columns") {
        let (mut data, next) = rest.split_at(column["bytes"].as_u64().expect("bytes") as usize);
        let (mut values, mut previous) = (Vec::new(), 0);
        while !data.is_empty() {
            let mut value = get(&mut data);
            if column["delta"] == true {
                previous += (value >> 1) as i64 ^ -((value & 1) as i64);
                value = previous as u64;
            }
            values.push(value);
        }
        assert_eq!(values.len() as u64, column["count"]);
        columns.insert(column["name"].as_str().expect("name").to_owned(), values);
        rest = next;
    }
    assert!(rest.is_empty());
    (header, columns)
}

fn get(data: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = data.split_first().expect("a byte");
        *data = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            break;
        }
    }
    value
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("not base64: {c}"),
    };
    let text = text.trim();
    assert_eq!(text.len() % 4, 0);
    let mut bytes = Vec::new();
    for group in text.as_bytes().chunks(4) {
        let padding = group.iter().filter(|c| **c == b'=').count();
        let number = group[..4 - padding].iter().fold(0, |number, c| number << 6 | u32::from(digit(*c)));
        bytes.extend(&(number << (6 * padding + 8)).to_be_bytes()[..3 - padding]);
    }
    bytes
}
