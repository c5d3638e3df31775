//! Calls as lines of text, for watching a trace while it runs.
//!
//! ```text
//!   12.345678  python3/1234        cudaLaunchKernel(kernel=matmul, grid=(4,2,1), ...)  = cudaSuccess  8.10 µs  #42
//!   12.345702  GPU 0/7             matmul  grid=(4,2,1) block=(64,1,1)  1.40 ms  #42
//! ```
//!
//! A line is written when a call returns, so nested calls appear above their caller, indented by one more step. `#42`
//! connects a launch to its work on the GPU.

use std::io::{self, Write};

use analysis::{
    names::{self, OFF_CPU, off_cpu},
    trace::{
        live::{Live, Shown},
        reading::Reading,
        values::KERNEL_LENGTH,
    },
};
use model::event::{Activity, Call, Event, Launch, Switch, Work};
use text::{short::short, units};

/// Width of the thread column.
const WHO: usize = 20;

/// Writes lines as events arrive.
#[derive(Debug)]
pub struct Lines {
    live: Live,
    start: u64,
    colour: bool,
}

impl Lines {
    /// Writes what `live` shows, with times since `start`.
    pub fn new(live: Live, start: u64, colour: bool) -> Self {
        Self { live, start, colour }
    }

    /// Adds the next event, and writes its line if it has one.
    pub fn push(&mut self, event: &Event, out: &mut dyn Write) -> io::Result<()> {
        self.live.learn(event);
        match self.live.shown(event) {
            Some(Shown::Call(call, reading)) => self.call(call, &reading, out),
            Some(Shown::Switch(switch)) => self.switch(switch, out),
            Some(Shown::Launch(launch, name)) => self.launch(launch, name, out),
            Some(Shown::Work(activity, name, device)) => self.work(activity, name, device, out),
            Some(Shown::Start(_)) | None => Ok(()),
        }
    }

    fn call(&self, call: &Call, reading: &Reading<'_>, out: &mut dyn Write) -> io::Result<()> {
        let name = names::printable(&reading.function.name);
        let what = format!("{}{}({})", "  ".repeat(call.depth.into()), self.ink(BOLD, &name), reading.args);
        let ink = if reading.failed { RED } else { GREEN };
        let result = reading.result.as_ref().map(|result| self.ink(ink, &format!("= {result}")));
        let took = match call.duration() {
            None => Some("…  unfinished".to_owned()),
            Some(0) => None,
            Some(ns) => Some(units::time(ns)),
        };
        let tie = call.launch.map(|(_, correlation)| self.ink(DIM, &format!("#{correlation}")));
        let rest = [Some(what), result, took, tie];
        self.line(call.start, &self.padded(CYAN, &self.live.thread(call.process, call.tid)), rest, out)
    }

    fn switch(&self, switch: &Switch, out: &mut dyn Write) -> io::Result<()> {
        let what = format!("{OFF_CPU} ({})", off_cpu(switch));
        let what = format!("{}{}", "  ".repeat(switch.depth.into()), self.ink(DIM, &what));
        let took = units::time(switch.end.saturating_sub(switch.start));
        let who = self.padded(CYAN, &self.live.thread(switch.process, switch.tid));
        self.line(switch.start, &who, [Some(what), Some(took), None, None], out)
    }

    fn launch(&self, launch: &Launch, name: &str, out: &mut dyn Write) -> io::Result<()> {
        let tie = self.ink(DIM, &format!("#{}", launch.correlation));
        let who = self.padded(CYAN, &self.live.thread(launch.process, launch.tid));
        self.line(launch.time, &who, [Some(self.ink(BOLD, name)), Some(tie), None, None], out)
    }

    fn work(&self, activity: &Activity, name: &str, device: u32, out: &mut dyn Write) -> io::Result<()> {
        let about = match activity.work {
            Work::Kernel { grid: [x, y, z], block: [a, b, c], .. } => format!("grid=({x},{y},{z}) block=({a},{b},{c})"),
            Work::Copy { bytes, .. } | Work::Memset { bytes, .. } => units::bytes(bytes),
        };
        let who = self.padded(BLUE, &format!("GPU {device}/{}", activity.stream));
        let name = self.ink(BLUE, &short(&names::clean(name), KERNEL_LENGTH));
        let took = if activity.end == 0 { "…  unfinished".to_owned() } else { units::time(activity.duration()) };
        let tie = self.ink(DIM, &format!("#{}", activity.correlation));
        self.line(activity.start, &who, [Some(name), Some(about), Some(took), Some(tie)], out)
    }

    fn line(&self, at: u64, who: &str, rest: [Option<String>; 4], out: &mut dyn Write) -> io::Result<()> {
        let at = at.saturating_sub(self.start);
        let at = self.ink(DIM, &format!("{:>4}.{:06}", at / 1_000_000_000, at % 1_000_000_000 / 1_000));
        let rest: Vec<String> = rest.into_iter().flatten().collect();
        // One write, so that lines of several writers do not mix.
        out.write_all(format!("{at}  {who}  {}\n", rest.join("  ")).as_bytes())
    }

    fn padded(&self, ink: u8, text: &str) -> String {
        let blanks = WHO.saturating_sub(text.chars().count());
        format!("{}{}", self.ink(ink, text), " ".repeat(blanks))
    }

    fn ink(&self, code: u8, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

const BOLD: u8 = 1;
const DIM: u8 = 2;
const RED: u8 = 31;
const GREEN: u8 = 32;
const BLUE: u8 = 34;
const CYAN: u8 = 36;
