//! The recorded command, and how warpscope behaves towards it.

pub mod capabilities;
pub mod limits;
pub mod priority;
pub mod random;
pub mod setup;
pub mod signals;
pub mod target;
pub mod workspace;

pub use sandbox::user;
