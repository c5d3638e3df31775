//! The parts of a summary's text about calls.

use analysis::{
    names,
    trace::summary::{MemoryRow, RequestRow, TraceSummary},
};
use model::calls::{Moved, Tier};
use text::{
    short::{cut, shortened},
    units::{bytes, count, counted, percent, time},
};

use crate::{
    latency,
    page::{Page, TextStyle, bar},
    timeline::{Kind, Timeline},
};

/// Maximum number of rows of each table.
const TOP: usize = 15;
/// Maximum number of slow calls.
const SLOWEST: usize = 10;
/// Maximum number of functions whose durations are drawn.
const DRAWN: usize = 5;
/// Maximum number of requests to the driver whose durations are drawn.
const DRAWN_REQUESTS: usize = 3;
/// Length of bars, and width of titles.
const BAR: usize = 8;

/// Names a request to the driver, first by its command.
fn request_name(row: &RequestRow) -> String {
    let request = row.request.strip_prefix("NV_ESC_").unwrap_or(&row.request);
    match &row.command {
        Some(command) => format!("{command} ({request})"),
        None => request.to_owned(),
    }
}

impl Page {
    /// Writes which functions were called, and their results and effects.
    pub(crate) fn calls(&mut self, trace: &TraceSummary) {
        self.call_counts(trace);
        self.layers(trace);
        self.functions_called(trace);
        self.errors(trace);
        self.requests(trace);
        self.launches(trace);
        self.memory(trace);
        self.moved(trace);
    }

    /// Writes when things happened, and how long they took.
    pub(crate) fn times(&mut self, trace: &TraceSummary, timeline: Option<&Timeline>) {
        self.latencies(trace);
        self.slowest(trace);
        self.gaps(trace);
        if let Some(timeline) = timeline {
            self.timeline(timeline);
        }
    }

    fn call_counts(&mut self, t: &TraceSummary) {
        let mut parts = vec![counted(t.calls, "call", "calls")];
        if t.outermost_ns > 0 {
            parts.push(format!("{} in calls, summed over threads", time(t.outermost_ns)));
        }
        if t.unfinished > 0 {
            parts.push(format!("{} did not return", count(t.unfinished)));
        }
        self.line(&parts.join(", "));
        let requests = t.driver_requests;
        if requests.count > 0 {
            let calls = counted(requests.count, "call", "calls");
            self.line(&format!("driver requests: {calls}, {}", time(requests.ns)));
        }
        let s = &t.switches;
        if s.count > 0 {
            let text = format!(
                "threads were off the CPU {} times for {} ({} in calls, {} preempted)",
                count(s.count),
                time(s.ns),
                time(s.in_calls_ns),
                time(s.preempted_ns)
            );
            self.line(&text);
        }
        for point in t.points.iter().take(TOP) {
            let name = format!("{}:{}", names::printable(&point.category), names::printable(&point.name));
            self.line(&format!("{} of {name}", counted(point.count, "event", "events")));
        }
    }

    /// Writes where the time is spent between the program and the kernel. A single layer is described by its functions.
    fn layers(&mut self, t: &TraceSummary) {
        if t.layers.len() < 2 {
            return;
        }
        self.title("Layers", &format!("{:>8}  {:>8}  {:>8}", "total", "self", "calls"));
        for row in &t.layers {
            let name = match row.layer {
                Tier::Program => "program",
                Tier::Runtime => "CUDA runtime",
                Tier::Driver => "CUDA driver",
                Tier::SystemCalls => "system calls on the driver's devices",
                Tier::Kernel => "kernel functions",
            };
            let share = row.sum.self_ns as f64 / t.outermost_ns.max(1) as f64;
            let bar = self.ink(TextStyle::Green, &bar(share, BAR));
            let times = format!("{:>8}  {:>8}", time(row.sum.total_ns), time(row.sum.self_ns));
            self.line(&format!("{bar} {times}  {:>8}  {name}", count(row.sum.calls)));
        }
    }

    fn functions_called(&mut self, t: &TraceSummary) {
        if t.functions.is_empty() {
            return;
        }
        // In a narrow page the mean is dropped first, then the median and errors, which have their own table.
        let skipped = if self.width >= 116 { 0 } else { 1 + usize::from(self.width < 100) };
        let errors = skipped < 2 && t.functions.iter().any(|f| f.errors > 0);
        let narrow = if skipped < 2 { 10 } else { 9 };
        let columns = |[total, own]: [&str; 2], calls: &str, failed: &str, of: [&str; 4]| {
            let mut text = format!("{total:>8}  {own:>8}  {calls:>8}");
            if errors {
                text += &format!("  {failed:>6}");
            }
            for value in of.iter().skip(skipped) {
                text += &format!("{value:>narrow$}");
            }
            text
        };
        self.title("Calls", &columns(["total", "self"], "calls", "errors", ["mean", "p50", "p99", "max"]));
        let whole = t.outermost_ns;
        for f in t.functions.iter().take(TOP) {
            let times = [f.mean_ns, f.p50_ns, f.p99_ns, f.max_ns].map(time);
            let failed = if f.errors == 0 { String::new() } else { count(f.errors) };
            let spent = [&*time(f.ns), &time(f.self_ns)];
            let numbers = columns(spent, &count(f.calls), &failed, times.each_ref().map(String::as_str));
            let rest = self.width.saturating_sub(BAR + 1 + numbers.chars().count() + 2);
            let name = names::printable(&f.name);
            let name = match f.inner {
                0 => cut(&name, rest),
                inner if inner == f.calls => cut(&format!("↳ {name}"), rest),
                inner => {
                    let within = format!(" ({} ↳)", count(inner));
                    cut(&name, rest.saturating_sub(within.chars().count())) + &within
                }
            };
            let name = if f.errors > 0 { self.ink(TextStyle::Red, &name) } else { name };
            let share = f.ns as f64 / whole.max(1) as f64;
            let line = format!("{} {numbers}  {name}", self.ink(TextStyle::Green, &bar(share, BAR)));
            self.line(&line);
        }
        self.more(t.functions.len(), TOP, "function", "functions");
        if t.functions.iter().take(TOP).any(|f| f.inner > 0) {
            let text = "self: outside other traced calls  ↳ within other traced calls";
            let line = self.ink(TextStyle::Dim, &cut(text, self.width));
            self.line(&line);
        }
    }

    fn errors(&mut self, t: &TraceSummary) {
        if t.errors.is_empty() {
            return;
        }
        self.title("Errors", &format!("{:>8}", "count"));
        for error in t.errors.iter().take(TOP) {
            let mut text = format!("{} from {}", error.error, names::printable(&error.function));
            let (ink, number) = match error.count {
                0 => (TextStyle::Dim, error.enclosed),
                outermost => (TextStyle::Red, outermost),
            };
            if error.count == 0 {
                text += ", within other calls";
            }
            let text = self.ink(ink, &cut(&text, self.width.saturating_sub(BAR + 11)));
            self.line(&format!("{:BAR$} {:>8}  {text}", "", count(number)));
        }
        self.more(t.errors.len(), TOP, "error", "errors");
    }

    fn requests(&mut self, t: &TraceSummary) {
        if t.requests.is_empty() {
            return;
        }
        self.title("Driver", &format!("{:>8}  {:>8}{:>10}{:>10}", "total", "requests", "mean", "max"));
        let whole = t.requests.iter().fold(0_u64, |sum, row| sum.saturating_add(row.ns));
        for row in t.requests.iter().take(TOP) {
            let numbers = format!(
                "{:>8}  {:>8}{:>10}{:>10}",
                time(row.ns),
                count(row.count),
                time(row.mean_ns),
                time(row.max_ns)
            );
            let mut name = format!("{} {}", row.device, request_name(row));
            if row.errors > 0 {
                name += &format!(", {}", counted(row.errors, "error", "errors"));
            }
            let name = cut(&names::printable(&name), self.width.saturating_sub(BAR + 3 + numbers.chars().count()));
            let name = if row.errors > 0 { self.ink(TextStyle::Red, &name) } else { name };
            let share = row.ns as f64 / whole.max(1) as f64;
            let line = format!("{} {numbers}  {name}", self.ink(TextStyle::Yellow, &bar(share, BAR)));
            self.line(&line);
        }
        self.more(t.requests.len(), TOP, "kind of request", "kinds of requests");
    }

    fn launches(&mut self, t: &TraceSummary) {
        if t.launches.is_empty() && t.graph_launches == 0 {
            return;
        }
        self.title("Launches", &format!("{:>8}", "calls"));
        let whole = t.launches.iter().fold(t.graph_launches, |sum, row| sum.saturating_add(row.count));
        let graphs = (t.graph_launches > 0).then_some(("whole graphs", t.graph_launches));
        let kernels = t.launches.iter().take(TOP).map(|row| (row.kernel.as_str(), row.count));
        for (name, number) in kernels.chain(graphs) {
            let name = shortened(name, self.width.saturating_sub(BAR + 11));
            let share = number as f64 / whole.max(1) as f64;
            let line = format!("{} {:>8}  {name}", self.ink(TextStyle::Blue, &bar(share, BAR)), count(number));
            self.line(&line);
        }
        self.more(t.launches.len(), TOP, "kernel", "kernels");
    }

    fn memory(&mut self, t: &TraceSummary) {
        if t.memory.is_empty() {
            return;
        }
        let columns =
            format!("{:>10}  {:>9}  {:>7}  {:>9}  {:>15}", "allocated", "bytes", "freed", "peak", "live at the end");
        self.wide_title("Memory", &columns);
        for MemoryRow { space, memory: m } in &t.memory {
            let peak = if m.peak_bytes > 0 { bytes(m.peak_bytes) } else { String::new() };
            let live = match m.live {
                0 => "none".to_owned(),
                live => format!("{} ({})", bytes(m.live_bytes), count(live)),
            };
            let live = format!("{live:>15}");
            let live = if m.live > 0 { self.ink(TextStyle::Yellow, &live) } else { live };
            let failed = match (m.failed, m.failed_frees) {
                (0, 0) => String::new(),
                (failed, 0) => format!("{} failed", count(failed)),
                (0, frees) => counted(frees, "free failed", "frees failed"),
                (failed, frees) => {
                    format!("{} failed, {}", count(failed), counted(frees, "free failed", "frees failed"))
                }
            };
            let failed = if failed.is_empty() { failed } else { format!("  {}", self.ink(TextStyle::Red, &failed)) };
            let line = format!(
                "{space:<11} {:>9}  {:>9}  {:>7}  {peak:>9}  {live}{failed}",
                count(m.allocations),
                bytes(m.bytes),
                count(m.frees)
            );
            self.line(&line);
        }
    }

    fn moved(&mut self, t: &TraceSummary) {
        if t.copies.is_empty() && t.memsets.count == 0 {
            return;
        }
        self.wide_title("Copy calls", &format!("{:>10}  {:>9}  {:>13}", "calls", "bytes", "time in calls"));
        let mut row = |name: &str, moved: &Moved| {
            let (calls, size) = (count(moved.count), bytes(moved.bytes));
            self.line(&format!("{name:<11} {calls:>9}  {size:>9}  {:>13}", time(moved.ns)));
        };
        for copies in &t.copies {
            row(if copies.direction == "Default" { "by address" } else { &copies.direction }, &copies.moved);
        }
        if t.memsets.count > 0 {
            row("memset", &t.memsets);
        }
    }

    fn latencies(&mut self, t: &TraceSummary) {
        let functions = t.functions.iter().take(DRAWN).map(|f| (f.name.clone(), &f.histogram, TextStyle::Green));
        let requests = t.requests.iter().take(DRAWN_REQUESTS);
        let requests = requests.map(|row| (request_name(row), &row.histogram, TextStyle::Yellow));
        let drawn: Vec<_> = functions.chain(requests).collect();
        let Some(label) = drawn.iter().map(|(name, ..)| name.chars().count()).max() else { return };
        let label = label.clamp("Latency".len(), 28);
        let histograms: Vec<&[(u64, u64)]> = drawn.iter().map(|(_, histogram, _)| histogram.as_slice()).collect();
        let (axis, rows) = latency::chart(&histograms, self.width.saturating_sub(label + 2));
        if rows.is_empty() {
            return;
        }
        let title = format!(
            "{}  {}",
            self.ink(TextStyle::Bold, &format!("{:<label$}", "Latency")),
            self.ink(TextStyle::Dim, &axis)
        );
        self.text.push('\n');
        self.line(&title);
        for ((name, _, ink), bars) in drawn.into_iter().zip(rows) {
            let name = cut(&names::printable(&name), label);
            let line = format!("{name:<label$}  {}", self.ink(ink, &bars));
            self.line(&line);
        }
    }

    fn slowest(&mut self, t: &TraceSummary) {
        if t.slowest.is_empty() {
            return;
        }
        self.title("Slowest", &format!("{:>8}  {:>10}", "took", "at"));
        for slow in t.slowest.iter().take(SLOWEST) {
            let result = slow.ret.as_deref().filter(|_| slow.error).map_or(String::new(), |ret| format!(" = {ret}"));
            let text = format!(
                "{}/{} {}{}({}){result}",
                names::word(&slow.comm),
                slow.tid,
                if slow.depth > 0 { "↳ " } else { "" },
                names::printable(&slow.name),
                slow.args
            );
            let text = cut(&text, self.width.saturating_sub(BAR + 23));
            let text = if slow.error { self.ink(TextStyle::Red, &text) } else { text };
            self.line(&format!("{:BAR$} {:>8}  {:>10}  {text}", "", time(slow.ns), at(slow.at_ns)));
        }
    }

    fn gaps(&mut self, t: &TraceSummary) {
        if t.idle_gaps.is_empty() {
            return;
        }
        self.title("GPU idle", &format!("{:>8}  {:>10}  what the CPU did", "for", "at"));
        for gap in &t.idle_gaps {
            let mut parts: Vec<(u64, String)> = vec![(gap.outside_ns, "outside CUDA".to_owned())];
            let calls = gap.calls.iter();
            parts.extend(
                calls.map(|call| (call.ns, format!("{} in {}", names::printable(&call.function), call.thread))),
            );
            // A call with less than a hundredth explains nothing.
            parts.retain(|(ns, _)| *ns > 0 && *ns >= gap.ns / 100);
            parts.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
            let parts: Vec<String> =
                parts.iter().map(|(ns, text)| format!("{text} ({})", percent(*ns, gap.ns))).collect();
            let text = cut(&parts.join(", "), self.width.saturating_sub(BAR + 23));
            let device = self.ink(TextStyle::Blue, &format!("GPU {:<width$}", gap.label, width = BAR - 4));
            self.line(&format!("{device} {:>8}  {:>10}  {text}", time(gap.ns), at(gap.at_ns)));
        }
    }

    fn timeline(&mut self, line: &Timeline) {
        self.text.push('\n');
        let label = line.label_width;
        for row in &line.rows {
            let ink = match row.kind {
                Kind::Stream => TextStyle::Blue,
                Kind::Thread => TextStyle::Green,
            };
            let name = cut(&row.label, label);
            let text = format!("{name:<label$}  {}", self.ink(ink, &line.text(row)));
            self.line(&text);
        }
        let axis = format!("{:label$}  {}", "", line.axis());
        let axis = self.ink(TextStyle::Dim, &axis);
        self.line(&axis);
        let legend = "▁▄█ kernels, calls  ░▒▓ copies, driver requests  · off the CPU";
        let legend = self.ink(TextStyle::Dim, &cut(legend, self.width));
        self.line(&legend);
        if let (streams, threads) = line.left_out
            && streams + threads > 0
        {
            let text = format!(
                "not drawn: {}, {}",
                counted(streams as u64, "stream", "streams"),
                counted(threads as u64, "thread", "threads")
            );
            let text = self.ink(TextStyle::Dim, &text);
            self.line(&text);
        }
    }

    /// Writes a table's header, after an empty line.
    fn title(&mut self, title: &str, columns: &str) {
        let line =
            format!("{} {}", self.ink(TextStyle::Bold, &format!("{title:<BAR$}")), self.ink(TextStyle::Dim, columns));
        self.text.push('\n');
        self.line(&line);
    }

    /// The same for tables whose rows begin with a word.
    fn wide_title(&mut self, title: &str, columns: &str) {
        let line =
            format!("{} {}", self.ink(TextStyle::Bold, &format!("{title:<10}")), self.ink(TextStyle::Dim, columns));
        self.text.push('\n');
        self.line(&line);
    }

    fn more(&mut self, all: usize, shown: usize, one: &str, many: &str) {
        if all > shown {
            let text = format!("and {} more", counted((all - shown) as u64, one, many));
            let text = self.ink(TextStyle::Dim, &text);
            self.line(&text);
        }
    }
}

/// Formats a time since the start.
fn at(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1_000)
}
