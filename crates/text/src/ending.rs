//! How a command ended.

/// The signals that end programs, by number.
const SIGNALS: [(i32, &str); 17] = [
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (10, "SIGUSR1"),
    (11, "SIGSEGV"),
    (12, "SIGUSR2"),
    (13, "SIGPIPE"),
    (14, "SIGALRM"),
    (15, "SIGTERM"),
    (24, "SIGXCPU"),
    (31, "SIGSYS"),
];

/// Describes a wait status (`wait(2)`): `exit status 42`, `killed by SIGKILL`. `None`: success.
pub fn ending(status: i32) -> Option<String> {
    let signal = status & 0x7f;
    if signal == 0 {
        let code = (status >> 8) & 0xff;
        return (code != 0).then(|| format!("exit status {code}"));
    }
    match SIGNALS.iter().find(|(number, _)| *number == signal) {
        Some((_, name)) => Some(format!("killed by {name}")),
        None => Some(format!("killed by signal {signal}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check exit codes, signals with and without a core dump, and a signal without a name here.
    #[test]
    fn statuses_are_described() {
        for (status, text) in [
            (0, None),
            (42 << 8, Some("exit status 42")),
            (9, Some("killed by SIGKILL")),
            (11 | 0x80, Some("killed by SIGSEGV")),
            (40, Some("killed by signal 40")),
        ] {
            assert_eq!(ending(status).as_deref(), text);
        }
    }
}
