//! The command line of `diff`.

use std::path::PathBuf;

use clap::Args;

use super::{Filters, Form, GraphStacks};

/// `diff`
#[derive(Args, Debug)]
#[command(
    after_help = "Compares the median step of the program's loop, wall time, GPU time by kernel and by path of user
code, the idle time of GPUs by cause, CPU time by function and by line, waits, copies, and GPU
memory at its peak. Says which change explains the difference of the median step and of the wall
time. With several recordings on both sides, changes that are larger than the differences between
runs are marked (Welch's t-test, 95 %). With one, the median step is marked if it has changed by
more than parts of the run that follow each other differ.

Exit status: 0; with --fail-above, 3 if the time that --fail-on selects has increased by more than
PERCENT and, where that is known, significantly. The wall time of one run differs from that of the
next by some percent: record several times.

Examples:
  warpscope diff before.wscope after.wscope
  warpscope diff before.wscope after.wscope -o diff.html
  warpscope diff --format markdown base.wscope new.wscope >> \"$GITHUB_STEP_SUMMARY\"
  warpscope diff --fail-above 3% --fail-on gpu base.wscope new.wscope
  warpscope diff --fail-above 3% base-1.wscope base-2.wscope -- new-1.wscope new-2.wscope"
)]
pub struct Diff {
    /// Two recordings to compare (.wscope), or all recordings before the change.
    #[arg(required = true, value_name = "BEFORE")]
    pub before: Vec<PathBuf>,
    /// All recordings after the change.
    #[arg(last = true, value_name = "AFTER")]
    pub after: Vec<PathBuf>,
    /// Exit with status 3 if the median step, or else the wall time, has increased by more than PERCENT.
    #[arg(long, value_name = "PERCENT")]
    pub fail_above: Option<String>,
    /// With --fail-above, the time to check: step (the median step; the default if all recordings have steps of the same loop), wall
    /// (from start to end; otherwise the default), gpu (all kernels, copies and memsets) or cpu.
    #[arg(long, value_name = "TIME", value_enum, requires = "fail_above")]
    pub fail_on: Option<FailOn>,
    /// Write a page for the browser (.html): tables, and a flame graph of the differences.
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    pub output: Option<PathBuf>,
    /// Print tables (text), or the verdict, the totals and what changed most as Markdown for pull requests (markdown).
    #[arg(long, value_name = "FORM", value_enum, default_value_t, conflicts_with_all = ["json", "output", "top"])]
    pub format: Form,
    /// Print the comparison as JSON.
    #[arg(long)]
    pub json: bool,
    /// Show N rows of each table [default: 15; all with --json].
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Show the work of CUDA graphs under the code that captured it (capture) or that launched the graph (launch).
    #[arg(long, value_name = "STACKS", value_enum, default_value_t)]
    pub graph_stacks: GraphStacks,
    /// Which part of the recordings to compare.
    #[command(flatten)]
    pub filters: Filters,
}

/// Which time a comparison checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FailOn {
    // Not doc comments: clap would print each option in two lines.
    Step,
    Wall,
    Gpu,
    Cpu,
}
