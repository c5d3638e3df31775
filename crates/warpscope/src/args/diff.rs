//! The command line of `diff`.

use std::path::PathBuf;

use clap::Args;

use super::{Filters, GraphStacks};

/// `diff`
#[derive(Args, Debug)]
#[command(after_help = "Compares GPU time by kernel and by path of user code. With several recordings on both sides,
changes that are larger than the differences between runs are marked (Welch's t-test, 95 %).

Exit status: 0; with --fail-above, 3 if the GPU time has increased by more than PERCENT and, with
several recordings on both sides, significantly.

Examples:
  warpscope diff before.wscope after.wscope
  warpscope diff before.wscope after.wscope -o diff.html
  warpscope diff --fail-above 3% base.wscope new.wscope
  warpscope diff base-1.wscope base-2.wscope base-3.wscope -- new-1.wscope new-2.wscope new-3.wscope")]
pub struct Diff {
    /// Two recordings to compare (.wscope), or all recordings before the change.
    #[arg(required = true, value_name = "BEFORE")]
    pub before: Vec<PathBuf>,
    /// All recordings after the change.
    #[arg(last = true, value_name = "AFTER")]
    pub after: Vec<PathBuf>,
    /// Exit with status 3 if the GPU time has increased by more than PERCENT.
    #[arg(long, value_name = "PERCENT")]
    pub fail_above: Option<String>,
    /// Write a page for the browser (.html): tables, and a flame graph of the differences.
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    pub output: Option<PathBuf>,
    /// Print the comparison as JSON.
    #[arg(long)]
    pub json: bool,
    /// Show N kernels and paths [default: 15; all with --json].
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Show the work of CUDA graphs under the code that captured it (capture) or that launched the graph (launch).
    #[arg(long, value_name = "STACKS", value_enum, default_value_t)]
    pub graph_stacks: GraphStacks,
    /// Which part of the recordings to compare.
    #[command(flatten)]
    pub filters: Filters,
}
