//! Compiles unwind tables from files, on separate threads.

use std::{
    fs::File,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use elf::{Elf, Segments};
use symbols::FileId;
use unwind::{Functions, Piece, Row, Table};

use super::image::Wanted;
use crate::command::priority;

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
    pub refused: Option<unwind::Error>,
    pub panicked: bool,
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
    jobs: mpsc::Sender<Job>,
    done: mpsc::Receiver<Finished>,
    /// The memory used by tables.
    pub room: Arc<Room>,
}

impl Compiler {
    /// Starts the threads. All tables together use at most `limit` bytes.
    pub fn start(limit: u64, threads: u64) -> io::Result<Self> {
        let (jobs, todo) = mpsc::channel::<Job>();
        let (finished, done) = mpsc::channel();
        let room = Arc::new(Room { limit, kept: AtomicU64::new(0), users: threads });
        let todo = Arc::new(Mutex::new(todo));
        for _ in 0..threads {
            let (todo, finished, room) = (todo.clone(), finished.clone(), room.clone());
            thread::Builder::new().name("unwind-tables".into()).spawn(move || {
                // Tables can wait; the measured threads cannot.
                priority::restore();
                while let Ok(job) = next(&todo) {
                    if finished.send(job.run(|job| compile(job, &room))).is_err() {
                        break;
                    }
                }
            })?;
        }
        Ok(Self { jobs, done, room })
    }

    /// Queues a table; returns `false` if no thread is left.
    pub fn queue(&self, job: Job) -> bool {
        self.jobs.send(job).is_ok()
    }

    /// Compiles a table on the current thread.
    pub fn compile(&self, job: Job) -> Finished {
        job.run(|job| compile(job, &self.room))
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

/// Waits for the next file. One thread waits for it, the others for that thread.
fn next(todo: &Mutex<mpsc::Receiver<Job>>) -> Result<Job, mpsc::RecvError> {
    todo.lock().unwrap_or_else(PoisonError::into_inner).recv()
}

impl Job {
    /// Always produces a result: nothing may wait for the file forever.
    fn run(self, compile: impl FnOnce(&Job) -> Result<Compiled, unwind::Error>) -> Finished {
        let begin = cpu_time();
        let (result, refused, panicked) = match catch_unwind(AssertUnwindSafe(|| compile(&self))) {
            Ok(Ok(made)) => (Some(made), None, false),
            Ok(Err(why)) => (None, Some(why), false),
            Err(_) => (None, None, true),
        };
        let time = cpu_time().saturating_sub(begin);
        Finished { id: self.id, path: self.path, result, refused, panicked, time }
    }
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid buffer for the result; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn compile(Job { file, what, .. }: &Job, room: &Room) -> Result<Compiled, unwind::Error> {
    let elf = Elf::read(file)?;
    if let What::Functions(wanted) = what
        && let Some(functions) = Functions::of(&elf, file)?
    {
        let (base, mut pieces) = (functions.base, Vec::<Piece>::new());
        for address in wanted.iter().filter_map(|wanted| wanted.in_file(&elf.segments)) {
            let is_in = |piece: &Piece| (piece.start..piece.end).contains(&(address.wrapping_sub(base) as u32));
            if address >= base && !pieces.iter().any(is_in) {
                pieces.extend(functions.at(address));
            }
        }
        return Ok(Compiled::Pieces(Pieces { segments: elf.segments, base, pieces }));
    }
    let table = Table::read(&elf, file, room.left() / room.users)?;
    room.take(table.rows.len());
    Ok(Compiled::Whole(Unwindable { rows: table.rows.len(), table, segments: elf.segments }))
}

#[cfg(test)]
mod tests {
    use symbols::Files;

    use super::*;

    /// Check that a panic while compiling a table ends the job but not the thread, and is counted.
    #[test]
    fn a_panic_ends_the_job_not_the_thread() {
        let mut files = Files::new(1);
        let id = files.expected("/proc/self/exe").expect("it can be opened");
        let file = File::open("/proc/self/exe").expect("it is there");
        let finished = Job { id, path: String::new(), file, what: What::Whole }
            .run(|_| std::panic::resume_unwind(Box::new("stopped")));
        assert!(finished.panicked && finished.result.is_none());
    }
}
