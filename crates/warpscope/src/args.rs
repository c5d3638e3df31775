//! The command line.

mod diff;
mod filter;
mod flight;
mod form;
mod formats;
mod graph_stacks;
mod hang;
mod mcp;
mod monitor;
mod phases;
mod push;
mod record;
mod table;
mod trace;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use diff::{Diff, FailOn};
pub use filter::Filters;
pub use flight::Flight;
pub use form::Form;
use formats::with_formats;
pub use graph_stacks::GraphStacks;
pub use hang::Hang;
pub use mcp::Mcp;
pub use monitor::{Monitor, Top};
pub use phases::Phases;
pub use push::Push;
pub use record::Record;
pub use table::Table;
pub use trace::{CallsFrom, Trace};

/// CPU and GPU profiler, CUDA tracer and GPU metrics daemon.
#[derive(Debug, Parser)]
#[command(
    name = "warpscope",
    version,
    max_term_width = 100,
    after_help = "Examples:
  sudo warpscope demo                             try it on a simulated GPU; no CUDA, no GPU needed
  sudo warpscope record -- python3 train.py       write warpscope.html, a report
  sudo warpscope trace --driver -- ./vectoradd    trace CUDA calls and driver requests
  sudo warpscope monitor                          serve metrics of every GPU process to Prometheus
  warpscope open warpscope.wscope                 show the report in the browser, also over ssh
  warpscope report warpscope.wscope               print the summary of a recording again
  warpscope diff before.wscope after.wscope       show what got slower or faster, and why
  sudo warpscope hang --all                       show which rank of a stuck job has not arrived
  warpscope explain launch-bound                  what a finding, frame, metric or word means
  warpscope doctor                                check this machine and suggest fixes"
)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Profile CPU and GPU time by call stack, of a command or of running processes.
    Record(Record),
    /// Trace CUDA calls and driver requests, one by one or aggregated.
    Trace(Trace),
    /// Monitor every GPU process on this machine: memory, leaks, launches, copies and errors.
    Monitor(Monitor),
    /// Show GPU processes in an interactive terminal view.
    Top(Top),
    /// Print the summary of a recording or trace.
    Report(Report),
    /// Convert a recording to other formats.
    Export(Export),
    /// Compare recordings: what got slower or faster, and which change explains it.
    Diff(Diff),
    /// Show which ranks of a stuck job wait, which have not arrived, and where these are.
    Hang(Hang),
    /// Open the report of a recording in the browser.
    Open(Open),
    /// Explain a finding, a frame, a metric or a word: what it means, how exact it is, what to do.
    Explain(Explain),
    /// Answer an agent's questions about recordings, over the Model Context Protocol on stdin and stdout.
    Mcp(Mcp),
    /// Check whether this machine can record, and suggest fixes.
    Doctor,
    /// Record a bundled workload on the simulated GPU; needs no CUDA and no GPU.
    Demo(Demo),
    /// Write the simulated GPU's libraries to a directory.
    Sim(Sim),
    /// Print shell completions.
    #[command(after_help = "Example:\n  warpscope completions bash > /etc/bash_completion.d/warpscope")]
    Completions {
        /// The shell to generate completions for.
        shell: clap_complete::Shell,
    },
    /// Print a manual page.
    Man(Man),
}

/// `man`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  warpscope man | man -l -
  warpscope man record | man -l -
  warpscope man --dir ~/.local/share/man/man1")]
pub struct Man {
    /// Print the page of this command.
    pub command: Option<String>,
    /// Write the pages of all commands to DIR, creating it if needed.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub dir: Option<PathBuf>,
}

/// `report`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  warpscope report warpscope.wscope
  warpscope report --json warpscope.wscope | jq '.top_kernels[0]'
  warpscope report --by line --top 5 --kernel gemm warpscope.wscope
  warpscope report --brief warpscope.wscope
  warpscope report --brief --format markdown warpscope.wscope >> \"$GITHUB_STEP_SUMMARY\"
  warpscope report --by steps warpscope.wscope
  warpscope report --step slowest warpscope.wscope
  warpscope report --from 2s --to 3.5s warpscope.wscope
  ssh gpu-box cat run.wscope | warpscope report -
  warpscope report --by calls trace.jsonl
  warpscope report rank-*.wscope")]
pub struct Report {
    /// The recording to read (.wscope) or the lines of a trace (.jsonl), or - for stdin; several recordings, such as one per
    /// rank, are read as one.
    #[arg(required = true, value_name = "RECORDING")]
    pub recordings: Vec<PathBuf>,
    /// Print the summary as JSON.
    #[arg(long)]
    pub json: bool,
    /// Print at most 60 lines without colours: what was lost, what the recording cost, then where to look next.
    #[arg(long, conflicts_with_all = ["json", "by"])]
    pub brief: bool,
    /// With --brief, print plain text (text), or Markdown for pull requests (markdown).
    #[arg(long, value_name = "FORM", value_enum, default_value_t, requires = "brief")]
    pub format: Form,
    /// Print one table instead: kernels, classes, phases, paths, user-paths, lines, steps, functions, threads, streams, ranks,
    /// collectives, copies, devices, occupancy, energy, counters, verdicts, limits, stalls, instructions, idle, waits, memory, calls, requests
    /// or ledger.
    #[arg(long, value_name = "TABLE")]
    pub by: Option<Table>,
    /// With --by, print N rows [default: 20; all with --json].
    #[arg(long, value_name = "N", requires = "by")]
    pub top: Option<usize>,
    /// Show the work of CUDA graphs under the code that captured it (capture) or that launched the graph (launch).
    #[arg(long, value_name = "STACKS", value_enum, default_value_t)]
    pub graph_stacks: GraphStacks,
    /// Which part of the recording to summarise.
    #[command(flatten)]
    pub filters: Filters,
}

/// `export`
#[derive(Args, Debug)]
#[command(after_help = with_formats(
    "

Examples:
  warpscope export warpscope.wscope -o run.svg -o run.json
  warpscope export warpscope.wscope --event malloc -o malloc.svg
  warpscope export warpscope.wscope --memory peak -o memory.svg
  warpscope export warpscope.wscope --table kernels -o kernels.csv
  warpscope export rank-*.wscope -o all.html
  warpscope export warpscope.wscope --push pyroscope=http://localhost:4040
  warpscope export warpscope.wscope --device 0 --from 2s --format folded -o - | grep gemm"
))]
pub struct Export {
    /// The recording to read (.wscope), or - for stdin; several recordings, such as one per rank, are read as one.
    #[arg(required = true, value_name = "RECORDING")]
    pub recordings: Vec<PathBuf>,
    /// Write to FILE; may be repeated.
    #[arg(short, long, value_name = "FILE", required_unless_present = "receivers")]
    pub output: Vec<PathBuf>,
    /// Where to push it.
    #[command(flatten)]
    pub push: Push,
    /// Omit CPU samples from flame graphs and folded stacks.
    #[arg(long, conflicts_with = "cpu_only")]
    pub gpu_only: bool,
    /// Omit GPU activity from flame graphs and folded stacks.
    #[arg(long)]
    pub cpu_only: bool,
    /// Show an event recorded with `record --event`, instead of time, in flame graphs and folded stacks.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["gpu_only", "cpu_only"])]
    pub event: Option<String>,
    /// Show the idle time of GPUs in flame graphs and folded stacks: for each GPU, what the thread that feeds it was doing.
    #[arg(long, conflicts_with_all = ["gpu_only", "cpu_only", "event"])]
    pub idle: bool,
    /// Show who held GPU memory, at its peak or at the end, in flame graphs and folded stacks; requires `record --memory`.
    #[arg(long, value_name = "WHEN", value_enum, conflicts_with_all = ["gpu_only", "cpu_only", "event", "idle"])]
    pub memory: Option<MemoryMoment>,
    /// Show the work of CUDA graphs under the code that captured it (capture) or that launched the graph (launch).
    #[arg(long, value_name = "STACKS", value_enum, default_value_t)]
    pub graph_stacks: GraphStacks,
    /// With --event, show the number of hits even if the event has a weight.
    #[arg(long, requires = "event")]
    pub count: bool,
    /// Draw each level of a recursion in flame graphs, instead of one frame `f [recursion x40]`.
    #[arg(long)]
    pub unfold_recursion: bool,
    /// Write this table to .csv files: kernels, classes, phases, paths, user-paths, lines, steps, functions, threads, streams,
    /// ranks, collectives, copies, devices, occupancy, energy, counters, verdicts, limits, stalls, instructions, idle, waits, memory, calls,
    /// requests or ledger.
    #[arg(long, value_name = "TABLE")]
    pub table: Option<Table>,
    /// Leave calls of a trace that took less than TIME (such as 20us) out of the events of outputs.
    #[arg(long, value_name = "TIME", value_parser = values::seconds)]
    pub min_duration: Option<f64>,
    /// In lines of JSON, write what took time in a trace as one event (complete), or as two (begin-end).
    #[arg(long, value_name = "PHASES", value_enum, default_value_t)]
    pub phases: Phases,
    /// Use this format, given as an extension, for outputs without an extension, such as - or /dev/stdout.
    #[arg(long, value_name = "EXT")]
    pub format: Option<String>,
    /// Which part of the recording to export.
    #[command(flatten)]
    pub filters: Filters,
}

/// When GPU memory is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum MemoryMoment {
    // Not doc comments: clap would print each option of `export` in two lines.
    Peak,
    End,
}

/// `open`
#[derive(Args, Debug)]
#[command(
    after_help = "Serves the report on the loopback interface, under an address with a random token, until Ctrl-C.
On a machine without a display, prints the ssh command that forwards the port to your machine.

Examples:
  warpscope open warpscope.wscope
  warpscope open run.html"
)]
pub struct Open {
    /// The recording (.wscope) or report (.html) to open; several recordings are shown as one.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Listen on this port of the loopback interface; 0 selects a free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub port: u16,
    /// Print the address without starting a browser.
    #[arg(long)]
    pub no_browser: bool,
}

/// `explain`
#[derive(Args, Debug)]
#[command(after_help = "Without a TERM, lists everything that is explained.

Examples:
  warpscope explain gpu-idle
  warpscope explain '[waiting for the GPU]'
  warpscope explain matched
  warpscope explain warpscope_memory_live_bytes")]
pub struct Explain {
    /// A finding, a frame in brackets, a metric, a stall reason, a table or a word, as outputs show it.
    pub term: Vec<String>,
}

/// `demo`
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  sudo warpscope demo")]
pub struct Demo {
    /// Write to FILE; may be repeated [default: demo.html and demo.wscope].
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
}

/// `sim`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  warpscope sim --libs /tmp/sim
  cc program.c -L/tmp/sim -lcudart -o program
  sudo warpscope record --sim -- ./program

The environment variable WARPSCOPE_SIM configures the simulated GPU, for example
  WARPSCOPE_SIM=devices=2,release=12.8,order=shuffle
docs/simulator.md lists every key.")]
pub struct Sim {
    /// Write the libraries to DIR, creating it if needed.
    #[arg(long, value_name = "DIR")]
    pub libs: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Check that no line of the help texts is wrapped: clap wraps at 100 columns, whatever the indentation.
    #[test]
    fn help_texts_need_no_wrapping() {
        for command in Cli::command().get_subcommands() {
            for text in [command.get_after_help(), command.get_after_long_help()].into_iter().flatten() {
                for line in text.to_string().lines() {
                    assert!(line.chars().count() <= 100, "{}: {line}", command.get_name());
                }
            }
        }
    }

    /// Check that `record -h` has one line for each option and fits on two screens, and that `--help` has the rest.
    #[test]
    fn the_short_help_of_record_is_short() {
        let mut cli = Cli::command();
        cli.build();
        let record = cli.find_subcommand_mut("record").expect("a command");
        let (short, long) = (record.render_help().to_string(), record.render_long_help().to_string());
        let options = record.get_arguments().filter(|option| !option.is_hide_set()).count();
        assert!(short.lines().count() <= options + 25, "{options} options: {short}");
        assert!(long.lines().count() > 2 * short.lines().count());
        for part in ["tracepoint:GROUP:NAME", "Flight recorder (--last):", "serialised,19", "--last 1m --on-error"] {
            assert!(long.contains(part) && !short.contains(part), "{part}");
        }
    }

    /// Check that the help lists every table and every output format.
    #[test]
    fn help_lists_every_table_and_format() {
        let help = |command: &str| {
            let mut cli = Cli::command();
            cli.find_subcommand_mut(command).expect("a command").render_long_help().to_string()
        };
        let words = |help: &str| help.split([' ', ',', '.', '\n']).map(str::to_owned).collect::<Vec<_>>();
        for command in ["report", "export"] {
            let words = words(&help(command));
            for (table, _) in analysis::Table::ALL {
                assert!(words.iter().any(|word| word == table), "{table} is not in the help of {command}");
            }
        }
        for command in ["record", "export"] {
            assert!(help(command).contains(&export::Format::help()), "the formats are not in the help of {command}");
        }
    }
}
