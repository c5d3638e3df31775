//! Arguments and results of calls, for text and for JSON.

use std::{borrow::Cow, fmt, sync::Arc};

use cuda::calls::Value;
use serde::{Serialize, Serializer, ser::SerializeMap};
use text::short::short;

use crate::names;

/// Maximum length of a kernel's name in a line, where it can be shortened to that.
pub const KERNEL_LENGTH: usize = 48;

/// Named arguments, in order.
#[derive(Debug, Default, PartialEq)]
pub struct Arguments(pub Vec<(Cow<'static, str>, Argument)>);

/// An argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A value of a known type.
    Value(Value),
    /// A kernel.
    Kernel(Arc<str>),
    /// A name or other self-explanatory text.
    Word(Cow<'static, str>),
    /// A number.
    Number(i64),
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A status, an errno, an address.
    Name(Cow<'static, str>),
    /// A number.
    Number(i64),
}

impl fmt::Display for Arguments {
    /// Formats `size=4096, stream=0`, safe for a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, argument)) in self.0.iter().enumerate() {
            if place > 0 {
                f.write_str(", ")?;
            }
            match name.as_ref() {
                "" => write!(f, "{argument}")?,
                name => write!(f, "{}={argument}", names::printable(name))?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(Value::Text(text)) => write!(f, "\"{}\"", names::printable(text)),
            Self::Value(value) => write!(f, "{value}"),
            Self::Kernel(name) => f.write_str(&short(&names::clean(name), KERNEL_LENGTH)),
            Self::Word(word) => f.write_str(&names::printable(word)),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

impl Serialize for Arguments {
    /// Returns a JSON object. Of arguments with the same name the last is kept, as JSON parsers do.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (place, (name, argument)) in self.0.iter().enumerate() {
            if self.0[place + 1..].iter().all(|(later, _)| later != name) {
                map.serialize_entry(name, argument)?;
            }
        }
        map.end()
    }
}

impl Serialize for Argument {
    /// Counts are numbers; addresses, handles, streams and flags are text, because JSON numbers cannot hold 64 bits.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(Value::Bytes(number) | Value::Unsigned(number)) => serializer.serialize_u64(*number),
            Self::Value(Value::Number(number)) | Self::Number(number) => serializer.serialize_i64(*number),
            Self::Value(Value::Float(number)) => serializer.serialize_f32(*number),
            Self::Value(Value::Dims(dims)) => dims.serialize(serializer),
            Self::Value(Value::Text(text)) => serializer.serialize_str(text),
            Self::Value(value) => serializer.collect_str(value),
            Self::Kernel(name) => serializer.serialize_str(name),
            Self::Word(word) => serializer.serialize_str(word),
        }
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Name(name) => serializer.serialize_str(name),
            Self::Number(number) => serializer.serialize_i64(*number),
        }
    }
}
