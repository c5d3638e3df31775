//! The tables and their columns.

use std::io::{self, Write};

use super::table::{
    Cell,
    Kind::{self, Number, Text},
    Table,
};

type Columns = &'static [(&'static str, Kind)];

/// What belongs to a process.
const PROCESS: Columns = &[("recording", Text), ("process", Number), ("pid", Number), ("rank", Number)];

const LAUNCHES: Columns = &[
    ("tid", Number),
    ("cpu", Number),
    ("time_ns", Number),
    ("end_ns", Number),
    ("kind", Text),
    ("session", Number),
    ("correlation", Number),
    ("stack", Number),
];

/// What all GPU work has.
const WORK: Columns = &[
    ("tid", Number),
    ("device", Number),
    ("context", Number),
    ("stream", Number),
    ("session", Number),
    ("correlation", Number),
    ("launch_ns", Number),
    ("start_ns", Number),
    ("end_ns", Number),
    ("stack", Number),
    ("range", Text),
    ("graph_node", Number),
    ("step", Number),
    ("step_tid", Number),
];

const KERNELS: Columns = &[
    ("name", Text),
    ("grid_x", Number),
    ("grid_y", Number),
    ("grid_z", Number),
    ("block_x", Number),
    ("block_y", Number),
    ("block_z", Number),
    ("registers", Number),
    ("shared_memory", Number),
];

const COUNTERS: Columns = &[("session", Number), ("correlation", Number), ("metric", Text), ("thousandths", Number)];

const COPIES: Columns = &[
    ("kind", Text),
    ("direction", Text),
    ("bytes", Number),
    ("source", Text),
    ("destination", Text),
    ("peer", Number),
];

const SAMPLES: Columns =
    &[("tid", Number), ("cpu", Number), ("time_ns", Number), ("weight_ns", Number), ("stack", Number), ("own", Number)];

const WAITS: Columns = &[
    ("tid", Number),
    ("start_ns", Number),
    ("end_ns", Number),
    ("kind", Text),
    ("reason", Text),
    ("stream", Number),
    ("stack", Number),
];

const RANGES: Columns =
    &[("tid", Number), ("start_ns", Number), ("end_ns", Number), ("name", Text), ("path", Text), ("category", Text)];

const CALLS: Columns = &[
    ("tid", Number),
    ("cpu", Number),
    ("start_ns", Number),
    ("end_ns", Number),
    ("layer", Text),
    ("library", Text),
    ("function", Text),
    ("depth", Number),
    ("result", Text),
    ("failed", Number),
    ("arguments", Text),
    ("session", Number),
    ("correlation", Number),
    ("stack", Number),
];

const STEPS: Columns = &[
    ("tid", Number),
    ("step", Number),
    ("start_ns", Number),
    ("end_ns", Number),
    ("place", Text),
    ("warm_up", Number),
    ("followed", Number),
    ("busy_ns", Number),
    ("launching_ns", Number),
    ("waiting_ns", Number),
    ("kernel_ns", Number),
    ("communication_ns", Number),
    ("copy_ns", Number),
    ("copied", Number),
    ("cpu_ns", Number),
    ("memory", Number),
    ("launches", Number),
    ("kernels", Number),
];

const COLLECTIVES: Columns = &[
    ("recording", Text),
    ("collective", Number),
    ("communicator", Text),
    ("operation", Text),
    ("number", Number),
    ("members", Number),
    ("bytes", Number),
    ("begin_ns", Number),
    ("all_there_ns", Number),
    ("end_ns", Number),
    ("transfer_ns", Number),
    ("waited_ns", Number),
    ("last_rank", Number),
];

const MEMBERS: Columns = &[
    ("collective", Number),
    ("tid", Number),
    ("session", Number),
    ("launch_ns", Number),
    ("start_ns", Number),
    ("end_ns", Number),
    ("waited_ns", Number),
    ("waited_for_rank", Number),
    ("stack", Number),
];

const STACKS: Columns =
    &[("recording", Text), ("stack", Number), ("process", Number), ("path", Text), ("line", Text), ("file", Text)];

const FRAMES: Columns =
    &[("recording", Text), ("stack", Number), ("depth", Number), ("name", Text), ("kind", Text), ("module", Text)];

const PROCESSES: Columns = &[
    ("recording", Text),
    ("process", Number),
    ("parent", Number),
    ("pid", Number),
    ("comm", Text),
    ("rank", Number),
    ("start_ns", Number),
    ("end_ns", Number),
];

const THREADS: Columns = &[("recording", Text), ("process", Number), ("pid", Number), ("tid", Number), ("comm", Text)];

const DEVICES: Columns =
    &[("recording", Text), ("device", Number), ("label", Text), ("name", Text), ("uuid", Text), ("busy_ns", Number)];

const LEDGER: Columns = &[("recording", Text), ("name", Text), ("count", Number)];

const RECORDINGS: Columns = &[
    ("recording", Text),
    ("host", Text),
    ("command", Text),
    ("version", Text),
    ("mode", Text),
    ("start_ns", Number),
    ("end_ns", Number),
    ("start_unix_ns", Number),
    ("status", Number),
    ("notes", Text),
];

/// Declares the tables, each with its columns.
macro_rules! tables {
    ($($name:ident: $($columns:ident)+;)*) => {
        /// The names of the files in a directory.
        pub const FILES: [&str; [$(stringify!($name)),*].len()] = [$(concat!(stringify!($name), ".parquet")),*];

        /// The tables of a recording.
        pub(super) struct Tables<'a> {
            $(pub $name: Table<'a>,)*
        }

        impl<'a> Tables<'a> {
            /// Creates all files. A table without rows has a file too, so that a pattern of file names always matches.
            pub fn create(create: &mut dyn FnMut(&str) -> io::Result<Box<dyn Write + 'a>>) -> io::Result<Self> {
                let mut table = |file: &str, columns: &[Columns]| Table::new(create(file)?, &columns.concat());
                Ok(Self { $($name: table(concat!(stringify!($name), ".parquet"), &[$($columns),+])?,)* })
            }

            /// Writes the rest of each.
            pub fn finish(self) -> io::Result<()> {
                $(self.$name.finish()?;)*
                Ok(())
            }
        }
    };
}

tables! {
    calls: PROCESS CALLS;
    collective_members: PROCESS MEMBERS;
    collectives: COLLECTIVES;
    copies: PROCESS WORK COPIES;
    devices: DEVICES;
    frames: FRAMES;
    kernel_counters: PROCESS COUNTERS;
    kernels: PROCESS WORK KERNELS;
    launches: PROCESS LAUNCHES;
    ledger: LEDGER;
    processes: PROCESSES;
    ranges: PROCESS RANGES;
    recordings: RECORDINGS;
    samples: PROCESS SAMPLES;
    stacks: STACKS;
    steps: PROCESS STEPS;
    threads: THREADS;
    waits: PROCESS WAITS;
}

impl Table<'_> {
    /// Adds a row of GPU work.
    pub fn row_of(&mut self, place: &[Cell<'_>; 18], rest: &[Cell<'_>]) -> io::Result<()> {
        let mut cells = [Cell::Null; 27];
        let count = place.len() + rest.len();
        cells[..18].copy_from_slice(place);
        cells[18..count].copy_from_slice(rest);
        self.row(&cells[..count])
    }
}
