//! `warpscope top`: GPU processes on a terminal, sorted, filtered and looked into by keys.
//!
//! [`App`] is the state and how it is drawn; it knows no terminal and no kernel, so that every key and every screen can
//! be tested. [`run`] ties it to a terminal.

mod app;
mod detail;
mod history;
mod terminal;
mod view;

pub use self::{
    app::{App, Flow, Sort},
    terminal::run,
};
