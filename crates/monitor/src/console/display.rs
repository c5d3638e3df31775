//! The console display, on its own thread: a stopped terminal or an unread pipe must not block anything else.

use std::{
    io::{self, IsTerminal, Write},
    sync::mpsc,
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
    show: mpsc::SyncSender<Snapshot>,
    ended: Ended,
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
        Ok(Self { show, ended: Ended::default(), done })
    }

    /// Keeps the processes that end in a snapshot which is not shown: they are in no later one.
    pub fn observe(&mut self, snapshot: &Snapshot) {
        self.ended.keep(snapshot);
    }

    /// Shows a snapshot and the processes that have ended since the previous one. If that is still being printed, they are
    /// kept for the next.
    pub fn show(&mut self, snapshot: &Snapshot) {
        let mut shown = snapshot.clone();
        self.ended.add_to(&mut shown);
        match self.show.try_send(shown) {
            Err(mpsc::TrySendError::Full(_)) => self.observe(snapshot),
            _ => self.ended = Ended::default(),
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
