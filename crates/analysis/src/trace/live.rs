//! Events as they arrive, with their names: for watching a trace while it runs.

use std::{collections::HashMap, sync::Arc};

use model::{
    event::{Activity, Call, Event, Launch, LaunchKind, Mode, ProcessId, SessionId, Start, Switch, Work},
    fold::NAME_LOST,
};
use text::pattern::Selection;

use super::reading::{Reader, Reading};
use crate::{flame_tree::CallView, names};

/// Names events as they arrive, and selects those to show. Needs no profile: processes, functions and kernels are learned
/// from the events.
#[derive(Debug)]
pub struct Live {
    reader: Reader,
    readable: fn(&str) -> String,
    filter: Option<Selection>,
    view: CallView,
    /// Launches are shown: no call is that covers them.
    launches: bool,
    /// Their pids and names.
    processes: HashMap<ProcessId, (u32, String)>,
    sessions: HashMap<SessionId, ProcessId>,
    threads: HashMap<(ProcessId, u32), String>,
    kernels: HashMap<(SessionId, u32), Arc<str>>,
    /// The machine's numbers of devices, by the process's own.
    devices: HashMap<(SessionId, u32), u32>,
}

/// An event that is shown.
#[derive(Debug)]
pub enum Shown<'a> {
    /// When the trace began.
    Start(&'a Start),
    /// A call that has returned, or will not return.
    Call(&'a Call, Reading<'a>),
    /// An interval off the CPU.
    Switch(&'a Switch),
    /// A launch, and what it is called.
    Launch(&'a Launch, &'static str),
    /// GPU work, its name, and the number of its GPU.
    Work(&'a Activity, &'a str, u32),
}

impl Live {
    /// Shows all events; `readable` demangles kernel names.
    pub fn new(readable: fn(&str) -> String) -> Self {
        Self {
            reader: Reader::first(readable),
            readable,
            filter: None,
            view: CallView::default(),
            launches: false,
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

    /// Shows only these calls.
    pub fn viewed(mut self, view: CallView) -> Self {
        self.view = view;
        self
    }

    /// Returns which calls are shown.
    pub fn view(&self) -> CallView {
        self.view
    }

    /// Learns what an event says about names.
    pub fn learn(&mut self, event: &Event) {
        self.reader.learn(event);
        match event {
            Event::Start(start) => self.launches = !matches!(start.mode, Mode::Trace | Mode::TraceSums),
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

    /// Returns what to show of an event, after [`Live::learn`].
    pub fn shown<'a>(&'a self, event: &'a Event) -> Option<Shown<'a>> {
        let (name, shown) = match event {
            Event::Start(start) => return Some(Shown::Start(start)),
            Event::Call(call) if self.view.shows(call) => {
                let reading = self.reader.read(call)?;
                (reading.function.name.as_str(), Shown::Call(call, reading))
            }
            Event::Switch(switch) => (names::OFF_CPU, Shown::Switch(switch)),
            Event::Launch(launch) if self.launches => {
                let name = match launch.kind {
                    LaunchKind::Kernel => "kernel launch",
                    LaunchKind::Copy => "copy launch",
                    LaunchKind::Memset => "memset launch",
                    LaunchKind::Graph => "graph launch",
                };
                (name, Shown::Launch(launch, name))
            }
            Event::Activity(activity) => {
                let name = match activity.work {
                    Work::Kernel { name, .. } => {
                        self.kernels.get(&(activity.session, name)).map_or(NAME_LOST, |name| name)
                    }
                    Work::Copy { direction, .. } => names::memcpy(direction),
                    Work::Memset { .. } => names::MEMSET,
                };
                let device = self.devices.get(&(activity.session, activity.device));
                (name, Shown::Work(activity, name, *device.unwrap_or(&activity.device)))
            }
            _ => return None,
        };
        self.filter.as_ref().is_none_or(|filter| filter.takes(name)).then_some(shown)
    }

    /// Returns the pid of a process, or 0.
    pub fn pid(&self, process: ProcessId) -> u32 {
        self.processes.get(&process).map_or(0, |(pid, _)| *pid)
    }

    /// Returns the pid of the process of a session, or 0.
    pub fn pid_of_session(&self, session: SessionId) -> u32 {
        self.sessions.get(&session).map_or(0, |process| self.pid(*process))
    }

    /// Returns a thread with its name, or that of its process.
    pub fn thread(&self, process: ProcessId, tid: u32) -> String {
        let of_process = || self.processes.get(&process).map(|(_, comm)| comm);
        let comm = self.threads.get(&(process, tid)).or_else(of_process);
        format!("{}/{tid}", comm.map_or("?", String::as_str))
    }
}
