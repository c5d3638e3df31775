//! The numbers of a trace: by function, by request to the driver, by the effects of the calls.

use std::collections::BTreeMap;

use cuda::{calls::Space, results};
use model::{
    calls::{CallSum, Calls, Moved, Switches},
    event::{Call, Event, Function, FunctionId, Layer, Memory},
    histogram::{Histogram, lower_bound},
    profile::Profile,
};
use serde::Serialize;

pub use super::rows::{
    DriverRequests, ErrorRow, FunctionRow, LaunchRow, LayerRow, MemoryRow, MovedRow, PointRow, RequestRow, SlowRow,
};
use super::{
    driver,
    gaps::{Gap, Gaps},
    reading::Reader,
};
use crate::{Events, names::library};

/// The numbers of a trace. Times are nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct TraceSummary {
    /// Calls that returned.
    pub calls: u64,
    /// Calls that had not returned when their thread or the trace ended.
    pub unfinished: u64,
    /// Time in calls, each moment once, added over threads: the sum of all self times.
    pub outermost_ns: u64,
    /// Calls and their times by layer, from the program to the kernel.
    pub layers: Vec<LayerRow>,
    /// All requests to the driver.
    pub driver_requests: DriverRequests,
    /// Functions of libraries and of the operating system's kernel, by time.
    pub functions: Vec<FunctionRow>,
    /// Requests to the driver, by time.
    pub requests: Vec<RequestRow>,
    /// Tracepoints, by count.
    pub points: Vec<PointRow>,
    /// Failed calls, by count.
    pub errors: Vec<ErrorRow>,
    /// Launches of kernels, by count.
    pub launches: Vec<LaunchRow>,
    /// Launches of whole graphs.
    pub graph_launches: u64,
    /// Memory, by kind.
    pub memory: Vec<MemoryRow>,
    /// Copies, by direction.
    pub copies: Vec<MovedRow>,
    /// Memsets.
    pub memsets: Moved,
    /// Off-CPU intervals of threads.
    pub switches: Switches,
    /// The slowest calls.
    pub slowest: Vec<SlowRow>,
    /// The longest idle gaps of a GPU, and what the CPU did during them: known where calls were recorded one by one, and are
    /// all selected.
    pub idle_gaps: Vec<Gap>,
}

impl TraceSummary {
    /// Sums up a trace; `None` if the recording is not a trace and has no calls.
    pub fn of(profile: &Profile) -> Option<Self> {
        let calls = &profile.calls;
        if !profile.is_trace() && calls.is_empty() {
            return None;
        }
        let sums = Sums::of(calls);
        let layers: Vec<LayerRow> = calls.tiers().into_iter().map(|(layer, sum)| LayerRow { layer, sum }).collect();
        let total = |value: fn(&LayerRow) -> u64| layers.iter().map(value).fold(0, u64::saturating_add);
        let requests = requests(calls);
        Some(Self {
            calls: total(|row| row.sum.calls),
            unfinished: calls.unfinished,
            outermost_ns: total(|row| row.sum.self_ns),
            functions: sums.functions(),
            driver_requests: requests.iter().fold(DriverRequests::default(), |sum, row| DriverRequests {
                count: sum.count.saturating_add(row.count),
                ns: sum.ns.saturating_add(row.ns),
            }),
            requests,
            layers,
            points: sums.points(),
            errors: errors(calls),
            launches: launches(profile),
            graph_launches: calls.graph_launches,
            memory: memory(calls),
            copies: calls
                .copies
                .iter()
                .map(|(direction, moved)| MovedRow { direction: direction.to_string(), moved: *moved })
                .collect(),
            memsets: calls.sets,
            switches: calls.switches,
            slowest: slowest(profile),
            idle_gaps: Vec::new(),
        })
    }

    /// Adds what the CPU did in the GPU's idle gaps, which the events show.
    pub fn add_events(&mut self, profile: &Profile, events: Events<'_>) {
        let mut gaps = Gaps::of(profile);
        for event in events {
            if let Event::Call(call) = event {
                gaps.call(profile, &call);
            }
        }
        // Calls that are not selected may fill a gap.
        self.idle_gaps = if profile.is_part() { Vec::new() } else { gaps.finish(profile) };
    }
}

/// Returns the calls of the displayed functions, summed over processes.
struct Sums<'a> {
    by_function: Vec<(&'a Function, CallSum)>,
}

impl<'a> Sums<'a> {
    fn of(calls: &'a Calls) -> Self {
        let mut sums: BTreeMap<(Layer, &str, &str), (&Function, CallSum)> = BTreeMap::new();
        // In order of their ids, so that the same recording gives the same text.
        let mut parts: Vec<(&FunctionId, &CallSum)> = calls.sums.iter().map(|((_, id), sum)| (id, sum)).collect();
        parts.sort_by_key(|(id, _)| **id);
        for (id, part) in parts {
            let Some(function) = calls.functions.get(id).filter(|function| function.shown) else { continue };
            let key = (function.layer, library(function), function.name.as_str());
            let (_, sum) = sums.entry(key).or_insert_with(|| (function, CallSum::default()));
            sum.merge(part);
        }
        Self { by_function: sums.into_values().filter(|(_, sum)| sum.count > 0).collect() }
    }

    fn functions(&self) -> Vec<FunctionRow> {
        let of = |layer| matches!(layer, Layer::Library | Layer::Kernel);
        let row = |(function, sum): &(&Function, CallSum)| FunctionRow {
            name: function.name.clone(),
            library: library(function).to_owned(),
            layer: function.layer,
            calls: sum.count,
            errors: sum.errors,
            inner: sum.inner,
            ns: sum.ns,
            self_ns: sum.self_ns,
            mean_ns: sum.ns / sum.count.max(1),
            p50_ns: sum.histogram.quantile(0.5),
            p90_ns: sum.histogram.quantile(0.9),
            p99_ns: sum.histogram.quantile(0.99),
            max_ns: sum.max_ns,
            bytes: sum.bytes,
            histogram: durations(&sum.histogram),
        };
        let mut rows: Vec<FunctionRow> = self.by_function.iter().filter(|(f, _)| of(f.layer)).map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.ns));
        rows
    }

    fn points(&self) -> Vec<PointRow> {
        let points = self.by_function.iter().filter(|(function, _)| function.layer == Layer::Point);
        let mut rows: Vec<PointRow> = points
            .map(|(function, sum)| PointRow {
                category: function.library.clone(),
                name: function.name.clone(),
                count: sum.count,
            })
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.count));
        rows
    }
}

/// Returns requests by device, request and command; those without a command, separately.
fn requests(calls: &Calls) -> Vec<RequestRow> {
    let mut sums: BTreeMap<(&str, &str, Option<u32>), CallSum> = BTreeMap::new();
    for ((id, command), part) in &calls.requests {
        let Some(function) = calls.functions.get(id).filter(|function| function.shown) else { continue };
        sums.entry((&function.library, &function.name, *command)).or_default().merge(part);
    }
    let row = |((device, request, command), sum): ((&str, &str, Option<u32>), CallSum)| RequestRow {
        device: device.to_owned(),
        request: request.to_owned(),
        command: command.map(|command| driver::command_name(request, command).into_owned()),
        count: sum.count,
        errors: sum.errors,
        ns: sum.ns,
        mean_ns: sum.ns / sum.count.max(1),
        p50_ns: sum.histogram.quantile(0.5),
        p90_ns: sum.histogram.quantile(0.9),
        p99_ns: sum.histogram.quantile(0.99),
        max_ns: sum.max_ns,
        histogram: durations(&sum.histogram),
    };
    let mut rows: Vec<RequestRow> = sums.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.ns));
    rows
}

fn durations(histogram: &Histogram) -> Vec<(u64, u64)> {
    let buckets = histogram.buckets().iter().enumerate();
    buckets.filter(|(_, count)| **count > 0).map(|(bucket, count)| (lower_bound(bucket), *count)).collect()
}

fn errors(calls: &Calls) -> Vec<ErrorRow> {
    let mut sums: BTreeMap<(&str, i64), (String, [u64; 2])> = BTreeMap::new();
    let enclosed = calls.enclosed_errors.iter().map(|error| (error, 1));
    for (((id, code), count), place) in calls.errors.iter().map(|error| (error, 0)).chain(enclosed) {
        let Some(function) = calls.functions.get(id).filter(|function| function.shown) else { continue };
        let (number, name) = match function.layer {
            Layer::Driver => (i64::from(code.cast_signed()), driver::error_name(*code)),
            _ => {
                let name = results::result(&function.name, *code);
                (i64::from(*code), name.map_or_else(|| code.to_string(), Into::into))
            }
        };
        let (_, counts) = sums.entry((&function.name, number)).or_insert((name, [0; 2]));
        counts[place] = counts[place].saturating_add(*count);
    }
    let row = |((function, code), (error, [count, enclosed])): ((&str, i64), (String, [u64; 2]))| ErrorRow {
        function: function.to_owned(),
        error,
        code,
        count,
        enclosed,
    };
    let mut rows: Vec<ErrorRow> = sums.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.count, row.enclosed)));
    rows
}

fn launches(profile: &Profile) -> Vec<LaunchRow> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for ((process, kernel), count) in &profile.calls.launches {
        let name = kernel.map(|kernel| profile.calls.names.text(*process, kernel).map(ToString::to_string));
        let name = match name {
            Some(Some(name)) => name,
            Some(None) | None => "[unknown kernel]".to_owned(),
        };
        let sum = sums.entry(name).or_default();
        *sum = sum.saturating_add(*count);
    }
    let mut rows: Vec<LaunchRow> = sums.into_iter().map(|(kernel, count)| LaunchRow { kernel, count }).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    rows
}

fn memory(calls: &Calls) -> Vec<MemoryRow> {
    let row = |(space, memory): (&Space, &Memory)| MemoryRow { space: space.name(), memory: *memory };
    calls.memory.iter().map(row).collect()
}

fn slowest(profile: &Profile) -> Vec<SlowRow> {
    let reader = Reader::at_the_end(profile);
    let start = profile.start.as_ref().map_or(0, |start| start.time);
    let row = |(ns, call): (u64, &Call)| {
        let reading = reader.read(call)?;
        let process = profile.processes.get(&call.process);
        let thread = profile.threads.get(&(call.process, call.tid));
        Some(SlowRow {
            ns,
            at_ns: call.start.saturating_sub(start),
            pid: process.map_or(0, |process| process.pid),
            tid: call.tid,
            comm: thread.or_else(|| process.map(|process| &process.comm)).cloned().unwrap_or_default(),
            depth: call.depth,
            name: reading.function.name.clone(),
            args: reading.args.to_string(),
            ret: reading.result.map(|result| result.to_string()),
            error: reading.failed,
        })
    };
    profile.calls.slowest.iter().filter_map(row).collect()
}
