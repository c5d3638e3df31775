//! End to end: the real binary, real probes, real processes, and a simulated GPU. Needs root.
//!
//! Every test has a directory of its own ([`support::Scene`]) and may run beside the others. `programs/` holds what is
//! recorded; `support::oracle` knows what must come out.

mod accounts;
mod bad_input;
mod bad_recordings;
mod behaviour;
mod command_line;
mod demo;
mod environment;
mod event;
mod faults;
mod formats;
mod full_disk;
mod ground_truth;
mod hostile;
mod known_stacks;
mod ledger;
mod matrix;
mod monitor;
mod namespaces;
mod neighbours;
mod no_gpu_work;
mod outputs;
mod privileges;
mod python;
mod robustness;
mod signals;
mod stopped;
mod sudo;
mod support;
mod symbols;
mod terminal;
mod trace;
