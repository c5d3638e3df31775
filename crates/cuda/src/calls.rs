//! The known functions: what to capture of a call, and what the captured words mean.
//!
//! A function is one line of a table in `tables/`, written like its declaration. Everything else follows from the kinds
//! of its arguments: which words hold them, how they are shown, how many bytes the call moves, which kernel it
//! launches.
//!
//! If a symbol's signature differs between releases, its line stops before the first argument that differs.

mod args;
mod call;
mod capture;
mod encode;
mod parameters;
mod payload;
mod query;
mod role;
mod structs;
mod tables;
#[cfg(test)]
mod tests;
mod values;

use std::{collections::HashMap, sync::LazyLock};

pub use call::Call;
pub use capture::{Capture, DimsPlace, Launches, Payload, Sums, Way};
pub use encode::{Encoded, Given};
pub use parameters::Parameters;
pub use query::is_query;
pub use role::{Role, Space};
pub use values::{Captured, Direction, Facts, Field, KernelRef, NameFact, Object, Value};

/// Returns the function with this name. Suffixes for versions (`_v2`) and for the per-thread default stream (`_ptsz`,
/// `_ptds`) are ignored, unless that version has its own signature.
pub fn call(name: &str) -> Option<&'static Call> {
    static BY_NAME: LazyLock<HashMap<&str, &Call>> = LazyLock::new(|| all().map(|call| (call.name, call)).collect());
    let stream = name.strip_suffix("_ptsz").or(name.strip_suffix("_ptds")).unwrap_or(name);
    let version = stream.rsplit_once("_v").filter(|(_, digits)| is_number(digits)).map_or(stream, |(base, _)| base);
    [name, stream, version].into_iter().find_map(|name| BY_NAME.get(name).copied())
}

/// Returns every known function.
pub fn all() -> impl Iterator<Item = &'static Call> {
    tables::ALL.iter().copied().flatten()
}

fn is_number(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}
