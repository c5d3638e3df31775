//! The summary as text. Tables put the name last, so that long names cost no alignment.

use super::Summary;
use text::{
    short::{short, split_place},
    units::{bytes, count, counted, percent, time},
};

use crate::{flame::Weight, losses, names};

/// From here on there is room for long bars.
const WIDE: usize = 100;

/// The text of a summary, at most `width` columns wide (not less than 60), with colours for a terminal if asked.
/// The ledger is its last lines.
pub fn render(summary: &Summary, colour: bool, width: usize) -> String {
    let mut page = Page { text: String::new(), colour, width: width.max(60) };
    page.head(summary);
    if let Some(trace) = &summary.trace {
        page.calls(trace);
        page.kernels(summary);
        page.copies(summary);
        page.times(trace);
    } else {
        page.kernels(summary);
        page.paths(summary);
        page.copies(summary);
    }
    page.functions(summary);
    page.events(summary);
    page.ledger(summary);
    page.text
}

/// How a part of a line looks on a terminal.
#[derive(Clone, Copy)]
pub(crate) enum Ink {
    Bold,
    Dim,
    Blue,
    Red,
    Green,
    Yellow,
    Magenta,
}

pub(crate) struct Page {
    pub(crate) text: String,
    colour: bool,
    pub(crate) width: usize,
}

impl Page {
    pub(crate) fn ink(&self, ink: Ink, text: &str) -> String {
        let code = match ink {
            Ink::Bold => 1,
            Ink::Dim => 2,
            Ink::Blue => 34,
            Ink::Red => 31,
            Ink::Green => 32,
            Ink::Yellow => 33,
            Ink::Magenta => 35,
        };
        if self.colour && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn line(&mut self, text: &str) {
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    /// How long bars are.
    fn bar_width(&self) -> usize {
        if self.width < WIDE { 5 } else { 12 }
    }

    /// A table's first line, after an empty one: the title above the bars, `columns` as [`Page::row`] and what follows
    /// it.
    fn heading(&mut self, title: &str, columns: &str) {
        let title_width = self.bar_width().max(6);
        let title = format!("{title:<title_width$}");
        let share = self.bar_width() + 9 - title_width;
        let columns = format!("{:>share$}  {:>8}  {columns}", "share", "time");
        let line = format!("{}{}", self.ink(Ink::Bold, &title), self.ink(Ink::Dim, &columns));
        self.text.push('\n');
        self.line(&line);
    }

    /// A bar, a share and a time: how rows begin.
    fn row(&self, ink: Ink, ns: u64, share: f64, whole: u64) -> String {
        self.row_of(ink, (ns, whole), share, &time(ns))
    }

    /// The same for what is not time: a part of a whole, its share, and its text.
    pub(crate) fn row_of(&self, ink: Ink, (part, whole): (u64, u64), share: f64, text: &str) -> String {
        format!("{} {:>8}  {text:>8}", self.ink(ink, &bar(share, self.bar_width())), percent(part, whole))
    }

    /// What is left of a line after a row and `more` columns.
    pub(crate) fn rest(&self, more: usize) -> usize {
        self.width.saturating_sub(self.bar_width() + 19 + more)
    }

    fn head(&mut self, s: &Summary) {
        let command = names::printable(&s.command.join(" ")).into_owned();
        let title = if s.command.is_empty() { "warpscope: running processes" } else { &command };
        let title = self.ink(Ink::Bold, &cut(title, self.width));
        self.line(&title);
        let mut parts = vec![format!("{} {}", time(s.wall_ns), if s.trace.is_some() { "traced" } else { "recorded" })];
        if s.cut_off {
            parts.push("cut off".to_owned());
        }
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
        let line = self.ink(Ink::Dim, &parts.join(", "));
        self.line(&line);

        let working: Vec<_> = s.devices.iter().filter(|device| device.streams > 0).collect();
        let name_width = working.iter().map(|d| d.name.chars().count()).max().unwrap_or(0).min(32);
        if !working.is_empty() {
            self.text.push('\n');
        }
        for device in working {
            let name = cut(&names::printable(&device.name), name_width);
            let name = if device.name.is_empty() { String::new() } else { name };
            let busy = self.ink(Ink::Blue, &bar(device.busy_share, self.bar_width()));
            let share = percent(device.busy_ns, s.wall_ns);
            let streams = counted(device.streams, "stream", "streams");
            let line = format!(
                "{busy} {share:>8}  {:>8} busy  GPU {} {name:<name_width$}  {streams}",
                time(device.busy_ns),
                device.index
            );
            self.line(&line);
        }
        if s.launches > 0 || s.gpu_time_ns > 0 {
            self.work(s);
        }
    }

    /// One line of counts, and one of waits.
    fn work(&mut self, s: &Summary) {
        let rate = format!(
            "{} ({} per second)",
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
            let waits = counted(s.host_waits, "wait", "waits");
            self.line(&format!("host threads waited {} for the GPU, in {waits}", time(s.host_wait_ns)));
        }
    }

    fn kernels(&mut self, s: &Summary) {
        if s.top_kernels.is_empty() {
            return;
        }
        self.heading("Kernels", &format!("{:>7}  {:>8}  {:>8}", "runs", "mean", "max"));
        for kernel in &s.top_kernels {
            let row = self.row(Ink::Blue, kernel.ns, kernel.share, s.kernel_time_ns);
            let runs = count(kernel.count);
            let name = shortened(&kernel.name, self.rest(31));
            self.line(&format!("{row}  {runs:>7}  {:>8}  {:>8}  {name}", time(kernel.mean_ns), time(kernel.max_ns)));
        }
    }

    fn paths(&mut self, s: &Summary) {
        if s.top_paths.is_empty() {
            return;
        }
        self.heading("Paths", &format!("{:>7}", "count"));
        for path in &s.top_paths {
            let row = self.row(Ink::Blue, path.ns, path.share, s.gpu_time_ns);
            let text = path_text(&path.path, self.rest(11));
            self.line(&format!("{row}  {:>7}  {text}", count(path.count)));
        }
    }

    fn copies(&mut self, s: &Summary) {
        if s.copies_by_direction.is_empty() {
            return;
        }
        let columns = format!("{:>12}  {:>8}  {:>7}  {:>11}", "bytes", "time", "count", "rate");
        let heading = format!("{}{}", self.ink(Ink::Bold, "Copies "), self.ink(Ink::Dim, &columns));
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
        // Beside GPU work five functions are enough.
        let rows = if s.gpu_time_ns > 0 { 5 } else { s.top_functions.len() };
        if s.top_functions.is_empty() {
            return;
        }
        self.heading("CPU", &format!("{:>7}", "samples"));
        for function in s.top_functions.iter().take(rows) {
            let row = self.row(Ink::Red, function.ns, function.share, s.cpu_time_ns);
            let name = shortened(&function.name, self.rest(11));
            self.line(&format!("{row}  {:>7}  {name}", count(function.samples)));
        }
    }

    fn ledger(&mut self, s: &Summary) {
        if !s.notes.is_empty() {
            self.text.push('\n');
        }
        for note in &s.notes {
            let note = format!("{} {}", self.ink(Ink::Yellow, "note:"), names::printable(note));
            self.line(&note);
        }
        let no_gpu = s.kernels + s.copies + s.memsets == 0;
        let nothing = match &s.trace {
            Some(trace) => {
                (trace.calls + trace.unfinished == 0).then(|| "nothing that is traced was called".to_owned())
            }
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
        for (place, sentence) in s.ledger.iter().enumerate() {
            let good = place == 0 && !no_gpu && s.unmatched_activities == 0;
            let ink = if good {
                Ink::Green
            } else if [&captured, &empty, &own].iter().any(|harmless| harmless.as_ref() == Some(sentence)) {
                // Nothing is amiss.
                Ink::Dim
            } else {
                Ink::Yellow
            };
            let line = self.ink(ink, sentence);
            self.line(&line);
        }
    }
}

/// A bar of eighths: anything more than nothing shows.
pub(crate) fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let mut text = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        text.push(EIGHTHS[eighths % 8]);
    }
    format!("{text:<width$}")
}

pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        text.to_owned()
    } else {
        text.chars().take(most.saturating_sub(1)).collect::<String>() + "…"
    }
}

pub(crate) fn shortened(name: &str, most: usize) -> String {
    cut(&short(&names::clean(name), most), most)
}

/// Most characters of one frame of a path, where it can be had.
const STEP: usize = 32;

/// A frame of a path: a kernel without its bracket, but with its GPU where there are several.
fn step(name: &str) -> String {
    match name.strip_prefix("[GPU").and_then(|rest| rest.split_once("_Kernel] ")) {
        Some(("", kernel)) => short(kernel, STEP),
        Some((gpu, kernel)) => format!("GPU{gpu} {}", short(kernel, STEP)),
        None if name.starts_with("[GPU") => name.to_owned(),
        None => short(name, STEP),
    }
}

/// Whether a frame between the process and what ran says anything of the program: not the start of a thread, not the CUDA
/// libraries and what leads to them.
fn telling(name: &str) -> bool {
    let (name, _) = split_place(name);
    let driver = |rest: &str| rest.starts_with(|c: char| c.is_ascii_uppercase());
    !((name.starts_with('[') && name != names::LAUNCH_NOT_SEEN)
        || name.starts_with("__device_stub__")
        || name.starts_with("__libc_start")
        || name.starts_with("cuda")
        || name.strip_prefix("cu").is_some_and(driver)
        || matches!(name, "_start" | "main" | "start_thread" | "clone3" | "clone" | "__clone3"))
}

/// `python3 > … > train > forward > linear > matmul`: the process, what ran, and its nearest callers.
pub(crate) fn path_text(path: &[String], most: usize) -> String {
    const BETWEEN: &str = " > ";
    let inner = 1..path.len().saturating_sub(1);
    let shown = path.iter().enumerate().filter(|(i, name)| !inner.contains(i) || telling(name));
    let mut names: Vec<String> = shown.map(|(_, name)| step(name)).collect();
    // nvcc's host function has the kernel's name.
    names.dedup();
    let whole = names.join(BETWEEN);
    if names.len() < 2 || whole.chars().count() <= most {
        return cut(&whole, most);
    }
    let length = |name: &String| name.chars().count() + BETWEEN.len();
    let last = &names[names.len() - 1];
    // The process, the gap and what ran; then callers from the innermost on, as many as fit.
    let mut used = length(&names[0]) + 1 + length(last);
    if used > most {
        return cut(&format!("…{BETWEEN}{last}"), most);
    }
    let mut from = names.len() - 1;
    while from > 2 && used + length(&names[from - 1]) <= most {
        from -= 1;
        used += length(&names[from]);
    }
    [&[names[0].clone(), "…".to_owned()], &names[from..]].concat().join(BETWEEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a path is shortened in its middle, to the width and no more.
    #[test]
    fn paths_lose_their_middle() {
        let path: Vec<String> =
            ["python3", "main", "load", "train", "forward", "linear", "cudaLaunchKernel", "[GPU_Kernel] gemm<4>(int)"]
                .map(str::to_owned)
                .to_vec();
        assert_eq!(path_text(&path, 200), "python3 > load > train > forward > linear > gemm<4>");
        assert_eq!(path_text(&path, 42), "python3 > … > forward > linear > gemm<4>");
        for most in 1..90 {
            assert!(path_text(&path, most).chars().count() <= most);
        }
        assert_eq!(path_text(&["one".to_owned()], 2), "o…");
    }

    /// Check that bars have one width and that little is not nothing.
    #[test]
    fn bars() {
        assert_eq!(bar(0.5, 4), "██  ");
        assert_eq!(bar(1.7, 4), "████");
        assert_eq!(bar(1e-9, 4), "▏   ");
        assert_eq!(bar(0.0, 4), "    ");
    }
}
