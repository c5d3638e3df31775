//! The table of NVTX ranges.

use analysis::summary::{Summary, TOP};
use text::{
    short::shortened,
    units::{count, time},
};

use crate::page::{Page, TextStyle};

impl Page {
    pub(crate) fn ranges(&mut self, s: &Summary) {
        if s.ranges.is_empty() {
            return;
        }
        self.heading("NVTX", "of GPU", &format!("{:>7}  {:>8}", "count", "on CPU"));
        for range in s.ranges.iter().take(TOP) {
            let row = self.row(TextStyle::Blue, range.gpu_ns, range.gpu_share, s.gpu_time_ns);
            let name = shortened(&range.name, self.rest(21));
            let times = count(range.count + range.marks);
            self.line(&format!("{row}  {times:>7}  {:>8}  {name}", time(range.ns)));
        }
    }
}
