//! Reads the lines of a trace's `.jsonl` as events again, so that they are summed up as those of a recording.
//!
//! The names and values of a call become the raw words that it was read from ([`cuda::calls::Call::encode`]), and whatever
//! follows from them is concluded again. Memory grows with distinct names, up to a limit, and not with lines.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, BufRead, Read as _},
};

use analysis::{names, trace::error_number};
use cuda::{calls::Given, ioctls, results};
use model::event::{
    Activity, Call, Captured, Device, DeviceIdentity, Direction, Empty, End, Event, Exit, Failed, Function, FunctionId,
    KernelName, Launch, Layer, Loss, LossCause, Mode, Note, Origin, Process, ProcessId, Returned, Session, SessionId,
    Start, Switch, Sync, Thread, Totals, Uuid, Work,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use text::names::printable;

/// The longest line that is read.
const LONGEST: u64 = 16 << 20;
/// The most names, processes and threads, and the total length of names.
const MOST_NAMES: usize = 1 << 17;
const MOST_TEXT: usize = 64 << 20;
/// The most types and fields that are named although they are not known.
const MOST_UNKNOWN: usize = 8;

/// The file is not the `.jsonl` of a trace, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A line is wrong.
    #[error("line {line}: {reason}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// Reading, or writing the events, failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads all lines.
pub fn read_back(mut input: impl BufRead, push: &mut dyn FnMut(&Event) -> io::Result<()>) -> Result<(), ReadError> {
    let mut lines = Lines::default();
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let length = input.by_ref().take(LONGEST).read_until(b'\n', &mut bytes)?;
        let result = match serde_json::from_slice(&bytes) {
            _ if length == 0 => lines.finish(),
            Ok(fields) => lines.line(Fields(fields)),
            Err(_) if length as u64 == LONGEST => Err(format!("it is longer than {} MiB", LONGEST >> 20)),
            Err(_) if !bytes.ends_with(b"\n") && line > 1 => {
                lines.note(format!("the file is cut off in line {line}"));
                Ok(())
            }
            Err(_) => Err("it is not a JSON object".to_owned()),
        };
        // What is wrong at the end is wrong in the last line.
        let line = line - u64::from(length == 0);
        result.map_err(|reason| ReadError::Line { line, reason })?;
        lines.events.drain(..).try_for_each(|event| push(&event))?;
        if length == 0 {
            break;
        }
    }
    Ok(())
}

type Parsed<T = ()> = Result<T, String>;

/// The fields of a line that have not been read yet.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn take<T: DeserializeOwned>(&mut self, key: &str) -> Parsed<Option<T>> {
        let value = self.0.remove(key).map(serde_json::from_value).transpose();
        value.map_err(|_| format!("`{key}` has a value of the wrong type or size"))
    }

    fn or_default<T: DeserializeOwned + Default>(&mut self, key: &str) -> Parsed<T> {
        Ok(self.take(key)?.unwrap_or_default())
    }

    fn need<T: DeserializeOwned>(&mut self, key: &str) -> Parsed<T> {
        self.take(key)?.ok_or_else(|| format!("it has no `{key}`"))
    }

    /// Reads the session and the correlation id.
    fn launch(&mut self) -> Parsed<(SessionId, u32)> {
        Ok((SessionId(self.need("session")?), self.need("correlation")?))
    }

    /// Removes fields that are known and not used.
    fn ignore(&mut self, keys: &[&str]) {
        keys.iter().for_each(|key| drop(self.0.remove(*key)));
    }

    fn is(&self, key: &str, text: &str) -> bool {
        self.0.get(key).is_some_and(|value| value == text)
    }
}

/// A number for the name of a thing, which belongs to another.
#[derive(PartialEq, Eq, Hash)]
enum Name {
    Function(Layer, String, String),
    /// A kernel that is named by a call of a process.
    Stub(ProcessId, String),
    Kernel(SessionId, String),
    /// A process without a line of its own.
    Process(u32),
}

/// What is known from the lines so far.
#[derive(Default)]
struct Lines {
    events: Vec<Event>,
    begun: bool,
    origin: u64,
    numbers: HashMap<Name, u32>,
    /// The length of all names.
    text: usize,
    /// The current image of each pid.
    images: HashMap<u32, ProcessId>,
    sessions: Vec<SessionId>,
    /// The session's own index of each GPU.
    devices: HashMap<(SessionId, u32), u32>,
    /// The last launch of each thread: the calls within it have the same.
    launches: HashMap<(ProcessId, u32), (SessionId, u32)>,
    /// The last line, if its phase is `B`: the end of the same event may follow.
    open: Option<Fields>,
    /// Calls within others that began at an unknown time.
    unplaced: u64,
    /// Types and fields that this version does not know, with their number.
    unknown: BTreeMap<String, u64>,
}

impl Lines {
    fn note(&mut self, text: String) {
        self.events.push(Event::Note(Note { text }));
    }

    fn unknown(&mut self, name: String) {
        let is_named = self.unknown.contains_key(&name) || self.unknown.len() < MOST_UNKNOWN && name.len() < 64;
        *self.unknown.entry(if is_named { name } else { "others".to_owned() }).or_default() += 1;
    }

    /// Returns the number of a name, from 1, and whether it is new.
    fn number(&mut self, name: Name, length: usize) -> Parsed<(u32, bool)> {
        let next = self.numbers.len() as u32 + 1;
        let number = *self.numbers.entry(name).or_insert(next);
        self.text += if number == next { length } else { 0 };
        self.check_limits()?;
        Ok((number, number == next))
    }

    fn check_limits(&self) -> Parsed {
        let others = self.images.len() + self.sessions.len() + self.devices.len() + self.launches.len();
        match self.numbers.len() + others > MOST_NAMES || self.text > MOST_TEXT {
            true => Err("there are more names than a trace can have".to_owned()),
            false => Ok(()),
        }
    }

    /// Reads a line, or two that are the begin and the end of one event.
    fn line(&mut self, mut fields: Fields) -> Parsed {
        if let Some(mut open) = self.open.take() {
            if fields.is("phase", "E") && fields.0.get("event_id") == open.0.get("event_id") {
                let end = ["ret", "error", "enclosed", "duration_us"].map(|key| fields.0.remove_entry(key));
                open.0.extend(end.into_iter().flatten());
                open.0.insert("phase".to_owned(), "X".into());
                return self.event(open);
            }
            self.event(open)?;
        }
        if self.begun && fields.is("phase", "B") && fields.0.contains_key("event_id") {
            self.open = Some(fields);
            return Ok(());
        }
        self.event(fields)
    }

    fn finish(&mut self) -> Parsed {
        if let Some(open) = self.open.take() {
            self.event(open)?;
        }
        if std::mem::take(&mut self.unplaced) > 0 {
            let why = "an earlier version wrote the file";
            self.note(format!("self times of calls include the calls within them: {why}, without `parent_ts`"));
        }
        let unknown = std::mem::take(&mut self.unknown);
        let unknown: Vec<_> = unknown.into_iter().map(|(name, count)| format!("{name} ({count})")).collect();
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            self.note(format!("not shown, because this version does not know it: {}", printable(&unknown)));
        }
        Ok(())
    }

    fn event(&mut self, mut fields: Fields) -> Parsed {
        let kind: String = fields.need("type").map_err(|_| "it has no `type`: it is not of warpscope".to_owned())?;
        if self.begun == (kind == "start") {
            let wrong = if self.begun { "the trace starts again" } else { "the .jsonl of a trace begins with `start`" };
            return Err(wrong.to_owned());
        }
        let event = match kind.as_str() {
            "start" => return self.start(&mut fields),
            "userspace" | "kernel" => self.call(&kind, &mut fields)?,
            "gpu" => self.activity(&mut fields)?,
            "scheduler" => self.switch(&mut fields)?,
            "device" => self.device(&mut fields)?,
            // It follows from the calls.
            "memory" => return Ok(()),
            "ledger" => return self.ledger(&mut fields),
            "process" => {
                let (id, pid) = (ProcessId(fields.need("process")?), fields.need("pid")?);
                self.images.insert(pid, id);
                let origin = match fields.take::<String>("origin")?.as_deref() {
                    Some("fork") => Origin::Fork,
                    Some("exec") => Origin::Exec,
                    _ => Origin::Found,
                };
                let (parent, time) = (ProcessId(fields.or_default("parent")?), fields.need("ts_ns")?);
                Event::Process(Process { id, parent, origin, pid, time, comm: fields.need("comm")? })
            }
            "thread" => {
                let (process, tid) = (ProcessId(fields.need("process")?), fields.need("tid")?);
                Event::Thread(Thread { process, tid, comm: fields.need("comm")? })
            }
            "exit" => Event::Exit(Exit { process: ProcessId(fields.need("process")?), time: fields.need("ts_ns")? }),
            "session" => {
                let (id, process) = (SessionId(fields.need("session")?), ProcessId(fields.need("process")?));
                self.sessions.push(id);
                let (cupti, driver) = (fields.or_default("cupti")?, fields.or_default("driver")?);
                Event::Session(Session { id, process, cupti, driver })
            }
            "failed" => {
                let (session, correlation) = fields.launch()?;
                Event::Failed(Failed { session, correlation, code: fields.need("code")? })
            }
            "captured" => {
                let (session, correlation) = fields.launch()?;
                Event::Captured(Captured { session, correlation })
            }
            "empty" => {
                let (session, correlation) = fields.launch()?;
                Event::Empty(Empty { session, correlation })
            }
            "returned" => {
                let (session, correlation) = fields.launch()?;
                Event::Returned(Returned { session, correlation, took: fields.need("dur_ns")? })
            }
            "sync" => {
                let ((session, correlation), start) = (fields.launch()?, fields.need("ts_ns")?);
                let kind: String = fields.need("kind")?;
                let kind = (1..5).find(|number| names::sync(*number) == kind).unwrap_or(0);
                let (context, stream) = (fields.need("context")?, fields.take("stream")?.unwrap_or(u32::MAX));
                let end = u64::saturating_add(start, fields.need("dur_ns")?);
                Event::Sync(Sync { session, correlation, kind, context, stream, start, end })
            }
            "loss" => {
                let name: Value = fields.need("cause")?;
                let known = |cause: &LossCause| serde_json::to_value(cause).is_ok_and(|known| known == name);
                let Some(cause) = LossCause::ALL.into_iter().find(known) else {
                    self.unknown(format!("cause {name}"));
                    return Ok(());
                };
                Event::Loss(Loss { cause, count: fields.need("count")? })
            }
            "note" => Event::Note(Note { text: fields.need("text")? }),
            "end" => Event::End(End { time: fields.need("ts_ns")?, status: fields.or_default("status")? }),
            _ => {
                self.unknown(format!("type {kind}"));
                return Ok(());
            }
        };
        self.events.push(event);
        fields.ignore(&["event_id", "pid", "phase", "name", "error", "size", "stack", "parent_id"]);
        fields.0.into_iter().for_each(|(key, _)| self.unknown(format!("field {key}")));
        self.check_limits()
    }

    fn start(&mut self, fields: &mut Fields) -> Parsed {
        let mode: String = fields.need("mode")?;
        if mode != "trace" {
            return Err(format!("it begins a file of mode {mode}, which cannot be read again: give its .wscope"));
        }
        (self.begun, self.origin) = (true, fields.need("ts_ns")?);
        self.events.push(Event::Start(Start {
            time: self.origin,
            wall_clock: fields.need("unix_ns")?,
            version: fields.or_default("version")?,
            host: fields.or_default("host")?,
            command: fields.or_default("command")?,
            mode: Mode::Trace,
            frequency: fields.or_default("frequency")?,
        }));
        let filters: Vec<String> = fields.or_default("filters")?;
        if !filters.is_empty() {
            self.note(format!("the file has only the events selected by {}", filters.join(" ")));
        }
        Ok(())
    }

    fn device(&mut self, fields: &mut Fields) -> Parsed<Event> {
        let (session, index) = (SessionId(fields.need("session")?), fields.need("index")?);
        let number: u32 = fields.need("device")?;
        self.devices.insert((session, number), index);
        let mut uuid = |key| Parsed::Ok(Uuid::parse(&fields.or_default::<String>(key)?));
        let (uuid, of) = (uuid("uuid")?, uuid("gpu_uuid")?);
        let identity = uuid.map_or_else(DeviceIdentity::default, |uuid| DeviceIdentity {
            uuid,
            gpu: of.unwrap_or(uuid),
            machine_index: Some(number).filter(|_| of.is_none()),
            ..DeviceIdentity::default()
        });
        Ok(Event::Device(Device { session, index, name: fields.need("name")?, identity }))
    }

    /// Returns the image of a process.
    fn process(&mut self, fields: &mut Fields) -> Parsed<ProcessId> {
        let pid = fields.need("pid")?;
        match self.images.get(&pid) {
            Some(id) => Ok(*id),
            None => Ok(ProcessId(u32::MAX - self.number(Name::Process(pid), 0)?.0)),
        }
    }

    /// Returns the launch of a line; where there is one CUDA process, the line does not name it.
    fn launch(&self, fields: &mut Fields) -> Parsed<Option<(SessionId, u32)>> {
        let session = fields.take("session")?.map(SessionId).or(self.sessions.first().copied());
        Ok(session.zip(fields.take("correlation")?))
    }

    /// Returns the time of a number of seconds since the start, or before it.
    fn time(&self, seconds: f64) -> u64 {
        let ns = i128::from(self.origin).saturating_add((seconds * 1e9).round() as i128);
        ns.clamp(0, u64::MAX.into()) as u64
    }

    /// Returns when the call around began; 0 if there is none.
    fn around(&mut self, fields: &mut Fields) -> Parsed<u64> {
        let around: Option<f64> = fields.take("parent_ts")?;
        self.unplaced += u64::from(around.is_none() && fields.0.contains_key("parent_id"));
        Ok(around.map_or(0, |seconds| self.time(seconds)))
    }

    /// A call, a request or a tracepoint. Names of its kernels and its launch precede it.
    fn call(&mut self, kind: &str, fields: &mut Fields) -> Parsed<Event> {
        let phase: String = fields.need("phase")?;
        let (name, library): (String, String) = (fields.need("name")?, fields.or_default("library")?);
        let args: Map<String, Value> = fields.or_default("args")?;
        let layer = match (kind, phase.as_str()) {
            (_, "E") => return Err("it is the end of an event whose begin is not in the line before".to_owned()),
            ("userspace", _) => Layer::Library,
            (_, "i") => Layer::Point,
            _ if is_request(&name) => Layer::Driver,
            _ => Layer::Kernel,
        };
        let ret: Option<Value> = fields.take("ret")?;
        let key = Name::Function(layer, library.clone(), name.clone());
        let (id, new) = self.number(key, library.len() + name.len())?;
        let of_kernel = layer == Layer::Kernel;
        let parameters = args.keys().filter(|_| of_kernel).cloned().collect();
        let void = of_kernel && phase == "X" && ret.is_none();
        let function = Function { id: FunctionId(id), layer, library, name, shown: true, parameters, void };
        if new {
            self.events.push(Event::Function(function.clone()));
        }
        let start = self.time(fields.need("ts")?);
        let launch = self.launch(fields)?;
        let length = fields.take("duration_us")?.map(micros).or((layer == Layer::Point).then_some(0));
        let mut call = Call {
            function: function.id,
            process: self.process(fields)?,
            tid: fields.need("tid")?,
            depth: fields.or_default("depth")?,
            nested: fields.or_default("nested")?,
            enclosed: fields.or_default("enclosed")?,
            start,
            end: length.map_or(0, |length| start.saturating_add(length)),
            result: ret.map_or(0, |ret| result(&function, &ret)),
            launch,
            launches: launch.is_some(),
            around: self.around(fields)?,
            ..Call::default()
        };
        match layer {
            Layer::Library => self.arguments(&function, &args, fields.0.contains_key("size"), &mut call)?,
            Layer::Driver => (call.words, call.payload) = request(&function.name, &args),
            Layer::Kernel => call.words = args.values().filter_map(number).collect(),
            Layer::Point => {}
        }
        if let Some((session, correlation)) = launch
            && self.launches.insert((call.process, call.tid), (session, correlation)) != launch
        {
            let (process, tid, time) = (call.process, call.tid, call.start);
            self.events.push(Event::Launch(Launch { session, correlation, process, tid, time, ..Launch::default() }));
        }
        Ok(Event::Call(call))
    }

    /// Encodes the arguments of a library function.
    fn arguments(&mut self, function: &Function, args: &Map<String, Value>, sized: bool, call: &mut Call) -> Parsed {
        let Some(known) = cuda::call(&function.name) else {
            call.words = (0..).map_while(|at| number(args.get(&format!("arg{at}"))?)).collect();
            return Ok(());
        };
        let given = |name: &str| {
            let value = args.get(name)?;
            Some(match value {
                Value::Array(dims) => {
                    Given::Dims([0, 1, 2].map(|at| dims.get(at).and_then(Value::as_u64).unwrap_or(0) as u32))
                }
                Value::Number(float) if float.is_f64() => Given::Float(value.as_f64()? as f32),
                Value::String(text) => number(value).map_or(Given::Text(text), Given::Number),
                _ => Given::Number(number(value)?),
            })
        };
        let mut named = Ok(());
        let encoded = known.encode(&given, sized, &mut |name| match self.stub(call, name) {
            Ok(address) => address,
            Err(error) => {
                named = Err(error);
                0
            }
        });
        (call.words, call.out, call.payload) = (encoded.words, encoded.out, encoded.payload);
        named
    }

    /// Returns the address of a kernel that a call names, as a program has one that registers its kernels.
    fn stub(&mut self, call: &Call, name: &str) -> Parsed<u64> {
        const REGISTER: &str = "__cudaRegisterFunction";
        let (number, new) = self.number(Name::Stub(call.process, name.to_owned()), name.len())?;
        // No program has an address there.
        let address = u64::MAX << 32 | u64::from(number);
        if new {
            let register = Name::Function(Layer::Library, String::new(), REGISTER.to_owned());
            let id = FunctionId(self.number(register, 0)?.0);
            self.events.push(Event::Function(Function { id, name: REGISTER.to_owned(), ..Function::default() }));
            let (process, tid, start, end) = (call.process, call.tid, call.start, call.start);
            let (words, payload) = (vec![0, address, 0, 0, 0], name.into());
            self.events.push(Event::Call(Call {
                function: id,
                process,
                tid,
                start,
                end,
                words,
                payload,
                ..Call::default()
            }));
        }
        Ok(address)
    }

    fn activity(&mut self, fields: &mut Fields) -> Parsed<Event> {
        let mut args = Fields(fields.or_default("args")?);
        let Some((session, correlation)) = self.launch(fields)? else {
            return Err("it is GPU work without a `correlation`, or before any session".to_owned());
        };
        let name: String = fields.need("name")?;
        let number: u32 = args.need("device")?;
        let start = fields.take("ts")?.map(|seconds| self.time(seconds));
        let length = fields.take("duration_us")?.map(micros);
        let (grid, direction) = (args.take("grid")?, args.take::<String>("direction")?);
        let bytes = args.or_default("bytes")?;
        let work = if let Some(grid) = grid {
            let (id, new) = self.number(Name::Kernel(session, name.clone()), name.len())?;
            if new {
                self.events.push(Event::KernelName(KernelName { session, id, name }));
            }
            let (block, registers) = (args.need("block")?, args.or_default("registers")?);
            Work::Kernel { name: id, grid, block, registers, shared_memory: args.or_default("shared_memory")? }
        } else if let Some(text) = direction {
            let direction = Direction::ALL.into_iter().find(|direction| direction.text() == text);
            let direction = direction.unwrap_or(Direction::Unknown);
            Work::Copy { direction, bytes, source: 0, destination: 0, peer: None }
        } else {
            Work::Memset { bytes, value: args.or_default("value")?, memory: 0 }
        };
        Ok(Event::Activity(Activity {
            session,
            correlation,
            device: self.devices.get(&(session, number)).copied().unwrap_or(number),
            context: args.need("context")?,
            stream: args.need("stream")?,
            start: start.unwrap_or(0),
            end: start.zip(length).map_or(0, |(start, length)| start.saturating_add(length)),
            graph: args.or_default("graph")?,
            graph_node: args.or_default("graph_node")?,
            work,
        }))
    }

    fn switch(&mut self, fields: &mut Fields) -> Parsed<Event> {
        let mut args = Fields(fields.or_default("args")?);
        let start = self.time(fields.need("ts")?);
        let states = [(1, "sleeping"), (2, "blocked"), (4, "stopped"), (8, "traced"), (0x80, "other")];
        let state: String = args.or_default("state")?;
        Ok(Event::Switch(Switch {
            process: self.process(fields)?,
            tid: fields.need("tid")?,
            cpu: 0,
            depth: fields.or_default("depth")?,
            start,
            end: start.saturating_add(micros(fields.need("duration_us")?)),
            preempted: args.or_default("preempted")?,
            state: states.iter().find(|(_, name)| *name == state).map_or(0, |(state, _)| *state),
            stack: None,
            around: self.around(fields)?,
        }))
    }

    /// The last line: what the sessions counted themselves, in total, and how many of them have ended.
    fn ledger(&mut self, fields: &mut Fields) -> Parsed {
        let mut lost = Fields(fields.or_default("lost")?);
        let open = fields.or_default::<u64>("sessions_cut_off")?.saturating_add(fields.or_default("sessions_left")?);
        let mut totals = Totals {
            kernels: fields.or_default("activities_delivered")?,
            kernel_ns: fields.or_default("kernel_ns_delivered")?,
            dropped_by_cupti: lost.or_default("cupti_dropped")?,
            dropped_queue_full: lost.or_default("queue_full")?,
            invalid: lost.or_default("invalid_records")?,
            nameless: lost.or_default("names")?,
            buffers_refused: lost.or_default("buffers_refused")?,
            dropped_launches: lost.or_default("queue_full_launches")?,
            ..Totals::default()
        };
        for (at, session) in self.sessions.iter().enumerate() {
            let ended = (at as u64).saturating_add(open) < self.sessions.len() as u64;
            self.events.push(Event::Totals(Totals { session: *session, ended, ..std::mem::take(&mut totals) }));
        }
        Ok(())
    }
}

fn micros(duration: f64) -> u64 {
    (duration * 1e3).round() as u64
}

/// Reads a number, also one that was written as text: `0x7f00`.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| number.as_i64().map(i64::cast_unsigned)),
        Value::String(text) if text == "0" => Some(0),
        Value::String(text) => u64::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
        _ => None,
    }
}

/// Whether this is a system call on a driver's device; otherwise it is a function of the operating system's kernel.
fn is_request(name: &str) -> bool {
    matches!(name, "open" | "close" | "mmap" | ioctls::OTHERS)
        || ["NV_ESC", "UVM_", "UVM ", "NVKMS_", "ioctl "].iter().any(|start| name.starts_with(start))
}

/// Returns the words and the payload of a system call.
fn request(name: &str, args: &Map<String, Value>) -> (Vec<u64>, Vec<u8>) {
    let word = |key: &str| args.get(key).and_then(number);
    let mut payload = Vec::new();
    if let Some(text) = ["command", "class"].iter().find_map(|key| args.get(*key)?.as_str()) {
        let at = if name == "NV_ESC_RM_ALLOC" { ioctls::RM_ALLOC_CLASS } else { ioctls::RM_CONTROL_COMMAND };
        let number = ioctls::rm_number(text).or_else(|| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok());
        payload.resize(at, 0);
        payload.extend(number.into_iter().flat_map(u32::to_le_bytes));
    }
    let text = args.get("protection").and_then(Value::as_str).unwrap_or_default();
    let protection = [('r', 1), ('w', 2), ('x', 4)].iter().filter(|(letter, _)| text.contains(*letter));
    let words = match name {
        "mmap" => [word("length"), Some(protection.map(|(_, bit)| bit).sum()), word("offset")],
        _ => [word("request"), word("argument"), None],
    };
    (words.into_iter().map_while(|word| word).collect(), payload)
}

/// Returns the value that a function returned.
fn result(function: &Function, ret: &Value) -> u64 {
    let by_name = |name: &str| match function.layer {
        Layer::Library => results::code(&function.name, name).map(u64::from),
        Layer::Driver => error_number(name).map(|number| (-number).cast_unsigned()),
        Layer::Kernel | Layer::Point => None,
    };
    ret.as_str().and_then(by_name).or_else(|| number(ret)).unwrap_or(0)
}
