//! Interprets the options of `trace`.

use anyhow::bail;
use bpf::{KernelFunction, Marker, Tracing, calls::Gather};
use collect::{
    RING_BYTES,
    calls::{kernel, libraries::Libraries, named::Named, tracer::Tracer, wanted::Wanted},
    command::{setup::expected_files, target::Injection},
    process::procfs,
    sessions::Sessions,
};
use cuda::calls::is_query;
use text::pattern::Selection;

use crate::args;

/// The selected library functions.
pub struct Plan {
    /// `--match` and `--exclude`.
    pub selection: Selection,
    /// `--uprobe`.
    pub functions: Vec<Named>,
}

impl Plan {
    /// Parses the patterns.
    pub fn new(options: &args::Trace) -> anyhow::Result<Self> {
        Ok(Self {
            selection: Selection::parse(&options.r#match, &options.exclude)?,
            functions: options.uprobe.iter().map(|text| Named::parse(text)).collect::<anyhow::Result<_>>()?,
        })
    }

    /// Rejects options that would trace nothing.
    pub fn check(&self, options: &args::Trace) -> anyhow::Result<()> {
        if options.pid.is_empty() && !options.all && options.command.is_empty() {
            bail!("specify what to trace: -p PID, -a for every process, or -- COMMAND");
        }
        if options.duration.is_some_and(|d| !d.is_finite() || d <= 0.0) {
            bail!("-d expects a number of seconds greater than 0");
        }
        for pid in &options.pid {
            if procfs::comm(*pid).is_none() {
                bail!("there is no process {pid}");
            }
        }
        Ok(())
    }

    /// Whether CUDA query functions are traced: programs call them all the time, and each probe has a cost.
    pub fn traces_queries(&self, options: &args::Trace) -> bool {
        options.all_calls || self.selection.has_patterns()
    }

    /// Whether the command reports its calls itself, through CUPTI. Everything that only probes can see is in relation to
    /// calls, and must be seen in the same way.
    pub fn uses_callbacks(&self, options: &args::Trace) -> bool {
        let of_kernel = options.driver || options.sched || options.stacks;
        let named = [&options.uprobe, &options.kprobe, &options.fentry, &options.tracepoint];
        options.calls_from == args::CallsFrom::Cupti
            && !options.command.is_empty()
            && !options.no_gpu
            && !options.summary_only
            && !of_kernel
            && options.lib.is_empty()
            && named.iter().all(|names| names.is_empty())
    }

    /// Creates a tracer. Kernels that cannot watch many functions at once get only the most important ones.
    pub fn tracer(&self, options: &args::Trace, can_watch_many: bool) -> anyhow::Result<Tracer> {
        let (stack, all, functions) = (options.stacks, self.traces_queries(options), self.functions.clone());
        let choice = Box::new(move |name: &str, gather: Gather| {
            let traced =
                all || gather.names_kernels || !is_query(name) || functions.iter().any(|named| named.matches(name));
            traced.then_some(Gather { stack, ..gather })
        });
        let wanted = Wanted::new(self.selection.clone(), options.lib.clone(), self.functions.clone());
        let mut libraries = Libraries::new(wanted, choice);
        if self.uses_callbacks(options) {
            return Ok(Tracer::with_reports(libraries));
        }
        if !can_watch_many {
            libraries.wanted.shorten()?;
        }
        Ok(Tracer::new(libraries, options.all))
    }
}

/// The selected kernel functions.
pub struct Kernel {
    /// With kprobes.
    pub probed: Vec<String>,
    /// With fentry.
    pub hooked: Vec<KernelFunction>,
}

impl Kernel {
    /// Resolves the kernel functions that the options name.
    pub fn choose(options: &args::Trace) -> anyhow::Result<Self> {
        Ok(Self { probed: kernel::probed(&options.kprobe)?, hooked: kernel::hooked(&options.fentry)? })
    }
}

/// Returns the collector's options.
pub fn collect(
    options: &args::Trace,
    kernel: &Kernel,
    injection: &Injection,
    sessions: Option<Sessions>,
    marker: Option<Marker>,
) -> collect::Options {
    let tracing = Tracing {
        sums_only: options.summary_only,
        stacks: options.stacks,
        names: options.summary_only,
        all: options.all,
        driver: options.driver,
        switches: options.sched,
        kernel_functions: !kernel.probed.is_empty(),
        hooks: !kernel.hooked.is_empty(),
        points: options.driver || !options.tracepoint.is_empty(),
        ..Tracing::default()
    };
    let programs = bpf::Options {
        marker,
        ring_bytes: RING_BYTES,
        tracing: Some(tracing),
        found: options.pid.clone(),
        ..bpf::Options::default()
    };
    let program = options.command.first().filter(|_| options.stacks);
    collect::Options {
        programs,
        sessions,
        python: !options.no_python,
        expected: program.map(|program| expected_files(program, injection)),
        ..collect::Options::default()
    }
}
