//! Reads protocol buffers, without a schema.

/// A field of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Message<'a>(pub Vec<(u32, Value<'a>)>);

impl<'a> Message<'a> {
    pub fn read(mut bytes: &'a [u8]) -> Self {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let value = match tag & 7 {
                0 => Value::Number(varint(&mut bytes)),
                1 => Value::Number(u64::from_le_bytes(take(&mut bytes, 8).try_into().expect("8 bytes"))),
                2 => {
                    let length = varint(&mut bytes);
                    Value::Bytes(take(&mut bytes, length as usize))
                }
                kind => panic!("wire type {kind}"),
            };
            fields.push(((tag >> 3) as u32, value));
        }
        Self(fields)
    }

    fn of(&self, field: u32) -> impl Iterator<Item = &Value<'a>> {
        self.0.iter().filter(move |(number, _)| *number == field).map(|(_, value)| value)
    }

    pub fn number(&self, field: u32) -> Option<u64> {
        self.of(field).last().map(|value| match value {
            Value::Number(number) => *number,
            Value::Bytes(_) => panic!("field {field} is not a number"),
        })
    }

    /// All numbers of a repeated field, packed or not.
    pub fn numbers(&self, field: u32) -> Vec<u64> {
        let mut numbers = Vec::new();
        for value in self.of(field) {
            match value {
                Value::Number(number) => numbers.push(*number),
                Value::Bytes(bytes) => {
                    let mut bytes = *bytes;
                    while !bytes.is_empty() {
                        numbers.push(varint(&mut bytes));
                    }
                }
            }
        }
        numbers
    }

    /// All numbers of a repeated field that is not packed, such as fixed64.
    pub fn numbers_fixed(&self, field: u32) -> Vec<u64> {
        self.of(field)
            .filter_map(|value| if let Value::Number(number) = value { Some(*number) } else { None })
            .collect()
    }

    pub fn texts(&self, field: u32) -> Vec<&'a str> {
        let text = |bytes| std::str::from_utf8(bytes).expect("UTF-8");
        self.of(field)
            .filter_map(|value| if let Value::Bytes(bytes) = value { Some(text(bytes)) } else { None })
            .collect()
    }

    pub fn text(&self, field: u32) -> Option<&'a str> {
        self.texts(field).last().copied()
    }

    pub fn bytes(&self, field: u32) -> Option<&'a [u8]> {
        self.of(field).find_map(|value| if let Value::Bytes(bytes) = value { Some(*bytes) } else { None })
    }

    pub fn messages(&self, field: u32) -> Vec<Message<'a>> {
        self.of(field)
            .filter_map(|value| if let Value::Bytes(bytes) = value { Some(Self::read(bytes)) } else { None })
            .collect()
    }

    pub fn message(&self, field: u32) -> Option<Message<'a>> {
        self.messages(field).pop()
    }
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(length);
    *bytes = rest;
    taken
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("more than 64 bits")
}
