//! `demo`: runs `record` on a simulated GPU.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use collect::command::workspace::Workspace;

use crate::args;

/// Runs the command. `record` is the implementation of the `record` command.
pub fn run(options: args::Demo, record: fn(args::Record) -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    bpf::features::require_privileges()?;
    let directory = Workspace::create()?;
    let program = directory.write_program("llm", embedded::WORKLOAD)?;
    let output =
        if options.output.is_empty() { vec!["demo.html".into(), "demo.wscope".into()] } else { options.output };
    eprintln!("Recording a small language model on a simulated GPU:\n");
    let code = record(args::Record {
        pid: Vec::new(),
        all: false,
        comm: Vec::new(),
        cgroup: None,
        container: None,
        // Most of its idle time is explained by a thread that sleeps.
        off_cpu: Some("0".into()),
        memory: false,
        gpu_only: false,
        cpu_only: false,
        frequency: 499,
        duration: None,
        max_overhead: None,
        kill: false,
        output: output.clone(),
        sim: true,
        no_handover: false,
        forward_lines: false,
        no_inject: false,
        no_python: false,
        graph_level: false,
        nvtx: false,
        stalls: None,
        limits: None,
        energy: false,
        counters: false,
        graph_stacks: args::GraphStacks::default(),
        event: Vec::new(),
        events_only: false,
        lines: true,
        unfold_recursion: false,
        debug_dir: Vec::new(),
        as_root: false,
        live: None,
        quiet: false,
        result: false,
        verbose: false,
        flight: args::Flight::default(),
        push: args::Push::default(),
        title: Some("llm: a small language model on a simulated GPU".into()),
        command: vec![program.into_os_string()],
    })?;
    let page = output.iter().find(|path| path.extension().is_some_and(|e| e == "html" || e == "svg"));
    if let Some(page) = page {
        writeln!(
            io::stderr(),
            "\nOpen {} in a browser. On a machine with a GPU: sudo warpscope record -- YOUR PROGRAM",
            page.display()
        )?;
    }
    Ok(code)
}
