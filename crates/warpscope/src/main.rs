//! The command line: arguments in, exit codes out. One file per command.

mod args;
mod demo;
mod diff_command;
mod doctor;
mod explain;
mod explanations;
mod export_command;
mod hang_command;
mod live;
mod load;
mod man;
mod mcp_command;
mod monitor_command;
mod open;
mod outputs;
mod privileges;
mod progress;
mod push;
mod record;
mod recordings;
mod report;
mod result;
mod running_command;
mod say;
mod status;
mod status_line;
mod steps;
mod summary;
mod top_command;
mod trace;

use std::{io, process::ExitCode};

use anyhow::Context;
use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use collect::command::target::CannotRun;

fn main() -> ExitCode {
    if let Some(code) = gpu_counters::run_if_named(std::env::args_os()) {
        return code;
    }
    match run(Cli::parse().command) {
        Ok(code) => code,
        // A reader that stops early, such as `head`, is not an error.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // The verifier log has many lines, none of which comes from a traced program. A path may contain any
            // character.
            match error.downcast_ref::<bpf::Error>() {
                Some(_) => say::say_lines(&say::sentence(&error)),
                None => say::say(say::sentence(&error)),
            }
            ExitCode::from(error.downcast_ref::<CannotRun>().map_or(1, CannotRun::exit_code))
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    if let Some(memory) = memory_of_parsers(&command) {
        sandbox::start(memory).context("cannot start the process that reads files")?;
    }
    match command {
        Command::Record(options) => record::run(options),
        Command::Trace(options) => trace::run(options),
        Command::Monitor(options) => monitor_command::run(options),
        Command::Top(options) => top_command::run(options),
        Command::Report(options) => report::run(&options),
        Command::Export(options) => export_command::run(&options),
        Command::Diff(options) => diff_command::run(&options),
        Command::Hang(options) => hang_command::run(&options),
        Command::Open(options) => open::run(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Mcp(options) => mcp_command::run(options),
        Command::Doctor => doctor::run(),
        Command::Demo(options) => demo::run(options, record::run),
        Command::Sim(options) => {
            std::fs::create_dir_all(&options.libs)
                .and_then(|()| embedded::write_sim(&options.libs))
                .with_context(|| format!("cannot write the simulated GPU to {}", options.libs.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "warpscope", &mut io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man(options) => man::run(&options, Cli::command()),
    }
}

/// Returns how much memory a process may use that reads one foreign file for this command. `None` if the command needs no
/// privileges.
fn memory_of_parsers(command: &Command) -> Option<u64> {
    match command {
        Command::Record(_) | Command::Trace(_) | Command::Demo(_) => Some(8 << 30),
        Command::Hang(options) if options.files.is_empty() => Some(8 << 30),
        // Their service unit allows 256 MiB of memory; address space is more.
        Command::Monitor(_) | Command::Top(_) | Command::Doctor => Some(512 << 20),
        _ => None,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(io))
}
