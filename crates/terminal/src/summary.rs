//! The summary as text. Tables put the name last, so that long names do not break the alignment.

use analysis::summary::{Cost, EventSummary, Path, Sampling, Summary};
use analysis::{flame_tree::Weight, losses, names, waits};
use model::{event::OFF_CPU, profile::Numbering};
use text::{
    short::{cut, shortened},
    units::{bytes, count, counted, percent, share, time},
};

use crate::page::{Page, TextStyle, bar, path_text};
use crate::timeline::Timeline;

/// The width of names from which another column is shown.
const ROOM_TO_SPARE: usize = 28;
/// The width of the names of kernels below which a column is left out.
const LEAST_NAME: usize = 20;

/// Returns the text of a summary, at most `width` columns wide (not less than 60), in colour if requested. The ledger
/// is its last lines.
pub(crate) fn render(summary: &Summary, timeline: Option<&Timeline>, colour: bool, width: usize) -> String {
    let mut page = Page::new(colour, width.max(60));
    page.opening(summary);
    page.findings(&summary.findings, summary.wall_ns);
    page.head(summary);
    if let Some(trace) = &summary.trace {
        page.calls(trace);
        page.kernels(summary);
        page.copies(summary);
        page.times(trace, timeline);
    } else {
        page.kernels(summary);
        page.paths(summary);
        page.ranges(summary);
        page.copies(summary);
    }
    page.energy(summary);
    page.counters(summary);
    page.verdicts(summary);
    page.limits(summary);
    page.stalls(summary);
    page.functions(summary);
    page.gpu_memory(&summary.memory);
    page.events(summary);
    page.ledger(summary);
    page.text
}

impl Page {
    fn opening(&mut self, s: &Summary) {
        let command = names::printable(&s.command.join(" ")).into_owned();
        let title = if s.command.is_empty() { "warpscope: running processes" } else { &command };
        let title = self.ink(TextStyle::Bold, &cut(title, self.width));
        self.line(&title);
        let mut parts = vec![format!("{} {}", time(s.wall_ns), if s.trace.is_some() { "traced" } else { "recorded" })];
        if s.cut_off {
            parts.push("cut off".to_owned());
        }
        let ended = s.status.and_then(text::ending).map(|ended| self.ink(TextStyle::Yellow, &ended));
        parts.push(counted(s.processes, "process", "processes"));
        if s.threads > 0 {
            parts.push(counted(s.threads, "thread", "threads"));
        }
        if s.cpu_samples > 0 {
            parts.push(format!("{} of {}", counted(s.cpu_samples, "CPU sample", "CPU samples"), time(s.cpu_time_ns)));
        }
        if s.stacks > 0 {
            parts.push(counted(s.stacks, "distinct stack", "distinct stacks"));
        }
        let mut line = self.ink(TextStyle::Dim, &parts.join(", "));
        if let Some(ended) = ended {
            line.push_str(", ");
            line.push_str(&ended);
        }
        self.line(&line);
        if let Some(note) = &s.part_note {
            self.paragraph(TextStyle::Yellow, "", note);
        }
        if let Some(dump) = &s.dump {
            self.line(&format!("dump of the last {}: {}", time(dump.at_ns), names::printable(&dump.text)));
            let mut parts =
                vec![format!("{} before the window were discarded", counted(dump.discarded, "event", "events"))];
            if dump.full {
                let text =
                    format!("the window is shorter than {}: the buffer was full (--last-size)", time(dump.window_ns));
                parts.push(text);
            }
            if dump.discarded > 0 || dump.full {
                let line = self.ink(TextStyle::Dim, &parts.join("; "));
                self.line(&line);
            }
        }
    }

    fn head(&mut self, s: &Summary) {
        let working: Vec<_> = s.devices.iter().filter(|device| device.streams > 0).collect();
        let label_width = working.iter().map(|d| d.label.len()).max().unwrap_or(0);
        // What the line has beside the name, with up to 999 streams.
        let rest = self.width.saturating_sub(self.bar_width() + 44 + label_width);
        let name_width = working.iter().map(|d| d.name.chars().count()).max().unwrap_or(0).min(rest.min(32));
        if !working.is_empty() {
            self.text.push('\n');
        }
        for device in &working {
            let name = cut(&names::printable(&device.name), name_width);
            let name = if device.name.is_empty() { String::new() } else { name };
            let busy = self.ink(TextStyle::Blue, &bar(device.busy_share, self.bar_width()));
            let share = percent(device.busy_ns, s.wall_ns);
            let streams = counted(device.streams, "stream", "streams");
            let line = format!(
                "{busy} {share:>8}  {:>8} busy  GPU {:<label_width$} {name:<name_width$}  {streams}",
                time(device.busy_ns),
                device.label
            );
            self.line(&line);
        }
        if let Some(imbalance) = s.gpu_imbalance {
            let busiest = working.iter().max_by_key(|device| device.busy_ns).map_or("", |device| &device.label);
            let (percent, times) = (imbalance * 100.0, imbalance + 1.0);
            let text = format!("imbalance {percent:.0} %: GPU {busiest} was busy {times:.2} times the mean");
            let line = self.ink(TextStyle::Dim, &text);
            self.line(&line);
            if let Some(text) = numbering(s.device_numbering) {
                let line = self.ink(TextStyle::Dim, text);
                self.line(&line);
            }
        }
        if s.launches > 0 || s.gpu_time_ns > 0 {
            self.work(s);
        }
        self.steps(s);
        if let Some(cost) = s.cost.as_ref().and_then(Cost::sentence) {
            let line = self.ink(TextStyle::Dim, &cost);
            self.line(&line);
        }
        self.ranks(s);
    }

    /// Writes one line of counts, and one of waits.
    fn work(&mut self, s: &Summary) {
        let each = s.launch_each_ns.map_or_else(String::new, |each| format!(", {} each", time(each)));
        let rate = format!(
            "{} ({} per second{each})",
            counted(s.launches, "launch", "launches"),
            count(s.launches_per_second.round() as u64)
        );
        let mut parts =
            vec![rate, format!("{} of {}", counted(s.kernels, "kernel", "kernels"), time(s.kernel_time_ns))];
        if s.copies > 0 {
            parts.push(counted(s.copies, "copy", "copies"));
        }
        if s.memsets > 0 {
            parts.push(counted(s.memsets, "memset", "memsets"));
        }
        self.line(&parts.join(", "));
        if s.host_waits > 0 {
            let synchronisations = s.host_waits.saturating_sub(s.copy_waits);
            let mut waits = Vec::new();
            if synchronisations > 0 {
                waits.push(counted(synchronisations, "wait", "waits"));
            }
            if s.copy_waits > 0 {
                waits.push(counted(s.copy_waits, "blocking copy", "blocking copies"));
            }
            self.line(&format!("host threads waited {} for the GPU, in {}", time(s.host_wait_ns), waits.join(" and ")));
        }
    }

    fn kernels(&mut self, s: &Summary) {
        if s.top_kernels.is_empty() {
            return;
        }
        // How full the multiprocessors can be, where the device is known and the line has room.
        let full = s.top_kernels.iter().any(|kernel| kernel.occupancy.is_some()) && self.rest(31) >= ROOM_TO_SPARE;
        // The mean, then the longest, if the line has room for them.
        let times = [2, 1].into_iter().find(|times| self.rest(11 + 10 * times) >= LEAST_NAME).unwrap_or(0);
        let titles: String = ["mean", "max"].iter().take(times).map(|title| format!("  {title:>8}")).collect();
        let (title, wide) = if full { ("  occup.", 39) } else { ("", 11 + 10 * times) };
        self.heading("Kernels", "of GPU", &format!("{:>7}{titles}{title}", "runs"));
        for kernel in &s.top_kernels {
            let row = self.row(TextStyle::Blue, kernel.ns, kernel.share, s.gpu_time_ns);
            let runs = count(kernel.count);
            let both = [kernel.mean_ns, kernel.max_ns];
            let times: String = both.iter().take(times).map(|ns| format!("  {:>8}", time(*ns))).collect();
            let share = kernel.occupancy.map(|share| format!("{:.0} %", 100.0 * share)).unwrap_or_default();
            let occupancy = if full { format!("  {share:>6}") } else { String::new() };
            let name = shortened(&kernel.name, self.rest(wide));
            self.line(&format!("{row}  {runs:>7}{times}{occupancy}  {name}"));
        }
    }

    fn paths(&mut self, s: &Summary) {
        let shared = shared_frames(&s.top_lines);
        let Some(first) = s.top_lines.first() else { return };
        let under = path_text(&first.path[..shared], self.rest(17));
        let under = if shared == 0 { String::new() } else { format!("  under {under}") };
        self.heading("Paths", "of GPU", &format!("{:>7}{under}", "count"));
        // Rows that look alike become one.
        let mut rows: Vec<(String, u64, u64)> = Vec::new();
        for path in &s.top_lines {
            let text = path_text(&path.path[shared..], self.rest(11));
            match rows.iter_mut().find(|row| row.0 == text) {
                Some(row) => (row.1, row.2) = (row.1.saturating_add(path.ns), row.2 + path.count),
                None => rows.push((text, path.ns, path.count)),
            }
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.1));
        for (text, ns, runs) in rows {
            let row = self.row(TextStyle::Blue, ns, share(ns, s.gpu_time_ns), s.gpu_time_ns);
            self.line(&format!("{row}  {:>7}  {text}", count(runs)));
        }
    }

    fn copies(&mut self, s: &Summary) {
        if s.copies_by_direction.is_empty() {
            return;
        }
        let columns = format!("{:>12}  {:>8}  {:>7}  {:>11}", "bytes", "time", "count", "rate");
        let heading = format!("{}{}", self.ink(TextStyle::Bold, "Copies "), self.ink(TextStyle::Dim, &columns));
        self.text.push('\n');
        self.line(&heading);
        for copies in &s.copies_by_direction {
            let per_second = copies.bytes as f64 * 1e9 / copies.ns.max(1) as f64;
            let rate = if copies.ns == 0 { String::new() } else { format!("{}/s", bytes(per_second as u64)) };
            let (moved, took) = (bytes(copies.bytes), time(copies.ns));
            let direction = copies.direction.to_string();
            self.line(&format!("{direction:<7} {moved:>11}  {took:>8}  {:>7}  {rate:>11}", count(copies.count)));
        }
    }

    fn functions(&mut self, s: &Summary) {
        // Next to GPU work, five functions are enough.
        let rows = if s.gpu_time_ns > 0 { 5 } else { s.top_functions.len() };
        if s.top_functions.is_empty() {
            return;
        }
        self.heading("CPU", "of CPU", &format!("{:>7}", "samples"));
        for function in s.top_functions.iter().take(rows) {
            let row = self.row(TextStyle::Red, function.ns, function.share, s.cpu_time_ns);
            let name = shortened(&function.name, self.rest(11));
            self.line(&format!("{row}  {:>7}  {name}", count(function.samples)));
        }
    }

    fn ledger(&mut self, s: &Summary) {
        // The opening has the one about the selected part.
        let notes = || s.notes.iter().filter(|note| s.part_note.as_ref() != Some(*note));
        if notes().next().is_some() {
            self.text.push('\n');
        }
        for note in notes() {
            let note = format!("{} {}", self.ink(TextStyle::Yellow, "note:"), names::printable(note));
            self.line(&note);
        }
        let no_gpu = s.kernels + s.copies + s.memsets == 0;
        let nothing = match &s.trace {
            Some(trace) => (trace.calls + trace.unfinished == 0).then(|| "no traced function was called".to_owned()),
            None => s.no_gpu_work.map(|why| format!("no GPU work was recorded: {why}")),
        };
        if nothing.is_some() || !s.ledger.is_empty() {
            self.text.push('\n');
        }
        if let Some(nothing) = nothing {
            self.line(&nothing);
        }
        let (captured, empty) = (losses::captured(s.captured_launches), losses::empty(s.empty_launches));
        let own = losses::own_cost(Weight { amount: s.own_time_ns, samples: s.own_samples, ..Weight::default() });
        let mut sampled = s.sampling.as_ref().map(Sampling::sentences).unwrap_or_default();
        sampled.extend(s.stalls.iter().flat_map(|stalls| losses::sampled(&stalls.ledger)));
        for (place, sentence) in s.ledger.iter().enumerate() {
            let good = place == 0 && !no_gpu && s.unmatched_activities == 0;
            let ink = if good {
                TextStyle::Green
            } else if [&captured, &empty, &own].iter().any(|harmless| harmless.as_ref() == Some(sentence))
                || sampled.contains(sentence)
            {
                // Nothing is wrong.
                TextStyle::Dim
            } else {
                TextStyle::Yellow
            };
            let line = self.ink(ink, sentence);
            self.line(&line);
        }
    }

    fn events(&mut self, s: &Summary) {
        for event in &s.events {
            self.event(event);
        }
    }

    fn event(&mut self, event: &EventSummary) {
        let idle = event.waiting_for_work.map_or(0, |idle| idle.sum);
        let whole = event.sum.unwrap_or(event.count).saturating_sub(idle);
        let (hit, hits) = waits::hits(&event.source);
        let mut parts = vec![counted(event.count, hit, hits)];
        if let (Some(sum), Some(weight)) = (event.sum, &event.weight) {
            parts.push(format!("{} of {weight}", event.measure.text(sum)));
        }
        parts.push(counted(event.stacks, "distinct stack", "distinct stacks"));
        let name = names::printable(&event.name).into_owned();
        let source = if event.source.ends_with(&event.name) { String::new() } else { format!("  {}", event.source) };
        let title = format!(
            "{}{}",
            self.ink(
                TextStyle::Bold,
                &if event.source == OFF_CPU { "Time off the CPU".into() } else { format!("Event {name}") }
            ),
            self.ink(TextStyle::Dim, &names::printable(&source))
        );
        self.text.push('\n');
        self.line(&title);
        self.line(&parts.join(", "));
        if event.outside > 0 {
            let text = format!(
                "{} had an unreadable or negative weight, or one of 2^56 or more: counted, but not added",
                counted(event.outside, "hit", "hits")
            );
            let line = self.ink(TextStyle::Yellow, &text);
            self.line(&line);
        }
        if event.own > 0 {
            let text = format!("excludes {} in warpscope's injected library", counted(event.own, hit, hits));
            let line = self.ink(TextStyle::Dim, &text);
            self.line(&line);
        }
        if let Some(idle) = event.waiting_for_work {
            let text = format!(
                "threads of pools without work waited {} of that, in {}: they are not listed",
                time(idle.sum),
                counted(idle.count, hit, hits)
            );
            let line = self.ink(TextStyle::Dim, &text);
            self.line(&line);
        }
        for stack in &event.top_stacks {
            let amount = stack.sum.unwrap_or(stack.count);
            let row = self.row_of(TextStyle::Magenta, (amount, whole), stack.share, &event.measure.text(amount));
            let hits = if stack.sum.is_some() { format!("  {:>7}", count(stack.count)) } else { String::new() };
            let text = path_text(&stack.path, self.rest(if hits.is_empty() { 2 } else { 11 }));
            self.line(&format!("{row}{hits}  {text}"));
        }
    }
}

/// Returns the number of outermost frames that all paths share, such that each keeps its innermost frame of user code
/// and its operation.
fn shared_frames(paths: &[Path]) -> usize {
    let Some(first) = paths.first() else { return 0 };
    let innermost = |path: &Path| {
        let outer = &path.path[..path.path.len().saturating_sub(1)];
        let replayed = outer.last().is_some_and(|frame| frame == names::GRAPH_REPLAY);
        outer.len().saturating_sub(1 + usize::from(replayed))
    };
    let most = paths.iter().map(innermost).min().unwrap_or(0);
    (0..most).find(|&at| paths.iter().any(|path| path.path[at] != first.path[at])).unwrap_or(most)
}

/// Says how GPUs are numbered, where that is not as the machine numbers them.
fn numbering(numbering: Numbering) -> Option<&'static str> {
    match numbering {
        Numbering::Machine => None,
        Numbering::Process => Some("GPU numbers: as each process numbers its GPUs"),
        Numbering::Pci => Some("GPU numbers: PCI order of the recorded GPUs"),
        Numbering::Uuid => Some("GPU numbers: UUID order of the recorded GPUs"),
    }
}
