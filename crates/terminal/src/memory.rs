//! GPU memory in the summary.

use analysis::memory::{DeviceMemory, MemoryLine, Moment};
use model::memory::Use;
use text::{
    short::shortened,
    units::{bytes, count, share, time},
};

use crate::page::{Page, TextStyle};

/// The number of lines of a table.
const LINES: usize = 8;

impl Page {
    /// Writes who held memory at the peak, and at the end if that is something else.
    pub(crate) fn gpu_memory(&mut self, all: &[DeviceMemory]) {
        for memory in all {
            let peak = match memory.peak.at_ns {
                // A dump of the flight recorder.
                0 => "at its peak, before this recording".to_owned(),
                ns => format!("at its peak, {} after the start", time(ns)),
            };
            self.moment(memory, &memory.peak, &peak);
            if memory.end.lines != memory.peak.lines && memory.end.in_use_bytes > 0 {
                self.moment(memory, &memory.end, "at the end");
            }
        }
    }

    fn moment(&mut self, memory: &DeviceMemory, moment: &Moment, when: &str) {
        let title = self.ink(TextStyle::Bold, &format!("Memory of GPU {}", memory.label));
        let rest = self.ink(TextStyle::Dim, &format!("  {when}, {}", memory.process));
        self.text.push('\n');
        self.line(&format!("{title}{rest}"));
        let parts = [
            ("in use", moment.in_use_bytes),
            ("tensors", moment.tensor_bytes),
            ("other", moment.other_bytes),
            ("cached but free", moment.cached_bytes),
        ];
        let parts: Vec<String> = parts.iter().map(|(name, size)| format!("{} {name}", bytes(*size))).collect();
        self.line(&parts.join(", "));
        let held = moment.in_use_bytes.saturating_add(moment.cached_bytes);
        for line in moment.lines.iter().take(LINES) {
            let row = self.row_of(TextStyle::Magenta, (line.bytes, held), share(line.bytes, held), &bytes(line.bytes));
            let name = shortened(&name(line), self.rest(20));
            self.line(&format!("{row}  {:>7}  {:<7}  {name}", count(line.count), line.what.name()));
        }
    }
}

fn name(line: &MemoryLine) -> String {
    match (&line.place, line.what) {
        (Some(place), Use::Cached) => format!("first taken by {}", place.frame),
        (Some(place), _) => place.frame.clone(),
        (None, _) => "[other lines]".to_owned(),
    }
}
