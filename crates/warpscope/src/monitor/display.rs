//! The console display, on its own thread: a stopped terminal or an unread pipe must not block anything else.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Arc, mpsc},
    thread,
};

use metrics::{
    console::{self, BlockStyle},
    snapshot::Snapshot,
};
use terminal_size::{Height, Width, terminal_size_of};

use crate::terminal::Style;

/// Shows snapshots.
pub struct Display(mpsc::SyncSender<Arc<Snapshot>>);

impl Display {
    /// Starts the thread.
    pub fn start() -> io::Result<Self> {
        let (show, shown) = mpsc::sync_channel::<Arc<Snapshot>>(1);
        thread::Builder::new().name("display".into()).spawn(move || {
            let mut before: Option<Arc<Snapshot>> = None;
            for snapshot in shown {
                // The output is closed; the metrics server continues.
                if print(&snapshot, before.as_deref()).is_err() {
                    break;
                }
                before = Some(snapshot);
            }
        })?;
        Ok(Self(show))
    }

    /// Shows a snapshot, unless the previous one is still being printed.
    pub fn show(&self, snapshot: Arc<Snapshot>) {
        let _ = self.0.try_send(snapshot);
    }
}

fn print(snapshot: &Snapshot, before: Option<&Snapshot>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let terminal = out.is_terminal();
    let (width, height) = if terminal { size() } else { (None, None) };
    let block = console::block(snapshot, before, BlockStyle { width, height, colour: Style::of(&out).colour });
    let text = if terminal { console::in_place(&block) } else { block };
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Columns and rows of the terminal.
fn size() -> (Option<usize>, Option<usize>) {
    let (Width(columns), Height(rows)) = terminal_size_of(io::stdout()).unwrap_or((Width(100), Height(40)));
    (Some(columns.into()), Some(rows.into()))
}
