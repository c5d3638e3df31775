//! Finds the functions whose calls repeat each other, so that most of their returns need not be watched.

use std::fs::File;

use bpf::{
    Repeats,
    calls::{Gather, Payload},
};
use model::calls::Tier;

use super::file::is_usual;

/// Returns how the calls of a function repeat each other, if they do: it launches kernels, or it looks up their handles.
///
/// A runtime that is linked into a program or another library shares its code with that: who calls the driver from there is
/// not known, so all returns are watched.
pub fn repeats(file: &File, path: &str, name: &str, gather: &Gather, offset: u64) -> Option<Repeats> {
    let looks_up = gather.names_kernels && gather.out == Some(0) && !matches!(gather.payload, Some(Payload::Text(_)));
    if !(gather.launches.is_some() || looks_up) || !is_usual(path) {
        return None;
    }
    if Tier::of_name(name) != Tier::Runtime {
        return Some(Repeats::Other);
    }
    let (before, after) = probes::code_around(file, offset).ok().flatten()?;
    Some(Repeats::Runtime { before, after })
}
