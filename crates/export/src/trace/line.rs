//! Calls as lines of text or JSON, for watching a trace while it runs.
//!
//! ```text
//!   12.345678  python3/1234        cudaLaunchKernel(kernel=matmul, grid=(4,2,1), ...)  = cudaSuccess  8.10 µs  #42
//!   12.345702  GPU 0/7             matmul  grid=(4,2,1) block=(64,1,1)  1.40 ms  #42
//! ```
//!
//! A line is written when a call returns, so nested calls appear above their caller, indented by one more step. `#42`
//! connects a launch to its work on the GPU.

use std::{
    collections::HashMap,
    io::{self, Write},
    sync::Arc,
};

use analysis::{flame_tree::CallView, names};
use model::{
    event::{Activity, Call, Event, Launch, LaunchKind, Mode, ProcessId, SessionId, Start, Switch, Work},
    fold::NAME_LOST,
};
use serde::Serialize;
use text::{pattern::Selection, short::short, units};

use super::{
    json_line::{self, Line},
    labels::{KERNEL_LENGTH, OFF_CPU, off_cpu},
    reading::Reader,
};
use crate::start_line::StartLine;

/// Width of the thread column.
const WHO: usize = 20;

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As text, in colour if requested.
    Text {
        /// With escape sequences.
        colour: bool,
    },
    /// As JSON, with the fields of `.jsonl` that are known when a call returns: without numbers, stacks and memory.
    Json,
}

/// Writes lines as events arrive. Needs no profile: processes, functions and kernels are learned from the events.
#[derive(Debug)]
pub struct Lines {
    reader: Reader,
    readable: fn(&str) -> String,
    filter: Option<Selection>,
    view: CallView,
    /// Launches have lines: no call has one that covers them.
    launches: bool,
    form: Form,
    start: u64,
    /// Their pids and names.
    processes: HashMap<ProcessId, (u32, String)>,
    sessions: HashMap<SessionId, ProcessId>,
    threads: HashMap<(ProcessId, u32), String>,
    kernels: HashMap<(SessionId, u32), Arc<str>>,
    /// The machine's numbers of devices, by the process's own.
    devices: HashMap<(SessionId, u32), u32>,
}

impl Lines {
    /// Writes lines with times since `start`; `readable` demangles kernel names.
    pub fn new(form: Form, start: u64, readable: fn(&str) -> String) -> Self {
        Self {
            reader: Reader::first(readable),
            readable,
            filter: None,
            view: CallView::default(),
            launches: false,
            form,
            start,
            processes: HashMap::new(),
            sessions: HashMap::new(),
            threads: HashMap::new(),
            kernels: HashMap::new(),
            devices: HashMap::new(),
        }
    }

    /// Shows only events with one of these names: functions, kernels, `Memcpy HtoD`, `Memset`, `off-cpu`.
    pub fn filtered(mut self, filter: Selection) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Shows only these calls; as JSON, in this way.
    pub fn viewed(mut self, view: CallView) -> Self {
        self.view = view;
        self
    }

    /// Adds the next event, and writes its line if it has one.
    pub fn push(&mut self, event: &Event, out: &mut dyn Write) -> io::Result<()> {
        self.learn(event);
        match event {
            Event::Start(start) => self.start(start, out),
            Event::Launch(launch) if self.launches => self.launch(launch, out),
            Event::Call(call) if self.view.shows(call) => self.call(call, out),
            Event::Switch(switch) => self.switch(switch, out),
            Event::Activity(activity) => self.activity(activity, out),
            _ => Ok(()),
        }
    }

    fn learn(&mut self, event: &Event) {
        self.reader.learn(event);
        match event {
            Event::Process(process) => {
                self.processes.insert(process.id, (process.pid, names::word(&process.comm)));
            }
            Event::Session(session) => {
                self.sessions.insert(session.id, session.process);
            }
            Event::Thread(thread) => {
                self.threads.insert((thread.process, thread.tid), names::word(&thread.comm));
            }
            Event::Device(device) => {
                if let Some(number) = device.identity.machine_index {
                    self.devices.insert((device.session, device.index), number);
                }
            }
            Event::KernelName(kernel) => {
                self.kernels.insert((kernel.session, kernel.id), (self.readable)(&kernel.name).into());
            }
            _ => {}
        }
    }

    /// Writes when it began: the other lines have times since then.
    fn start(&mut self, start: &Start, out: &mut dyn Write) -> io::Result<()> {
        self.launches = !matches!(start.mode, Mode::Trace | Mode::TraceSums);
        if self.form != Form::Json {
            return Ok(());
        }
        let mut text = serde_json::to_vec(&StartLine::new(start, self.view.filter().into_iter().collect()))?;
        text.push(b'\n');
        out.write_all(&text)
    }

    fn call(&self, call: &Call, out: &mut dyn Write) -> io::Result<()> {
        let Some(reading) = self.reader.read(call) else { return Ok(()) };
        if !self.shows(&reading.function.name) {
            return Ok(());
        }
        if self.form == Form::Json {
            return self.json(Line { pid: self.pid(call.process), ..Line::call(self.start, call, reading) }, out);
        }
        let name = names::printable(&reading.function.name);
        let what = format!("{}{}({})", "  ".repeat(call.depth.into()), self.ink(BOLD, &name), reading.args);
        let ink = if reading.failed { RED } else { GREEN };
        let result = reading.result.map(|result| self.ink(ink, &format!("= {result}")));
        let took = match call.duration() {
            None => Some("…  unfinished".to_owned()),
            Some(0) => None,
            Some(ns) => Some(units::time(ns)),
        };
        let tie = call.launch.map(|(_, correlation)| self.ink(DIM, &format!("#{correlation}")));
        let rest = [Some(what), result, took, tie];
        self.line(call.start, &self.thread(call.process, call.tid), rest, out)
    }

    fn switch(&self, switch: &Switch, out: &mut dyn Write) -> io::Result<()> {
        if !self.shows(OFF_CPU) {
            return Ok(());
        }
        if self.form == Form::Json {
            return self.json(Line { pid: self.pid(switch.process), ..Line::switch(self.start, switch) }, out);
        }
        let what = format!("{OFF_CPU} ({})", off_cpu(switch));
        let what = format!("{}{}", "  ".repeat(switch.depth.into()), self.ink(DIM, &what));
        let took = units::time(switch.end.saturating_sub(switch.start));
        self.line(switch.start, &self.thread(switch.process, switch.tid), [Some(what), Some(took), None, None], out)
    }

    fn launch(&self, launch: &Launch, out: &mut dyn Write) -> io::Result<()> {
        let name = match launch.kind {
            LaunchKind::Kernel => "kernel launch",
            LaunchKind::Copy => "copy launch",
            LaunchKind::Memset => "memset launch",
            LaunchKind::Graph => "graph launch",
        };
        if !self.shows(name) {
            return Ok(());
        }
        if self.form == Form::Json {
            let line = Line::launch(self.start, launch, name);
            return self.json(Line { pid: self.pid(launch.process), ..line }, out);
        }
        let tie = self.ink(DIM, &format!("#{}", launch.correlation));
        let who = self.thread(launch.process, launch.tid);
        self.line(launch.time, &who, [Some(self.ink(BOLD, name)), Some(tie), None, None], out)
    }

    fn activity(&self, activity: &Activity, out: &mut dyn Write) -> io::Result<()> {
        let (name, about) = match activity.work {
            Work::Kernel { name, grid: [x, y, z], block: [a, b, c], .. } => {
                let name = self.kernels.get(&(activity.session, name)).map_or(NAME_LOST, |name| name);
                (name.to_owned(), format!("grid=({x},{y},{z}) block=({a},{b},{c})"))
            }
            Work::Copy { direction, bytes, .. } => (names::memcpy(direction).to_owned(), units::bytes(bytes)),
            Work::Memset { bytes, .. } => (names::MEMSET.to_owned(), units::bytes(bytes)),
        };
        if !self.shows(&name) {
            return Ok(());
        }
        let device = *self.devices.get(&(activity.session, activity.device)).unwrap_or(&activity.device);
        if self.form == Form::Json {
            let pid = self.sessions.get(&activity.session).map_or(0, |process| self.pid(*process));
            return self.json(Line { pid, ..Line::gpu(self.start, activity, &name, device) }, out);
        }
        let who = self.padded(BLUE, &format!("GPU {device}/{}", activity.stream));
        let name = self.ink(BLUE, &short(&names::clean(&name), KERNEL_LENGTH));
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

    fn json<A: Serialize>(&self, line: Line<'_, A>, out: &mut dyn Write) -> io::Result<()> {
        let mut text = Vec::new();
        json_line::write(line, self.view, &mut text)?;
        out.write_all(&text)
    }

    fn pid(&self, process: ProcessId) -> u32 {
        self.processes.get(&process).map_or(0, |(pid, _)| *pid)
    }

    fn thread(&self, process: ProcessId, tid: u32) -> String {
        let of_process = || self.processes.get(&process).map(|(_, comm)| comm);
        let comm = self.threads.get(&(process, tid)).or_else(of_process);
        self.padded(CYAN, &format!("{}/{tid}", comm.map_or("?", String::as_str)))
    }

    fn padded(&self, ink: u8, text: &str) -> String {
        let blanks = WHO.saturating_sub(text.chars().count());
        format!("{}{}", self.ink(ink, text), " ".repeat(blanks))
    }

    fn shows(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.takes(name))
    }

    fn ink(&self, code: u8, text: &str) -> String {
        if self.form == (Form::Text { colour: true }) { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

const BOLD: u8 = 1;
const DIM: u8 = 2;
const RED: u8 = 31;
const GREEN: u8 = 32;
const BLUE: u8 = 34;
const CYAN: u8 = 36;
