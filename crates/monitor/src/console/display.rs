//! The console display, on its own thread: a stopped terminal or an unread pipe must not block anything else.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::Duration,
};

use terminal_size::{Height, Width, terminal_size_of};

use super::{BlockStyle, block, in_place};
use crate::{ended::Ended, snapshot::Snapshot};

/// How long the end of the monitor waits for the last block to be printed.
const LAST_BLOCK: Duration = Duration::from_secs(1);

/// Shows snapshots.
pub struct Display {
    next: Arc<Next>,
    ended: Ended,
    /// Closed when the thread has printed everything.
    done: mpsc::Receiver<()>,
}

/// The snapshot to be printed next.
#[derive(Default)]
struct Next {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    snapshot: Option<Snapshot>,
    /// No other follows.
    closed: bool,
}

impl Display {
    /// Starts the thread.
    pub fn start(colour: bool) -> io::Result<Self> {
        Self::printing(move |snapshot, before| print(snapshot, before, colour))
    }

    fn printing(
        mut print: impl FnMut(&Snapshot, Option<&Snapshot>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let next = Arc::<Next>::default();
        let (printing, done) = mpsc::channel();
        let shown = next.clone();
        thread::Builder::new().name("display".into()).spawn(move || {
            let _printing = printing;
            let mut before: Option<Snapshot> = None;
            while let Some(snapshot) = shown.wait() {
                // The output is closed; the metrics server continues.
                if print(&snapshot, before.as_ref()).is_err() {
                    break;
                }
                before = Some(snapshot);
            }
        })?;
        Ok(Self { next, ended: Ended::default(), done })
    }

    /// Keeps the processes that end in a snapshot which is not shown: they are in no later one.
    pub fn observe(&mut self, snapshot: &Snapshot) {
        self.ended.keep(snapshot);
    }

    /// Shows a snapshot and the processes that have ended since the previous one. It replaces one that still waits to be
    /// printed: the last snapshot is always printed.
    pub fn show(&mut self, snapshot: &Snapshot) {
        let mut state = self.next.lock();
        if let Some(unprinted) = state.snapshot.take() {
            self.ended.keep(&unprinted);
        }
        let mut shown = snapshot.clone();
        std::mem::take(&mut self.ended).add_to(&mut shown);
        state.snapshot = Some(shown);
        self.next.changed.notify_one();
    }

    /// Waits until everything is printed, but not for a reader that does not read.
    pub fn finish(self) {
        self.next.lock().closed = true;
        self.next.changed.notify_one();
        let _ = self.done.recv_timeout(LAST_BLOCK);
    }
}

impl Next {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next snapshot; `None` after the last one.
    fn wait(&self) -> Option<Snapshot> {
        let empty = |waiting: &mut Waiting| waiting.snapshot.is_none() && !waiting.closed;
        self.changed.wait_while(self.lock(), empty).unwrap_or_else(PoisonError::into_inner).snapshot.take()
    }
}

fn print(snapshot: &Snapshot, before: Option<&Snapshot>, colour: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let terminal = out.is_terminal();
    let (width, height) = if terminal { size() } else { (None, None) };
    let block = block(snapshot, before, BlockStyle { width, height, colour });
    let text = if terminal { in_place(&block) } else { block };
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Columns and rows of the terminal.
fn size() -> (Option<usize>, Option<usize>) {
    let (Width(columns), Height(rows)) = terminal_size_of(io::stdout()).unwrap_or((Width(100), Height(40)));
    (Some(columns.into()), Some(rows.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Process;

    /// Check that the last snapshot is printed although the output was blocked, with the processes that ended in those that
    /// were not.
    #[test]
    fn the_last_snapshot_is_printed() {
        let process = |pid| Process { pid, ended: true, ..Process::default() };
        let of = |pid| Snapshot { processes: vec![process(pid)], ..Snapshot::default() };
        let (begun, printing) = mpsc::channel();
        let (gate, blocked) = mpsc::channel::<()>();
        let mut display = Display::printing(move |snapshot, _| {
            let pids: Vec<u32> = snapshot.processes.iter().map(|process| process.pid).collect();
            begun.send(pids).expect("the test waits");
            let _ = blocked.recv();
            Ok(())
        })
        .expect("a thread");
        display.show(&of(1));
        assert_eq!(printing.recv(), Ok(vec![1]));
        display.show(&of(2));
        display.observe(&of(3));
        display.show(&of(4));
        drop(gate);
        display.finish();
        assert_eq!(printing.recv(), Ok(vec![2, 3, 4]));
        assert!(printing.recv().is_err());
    }
}
