//! How fast launches and kernels are joined and summed, and that it takes no more memory for ten times as many.
//!
//! The kernels are made up as they are needed, a block at a time, and only the fold is timed: in CPU time of its thread,
//! so that a busy machine does not make it look slow, and by the clock. Four sessions launch 40
//! kernels from 50 stacks; a kernel's record comes about 20,000 launches after its launch, shuffled within its buffer.

use std::{
    io::{self, Write},
    ops::AddAssign,
    time::{Duration, Instant},
};

use model::{
    event::{Activity, Event, KernelName, Launch, LaunchKind, ProcessId, Session, SessionId, StackId, Work},
    fold::Fold,
    recording::Writer,
};

const SESSIONS: u64 = 4;
const STACKS: u64 = 50;
const NAMES: u64 = 40;
/// Kernels to a buffer: they come at once, in any order.
const BLOCK: u64 = 1024;
/// Blocks between launches and their kernels.
const DELAY: u64 = 20;

/// A cheap random number for a kernel, always the same (splitmix64).
fn random(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The stack decides what is launched, as in a real program: each launches a few kernels, always with the same dimensions.
fn launch(n: u64) -> Event {
    let random = random(n);
    let session = n % SESSIONS;
    Event::Launch(Launch {
        session: SessionId(session as u32),
        correlation: (n / SESSIONS) as u32 * 3 + 1,
        kind: LaunchKind::Kernel,
        process: ProcessId(1 + session as u32),
        tid: 4000 + session as u32,
        cpu: (random >> 40) as u32 % 64,
        time: 1_000_000_000_000 + n * 2000 + random % 1000,
        stack: StackId(0x9e37_79b9_7f4a_7c15 ^ ((random >> 8) % STACKS)),
        rate: 0,
    })
}

fn kernel(n: u64) -> Event {
    let random = random(n);
    let session = n % SESSIONS;
    let stack = (random >> 8) % STACKS;
    let name = (stack * 3 + (random >> 20) % 3) % NAMES;
    // Each stream runs its kernels one after the other; they start some time after their launch.
    let start = 1_000_000_000_000 + n * 2000 + 20_000 + (random >> 30) % 1500;
    Event::Activity(Activity {
        session: SessionId(session as u32),
        correlation: (n / SESSIONS) as u32 * 3 + 1,
        device: session as u32 % 2,
        context: 1,
        stream: 7 + (stack as u32 & 1),
        start,
        end: start + 1500 + (random >> 44) % 5000,
        graph: 0,
        graph_node: 0,
        work: Work::Kernel {
            name: 1 + name as u32,
            grid: [1 + stack as u32 * 8, 1 + name as u32, 1],
            block: [256, 1, 1],
            registers: 32 + name as u16,
            shared_memory: 1024 * name as u32,
        },
    })
}

/// The launches of a block, then the kernels of an earlier one, shuffled.
fn fill(block: u64, blocks: u64, events: &mut Vec<Event>) {
    events.clear();
    if block < blocks {
        events.extend((block * BLOCK..(block + 1) * BLOCK).map(launch));
    }
    if let Some(done) = block.checked_sub(DELAY) {
        let first = events.len();
        events.extend((done * BLOCK..(done + 1) * BLOCK).map(kernel));
        let kernels = &mut events[first..];
        for n in (1..kernels.len()).rev() {
            kernels.swap(n, random(done * BLOCK + n as u64) as usize % (n + 1));
        }
    }
}

/// Counts what a file would have to take.
#[derive(Default)]
struct Sink;

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The most memory this process ever had, in KiB.
fn peak_rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

fn named_fold() -> Fold {
    let mut fold = Fold::new();
    for session in (0..SESSIONS as u32).map(SessionId) {
        fold.push(&Event::Session(Session { id: session, process: ProcessId(1 + session.0), cupti: 0, driver: 0 }));
        for id in 1..=NAMES as u32 {
            fold.push(&Event::KernelName(KernelName { session, id, name: format!("kernel_{id}") }));
        }
    }
    fold
}

/// Time by the clock, and time on a CPU.
#[derive(Clone, Copy, Default)]
struct Spent {
    wall: Duration,
    cpu: Duration,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.wall += other.wall;
        self.cpu += other.cpu;
    }
}

/// Does something and says how long it took.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Spent) {
    let (wall, cpu) = (Instant::now(), cpu_time());
    let result = work();
    (result, Spent { cpu: cpu_time() - cpu, wall: wall.elapsed() })
}

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock is one that every Linux has, and `time` is a timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Measured {
    kernels: u64,
    fold: Spent,
    rss_at_tenth: u64,
    rss_at_end: u64,
}

fn measure_fold(kernels: u64) -> Measured {
    let blocks = kernels.div_ceil(BLOCK);
    let mut fold = named_fold();
    let mut events = Vec::new();
    let (mut spent, mut rss_at_tenth) = (Spent::default(), 0);
    for block in 0..blocks + DELAY {
        fill(block, blocks, &mut events);
        spent += timed(|| events.iter().for_each(|event| fold.push(event))).1;
        if block == blocks / 10 {
            rss_at_tenth = peak_rss();
        }
    }
    let (profile, ending) = timed(|| fold.finish());
    spent += ending;
    let ledger = profile.ledger;
    let kernels = blocks * BLOCK;
    assert_eq!((ledger.launches_matched, ledger.activities_matched), (kernels, kernels), "not every kernel was joined");
    Measured { kernels, fold: spent, rss_at_tenth, rss_at_end: peak_rss() }
}

/// Bytes per launch and per kernel. Both are in one recording, so each is measured by a recording without the other.
fn measure_recording(kernels: u64) -> io::Result<(f64, f64, Spent)> {
    let blocks = kernels.div_ceil(BLOCK);
    let mut events = Vec::new();
    let mut sizes = [0.0; 2];
    let mut spent = Spent::default();
    for (size, launches) in sizes.iter_mut().zip([true, false]) {
        let mut writer = Writer::new(Sink).map_err(io::Error::other)?;
        for block in 0..blocks + DELAY {
            fill(block, blocks, &mut events);
            events.retain(|event| matches!(event, Event::Launch(_)) == launches);
            let (pushed, time) = timed(|| events.iter().try_for_each(|event| writer.push(event)));
            pushed.map_err(io::Error::other)?;
            spent += time;
        }
        writer.flush().map_err(io::Error::other)?;
        *size = writer.written() as f64 / (blocks * BLOCK) as f64;
    }
    Ok((sizes[0], sizes[1], spent))
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|a| a == "--json");
    let kernels = arguments.iter().find_map(|a| a.parse().ok()).unwrap_or(10_000_000u64).max(BLOCK);
    let Measured { kernels, fold, rss_at_tenth, rss_at_end } = measure_fold(kernels);
    let rate = kernels as f64 / fold.cpu.as_secs_f64();
    let wall_rate = kernels as f64 / fold.wall.as_secs_f64();
    let (launch_bytes, kernel_bytes, writing) = measure_recording(kernels.min(1_000_000))?;
    let written = kernels.min(1_000_000).div_ceil(BLOCK) * BLOCK;
    let write_rate = written as f64 / writing.cpu.as_secs_f64();
    let mut out = io::stdout().lock();
    if json {
        writeln!(
            out,
            "{{\"kernels\":{kernels},\"kernels_per_cpu_second\":{rate:.0},\"kernels_per_second\":{wall_rate:.0},\"peak_rss_kib_at_a_tenth\":{rss_at_tenth},\
             \"peak_rss_kib\":{rss_at_end},\"bytes_per_launch\":{launch_bytes:.2},\"bytes_per_kernel\":{kernel_bytes:.2},\
             \"kernels_written_per_cpu_second\":{write_rate:.0}}}"
        )
    } else {
        writeln!(out, "kernels            {kernels:>12}  a launch and an activity each, all joined")?;
        writeln!(out, "join and sum       {:>12.2}  million kernels a second of CPU time", rate / 1e6)?;
        writeln!(out, "                   {:>12.2}  million kernels a second by the clock", wall_rate / 1e6)?;
        writeln!(out, "peak memory        {rss_at_tenth:>12}  KiB at {} kernels", kernels / 10)?;
        writeln!(out, "                   {rss_at_end:>12}  KiB at {kernels} kernels")?;
        writeln!(out, "recording          {launch_bytes:>12.2}  bytes per launch")?;
        writeln!(out, "                   {kernel_bytes:>12.2}  bytes per kernel")?;
        writeln!(
            out,
            "                   {:>12.2}  million kernels a second of CPU time, launch and activity",
            write_rate / 1e6
        )
    }
}
