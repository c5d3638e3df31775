//! Interprets a call: its function, its named arguments, and its result.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use cuda::{
    calls::{KernelRef, Value},
    results,
};
use model::{
    calls::{KernelNames, captured, facts, is_error},
    event::{Call, Event, Function, FunctionId, Layer, ProcessId},
    profile::Profile,
};

use super::{
    driver,
    values::{Argument, Arguments, Outcome},
};

/// Interprets calls while events are read, and learns the names they refer to.
#[derive(Debug, Default)]
pub struct Reader {
    functions: BTreeMap<FunctionId, Function>,
    names: KernelNames,
}

impl Reader {
    /// Creates a reader for the first pass over events: `readable` converts kernel names for display.
    pub fn first(readable: fn(&str) -> String) -> Self {
        Self { functions: BTreeMap::new(), names: KernelNames::read_by(readable) }
    }

    /// Creates a reader for a second pass over the events of a profile.
    pub fn for_second_pass(profile: &Profile) -> Self {
        Self { functions: profile.calls.functions.clone(), names: profile.calls.names.for_second_pass() }
    }

    /// Creates a reader for use after the last event: handles have their last meaning.
    pub fn at_the_end(profile: &Profile) -> Self {
        Self { functions: profile.calls.functions.clone(), names: profile.calls.names.clone() }
    }

    /// Learns functions, and kernels from the calls that name them.
    pub fn learn(&mut self, event: &Event) {
        match event {
            Event::Function(function) => {
                self.functions.insert(function.id, function.clone());
            }
            Event::Call(call) => {
                let Some(function) = self.functions.get(&call.function) else { return };
                if function.layer == Layer::Library
                    && let Some(known) = cuda::call(&function.name)
                {
                    self.names.learn_from(known, call);
                }
            }
            _ => {}
        }
    }

    /// Interprets a call; `None` if its function is unknown or hidden.
    pub fn read(&self, call: &Call) -> Option<Reading<'_>> {
        let function = self.functions.get(&call.function).filter(|function| function.shown)?;
        let finished = call.end != 0;
        let facts = facts(function, call);
        let args = match function.layer {
            Layer::Library => library(&self.names, function, call, facts.as_ref().and_then(|facts| facts.kernel)),
            Layer::Driver => driver::arguments(function, call),
            Layer::Kernel => named(function, call),
            Layer::Point => pairs(&call.payload),
        };
        let returns = finished && function.layer != Layer::Point && !function.void;
        let result = returns.then(|| outcome(function, call.result));
        let size = facts.and_then(|facts| facts.bytes);
        Some(Reading { function, args, size, result, failed: finished && is_error(function, call.result) })
    }

    /// Returns the name of a launch's kernel.
    pub fn kernel(&self, process: ProcessId, kernel: KernelRef) -> Option<&Arc<str>> {
        self.names.text(process, kernel)
    }
}

/// An interpreted call.
#[derive(Debug)]
pub struct Reading<'a> {
    /// The function.
    pub function: &'a Function,
    /// Its arguments.
    pub args: Arguments,
    /// The bytes that it allocates, copies or sets, where its arguments say so.
    pub size: Option<u64>,
    /// Its result, by name where it has one; `None` if it did not return, or returns nothing.
    pub result: Option<Outcome>,
    /// Whether it failed.
    pub failed: bool,
}

fn library(names: &KernelNames, function: &Function, call: &Call, kernel: Option<KernelRef>) -> Arguments {
    let Some(known) = cuda::call(&function.name) else { return words(call) };
    let readable = |value: Value| {
        let here = match (&value, kernel) {
            (Value::Pointer(at), Some(KernelRef::HostStub(stub))) => *at == stub,
            (Value::Handle(at), Some(KernelRef::Handle(handle))) => *at == handle,
            _ => false,
        };
        match kernel.filter(|_| here).and_then(|kernel| names.text(call.process, kernel)) {
            Some(name) => Argument::Kernel(name.clone()),
            None => Argument::Value(value),
        }
    };
    let fields = known.decode(&captured(call)).into_iter();
    Arguments(fields.map(|field| (field.name.into(), readable(field.value))).collect())
}

/// Arguments of an unknown function: raw words.
fn words(call: &Call) -> Arguments {
    let word = |(at, word): (usize, &u64)| (format!("arg{at}").into(), Argument::Value(Value::Handle(*word)));
    Arguments(call.words.iter().enumerate().map(word).collect())
}

/// Arguments whose names were recorded with the function; the rest have none.
fn named(function: &Function, call: &Call) -> Arguments {
    let mut arguments = words(call);
    for (argument, name) in arguments.0.iter_mut().zip(&function.parameters) {
        argument.0 = name.clone().into();
    }
    arguments
}

/// `key=value key=value`
fn pairs(payload: &[u8]) -> Arguments {
    let text = String::from_utf8_lossy(payload);
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or(("", pair));
        let number = value.parse().ok().map(Argument::Number);
        (Cow::Owned(name.to_owned()), number.unwrap_or_else(|| Argument::Word(value.to_owned().into())))
    };
    Arguments(text.split_ascii_whitespace().map(pair).collect())
}

fn outcome(function: &Function, result: u64) -> Outcome {
    match function.layer {
        Layer::Library => match results::result(&function.name, result as u32) {
            Some(name) => Outcome::Name(name),
            None => number(result),
        },
        Layer::Driver => driver::outcome(function, result),
        Layer::Kernel | Layer::Point => number(result),
    }
}

/// Small numbers in decimal, all others as addresses.
fn number(result: u64) -> Outcome {
    let signed = result.cast_signed();
    match i32::try_from(signed) {
        Ok(_) => Outcome::Number(signed),
        Err(_) => Outcome::Name(format!("{result:#x}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a function of the operating system's kernel has its parameters' names, as far as they are known, and
    /// no result if it returns nothing.
    #[test]
    fn kernel_functions_have_parameter_names() {
        let mut reader = Reader::default();
        let parameters = vec!["fd".to_owned(), "file".to_owned()];
        for (id, void) in [(0, true), (1, false)] {
            let function = Function {
                id: FunctionId(id),
                layer: Layer::Kernel,
                name: "fd_install".into(),
                shown: true,
                parameters: parameters.clone(),
                void,
                ..Function::default()
            };
            reader.learn(&Event::Function(function));
        }
        let read = |id| {
            let call = Call {
                function: FunctionId(id),
                process: ProcessId(1),
                tid: 1,
                cpu: 0,
                depth: 0,
                nested: false,
                enclosed: false,
                start: 1,
                end: 2,
                result: 9,
                out: None,
                launch: None,
                launches: false,
                around: 0,
                stack: None,
                words: vec![3, 0xffff_8000, 7],
                payload: Vec::new(),
            };
            let reading = reader.read(&call).expect("a function that is shown");
            (reading.args.to_string(), reading.result)
        };
        let args = "fd=0x3, file=0xffff8000, arg2=0x7".to_owned();
        assert_eq!(read(0), (args.clone(), None));
        assert_eq!(read(1), (args, Some(Outcome::Number(9))));
    }
}
