//! Names as the outputs show them.
//!
//! Names come from programs and may contain anything. What is written to a line of text goes through [`clean`]; JSON
//! keeps names as they are.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use model::{
    event::{
        Activity, Counter, CounterPoint, Direction, FrameKind, Function, KernelName, Layer, Mapping, NamedFrame, Pause,
        ProcessId, SessionId, Switch, Work,
    },
    fold::NAME_LOST,
    memory::Use,
    profile::{Profile, What},
};
use rustc_hash::FxHashMap;
pub use text::names::{clean, printable, word};
use text::{short::split_place, units};

/// The frame above activities whose launch was not seen.
pub const LAUNCH_NOT_SEEN: &str = "[launch not seen]";

/// The frame between the stack that created a node of a graph and the node's work, which runs at each launch of the graph.
pub const GRAPH_REPLAY: &str = "[CUDA graph replay]";

/// Returns the frame of GPU memory, by its use.
pub fn memory(what: Use) -> &'static str {
    match what {
        Use::Tensor => "[tensors]",
        Use::Cached => "[cached by PyTorch, free]",
        Use::Other => "[GPU memory]",
    }
}

/// The thread that feeds the GPU launched the work that ended the idle time.
pub const LAUNCHING: &str = "[launching]";
/// The frame below a GPU for the time before its first work.
pub const BEFORE_GPU_WORK: &str = "[before the first GPU work]";
/// The frame below a stack that ran in another thread than the one that feeds the GPU, about which nothing is known.
pub const MEANWHILE: &str = "[meanwhile, in another thread]";
/// The frame below a GPU for the time after its last work.
pub const AFTER_GPU_WORK: &str = "[after the last GPU work]";

/// The name of a process image, as one word.
pub fn process(profile: &Profile, id: ProcessId) -> String {
    profile.processes.get(&id).map_or_else(|| "[unknown_process]".to_owned(), |p| word(&p.comm))
}

/// The command, after the options that select a part of its recording: a title may be cut.
pub fn title(profile: &Profile) -> String {
    let command = profile.start.as_ref().map(|start| start.command.join(" ")).unwrap_or_default();
    match profile.filters() {
        [] => command,
        filters => format!("[{}] {command}", filters.join(" ")),
    }
}

/// The outermost frame of the processes of a rank.
pub fn rank(rank: u32) -> String {
    format!("[rank {rank}]")
}

/// The frame of an NVTX range, below its process.
pub fn range(name: &str) -> String {
    format!("[nvtx: {}]", clean(name))
}

/// Whether a frame is the boundary between a thread and the code that started it.
pub fn is_start(frame: &str) -> bool {
    frame.starts_with("[started by ")
}

/// Whether a frame is that of a rank.
pub fn is_rank(frame: &str) -> bool {
    frame.starts_with("[rank ")
}

/// Whether a frame between the process and the operation is informative: not the start of a thread, nor the CUDA
/// libraries and the code that leads to them.
pub fn is_informative(name: &str) -> bool {
    let (name, _) = split_place(name);
    let driver = |rest: &str| rest.starts_with(|c: char| c.is_ascii_uppercase());
    !((name.starts_with('[') && name != LAUNCH_NOT_SEEN)
        || name.starts_with("__device_stub__")
        || name.starts_with("__libc_start")
        || name.starts_with("cuda")
        || name.strip_prefix("cu").is_some_and(driver)
        || matches!(name, "_start" | "main" | "start_thread" | "clone3" | "clone" | "__clone3"))
}

/// A thread with its name, or that of its process: `python3/1234`.
pub fn thread(profile: &Profile, process_id: ProcessId, tid: u32) -> String {
    let comm = profile.threads.get(&(process_id, tid)).map(|comm| word(comm));
    format!("{}/{tid}", comm.unwrap_or_else(|| process(profile, process_id)))
}

/// The module of a function: a library by its file name.
pub fn library(function: &Function) -> &str {
    match function.layer {
        Layer::Library => function.library.rsplit('/').next().unwrap_or(&function.library),
        _ => &function.library,
    }
}

/// An interval of a thread off the CPU, in a trace.
pub const OFF_CPU: &str = "off-cpu";

/// Why a thread was off the CPU, by the kernel's `TASK_*` state.
pub fn off_cpu(switch: &Switch) -> &'static str {
    match switch.state & 0xff {
        _ if switch.preempted => "preempted",
        0 => "runnable",
        1 => "sleeping",
        2 => "blocked",
        4 => "stopped",
        8 => "traced",
        _ => "other",
    }
}

/// A process by its pid, with its rank. Of several images with one pid (fork, then exec) the last determines the name.
pub fn pid(profile: &Profile, pid: u32) -> String {
    let image = profile.processes.iter().rev().find(|(_, info)| info.pid == pid);
    let Some((id, info)) = image else { return "[unknown process]".to_owned() };
    profile.rank(*id).map_or_else(|| info.comm.clone(), |rank| format!("{} (rank {rank})", info.comm))
}

/// The rank of a process by its pid, if it has one.
pub fn rank_of_pid(profile: &Profile, pid: u32) -> Option<u32> {
    let (id, _) = profile.processes.iter().rev().find(|(_, info)| info.pid == pid)?;
    profile.rank(*id)
}

/// A GPU: `GPU 0: NVIDIA H200`.
pub fn gpu(profile: &Profile, device: u32) -> String {
    let name = profile.devices.get(&device).map_or("", |info| info.name.as_str());
    let label = profile.device_label(device);
    if name.is_empty() { format!("GPU {label}") } else { format!("GPU {label}: {name}") }
}

/// A stream and the process that it belongs to.
pub fn stream(profile: &Profile, session: SessionId, stream: u32) -> String {
    let owner = profile.sessions.get(&session).and_then(|info| profile.processes.get(&info.process));
    let owner = owner.map_or_else(String::new, |info| format!(" ({} {})", word(&info.comm), info.pid));
    format!("stream {stream}{owner}")
}

/// The mapping of a program or library, by the file name that frames have.
pub fn mapping<'a>(profile: &'a Profile, module: &str) -> Option<&'a Mapping> {
    let is = |mapping: &&Mapping| mapping.path.rsplit('/').next().unwrap_or_default() == module;
    profile.mappings.iter().find(is).filter(|_| !module.is_empty())
}

/// A build id in hexadecimal digits.
pub fn build_id(mapping: &Mapping) -> String {
    mapping.build_id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A CPU frame, with the `_[k]` of the operating system's kernel.
pub fn frame(frame: &NamedFrame) -> String {
    let name = clean(&frame.name);
    match frame.kind {
        FrameKind::Kernel if !name.ends_with("_[k]") => format!("{name}_[k]"),
        _ => name.into_owned(),
    }
}

/// The same for JSON, where names may contain anything.
pub fn raw_frame(frame: &NamedFrame) -> String {
    match frame.kind {
        FrameKind::Kernel if !frame.name.ends_with("_[k]") => format!("{}_[k]", frame.name),
        _ => frame.name.to_string(),
    }
}

/// The innermost frame of a counted event: the function that was called or has returned, or the event's own name.
pub fn event(counter: &Counter, point: &CounterPoint) -> String {
    if point.function.is_empty() {
        format!("[event {}]", clean(&counter.name))
    } else {
        clean(&point.function).into_owned()
    }
}

/// What a time without GPU records is called.
pub fn pause(pause: &Pause) -> String {
    format!("no GPU records: {} was using CUPTI", clean(&pause.client))
}

/// What a wait waits for; numbers as in `CUpti_ActivitySynchronizationType`.
pub fn sync(kind: u32) -> &'static str {
    match kind {
        1 => "event synchronize",
        2 => "stream wait event",
        3 => "stream synchronize",
        4 => "context synchronize",
        _ => "synchronize",
    }
}

/// A copy, by its direction.
pub fn memcpy(direction: Direction) -> &'static str {
    match direction {
        Direction::Unknown => "Memcpy Unknown",
        Direction::HtoD => "Memcpy HtoD",
        Direction::DtoH => "Memcpy DtoH",
        Direction::HtoA => "Memcpy HtoA",
        Direction::AtoH => "Memcpy AtoH",
        Direction::AtoA => "Memcpy AtoA",
        Direction::AtoD => "Memcpy AtoD",
        Direction::DtoA => "Memcpy DtoA",
        Direction::DtoD => "Memcpy DtoD",
        Direction::HtoH => "Memcpy HtoH",
        Direction::PtoP => "Memcpy PtoP",
    }
}

/// A memset.
pub const MEMSET: &str = "Memset";

/// A kernel's name, by its index in the profile.
pub fn kernel(profile: &Profile, index: u32) -> &str {
    match profile.kernel_names.get(index as usize) {
        Some(kernel) if !kernel.text.is_empty() => &kernel.text,
        _ => NAME_LOST,
    }
}

/// Names GPU frames: with the GPU's number where more than one GPU worked.
pub struct GpuFrames<'a> {
    profile: &'a Profile,
    several: bool,
}

impl<'a> GpuFrames<'a> {
    /// For the GPUs of this profile.
    pub fn new(profile: &'a Profile) -> Self {
        let mut devices = profile.gpu.keys().map(|key| key.device);
        let first = devices.next();
        Self { profile, several: devices.any(|device| Some(device) != first) }
    }

    /// Without numbers, where the GPU is known otherwise.
    pub fn without_numbers(profile: &'a Profile) -> Self {
        Self { profile, several: false }
    }

    /// The frame of some work on a GPU.
    pub fn name(&self, device: u32, what: What) -> String {
        self.with(device, what, clean)
    }

    /// The same for formats where names may contain anything.
    pub fn raw_name(&self, device: u32, what: What) -> String {
        self.with(device, what, |name| name.into())
    }

    fn with(&self, device: u32, what: What, kernel_name: impl Fn(&str) -> Cow<'_, str>) -> String {
        let gpu = if self.several { format!("GPU{}", self.profile.device_label(device)) } else { "GPU".to_owned() };
        match what {
            What::Kernel(index) => format!("[{gpu}_Kernel] {}", kernel_name(kernel(self.profile, index))),
            What::Copy(direction, size) => format!("[{gpu}_Memcpy {direction}] {}", units::size_range(size)),
            What::Memset => format!("[{gpu}_Memset]"),
        }
    }
}

/// Names of kernels by session and id, learned while events are read again.
pub struct SessionKernels<'a> {
    texts: HashMap<&'a str, &'a Arc<str>>,
    known: FxHashMap<(SessionId, u32), Arc<str>>,
}

impl<'a> SessionKernels<'a> {
    /// For a profile that was made from the same events.
    pub fn new(profile: &'a Profile) -> Self {
        let texts = profile.kernel_names.iter().map(|kernel| (&*kernel.mangled, &kernel.text)).collect();
        Self { texts, known: FxHashMap::default() }
    }

    /// Adds the name of a kernel.
    pub fn learn(&mut self, kernel: &KernelName) {
        let text =
            self.texts.get(kernel.name.as_str()).map_or_else(|| Arc::from(&*kernel.name), |text| (*text).clone());
        self.known.insert((kernel.session, kernel.id), text);
    }

    /// Returns the name of a kernel.
    pub fn name(&self, session: SessionId, id: u32) -> &str {
        self.known.get(&(session, id)).map_or(NAME_LOST, |name| name)
    }

    /// Returns the name of what the GPU did.
    pub fn operation(&self, activity: &Activity) -> &str {
        match activity.work {
            Work::Kernel { name, .. } => self.name(activity.session, name),
            Work::Copy { direction, .. } => memcpy(direction),
            Work::Memset { .. } => MEMSET,
        }
    }
}
