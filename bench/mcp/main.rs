//! Writes a recording of ten million events: launches of 5,000 distinct stacks of 40 frames, a kernel for each, and CPU samples.

use std::{env, fs::File, io::BufWriter};

use model::{
    event::{
        Activity, Device, DeviceIdentity, End, Event, Frame, FrameKind, KernelName, Launch, LaunchKind, Mode,
        NamedFrame, Origin, Process, ProcessId, Sample, Session, SessionId, Stack, StackEnd, StackId, Start, Symbol,
        Thread, Uuid, Work,
    },
    recording::Writer,
};

const EVENTS: u64 = 10_000_000;
const STACKS: u64 = 5_000;
const DEPTH: u64 = 40;
const KERNELS: u64 = 200;
/// Launches between two CPU samples.
const SAMPLED: u64 = 10;
/// Time between two launches, and of a kernel.
const EACH: u64 = 20_000;
const KERNEL: u64 = 12_000;
const START: u64 = 1_000_000_000;
const PROCESS: ProcessId = ProcessId(1);
const SESSION: SessionId = SessionId(0);

/// What precedes all launches.
fn opening() -> Vec<Event> {
    let uuid = Uuid(1);
    let mut events = vec![
        Event::Start(Start {
            time: START,
            wall_clock: 1_760_000_000_000_000_000,
            version: "0.1.0".into(),
            host: "bench".into(),
            command: vec!["train".into()],
            mode: Mode::Merged,
            frequency: 99,
        }),
        Event::Process(Process {
            id: PROCESS,
            parent: ProcessId(0),
            origin: Origin::default(),
            pid: 100,
            time: START,
            comm: "train".into(),
        }),
        Event::Thread(Thread { process: PROCESS, tid: 100, comm: "train".into() }),
        Event::Session(Session { id: SESSION, process: PROCESS, cupti: 26, driver: 13000 }),
        Event::Device(Device {
            session: SESSION,
            index: 0,
            name: "GPU".into(),
            identity: DeviceIdentity { uuid, gpu: uuid, machine_index: Some(0), ..DeviceIdentity::default() },
        }),
    ];
    for id in 0..KERNELS {
        let name = format!("void kernel_{id}<float, {id}>(float*, int)");
        events.push(Event::KernelName(KernelName { session: SESSION, id: id as u32, name }));
    }
    for stack in 0..STACKS {
        // The deeper a frame, the more of them differ.
        let address = |depth: u64| {
            0x1000 * (depth + 1) + if depth < DEPTH / 2 { 0 } else { stack >> (DEPTH - 1 - depth).min(12) }
        };
        let frames: Vec<Frame> = (0..DEPTH).rev().map(|depth| Frame::User(address(depth))).collect();
        for frame in &frames {
            let Frame::User(address) = *frame else { continue };
            let name = format!("function_{address:x} (model.py:{})", address % 997);
            let named = NamedFrame { kind: FrameKind::Python, name: name.into(), module: "/app/model.py".into() };
            events.push(Event::Symbol(Symbol { process: PROCESS, frame: *frame, since: 0, names: vec![named] }));
        }
        let id = StackId(stack + 1);
        events.push(Event::Stack(Stack { id, process: PROCESS, time: START, frames, end: StackEnd::Whole }));
    }
    events
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = env::args().nth(1).ok_or("give the file to write")?;
    let mut writer = Writer::new(BufWriter::new(File::create(path)?))?;
    for event in opening() {
        writer.push(&event)?;
    }
    let launches = EVENTS * SAMPLED / (2 * SAMPLED + 1);
    for number in 0..launches {
        let (time, stack, tid) = (START + number * EACH, StackId(1 + number * 7 % STACKS), 100);
        let correlation = number as u32;
        let launch = Launch {
            session: SESSION,
            correlation,
            kind: LaunchKind::Kernel,
            process: PROCESS,
            tid,
            cpu: 0,
            time,
            stack,
            rate: 0,
        };
        writer.push(&Event::Launch(launch))?;
        let (start, name) = (time + 5_000, (number * 7 % STACKS % KERNELS) as u32);
        let work = Work::Kernel { name, grid: [128, 1, 1], block: [256, 1, 1], registers: 40, shared_memory: 0 };
        writer.push(&Event::Activity(Activity {
            session: SESSION,
            correlation,
            device: 0,
            context: 1,
            stream: 7,
            start,
            end: start + KERNEL,
            graph: 0,
            graph_node: 0,
            work,
        }))?;
        if number % SAMPLED == 0 {
            writer.push(&Event::Sample(Sample {
                process: PROCESS,
                tid,
                cpu: 0,
                time: time + 1,
                stack,
                weight: SAMPLED * EACH,
            }))?;
        }
    }
    writer.push(&Event::End(End { time: START + launches * EACH, status: Some(0) }))?;
    writer.finish()?;
    Ok(())
}
