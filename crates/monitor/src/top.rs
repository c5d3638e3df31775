//! `warpscope top`: an interactive terminal view of GPU processes, with sorting, filtering and details.
//!
//! [`App`] holds the state and draws it. It depends on neither a terminal nor the kernel, so every key and every screen
//! can be tested. [`run`] connects it to a terminal.

mod app;
mod choice;
mod column;
mod detail;
mod graphs;
mod history;
mod parts;
mod recorder;
mod run;
mod sort;
mod view;

pub use self::{
    app::{App, Flow},
    column::Column,
    run::run,
};
