//! The one line of stderr that is replaced while a command works, on a terminal that can do so. Messages erase it; it is drawn
//! again below them.

use std::{
    io::{self, Write},
    os::fd::AsRawFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use terminal::Style;

/// Erases a line.
const ERASE: &str = "\r\x1b[K";

/// Whether the line is on the terminal, of which there is one.
static DRAWN: Mutex<bool> = Mutex::new(false);

/// Whether a line can be shown.
pub fn is_possible() -> bool {
    Style::of(&io::stderr()).redraws
}

/// Draws the line. A part is left out where there is no room for it, the one with the highest number first; 0: never.
pub fn draw(parts: &[(u8, String)]) -> io::Result<()> {
    let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_ours() {
        return Ok(());
    }
    // Its width may have changed.
    let style = Style::of(&io::stderr());
    *drawn = true;
    write!(io::stderr().lock(), "{ERASE}{}", style.text(&fit(parts, style.width - 1)))
}

/// Erases the line. It is not drawn again as long as the result is held.
pub fn erase() -> MutexGuard<'static, bool> {
    let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::take(&mut *drawn) && is_ours() {
        // Nothing can be done if the terminal is gone.
        let _ = write!(io::stderr().lock(), "{ERASE}");
    }
    drawn
}

/// Whether the terminal is neither stopped (Ctrl-S), where writing would block, nor used by the shell or another program, in
/// front of which this one runs in the background.
fn is_ours() -> bool {
    let err = io::stderr();
    // SAFETY: neither call has requirements. A terminal of another session has no group.
    let group = unsafe { libc::tcgetpgrp(err.as_raw_fd()) };
    // SAFETY: always succeeds.
    let in_front = group == -1 || group == unsafe { libc::getpgrp() };
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    in_front && poll(&mut [PollFd::new(&err, PollFlags::OUT)], Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Joins the parts that fit.
fn fit(parts: &[(u8, String)], width: usize) -> String {
    let mut parts: Vec<&(u8, String)> = parts.iter().collect();
    loop {
        let line = parts.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(", ");
        let last = parts.iter().map(|(order, _)| *order).max().unwrap_or(0);
        if line.chars().count() <= width || last == 0 {
            return line.chars().take(width).collect();
        }
        parts.retain(|(order, _)| *order != last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that parts are left out as a whole, by their order, and that only the last one may be cut.
    #[test]
    fn parts_are_left_out() {
        let parts = [(0, "recording 0:01".into()), (2, "7 launches".into()), (1, "3 lost".into())];
        assert_eq!(fit(&parts, 34), "recording 0:01, 7 launches, 3 lost");
        assert_eq!(fit(&parts, 33), "recording 0:01, 3 lost");
        assert_eq!(fit(&parts, 21), "recording 0:01");
        assert_eq!(fit(&parts, 9), "recording");
        assert_eq!(fit(&[], 9), "");
    }
}
