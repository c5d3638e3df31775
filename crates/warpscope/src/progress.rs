//! The progress of reading and writing large recordings, on a terminal.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use text::units::percent;

use crate::status_line;

/// The time until something is shown, and between two updates.
const INTERVAL: Duration = Duration::from_millis(500);

/// How much of some files has been read.
#[derive(Debug, Default)]
pub struct Reading {
    done: AtomicU64,
    whole: AtomicU64,
}

impl Reading {
    /// Starts from the beginning of files of so many bytes.
    pub fn begin(&self, whole: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.whole.store(whole, Ordering::Relaxed);
    }

    /// Adds bytes.
    pub fn add(&self, bytes: usize) {
        self.done.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the share that has been read, once there is some.
    fn share(&self) -> Option<String> {
        let (done, whole) = (self.done.load(Ordering::Relaxed), self.whole.load(Ordering::Relaxed));
        (done > 0 && whole > 0).then(|| percent(done.min(whole), whole))
    }
}

/// Shows what is being done, until it is dropped. Work that takes little time shows nothing.
pub struct Progress(Option<(mpsc::Sender<()>, JoinHandle<()>)>);

impl Progress {
    /// Begins to show work such as `writing run.html`, and how much of its input has been read.
    pub fn begin(what: String, reading: Option<Arc<Reading>>) -> Self {
        if !status_line::is_possible() {
            return Self(None);
        }
        let (end, ended) = mpsc::channel();
        let show = move || {
            let start = Instant::now();
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let share = reading.as_ref().and_then(|reading| reading.share());
                if status_line::draw(&parts(&what, share, start.elapsed())).is_err() {
                    break;
                }
            }
            drop(status_line::erase());
        };
        // Without a thread nothing is shown.
        Self(thread::Builder::new().name("progress".into()).spawn(show).ok().map(|thread| (end, thread)))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let Some((end, thread)) = self.0.take() else { return };
        drop(end);
        let _ = thread.join();
    }
}

/// Returns the parts of the line, and when each is left out.
fn parts(what: &str, share: Option<String>, elapsed: Duration) -> Vec<(u8, String)> {
    let mut parts = vec![(0, text::names::printable(what).into_owned())];
    parts.extend(share.map(|share| (1, share)));
    parts.push((2, format!("{} s", elapsed.as_secs())));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the share is that of the current pass over the files, and that nothing is divided by zero.
    #[test]
    fn share_is_of_one_pass() {
        let reading = Reading::default();
        assert_eq!(reading.share(), None);
        for _ in 0..2 {
            reading.begin(400);
            assert_eq!(reading.share(), None);
            reading.add(100);
            assert_eq!(reading.share().as_deref(), Some("25.0 %"));
        }
        reading.add(1000);
        assert_eq!(reading.share().as_deref(), Some("100.0 %"));
        let parts = parts("writing a\u{1b}[2J", Some("25 %".into()), Duration::from_secs(3));
        let texts: Vec<&str> = parts.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["writing a [2J", "25 %", "3 s"]);
    }
}
