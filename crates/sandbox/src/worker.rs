//! One request: read it, call its function, write the answer, end.

use std::{
    fs::File,
    io::{Read, Write},
    panic::{AssertUnwindSafe, catch_unwind},
};

/// The types of a request and its answer, as the worker sees them: the function, its request and its files.
pub(crate) type Call = fn(usize, &[u8], &[&File]) -> Option<Vec<u8>>;

/// What precedes a request: two addresses and a length.
pub(crate) const HEADER: usize = 24;

/// Reads the request from the socket, and answers it.
pub(crate) fn run(mut socket: &File, files: Vec<File>) -> ! {
    let done = catch_unwind(AssertUnwindSafe(|| {
        let mut header = [0; HEADER];
        socket.read_exact(&mut header).ok()?;
        let word = |at: usize| usize::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default());
        let mut request = vec![0; word(16)];
        socket.read_exact(&mut request).ok()?;
        // SAFETY: the address of a function with this type, written by the process that this one is a copy of.
        let call: Call = unsafe { std::mem::transmute::<usize, Call>(word(0)) };
        let answer = call(word(8), &request, &files.iter().collect::<Vec<_>>())?;
        socket.write_all(&(answer.len() as u64).to_le_bytes()).ok()?;
        socket.write_all(&answer).ok()
    }));
    exit(if matches!(done, Ok(Some(()))) { 0 } else { 1 })
}

/// Ends without running anything that was registered in warpscope.
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}
