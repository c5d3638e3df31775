//! End-to-end tests with the real binary, real probes, real processes, and a simulated GPU. They need root.
//!
//! Each test has its own directory ([`support::Scene`]) and can run in parallel with the others. `programs/` holds the
//! recorded programs; `support::oracle` computes the expected results.

mod accounts;
mod alone;
mod attach;
mod bad_input;
mod bad_recordings;
mod behaviour;
mod clients;
mod command_line;
mod cost;
mod counters;
mod deep;
mod demo;
mod devices;
mod energy;
mod environment;
mod event;
mod faults;
mod flight;
mod formats;
mod full_disk;
mod graphs;
mod ground_truth;
mod handover;
mod hostile;
mod html;
mod idle;
mod known_stacks;
mod ledger;
mod matrix;
mod memory;
mod monitor;
mod namespaces;
mod neighbours;
mod no_gpu_work;
mod nvtx;
mod off_cpu;
mod outputs;
mod packages;
mod parts;
mod privileges;
mod python;
mod ranks;
mod robustness;
mod sampling;
mod several;
mod signals;
mod stalls;
mod stopped;
mod sudo;
mod support;
mod symbols;
mod terminal;
mod trace;
