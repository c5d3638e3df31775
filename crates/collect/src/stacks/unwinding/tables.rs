//! Compiles unwind tables from files, on separate threads.

use std::{
    fs::File,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use elf::{Elf, Segment, Segments};
use model::event::ProcessId;
use sandbox::{Failed, Limits};
use symbols::FileId;
use unwind::{Functions, MAX_ROWS, Piece, Row, Table};

use super::{fair::Fair, image::Wanted};
use crate::command::priority;

/// How long the table of a file may take. Those of the largest libraries take a few seconds.
const TIME: Duration = Duration::from_secs(120);
/// The size of an answer that is always accepted.
const SMALLEST: u64 = 1 << 20;

/// The tables compiled so far, and their cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tables {
    /// Files with a table.
    pub files: u64,
    /// Their rows.
    pub rows: u64,
    /// CPU time.
    pub time: Duration,
}

/// A file, its tables or why there are none, and the CPU time spent.
pub struct Finished {
    pub id: FileId,
    pub path: String,
    pub result: Option<Compiled>,
    /// Why the file is too large.
    pub refused: Option<String>,
    /// Why it could not be read at all.
    pub failed: Option<Failed>,
    pub time: Duration,
}

/// A file that can be unwound.
pub struct Unwindable {
    pub segments: Segments,
    pub table: Table,
    /// How many rows it has, wherever they are stored.
    pub rows: usize,
}

/// Some functions of a file.
pub struct Pieces {
    pub segments: Segments,
    pub base: u64,
    pub pieces: Vec<Piece>,
}

/// The result of a job.
pub enum Compiled {
    Whole(Unwindable),
    Pieces(Pieces),
}

/// A file to compile a table for.
pub struct Job {
    pub id: FileId,
    pub path: String,
    pub file: File,
    pub what: What,
}

/// What to compile of a file.
pub enum What {
    Whole,
    /// The functions at these addresses. A file without a search table is compiled completely.
    Functions(Vec<Wanted>),
}

/// The memory limit of tables, and the memory that kept tables use.
pub struct Room {
    limit: u64,
    kept: AtomicU64,
    /// How many tables are compiled at the same time.
    users: u64,
}

impl Room {
    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.kept.load(Ordering::Relaxed))
    }

    /// Whether more than half of it is used.
    pub fn is_short(&self) -> bool {
        self.left() < self.limit / 2
    }

    /// Whether all of it is used.
    pub fn is_full(&self) -> bool {
        self.left() == 0
    }

    /// Returns the number of bytes used.
    #[cfg(test)]
    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// Adds the memory of a table.
    pub fn take(&self, rows: usize) {
        self.kept.fetch_add((rows * size_of::<Row>()) as u64, Ordering::Relaxed);
    }

    /// Releases the memory of a dropped table.
    pub fn give_back(&self, rows: usize) {
        self.kept.fetch_sub((rows * size_of::<Row>()) as u64, Ordering::Relaxed);
    }
}

/// The threads that compile tables.
pub struct Compiler {
    jobs: Arc<Fair<Job>>,
    done: mpsc::Receiver<Finished>,
    /// The memory used by tables.
    pub room: Arc<Room>,
}

impl Compiler {
    /// Starts the threads. All tables together use at most `limit` bytes.
    pub fn start(limit: u64, threads: u64) -> io::Result<Self> {
        let jobs = Arc::new(Fair::<Job>::default());
        let (finished, done) = mpsc::channel();
        let room = Arc::new(Room { limit, kept: AtomicU64::new(0), users: threads });
        for _ in 0..threads {
            let (todo, finished, room) = (jobs.clone(), finished.clone(), room.clone());
            thread::Builder::new().name("unwind-tables".into()).spawn(move || {
                // Tables can wait; the measured threads cannot.
                priority::restore();
                while let Some(job) = todo.next() {
                    if finished.send(job.run(&room)).is_err() {
                        break;
                    }
                }
            })?;
        }
        Ok(Self { jobs, done, room })
    }

    /// Queues a table for a process that has mapped the file. Processes take turns.
    pub fn queue(&self, process: ProcessId, job: Job) {
        self.jobs.push(process, job);
    }

    /// Compiles a table on the current thread.
    pub fn compile(&self, job: Job) -> Finished {
        job.run(&self.room)
    }

    /// Returns the next finished table, if there is one.
    pub fn finished(&self) -> Option<Finished> {
        self.done.try_recv().ok()
    }

    /// Waits for the next table.
    pub fn wait(&self, longest: Duration) -> Option<Finished> {
        self.done.recv_timeout(longest).ok()
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        self.jobs.close();
    }
}

impl Job {
    /// Always produces a result: nothing may wait for the file forever.
    fn run(self, room: &Room) -> Finished {
        let Self { id, path, file, what } = self;
        let memory = room.left() / room.users;
        let whole = matches!(what, What::Whole);
        let request = match what {
            What::Whole => (memory, None),
            What::Functions(wanted) => (memory, Some(wanted)),
        };
        let limits = Limits { time: TIME, answer: memory.saturating_add(SMALLEST) };
        let (result, refused, failed, time) = match sandbox::parse(compile, &request, &[&file], &limits) {
            Ok(Reply { tables, refused, time }) => (tables, refused, None, time),
            Err(why) => (None, None, Some(why), Duration::ZERO),
        };
        let result = result.and_then(|tables| tables.checked(whole));
        if let Some(Compiled::Whole(unwindable)) = &result {
            room.take(unwindable.rows);
        }
        Finished { id, path, result, refused, failed, time }
    }
}

/// What a worker answers.
struct Reply {
    tables: Option<Parts>,
    /// Why the file is too large.
    refused: Option<String>,
    /// CPU time.
    time: Duration,
}

/// The tables of a file as they were sent.
struct Parts {
    segments: Vec<Segment>,
    base: u64,
    whole: Option<Vec<u8>>,
    /// The addresses and rows of functions.
    pieces: Vec<(u32, u32, Vec<u8>)>,
}

sandbox::plain! {
    Reply { tables, refused, time }
    Parts { segments, base, whole, pieces }
}

impl Parts {
    /// Returns the tables. Whatever their rows say, the walkers only read memory of the process that mapped the file; but they
    /// search by halves, so rows must be sorted.
    fn checked(self, whole: bool) -> Option<Compiled> {
        let Self { segments, base, whole: table, pieces } = self;
        let segments = Segments(segments);
        if let Some(bytes) = table {
            let rows = rows(&bytes).filter(|rows| rows.len() <= MAX_ROWS)?;
            let table = Table { base, rows, ..Table::default() };
            return Some(Compiled::Whole(Unwindable { segments, rows: table.rows.len(), table }));
        }
        if whole {
            return None;
        }
        let piece = |(start, end, bytes): (u32, u32, Vec<u8>)| {
            let rows = rows(&bytes)?;
            let inside = rows.first().is_some_and(|first| first.pc == start) && rows.iter().all(|row| row.pc < end);
            inside.then_some(Piece { start, end, rows })
        };
        let pieces = pieces.into_iter().map(piece).collect::<Option<_>>()?;
        Some(Compiled::Pieces(Pieces { segments, base, pieces }))
    }
}

/// Returns rows from bytes, if they are sorted.
fn rows(bytes: &[u8]) -> Option<Vec<Row>> {
    let rows = Row::read_all(bytes)?;
    rows.is_sorted_by_key(|row| row.pc).then_some(rows)
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid buffer for the result; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Compiles the tables of a file, or those of some functions, within some memory. Runs without rights.
fn compile((memory, wanted): &(u64, Option<Vec<Wanted>>), files: &[&File]) -> Reply {
    let begin = cpu_time();
    let made = files.first().map(|file| parts(file, wanted.as_deref(), *memory)).transpose();
    let refused = match &made {
        Err(why @ (unwind::Error::Elf(elf::Error::TooLarge { .. }) | unwind::Error::TooMany { .. })) => {
            Some(why.to_string())
        }
        _ => None,
    };
    Reply { tables: made.ok().flatten(), refused, time: cpu_time().saturating_sub(begin) }
}

fn parts(file: &File, wanted: Option<&[Wanted]>, memory: u64) -> Result<Parts, unwind::Error> {
    let elf = Elf::read(file)?;
    if let Some(wanted) = wanted
        && let Some(functions) = Functions::of(&elf, file)?
    {
        let (base, mut pieces) = (functions.base, Vec::<Piece>::new());
        for address in wanted.iter().filter_map(|wanted| wanted.in_file(&elf.segments)) {
            let is_in = |piece: &Piece| (piece.start..piece.end).contains(&(address.wrapping_sub(base) as u32));
            if address >= base && !pieces.iter().any(is_in) {
                pieces.extend(functions.at(address));
            }
        }
        let piece = |piece: Piece| (piece.start, piece.end, Row::bytes(&piece.rows).to_vec());
        let pieces = pieces.into_iter().map(piece).collect();
        return Ok(Parts { segments: elf.segments.0, base, whole: None, pieces });
    }
    let Table { base, rows, .. } = Table::read(&elf, file, memory)?;
    Ok(Parts { segments: elf.segments.0, base, whole: Some(Row::bytes(&rows).to_vec()), pieces: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(pcs: &[u32]) -> Vec<u8> {
        let row =
            |pc: &u32| Row::new(*pc, unwind::Cfa::NoRule, unwind::Saved::Same, unwind::Saved::Same).expect("a rule");
        Row::bytes(&pcs.iter().map(row).collect::<Vec<_>>()).to_vec()
    }

    /// Check that tables are not used whose rows are unsorted, incomplete or outside of their function, or that were not requested.
    #[test]
    fn answers_are_checked() {
        let whole = |bytes: Vec<u8>| -> bool {
            let parts = Parts { segments: Vec::new(), base: 0, whole: Some(bytes), pieces: Vec::new() };
            parts.checked(true).is_some()
        };
        assert!(whole(sent(&[1, 2, 2, 7])));
        assert!(!whole(sent(&[2, 1])));
        assert!(!whole(sent(&[1])[..7].to_vec()));
        let piece = |start: u32, end: u32, pcs: &[u32], requested: bool| {
            let pieces = vec![(start, end, sent(pcs))];
            Parts { segments: Vec::new(), base: 0, whole: None, pieces }.checked(!requested).is_some()
        };
        assert!(piece(1, 5, &[1, 4], true));
        assert!(!piece(1, 5, &[1, 5], true) && !piece(1, 5, &[2], true) && !piece(1, 5, &[], true));
        assert!(!piece(1, 5, &[1, 4], false));
    }
}
