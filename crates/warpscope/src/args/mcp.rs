//! The command line of `mcp`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

/// `mcp`
#[derive(Args, Debug)]
#[command(after_help = "Reads requests from stdin and writes answers to stdout (protocol 2026-07-28 and 2025-11-25).
An agent can open recordings below the given directories only. The server uses no network, and
writes no recording unless --allow-record is given. If `duckdb` is in PATH, an agent can run
SELECT statements over the tables of a recording. docs/agents.md describes the tools.

With --allow-record, the agent can record one command: the arguments after -- are those of
`warpscope record`, without -o. The recording is written to the first directory.

Examples:
  warpscope mcp
  warpscope mcp runs --source src
  warpscope mcp runs --allow-record -- --off-cpu -- python3 train.py
  claude mcp add warpscope -- warpscope mcp ~/runs --source ~/src")]
pub struct Mcp {
    /// Directories with recordings (.wscope) [default: the current directory].
    #[arg(value_name = "DIR")]
    pub recordings: Vec<PathBuf>,
    /// Let the agent read source files below DIR around frames of recordings; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub source: Vec<PathBuf>,
    /// Let the agent record the command after --.
    #[arg(long, requires = "command")]
    pub allow_record: bool,
    /// The arguments of `warpscope record`.
    #[arg(last = true, value_name = "RECORD ARGUMENTS", requires = "allow_record")]
    pub command: Vec<OsString>,
}
