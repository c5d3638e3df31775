//! Lines in, lines out.

use std::{
    io::{self, BufRead, Read, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, MutexGuard, PoisonError, mpsc},
    thread,
};

use crate::{
    Library, Server,
    inbox::{Admitted, Inbox},
    message::{Error, LONGEST, failure},
};

/// Serves requests until the input ends and all of them are answered.
pub fn serve<L: Library>(
    mut server: Server<L>,
    input: impl BufRead + Send,
    output: impl Write + Send,
) -> io::Result<()> {
    let inbox = Mutex::new(Inbox::default());
    let output = Mutex::new(output);
    let (sender, requests) = mpsc::channel();
    thread::scope(|scope| {
        let (inbox, out) = (&inbox, &output);
        scope.spawn(move || read(input, inbox, out, &sender));
        for (request, cancel) in requests {
            // A defect in one answer must not end the session.
            let answer = catch_unwind(AssertUnwindSafe(|| server.answer(&request, &cancel)));
            let answer = answer.unwrap_or_else(|_| {
                failure(Some(&request.id), &Error::new(Error::INTERNAL, "this request could not be answered"))
            });
            if lock(inbox).done(&request.id) {
                write(out, &answer)?;
            }
        }
        Ok(())
    })
}

/// Reads and admits lines. Errors are answered at once.
fn read<T: Write>(
    mut input: impl BufRead,
    inbox: &Mutex<Inbox>,
    output: &Mutex<T>,
    requests: &mpsc::Sender<(crate::message::Request, crate::Cancel)>,
) {
    let mut line = Vec::new();
    while let Ok(Some(whole)) = next_line(&mut input, &mut line) {
        let admitted = match whole {
            true if line.iter().all(u8::is_ascii_whitespace) => Admitted::Nothing,
            true => lock(inbox).admit(&line),
            false => Admitted::Answer(Inbox::refuse_long(LONGEST)),
        };
        let ended = match admitted {
            Admitted::Request(request, cancel) => requests.send((request, cancel)).is_err(),
            Admitted::Answer(answer) => write(output, &answer).is_err(),
            Admitted::Nothing => false,
        };
        if ended {
            break;
        }
    }
}

/// Reads a line; `false` if it is longer than allowed: then its rest is skipped. `None` at the end.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    let length = input.by_ref().take(LONGEST as u64 + 1).read_until(b'\n', line)?;
    if length == 0 {
        return Ok(None);
    }
    if length <= LONGEST || line.ends_with(b"\n") {
        return Ok(Some(true));
    }
    line.clear();
    input.skip_until(b'\n')?;
    Ok(Some(false))
}

fn write<T: Write>(output: &Mutex<T>, line: &str) -> io::Result<()> {
    let mut output = lock(output);
    output.write_all(line.as_bytes())?;
    output.write_all(b"\n")?;
    output.flush()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a line that is too long is skipped, and that the next one is read.
    #[test]
    fn long_lines_are_skipped() {
        let mut input = vec![b'x'; LONGEST + 10];
        input.extend(b"\nshort\nlast");
        let (mut input, mut line) = (&input[..], Vec::new());
        assert_eq!(next_line(&mut input, &mut line).expect("a line"), Some(false));
        assert_eq!((next_line(&mut input, &mut line).expect("a line"), &line[..]), (Some(true), &b"short\n"[..]));
        assert_eq!((next_line(&mut input, &mut line).expect("a line"), &line[..]), (Some(true), &b"last"[..]));
        assert_eq!(next_line(&mut input, &mut line).expect("the end"), None);
    }
}
