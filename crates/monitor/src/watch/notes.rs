//! Notes for the user: the most recent ones, in each display and in the log on standard error.
//!
//! A note may contain names that a hostile program chooses, so the log has a limit: notes beyond it are counted. A thread writes
//! the log: a stopped terminal or an unread pipe must not block anything else.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use text::names::printable;

/// The maximum number of notes kept; each is written once.
const MAX_NOTES: usize = 32;
/// How many lines the log takes at once, and the time in which it takes another one.
const BURST: u32 = 256;
const PAUSE: Duration = Duration::from_secs(10);
/// How long the end of the monitor waits for the last line to be written.
const LAST_LINE: Duration = Duration::from_secs(1);

/// The most recent notes.
#[derive(Default)]
pub struct Notes {
    last: VecDeque<String>,
    log: Option<Log>,
}

impl Notes {
    /// From now on notes are also written to the log.
    pub fn write_to_log(&mut self) -> io::Result<()> {
        let mut log = Log::start(io::stderr())?;
        self.last.iter().for_each(|note| log.write(note, Instant::now()));
        self.log = Some(log);
        Ok(())
    }

    /// Adds a note, unless it was added before.
    pub fn add(&mut self, note: String) {
        if self.last.contains(&note) {
            return;
        }
        if let Some(log) = &mut self.log {
            log.write(&note, Instant::now());
        }
        if self.last.len() == MAX_NOTES {
            self.last.pop_front();
        }
        self.last.push_back(note);
    }

    /// Returns the most recent notes, newest last.
    pub fn all(&self) -> Vec<String> {
        self.last.iter().cloned().collect()
    }

    /// Ends the log. Waits until everything is written, but not for a reader that does not read.
    pub fn finish(&mut self) {
        if let Some(log) = self.log.take() {
            log.finish();
        }
    }
}

/// The log.
struct Log {
    lines: mpsc::SyncSender<String>,
    /// How many lines it takes at the moment, and since when.
    left: u32,
    since: Instant,
    omitted: u64,
    /// Closed when the thread has written everything.
    done: mpsc::Receiver<()>,
}

impl Log {
    fn start(mut to: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, written) = mpsc::sync_channel::<String>(2 * BURST as usize);
        let (writing, done) = mpsc::channel();
        thread::Builder::new().name("log".into()).spawn(move || {
            let _writing = writing;
            for line in written {
                // The output is closed; everything else continues.
                if to.write_all(line.as_bytes()).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { lines, left: BURST, since: Instant::now(), omitted: 0, done })
    }

    fn write(&mut self, note: &str, now: Instant) {
        let gained = now.saturating_duration_since(self.since).as_secs() / PAUSE.as_secs();
        if gained > 0 {
            self.left = u32::try_from(gained).unwrap_or(BURST).saturating_add(self.left).min(BURST);
            self.since = now;
        }
        let line = format!("{}warpscope: {}\n", self.omission(), printable(note));
        if self.left > 0 && self.lines.try_send(line).is_ok() {
            (self.left, self.omitted) = (self.left - 1, 0);
        } else {
            self.omitted += 1;
        }
    }

    /// Returns a line that says how many notes are missing before the next one.
    fn omission(&self) -> String {
        match self.omitted {
            0 => String::new(),
            count => format!("warpscope: notes left out because there were too many: {count}\n"),
        }
    }

    fn finish(self) {
        let _ = self.lines.try_send(self.omission());
        drop(self.lines);
        let _ = self.done.recv_timeout(LAST_LINE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Keeps what is written.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Check that the log takes a burst, then a line for each pause, and says how many notes it left out.
    #[test]
    fn notes_beyond_the_limit_are_counted() {
        let kept = Kept::default();
        let mut log = Log::start(kept.clone()).expect("a thread");
        let begun = log.since;
        for number in 0..BURST + 7 {
            log.write(&format!("note {number}"), begun);
        }
        log.write("a line break\n and a later note", begun + PAUSE);
        log.write("one more", begun + PAUSE);
        log.finish();
        let written = String::from_utf8(kept.0.lock().expect("no panic").clone()).expect("text");
        let lines: Vec<&str> = written.lines().collect();
        assert_eq!(lines.len(), BURST as usize + 3, "{lines:?}");
        assert_eq!(lines[BURST as usize - 1], format!("warpscope: note {}", BURST - 1));
        assert_eq!(lines[BURST as usize], "warpscope: notes left out because there were too many: 7");
        assert!(lines[BURST as usize + 1].ends_with("and a later note"), "{lines:?}");
        assert_eq!(lines[BURST as usize + 2], "warpscope: notes left out because there were too many: 1");
    }

    /// Never reads.
    struct Stuck;

    impl Write for Stuck {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            loop {
                thread::park();
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Check that a log that nobody reads holds up neither notes nor the end.
    #[test]
    fn a_log_that_nobody_reads_blocks_nothing() {
        let mut log = Log::start(Stuck).expect("a thread");
        let begun = log.since;
        for number in 0..4 * BURST {
            log.write(&number.to_string(), begun + PAUSE * number);
        }
        assert!(log.omitted >= u64::from(BURST), "{}", log.omitted);
        log.finish();
    }
}
