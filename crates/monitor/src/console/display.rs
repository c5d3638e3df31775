//! The console display, on its own thread: a stopped terminal or an unread pipe must not block anything else.

use std::{
    io::{self, IsTerminal, Write},
    sync::mpsc,
    thread,
    time::Duration,
};

use terminal_size::{Height, Width, terminal_size_of};

use super::{BlockStyle, block, in_place};
use crate::snapshot::{Process, Snapshot};

/// The maximum number of ended processes kept for the next block.
const MAX_ENDED: usize = 1024;
/// How long the end of the monitor waits for the last block to be printed.
const LAST_BLOCK: Duration = Duration::from_secs(1);

/// Shows snapshots.
pub struct Display {
    show: mpsc::SyncSender<Snapshot>,
    /// Processes that ended in snapshots which were not shown.
    ended: Vec<Process>,
    /// Those that did not fit.
    omitted: u64,
    /// Closed when the thread has printed everything.
    done: mpsc::Receiver<()>,
}

impl Display {
    /// Starts the thread.
    pub fn start(colour: bool) -> io::Result<Self> {
        let (show, shown) = mpsc::sync_channel::<Snapshot>(1);
        let (printing, done) = mpsc::channel();
        thread::Builder::new().name("display".into()).spawn(move || {
            let _printing = printing;
            let mut before: Option<Snapshot> = None;
            for snapshot in shown {
                // The output is closed; the metrics server continues.
                if print(&snapshot, before.as_ref(), colour).is_err() {
                    break;
                }
                before = Some(snapshot);
            }
        })?;
        Ok(Self { show, ended: Vec::new(), omitted: 0, done })
    }

    /// Keeps the processes that end in a snapshot which is not shown: they are in no later one.
    pub fn observe(&mut self, snapshot: &Snapshot) {
        for process in snapshot.processes.iter().filter(|process| process.ended) {
            if self.ended.len() < MAX_ENDED {
                self.ended.push(Process { suspects: Vec::new(), ..process.clone() });
            } else {
                self.omitted += 1;
            }
        }
    }

    /// Shows a snapshot and the processes that have ended since the previous one. If that is still being printed, they are
    /// kept for the next.
    pub fn show(&mut self, snapshot: &Snapshot) {
        let mut shown = snapshot.clone();
        shown.processes.extend(self.ended.iter().cloned());
        shown.processes.sort_by_key(|process| (process.pid, process.id));
        if self.omitted > 0 {
            shown.health.notes.push(format!("{} processes that have ended are not shown: too many", self.omitted));
        }
        match self.show.try_send(shown) {
            Err(mpsc::TrySendError::Full(_)) => self.observe(snapshot),
            _ => (self.ended, self.omitted) = (Vec::new(), 0),
        }
    }

    /// Waits until everything is printed, but not for a reader that does not read.
    pub fn finish(self) {
        drop(self.show);
        let _ = self.done.recv_timeout(LAST_BLOCK);
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
