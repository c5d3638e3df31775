//! Names kernels by the handles that running processes have from before, on a separate thread: large libraries take a second.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use elf::Budget;
use model::{
    calls::SeenHandle,
    event::{ProcessId, Symbol},
};

use super::objects::{Objects, Question};
use crate::command::priority;

/// The most questions that wait.
const ROOM: usize = 256;
/// The most handles of one process that are inspected.
pub const MOST_SEEN: usize = 4096;
/// How long the end of a trace waits for names.
const LAST: Duration = Duration::from_secs(10);

/// The questions about processes.
#[derive(Debug)]
pub struct Handles {
    asked: HashMap<ProcessId, Asked>,
    pending: usize,
    questions: mpsc::SyncSender<Question>,
    answers: mpsc::Receiver<(ProcessId, Vec<Symbol>)>,
}

/// What was asked about a process.
#[derive(Debug, Default)]
struct Asked {
    handles: HashSet<u64>,
    named: HashSet<u64>,
    /// The number of handles whose names were known from calls.
    known: usize,
}

impl Handles {
    /// Starts the thread.
    pub fn start() -> io::Result<Self> {
        let (questions, todo) = mpsc::sync_channel::<Question>(ROOM);
        let (finished, answers) = mpsc::channel();
        thread::Builder::new().name("handles".into()).spawn(move || {
            priority::lower();
            let mut objects = Objects::default();
            for question in todo {
                let names = objects.names(&question, &Budget::RECORDING);
                if finished.send((question.image, names)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { asked: HashMap::new(), pending: 0, questions, answers })
    }

    /// Requests the names of handles: once for each handle, and again when twice as many others are known as the last time, or
    /// at the `last` request. What is learned in one process may serve another, so those that know most come first.
    pub fn request(&mut self, mut questions: Vec<Question>, last: bool) {
        questions.sort_by_cached_key(|question| std::cmp::Reverse(known(&question.seen)));
        for mut question in questions {
            let asked = self.asked.entry(question.image).or_default();
            question.unnamed.retain(|handle| !asked.named.contains(handle));
            question.unnamed.truncate(MOST_SEEN);
            let known = known(&question.seen);
            let is_new = question.unnamed.iter().any(|handle| !asked.handles.contains(handle));
            if question.unnamed.is_empty() || !(is_new || last || known >= 2 * asked.known.max(1)) {
                continue;
            }
            asked.handles.extend(&question.unnamed);
            asked.known = known;
            // If there is no room, it is asked again when more is known.
            self.pending += usize::from(self.questions.try_send(question).is_ok());
        }
    }

    /// Returns the names that were found since the last call.
    pub fn take(&mut self) -> Vec<Symbol> {
        let answers: Vec<_> = self.answers.try_iter().collect();
        answers.into_iter().flat_map(|answer| self.answered(answer)).collect()
    }

    /// Waits for everything that was requested, and returns the names.
    pub fn finish(&mut self) -> Vec<Symbol> {
        let deadline = Instant::now() + LAST;
        let mut found = self.take();
        while self.pending > 0
            && let Ok(answer) = self.answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            found.extend(self.answered(answer));
        }
        found
    }

    fn answered(&mut self, (image, names): (ProcessId, Vec<Symbol>)) -> Vec<Symbol> {
        self.pending -= 1;
        let named = names.iter().filter_map(symbols::handle_kernel).map(|(handle, _)| handle);
        self.asked.entry(image).or_default().named.extend(named);
        names
    }
}

/// Returns how many handles have names from calls.
fn known(seen: &[SeenHandle]) -> usize {
    seen.iter().filter(|seen| seen.name.is_some() || seen.same_as.is_some()).count()
}
