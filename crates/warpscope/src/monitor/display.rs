//! The console, on a thread of its own: a terminal that is stopped, or a pipe that nobody reads, holds up nobody else.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Arc, mpsc},
    thread,
};

use metrics::{
    console::{self, Look},
    snapshot::Snapshot,
};
use terminal_size::{Height, Width, terminal_size_of};

/// Shows snapshots.
pub struct Display(mpsc::SyncSender<Arc<Snapshot>>);

impl Display {
    /// Starts the thread.
    pub fn start() -> io::Result<Self> {
        let (show, shown) = mpsc::sync_channel::<Arc<Snapshot>>(1);
        thread::Builder::new().name("display".into()).spawn(move || {
            let mut before: Option<Arc<Snapshot>> = None;
            for snapshot in shown {
                // Nobody reads any more: the metrics go on.
                if print(&snapshot, before.as_deref()).is_err() {
                    break;
                }
                before = Some(snapshot);
            }
        })?;
        Ok(Self(show))
    }

    /// Shows a snapshot, unless the last is still being shown.
    pub fn show(&self, snapshot: Arc<Snapshot>) {
        let _ = self.0.try_send(snapshot);
    }
}

fn print(snapshot: &Snapshot, before: Option<&Snapshot>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let terminal = out.is_terminal();
    let (width, height) = if terminal { size() } else { (None, None) };
    let block = console::block(snapshot, before, Look { width, height, colour: terminal });
    let text = if terminal { console::in_place(&block) } else { block };
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Columns and rows of the terminal.
fn size() -> (Option<usize>, Option<usize>) {
    let (Width(columns), Height(rows)) = terminal_size_of(io::stdout()).unwrap_or((Width(100), Height(40)));
    (Some(columns.into()), Some(rows.into()))
}
