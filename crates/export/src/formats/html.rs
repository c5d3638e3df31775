//! `.html`: a report in one file, for any browser, without network access. See `page/` for the page itself.

mod block;
mod bounded;
mod collectives;
pub(crate) mod digest;
mod gather;
mod idle;
pub(crate) mod overview;
mod tree;

use std::{
    cmp::Reverse,
    io::{self, Write},
    rc::Rc,
};

use analysis::summary::Summary;
use analysis::{
    Events, Flames,
    explain::{self, Entry, Kind},
    flame_tree::{Measure, MemoryView, View},
    source::{self, SourceFile},
    steps::{StepOutlier, measured_of, percentile, warm_up_of},
    waits,
};
use block::Column;
use collectives::{CommunicatorInfo, collectives, communicates};
use gather::{Gathered, ThreadInfo, Track, gather};
use model::{
    event::Start,
    profile::Profile,
    steps::{Series, Step},
};
use serde::Serialize;
use tree::Tree;

use crate::palette;

/// The page. `{{name}}` marks where the parts go.
const PAGE: &str = include_str!("html/page/index.html");
pub(crate) const STYLE: &str = include_str!("html/page/style.css");
const SCRIPTS: [&str; 21] = [
    "'use strict';\n",
    include_str!("html/page/format.js"),
    include_str!("html/page/explain.js"),
    include_str!("html/page/names.js"),
    include_str!("html/page/decode.js"),
    include_str!("html/page/calls.js"),
    include_str!("html/page/idle.js"),
    include_str!("html/page/state.js"),
    include_str!("html/page/colours.js"),
    include_str!("html/page/overview.js"),
    include_str!("html/page/steps.js"),
    include_str!("html/page/flame.js"),
    include_str!("html/page/timeline.js"),
    include_str!("html/page/tables.js"),
    include_str!("html/page/limits.js"),
    include_str!("html/page/collectives.js"),
    include_str!("html/page/lanes.js"),
    include_str!("html/page/ranks.js"),
    include_str!("html/page/source.js"),
    include_str!("html/page/findings.js"),
    include_str!("html/page/main.js"),
];

/// Writes the report of a recording.
pub fn write(flames: &Flames<'_>, view: View, events: Events<'_>, out: &mut dyn Write) -> io::Result<()> {
    let (head, columns) = data(flames, view, events);
    fill(PAGE, out, |name, out| match name {
        "title" => out.write_all(escape(&title(flames.profile)).as_bytes()),
        "style" => out.write_all(STYLE.as_bytes()),
        "style-digest" => out.write_all(digest::base64_sha256(&[STYLE]).as_bytes()),
        "script-digest" => out.write_all(digest::base64_sha256(&SCRIPTS).as_bytes()),
        "data" => block::write(&head, &columns, out),
        _ => SCRIPTS.iter().try_for_each(|script| out.write_all(script.as_bytes())),
    })?;
    out.flush()
}

/// Writes a page, with what `part` writes in place of each `{{name}}`.
pub(crate) fn fill(
    page: &str,
    out: &mut dyn Write,
    mut part: impl FnMut(&str, &mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut rest = page;
    while let Some((before, (name, after))) =
        rest.split_once("{{").and_then(|(before, after)| Some((before, after.split_once("}}")?)))
    {
        out.write_all(before.as_bytes())?;
        part(name, out)?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

fn title(profile: &Profile) -> String {
    let command = analysis::names::title(profile);
    let command = analysis::names::printable(&command).chars().take(80).collect::<String>();
    if command.is_empty() { "warpscope".to_owned() } else { format!("{command} - warpscope") }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// What the page knows besides the columns.
#[derive(Serialize)]
struct Head<'a> {
    summary: Summary,
    sources: Vec<SourceFile<'a>>,
    host: &'a str,
    version: &'a str,
    unix_ns: u64,
    frequency: u32,
    families: Vec<FamilyInfo>,
    names: Vec<String>,
    tracks: Vec<Track>,
    threads: Vec<ThreadInfo>,
    processes: Vec<ProcessRow<'a>>,
    counters: Vec<CounterInfo<'a>>,
    steps: Vec<StepsInfo>,
    slow_steps: Vec<SlowStep>,
    shapes: Vec<[u32; 8]>,
    overview: OverviewInfo,
    explained: Vec<Explained>,
    communicators: Vec<CommunicatorInfo>,
    /// The operations of communicators, by number.
    calls: Vec<&'static str>,
    /// For operations, samples, waits, off-CPU intervals, calls, NVTX ranges, samples in warpscope's own code and operations of
    /// communicators: the number seen, and of how many one is in the page.
    seen: [u64; 8],
    stride: [u64; 8],
}

#[derive(Serialize)]
struct OverviewInfo {
    interval_ns: u64,
    devices: Vec<u32>,
}

/// What `warpscope explain` says about something that the page shows.
#[derive(Serialize)]
struct Explained {
    kind: &'static str,
    name: &'static str,
    means: &'static str,
    measured: &'static str,
    exact: &'static str,
    act: &'static str,
}

#[derive(Serialize)]
struct FamilyInfo {
    label: &'static str,
}

#[derive(Serialize)]
struct ProcessRow<'a> {
    id: u32,
    pid: u32,
    parent: Option<u32>,
    name: &'a str,
    start: u64,
    end: u64,
    rank: Option<u32>,
    /// The node of the call tree.
    node: u32,
}

/// The steps of a thread.
#[derive(Serialize)]
struct StepsInfo {
    place: String,
    process: u32,
    tid: u32,
    /// The number of its rows in the columns.
    count: usize,
    /// The first ones that are slower.
    warm_up: usize,
    /// Of the others, as `report` computes them.
    median_ns: u64,
    p99_ns: u64,
    /// Another step followed the last one.
    whole: bool,
}

/// Why a step took longer than others.
#[derive(Serialize)]
struct SlowStep {
    pid: u32,
    tid: u32,
    step: u64,
    why: String,
}

impl SlowStep {
    fn of(outlier: &StepOutlier) -> Option<Self> {
        let step = &outlier.step;
        Some(Self { pid: step.pid, tid: step.tid, step: step.step, why: outlier.sentence()? })
    }
}

#[derive(Serialize)]
struct CounterInfo<'a> {
    name: &'a str,
    source: &'a str,
    weight: &'a str,
    measure: &'static str,
    waits: bool,
    /// The number of its rows in the columns.
    rows: usize,
}

/// Collects the data of the page.
fn data<'a>(flames: &Flames<'a>, view: View, events: Events<'_>) -> (Head<'a>, Vec<Column>) {
    let profile = flames.profile;
    let mut tree = Tree::new(profile);
    // The sums first: the tree is bounded, and they must be whole.
    let mut columns = sums(profile, view, &mut tree);
    let gathered = gather(profile, view, events, &mut tree);
    let counters = counters(profile, view, &mut tree, &mut columns);
    let summary = Summary::of(flames);
    columns.extend(idle(flames, &summary, &mut tree));
    columns.extend(idle::charges(profile, &gathered.threads, &mut tree));
    columns.extend(memory(flames, &mut tree));
    columns.extend(stalled(flames, view, &mut tree));
    let steps = steps(profile, &mut columns);
    let collectives = collectives(profile, &mut tree, &mut columns);
    let origin = profile.start.as_ref().map_or(0, |start| start.time);
    let processes = profile.processes.iter().map(|(id, process)| ProcessRow {
        id: id.0,
        pid: process.pid,
        parent: process.parent.map(|parent| parent.0),
        name: &process.comm,
        start: process.start.saturating_sub(origin),
        end: process.end.saturating_sub(origin),
        rank: profile.rank(*id),
        node: tree.process(*id),
    });
    let mut processes: Vec<ProcessRow<'_>> = processes.collect();
    // Ranks by number, then what has none.
    processes.sort_by_key(|row| row.rank.unwrap_or(u32::MAX));
    let all = [
        (gathered.operations.seen(), gathered.operations.stride()),
        (gathered.samples.seen(), gathered.samples.stride()),
        (gathered.waits.seen(), gathered.waits.stride()),
        (gathered.switches.seen(), gathered.switches.stride()),
        (gathered.calls.seen(), gathered.calls.stride()),
        (gathered.ranges.seen(), gathered.ranges.stride()),
        (gathered.costs.seen(), gathered.costs.stride()),
        (collectives.seen, collectives.stride),
    ];
    let start: Option<&'a Start> = profile.start.as_ref();
    let interval_ns = gathered.overview.interval_ns;
    let (tracks, threads, shapes, devices) = event_columns(gathered, &mut columns);
    columns.push(communicates(&tree));
    let (more, names) = tree.columns();
    columns.extend(more);
    let slow_steps = summary.steps.iter().flat_map(|steps| &steps.outliers).filter_map(SlowStep::of).collect();
    let explained = explained(&summary);
    let head = Head {
        summary,
        sources: source::files(profile),
        host: start.map_or("", |start| &start.host),
        version: start.map_or("", |start| &start.version),
        unix_ns: start.map_or(0, |start| start.wall_clock),
        frequency: start.map_or(0, |start| start.frequency),
        families: palette::ALL.iter().map(|family| FamilyInfo { label: palette::label(*family) }).collect(),
        names,
        tracks,
        threads,
        processes,
        counters,
        steps,
        slow_steps,
        shapes,
        overview: OverviewInfo { interval_ns, devices },
        explained,
        communicators: collectives.communicators,
        calls: collectives.calls,
        seen: all.map(|(seen, _)| seen),
        stride: all.map(|(_, stride)| stride),
    };
    (head, columns)
}

/// Returns the explanations of terms and tables, and of the findings that there are.
fn explained(summary: &Summary) -> Vec<Explained> {
    let is_shown = |entry: &Entry| match entry.kind {
        Kind::Word | Kind::Table => true,
        Kind::Finding => summary.findings.iter().any(|finding| finding.kind.name() == entry.name),
        Kind::Frame | Kind::Metric | Kind::Stall => false,
    };
    let explained = |Entry { kind, name, means, measured, exact, act, .. }: Entry| Explained {
        kind: kind.text(),
        name,
        means,
        measured,
        exact,
        act,
    };
    explain::all().filter(is_shown).map(explained).collect()
}

/// Returns the exact sums over the whole recording.
fn sums(profile: &Profile, view: View, tree: &mut Tree<'_>) -> Vec<Column> {
    let mut gpu: Vec<_> = profile.gpu.iter().filter(|_| view.gpu).collect();
    gpu.sort_unstable_by_key(|(key, _)| **key);
    let nodes: Vec<u64> = gpu.iter().map(|(key, _)| tree.work(key).into()).collect();
    let mut cpu: Vec<_> =
        profile.cpu.iter().filter(|((_, stack), _)| view.cpu && !profile.is_own_cost(*stack)).collect();
    cpu.sort_unstable_by_key(|(key, _)| **key);
    let cpu_nodes: Vec<u64> = cpu.iter().map(|((process, stack), _)| tree.sample(*process, *stack).into()).collect();
    vec![
        Column::delta("gpu.node", nodes),
        Column::plain("gpu.process", gpu.iter().map(|(key, _)| key.process.0.into())),
        Column::plain("gpu.device", gpu.iter().map(|(key, _)| key.device.into())),
        Column::plain("gpu.ns", gpu.iter().map(|(_, weight)| weight.ns)),
        Column::plain("gpu.count", gpu.iter().map(|(_, weight)| weight.count)),
        Column::plain("gpu.max", gpu.iter().map(|(_, weight)| weight.max_ns)),
        Column::plain("gpu.bytes", gpu.iter().map(|(_, weight)| weight.bytes)),
        Column::plain("gpu.energy", gpu.iter().map(|(_, weight)| weight.microjoules)),
        Column::delta("cpu.node", cpu_nodes),
        Column::plain("cpu.process", cpu.iter().map(|((process, _), _)| process.0.into())),
        Column::plain("cpu.ns", cpu.iter().map(|(_, weight)| weight.ns)),
        Column::plain("cpu.count", cpu.iter().map(|(_, weight)| weight.count)),
    ]
}

/// Returns the idle time of the GPUs, under what the threads that feed them did.
fn idle(flames: &Flames<'_>, summary: &Summary, tree: &mut Tree<'_>) -> [Column; 3] {
    let flame = flames.of(View { idle: true, ..View::default() });
    for (charge, _) in flames.profile.devices.values().flat_map(|device| &device.idle.parts) {
        charge.stack.into_iter().for_each(|stack| tree.note(charge.process, stack));
    }
    let lines = if summary.idle.is_empty() { &[][..] } else { &flame.lines };
    let nodes: Vec<u64> = lines.iter().map(|line| tree.line(line, &flame.families).into()).collect();
    [
        Column::delta("idle.node", nodes),
        Column::plain("idle.ns", lines.iter().map(|line| line.weight.amount)),
        Column::plain("idle.count", lines.iter().map(|line| line.weight.samples)),
    ]
}

/// Returns the steps of all threads, one thread after the other, and what they are steps of.
fn steps(profile: &Profile, columns: &mut Vec<Column>) -> Vec<StepsInfo> {
    let origin = profile.start.as_ref().map_or(0, |start| start.time);
    let series = || profile.steps.iter().filter(|_| profile.part.is_none()).flat_map(|steps| &steps.series);
    let of = |value: fn(&Step) -> u64| series().flat_map(|series| &series.steps).map(value);
    // Most steps begin where the one before ends.
    let gaps = series().flat_map(|series| {
        series.steps.iter().scan(origin, |end, step| Some(step.start.saturating_sub(std::mem::replace(end, step.end))))
    });
    columns.extend([
        Column::plain("step.gap", gaps),
        Column::plain("step.duration", of(Step::ns)),
        Column::plain("step.busy", of(|step| step.busy_ns)),
        Column::plain("step.communication", of(|step| step.work.communication_ns)),
        Column::plain("step.copy", of(|step| step.work.copy_ns)),
        Column::plain("step.launching", of(|step| step.launching_ns)),
        Column::plain("step.waiting", of(|step| step.waiting_ns)),
        Column::plain("step.launches", of(|step| step.work.launches)),
    ]);
    let info = |series: &Series| {
        let times: Vec<u64> = measured_of(series).map(Step::ns).collect();
        StepsInfo {
            place: series.place.clone(),
            process: series.process.0,
            tid: series.tid,
            count: series.steps.len(),
            warm_up: warm_up_of(series),
            median_ns: percentile(&times, 50),
            p99_ns: percentile(&times, 99),
            whole: series.steps.last().is_none_or(|last| last.is_followed),
        }
    };
    series().map(info).collect()
}

/// Returns GPU memory under the stacks that allocated it: at the peak (0) and at the end (1).
fn memory(flames: &Flames<'_>, tree: &mut Tree<'_>) -> [Column; 4] {
    let (mut nodes, mut rows) = (Vec::<u64>::new(), Vec::new());
    for (&(process, _), memory) in &flames.profile.memory.devices {
        let held = [&memory.peak, &memory.end].into_iter().flat_map(|moment| &moment.holders);
        held.for_each(|(_, stack, _)| tree.note(process, *stack));
    }
    for (moment, view) in [(0_u64, MemoryView::Peak), (1, MemoryView::End)] {
        let flame = flames.memory(view);
        for line in &flame.lines {
            nodes.push(tree.line(line, &flame.families).into());
            rows.push((moment, line.weight));
        }
    }
    [
        Column::delta("memory.node", nodes),
        Column::plain("memory.when", rows.iter().map(|(moment, _)| *moment)),
        Column::plain("memory.bytes", rows.iter().map(|(_, weight)| weight.amount)),
        Column::plain("memory.count", rows.iter().map(|(_, weight)| weight.hits)),
    ]
}

/// Returns GPU time by source line and stall reason, if kernels were sampled.
fn stalled(flames: &Flames<'_>, view: View, tree: &mut Tree<'_>) -> [Column; 3] {
    let sampled = view.gpu && !flames.profile.stalls.samples.is_empty();
    let flame = if sampled { flames.stalls() } else { Rc::default() };
    let nodes: Vec<u64> = flame.lines.iter().map(|line| tree.line(line, &flame.families).into()).collect();
    [
        Column::delta("stall.node", nodes),
        Column::plain("stall.ns", flame.lines.iter().map(|line| line.weight.amount)),
        Column::plain("stall.count", flame.lines.iter().map(|line| line.weight.operations)),
    ]
}

/// Adds the sums of counted events, one event after the other.
fn counters<'a>(
    profile: &'a Profile,
    view: View,
    tree: &mut Tree<'_>,
    columns: &mut Vec<Column>,
) -> Vec<CounterInfo<'a>> {
    let mut rows = Vec::new();
    let mut all = Vec::new();
    for counter in profile.counters.all.values().filter(|counter| view.waits || !waits::is_off_cpu(counter)) {
        let before = rows.len();
        for (point, process, stack, hits) in profile.counters.of(counter.id) {
            if !profile.is_injected(stack) {
                rows.push((tree.hit(counter, point, process, stack), hits.weight, hits.count, process.0));
            }
        }
        let by_count = counter.weight.is_empty();
        let measure = match Measure::of(counter, by_count) {
            Measure::Time => "time",
            Measure::Bytes => "bytes",
            Measure::Number => "number",
        };
        all.push(CounterInfo {
            name: &counter.name,
            source: &counter.source,
            weight: &counter.weight,
            measure,
            waits: waits::is_off_cpu(counter),
            rows: rows.len() - before,
        });
    }
    columns.push(Column::delta("hits.node", rows.iter().map(|row| row.0.into())));
    columns.push(Column::plain("hits.process", rows.iter().map(|row| row.3.into())));
    columns.push(Column::plain("hits.weight", rows.iter().map(|row| row.1)));
    columns.push(Column::plain("hits.count", rows.iter().map(|row| row.2)));
    all
}

/// Adds the events, by track or thread and by time.
fn event_columns(
    gathered: Gathered,
    columns: &mut Vec<Column>,
) -> (Vec<Track>, Vec<ThreadInfo>, Vec<[u32; 8]>, Vec<u32>) {
    let Gathered { operations, samples, costs, waits, switches, ranges, calls, tracks, threads, shapes, overview } =
        gathered;
    let whole = operations.stride() == 1;
    let mut operations = operations.into_items();
    let interval_ns = overview.interval_ns;
    let busy = whole.then(|| {
        operations.sort_by_key(|operation| operation.start);
        let device = |track: u32| tracks.get(track as usize).map_or(0, |track: &Track| track.device);
        overview::busy(
            interval_ns,
            operations.iter().map(|operation| (device(operation.track), operation.start, operation.duration)),
        )
    });
    let (more, devices) = overview.columns(busy);
    columns.extend(more);

    operations.sort_by_key(|operation| (operation.track, operation.start));
    columns.extend([
        Column::delta("op.track", operations.iter().map(|operation| operation.track.into())),
        Column::delta("op.start", operations.iter().map(|operation| operation.start)),
        Column::plain("op.duration", operations.iter().map(|operation| operation.duration)),
        Column::plain("op.node", operations.iter().map(|operation| operation.node.into())),
        Column::plain("op.delay", operations.iter().map(|operation| operation.delay)),
        Column::plain("op.launch", operations.iter().map(|operation| operation.launch)),
        Column::plain("op.thread", operations.iter().map(|operation| operation.thread.into())),
        Column::plain("op.stack", operations.iter().map(|operation| operation.stack.into())),
        Column::plain("op.amount", operations.iter().map(|operation| operation.amount)),
    ]);
    for (names, samples) in [
        (["sample.thread", "sample.time", "sample.node", "sample.weight"], samples),
        (["cost.thread", "cost.time", "cost.node", "cost.weight"], costs),
    ] {
        let mut samples = samples.into_items();
        samples.sort_by_key(|sample| (sample.thread, sample.time));
        let [thread, time, node, weight] = names;
        columns.extend([
            Column::delta(thread, samples.iter().map(|sample| sample.thread.into())),
            Column::delta(time, samples.iter().map(|sample| sample.time)),
            Column::plain(node, samples.iter().map(|sample| sample.node.into())),
            Column::plain(weight, samples.iter().map(|sample| sample.weight)),
        ]);
    }
    for (names, waits) in [
        (["wait.owner", "wait.start", "wait.duration", "wait.frame", "wait.node"], waits),
        (["switch.owner", "switch.start", "switch.duration", "switch.frame", "switch.node"], switches),
        (["range.owner", "range.start", "range.duration", "range.frame", "range.node"], ranges),
    ] {
        let mut waits = waits.into_items();
        // Where ranges begin at the same time, the inner ones are shorter.
        waits.sort_by_key(|wait| (wait.owner, wait.start, Reverse(wait.duration)));
        let [owner, start, duration, frame, node] = names;
        columns.extend([
            Column::delta(owner, waits.iter().map(|wait| wait.owner.into())),
            Column::delta(start, waits.iter().map(|wait| wait.start)),
            Column::plain(duration, waits.iter().map(|wait| wait.duration)),
            Column::plain(frame, waits.iter().map(|wait| wait.frame.into())),
            Column::plain(node, waits.iter().map(|wait| wait.node.into())),
        ]);
    }
    let mut calls = calls.into_items();
    calls.sort_by_key(|call| (call.thread, call.start, call.depth));
    columns.extend([
        Column::delta("call.thread", calls.iter().map(|call| call.thread.into())),
        Column::delta("call.start", calls.iter().map(|call| call.start)),
        Column::plain("call.duration", calls.iter().map(|call| call.duration)),
        Column::plain("call.depth", calls.iter().map(|call| call.depth)),
        Column::plain("call.frame", calls.iter().map(|call| call.frame.into())),
        Column::plain("call.node", calls.iter().map(|call| call.node.into())),
    ]);
    (tracks, threads, shapes, devices)
}
