//! A terminal for a program under test, and the screen that its user sees.

use std::{
    ffi::CStr,
    fs::File,
    io::{Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::{fs::OpenOptionsExt, process::CommandExt},
    },
    process::{Command, Stdio},
};

use super::Running;

/// A pseudo-terminal: our end of it, and the output so far.
pub struct Terminal {
    master: File,
    pub text: String,
    screen: Screen,
    /// Its settings before the program started.
    before: [libc::tcflag_t; 4],
}

impl Terminal {
    /// Starts a command as a session leader with a new terminal for its input and output.
    pub fn start(command: &mut Command) -> (Self, Running) {
        // Not openpty: its descriptors would leak into processes that other tests start at the same time.
        let mut name = [0; 64];
        // SAFETY: the descriptor is new and ours; the name is written to a buffer of the stated length.
        let master = unsafe {
            let master = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
            assert!(master >= 0 && libc::grantpt(master) == 0 && libc::unlockpt(master) == 0, "a pseudo-terminal");
            assert_eq!(libc::ptsname_r(master, name.as_mut_ptr(), name.len()), 0, "the terminal has a name");
            File::from_raw_fd(master)
        };
        // SAFETY: the call above has ended the name with a zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_str().expect("a path");
        let mut options = File::options();
        let slave = options.read(true).write(true).custom_flags(libc::O_NOCTTY).open(name).expect("the terminal opens");
        let end = || Stdio::from(slave.try_clone().expect("a descriptor"));
        command.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: only system calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let mut terminal = Self { master, text: String::new(), screen: Screen::default(), before: [0; 4] };
        terminal.resize(130, 40);
        terminal.before = terminal.settings();
        let child = command.spawn().expect("it can be started");
        // Our copies of the terminal's other end would keep it open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        (terminal, Running::watch(child))
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.master.write_all(bytes).expect("the terminal accepts it");
    }

    /// Resizes the terminal and clears the screen, because the program must redraw it.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: our own descriptor and a size that lives through the call.
        unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        self.screen.clear(columns.into(), rows.into());
    }

    /// The settings: echo, line mode, signals.
    fn settings(&self) -> [libc::tcflag_t; 4] {
        let mut settings = MaybeUninit::<libc::termios>::zeroed();
        // SAFETY: our own descriptor and a place for the answer.
        let settings = unsafe {
            assert_eq!(libc::tcgetattr(self.master.as_raw_fd(), settings.as_mut_ptr()), 0, "a terminal");
            settings.assume_init()
        };
        [settings.c_iflag, settings.c_oflag, settings.c_cflag, settings.c_lflag]
    }

    /// Reads until `text` has appeared.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        while !self.text.contains(text) {
            assert!(self.more(), "no `{text}` in:\n{}", self.text);
        }
    }

    /// Reads until the screen satisfies the condition.
    #[track_caller]
    pub fn shows(&mut self, mut condition: impl FnMut(&str) -> bool) {
        while !condition(&self.screen.to_string()) {
            assert!(self.more(), "the screen is:\n{}", self.screen);
        }
    }

    /// Reads to the end.
    pub fn rest(mut self) -> String {
        while self.more() {}
        self.text
    }

    /// Whether the program uses the alternate screen and raw mode.
    pub fn is_in_use(&self) -> bool {
        self.text.rfind("\x1b[?1049h") > self.text.rfind("\x1b[?1049l") && self.settings() != self.before
    }

    /// Whether the settings, the screen and the cursor are restored.
    pub fn is_restored(&self) -> bool {
        let off = |on: &str, off: &str| self.text.rfind(on) < self.text.rfind(off);
        self.settings() == self.before && off("\x1b[?1049h", "\x1b[?1049l") && off("\x1b[?25l", "\x1b[?25h")
    }

    /// Reads the next output; `false` at the end.
    pub fn more(&mut self) -> bool {
        let mut bytes = [0; 4096];
        // Reading a terminal that no process has open fails with EIO.
        let length = self.master.read(&mut bytes).unwrap_or(0);
        self.text.push_str(&String::from_utf8_lossy(&bytes[..length]));
        self.screen.feed(&bytes[..length]);
        length > 0
    }
}

/// The contents of a terminal, as far as full-screen programs need it: text, positions, and clearing.
#[derive(Default)]
struct Screen {
    cells: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// An incomplete character or escape sequence.
    pending: Vec<u8>,
}

impl Screen {
    fn clear(&mut self, columns: usize, rows: usize) {
        self.cells = vec![vec![' '; columns]; rows];
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = pending.as_slice();
        while let Some(length) = self.consume(rest) {
            rest = &rest[length..];
        }
        self.pending = rest.to_vec();
    }

    /// Consumes one character or escape sequence; `None` if it is incomplete.
    fn consume(&mut self, bytes: &[u8]) -> Option<usize> {
        match bytes {
            [b'\x1b', b'[', sequence @ ..] => {
                let length = sequence.iter().position(|byte| (0x40..0x7f).contains(byte))?;
                self.control(std::str::from_utf8(&sequence[..length]).unwrap_or(""), sequence[length]);
                Some(length + 3)
            }
            [b'\x1b', _, ..] => Some(2),
            [b'\r', ..] => {
                self.column = 0;
                Some(1)
            }
            [b'\n', ..] => {
                self.row += 1;
                Some(1)
            }
            [b'\x1b'] | [] => None,
            _ => {
                let length = (1..=bytes.len().min(4)).find(|length| std::str::from_utf8(&bytes[..*length]).is_ok())?;
                let c = std::str::from_utf8(&bytes[..length]).ok()?.chars().next()?;
                if let Some(cell) = self.cells.get_mut(self.row).and_then(|row| row.get_mut(self.column)) {
                    *cell = c;
                }
                self.column += 1;
                Some(length)
            }
        }
    }

    fn control(&mut self, parameters: &str, what: u8) {
        let mut numbers = parameters.split(';').map(|text| text.parse::<usize>().unwrap_or(1));
        match what {
            b'H' => {
                self.row = numbers.next().unwrap_or(1) - 1;
                self.column = numbers.next().unwrap_or(1) - 1;
            }
            b'J' if parameters == "2" => self.cells.iter_mut().for_each(|row| row.fill(' ')),
            _ => {}
        }
    }
}

impl std::fmt::Display for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for row in &self.cells {
            writeln!(f, "{}", row.iter().collect::<String>().trim_end())?;
        }
        Ok(())
    }
}
