//! The functions, by topic. A line reads like the declaration, with kinds for types.

mod copies;
mod devices;
mod group;
mod launches;
mod memory;
mod modules;
mod streams;

use super::call::Call;

/// All tables.
pub(super) static ALL: &[&[Call]] =
    &[memory::CALLS, copies::CALLS, launches::CALLS, streams::CALLS, modules::CALLS, devices::CALLS];
