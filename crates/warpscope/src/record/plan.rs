//! Interprets the options of `record`.

use anyhow::bail;
use bpf::{MAX_HITS, Marker, Tracing};
use collect::{
    RING_BYTES,
    command::{setup::expected_files, target::Injection},
    events::spec::{self, Spec},
    process::{procfs, select::Criteria},
    sessions::Sessions,
    sink,
};
use model::event::{Mode, OFF_CPU, Start};
use text::units;

use super::events;
use crate::args;

/// The default outputs.
const DEFAULT_OUTPUTS: [&str; 2] = ["warpscope.html", "warpscope.wscope"];

/// What `--no-inject` counts: the driver's functions, which the runtime calls too.
const LAUNCHES: [&str; 4] = [
    "uprobe:libcuda.so:cuLaunch[KC]*,name=kernel-launches",
    "uprobe:libcuda.so:cuGraphLaunch*,name=graph-launches",
    "uprobe:libcuda.so:cuMemcpy*,name=copies",
    "uprobe:libcuda.so:cuMemset*,name=memsets",
];
/// What is missing then.
pub const NO_INJECT: &str = "nothing was loaded into the program (--no-inject): launches, copies and memsets are counted by call stack, but there are no GPU times, kernel names or waits for the GPU";

/// What to record.
pub struct Plan {
    /// CPU, GPU, both, or events alone.
    pub mode: Mode,
    /// What `--event` names.
    pub events: Vec<Spec>,
    /// The shortest wait whose stack is kept, in nanoseconds, if the time off the CPU is recorded.
    pub off_cpu: Option<u64>,
}

impl Plan {
    /// Rejects options that would record nothing, or whose result could not be shown.
    pub fn new(options: &args::Record) -> anyhow::Result<Self> {
        let mode = match (options.gpu_only, options.cpu_only || options.no_inject, options.events_only) {
            (true, _, _) => Mode::GpuOnly,
            (_, true, _) => Mode::CpuOnly,
            (_, _, true) => Mode::EventsOnly,
            _ => Mode::Merged,
        };
        let off_cpu = options.off_cpu.as_deref().map(shortest_wait).transpose()?;
        if options.pid.is_empty() && options.command.is_empty() {
            bail!("specify what to record: -p PID, -a for every process that uses CUDA, or -- COMMAND");
        }
        for pid in &options.pid {
            if procfs::comm(*pid).is_none() {
                bail!("there is no process {pid}");
            }
        }
        let launches = LAUNCHES.iter().filter(|_| options.no_inject).map(|event| (*event).to_owned());
        let events = options.event.iter().cloned().chain(launches).collect::<Vec<_>>();
        let plan = Self { mode, events: spec::parse(&events)?, off_cpu };
        if plan.off_cpu.is_some() && plan.events.iter().any(|spec| spec.name == OFF_CPU) {
            bail!("--event: the name {OFF_CPU} is that of --off-cpu: choose another with name=");
        }
        events::check_outputs(options, &plan.events)?;
        if options.frequency == 0 && plan.samples() {
            bail!("-F must be at least 1; use --gpu-only to record no CPU samples");
        }
        if options.max_overhead.is_some_and(|percent| !percent.is_finite() || percent <= 0.0) {
            bail!("--max-overhead expects a percentage greater than 0, such as 3");
        }
        if options.duration.is_some_and(|d| !d.is_finite() || d <= 0.0) {
            bail!("-d expects a number of seconds greater than 0");
        }
        Ok(plan)
    }

    /// Whether CPUs are sampled.
    fn samples(&self) -> bool {
        matches!(self.mode, Mode::CpuOnly | Mode::Merged)
    }

    /// Whether the injected library is loaded.
    pub fn injects(&self) -> bool {
        matches!(self.mode, Mode::GpuOnly | Mode::Merged)
    }

    /// Returns the default outputs.
    pub fn default_outputs(&self) -> &'static [&'static str] {
        &DEFAULT_OUTPUTS
    }

    /// Returns the collector's options.
    pub fn collect(
        &self,
        options: &args::Record,
        injection: &Injection,
        sessions: Option<Sessions>,
        marker: Option<Marker>,
    ) -> collect::Options {
        let programs = bpf::Options {
            sample_hz: self.samples().then_some(options.frequency),
            later_markers: self.injects() && !options.pid.is_empty(),
            found: options.pid.clone(),
            marker,
            hits: (!self.events.is_empty() || self.off_cpu.is_some()).then_some(MAX_HITS),
            off_cpu: self.off_cpu,
            handover: !options.no_handover && self.mode != Mode::EventsOnly,
            forward: options.forward_lines,
            tensors: options.memory,
            tracing: (options.memory || !options.flight.on_slow.is_empty()).then(|| Tracing {
                beside: true,
                stacks: options.memory,
                ..Tracing::default()
            }),
            ring_bytes: RING_BYTES,
            ..bpf::Options::default()
        };
        collect::Options {
            programs,
            sessions,
            python: !options.no_python,
            expected: options.command.first().map(|program| expected_files(program, injection)),
            ..collect::Options::default()
        }
    }

    /// Returns the first event of the recording.
    pub fn start(&self, options: &args::Record) -> Start {
        let command = match &options.title {
            Some(title) => vec![title.clone()],
            None if options.command.is_empty() => options.pid.iter().map(|pid| process(*pid)).collect(),
            None => options.command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
        };
        sink::start(command, self.mode, if self.samples() { options.frequency } else { 0 })
    }
}

/// Finds the running processes that the options select.
pub fn select(options: &mut args::Record) -> anyhow::Result<()> {
    let criteria = Criteria {
        cuda: options.all,
        names: options.comm.clone(),
        cgroup: options.cgroup.clone(),
        container: options.container.clone(),
    };
    if criteria.any() {
        options.pid = criteria.processes()?;
        if options.pid.is_empty() {
            bail!("no running process meets the conditions of -a, --comm, --cgroup and --container");
        }
    }
    Ok(())
}

/// Describes a running process.
fn process(pid: u32) -> String {
    format!("{} ({pid})", procfs::comm(pid).unwrap_or_default())
}

/// Parses a duration such as `10us`.
fn shortest_wait(text: &str) -> anyhow::Result<u64> {
    let ns = if text == "0" { Some(0.0) } else { units::parse_time(text) };
    match ns.filter(|ns| ns.is_finite() && *ns >= 0.0) {
        Some(ns) => Ok(ns as u64),
        None => bail!("--off-cpu={text} is not a duration: use a number with ns, us, ms or s, such as --off-cpu=10us"),
    }
}
