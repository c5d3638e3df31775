//! The code and data that the new thread uses in the target.
//!
//! They are behind the library's bytes in the memory file: a page of code and a page of data, which the target maps
//! without the right to write, and a page for the report, which the thread writes to the file. So no memory of the target
//! is writable and executable, and the report can be read after the thread has removed the mapping and closed the file.
//!
//! A thread created without the C library has no thread-local storage and cannot call `dlopen`. So the borrowed thread
//! calls `pthread_create`, and nothing else that takes locks. The new thread removes its own mapping by a tail call to
//! `munmap`. The target opens the file as `/proc/self/fd/N`, so it needs a mounted `/proc`. The loader compares paths
//! before files, and N is reused, so redundant `./` make each path unique.

use std::{ffi::CStr, slice};

use crate::{Error, library::Library};

/// The size of each part.
pub(crate) const PAGE: u64 = 4096;
/// Code and data: what the target maps.
pub(crate) const MAPPED: u64 = 2 * PAGE;
/// Code, data and report.
pub(crate) const SIZE: u64 = 3 * PAGE;
/// The most bytes of an argument.
const MAX_ARGUMENT: usize = 1024;
const MAX_NAME: usize = 256;
const MAX_MESSAGE: usize = 512;

/// Where the fields of the data page are. The assembly has the same numbers.
const FUNCTIONS: usize = 0;
const NUMBERS: usize = 48;
const PATH: usize = 128;
const ENTRY: usize = 384;
const ARGUMENT: usize = 640;
/// Where the fields of the report are: state and result, then the loader's message.
const STATE: usize = 0;
const RESULT: usize = 8;
const MESSAGE: usize = 64;

const RETURNED: u64 = 2;
const FAILED: u64 = 3;

std::arch::global_asm!(
    ".pushsection .rodata.attach_thread, \"a\"",
    ".balign 16",
    ".globl attach_thread_start",
    ".hidden attach_thread_start",
    "attach_thread_start:",
    // The entry of a thread: rdi is the data page. State and result are at rsp, which stays aligned to 16.
    "push rbx",
    "push rbp",
    "sub rsp, 24",
    "mov rbx, rdi",
    "mov qword ptr [rsp], 1",
    "mov qword ptr [rsp + 8], 0",
    "call 9f",
    "call [rbx + 24]", // pthread_self
    "mov rdi, rax",
    "call [rbx + 32]",     // pthread_detach
    "mov rax, [rbx + 96]", // the entry of a library that is loaded already
    "test rax, rax",
    "jnz 1f",
    "lea rdi, [rbx + 128]",
    "mov esi, 2", // RTLD_NOW | RTLD_LOCAL
    "call [rbx]", // dlopen
    "test rax, rax",
    "jz 2f",
    "mov rdi, rax",
    "lea rsi, [rbx + 384]",
    "call [rbx + 8]", // dlsym
    "test rax, rax",
    "jz 2f",
    "1:",
    "lea rdi, [rbx + 640]",
    "mov rsi, [rbx + 72]",
    "call rax",
    "mov qword ptr [rsp], 2",
    "mov [rsp + 8], rax",
    "jmp 5f",
    // Failed: report the loader's message.
    "2:",
    "call [rbx + 16]", // dlerror
    "mov qword ptr [rsp], 3",
    "test rax, rax",
    "jz 5f",
    "mov rsi, rax",
    "xor edx, edx",
    "3:",
    "cmp byte ptr [rsi + rdx], 0",
    "je 4f",
    "inc edx",
    "cmp edx, 511",
    "jb 3b",
    "4:",
    "mov rdi, [rbx + 64]",
    "mov r10, [rbx + 88]",
    "mov eax, 18", // pwrite64
    "syscall",
    // Report, close the file, and remove this mapping: munmap returns to the caller of this function.
    "5:",
    "call 9f",
    "mov rdi, [rbx + 64]",
    "mov eax, 3", // close
    "syscall",
    "mov rdi, [rbx + 48]",
    "mov rsi, [rbx + 56]",
    "mov rax, [rbx + 40]",
    "add rsp, 24",
    "pop rbp",
    "pop rbx",
    "jmp rax",
    // Writes state and result to the report.
    "9:",
    "mov rdi, [rbx + 64]",
    "lea rsi, [rsp + 8]",
    "mov edx, 16",
    "mov r10, [rbx + 80]",
    "mov eax, 18", // pwrite64
    "syscall",
    "ret",
    ".globl attach_thread_end",
    ".hidden attach_thread_end",
    "attach_thread_end:",
    ".popsection",
);

unsafe extern "C" {
    static attach_thread_start: u8;
    static attach_thread_end: u8;
}

/// Returns the code page.
pub(crate) fn code() -> &'static [u8] {
    let (start, end) = (&raw const attach_thread_start, &raw const attach_thread_end);
    // SAFETY: both symbols delimit the constant bytes above.
    unsafe { slice::from_raw_parts(start, end.addr() - start.addr()) }
}

/// What the data page says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// Where the target has mapped the code.
    pub base: u64,
    /// The target's number of the memory file.
    pub number: u64,
    /// Where the code is in the memory file.
    pub offset: u64,
    /// Makes the library's path unique: the loader compares it with the paths of loaded libraries first, and the number
    /// may be the same the next time.
    pub nonce: u64,
    pub entry: &'a CStr,
    /// The address of the entry if the library is loaded already, otherwise 0.
    pub loaded: u64,
    pub argument: &'a [u8],
}

/// Returns the data page.
pub(crate) fn data(library: &Library, call: Call<'_>) -> Result<Vec<u8>, Error> {
    let mut path = b"/proc/self/fd/".to_vec();
    (0..u64::BITS).for_each(|bit| path.extend(if call.nonce >> bit & 1 == 1 { "./" } else { "/" }.bytes()));
    path.extend(call.number.to_string().bytes());
    let mut page = vec![0_u8; PAGE as usize];
    let mut put = |at: usize, bytes: &[u8], limit: usize, what: &'static str| match page.get_mut(at..at + bytes.len()) {
        Some(place) if bytes.len() <= limit => {
            place.copy_from_slice(bytes);
            Ok(())
        }
        _ => Err(Error::TooLarge { what, limit }),
    };
    let names = ["dlopen", "dlsym", "dlerror", "pthread_self", "pthread_detach", "munmap"];
    for (index, name) in names.into_iter().enumerate() {
        put(FUNCTIONS + 8 * index, &library.function(name).to_le_bytes(), 8, "an address")?;
    }
    let report = call.offset + MAPPED;
    let length = call.argument.len() as u64;
    let numbers = [call.base, MAPPED, call.number, length, report, report + MESSAGE as u64, call.loaded];
    for (index, value) in numbers.into_iter().enumerate() {
        put(NUMBERS + 8 * index, &value.to_le_bytes(), 8, "a number")?;
    }
    put(PATH, &path, MAX_NAME - 1, "the path of the library")?;
    put(ENTRY, call.entry.to_bytes(), MAX_NAME - 1, "the name of the entry")?;
    put(ARGUMENT, call.argument, MAX_ARGUMENT, "the argument")?;
    Ok(page)
}

/// What the thread has reported.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// It has not started, or it runs.
    None,
    /// The entry has returned.
    Returned(u64),
    /// The loader's message.
    Failed(String),
}

impl Report {
    /// Parses the report. The target may have written anything.
    pub fn read(page: &[u8]) -> Report {
        let word =
            |at: usize| page.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
        match word(STATE) {
            RETURNED => Report::Returned(word(RESULT)),
            FAILED => {
                let message = page.get(MESSAGE..MESSAGE + MAX_MESSAGE).unwrap_or_default();
                let end = message.iter().position(|byte| *byte == 0).unwrap_or(message.len());
                let text = String::from_utf8_lossy(&message[..end]);
                Report::Failed(text.chars().map(|c| if c.is_control() { '?' } else { c }).collect())
            }
            _ => Report::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the code fits its page, and that reports of a hostile target are safe to print.
    #[test]
    fn reports_are_parsed() {
        assert!((64..PAGE as usize).contains(&code().len()));
        let mut page = vec![0; PAGE as usize];
        assert_eq!(Report::read(&page), Report::None);
        page[STATE] = 2;
        page[RESULT] = 9;
        assert_eq!(Report::read(&page), Report::Returned(9));
        page[STATE] = 3;
        page[MESSAGE..MESSAGE + 3].copy_from_slice(b"a\x1bb");
        assert_eq!(Report::read(&page), Report::Failed("a?b".to_owned()));
        page[MESSAGE..].fill(b'x');
        assert_eq!(Report::read(&page), Report::Failed("x".repeat(MAX_MESSAGE)));
        assert_eq!(Report::read(&page[..4]), Report::None);
    }

    /// Check that arguments and names over their limits are refused.
    #[test]
    fn large_arguments_are_refused() {
        let call = Call {
            base: 1,
            number: 2,
            offset: 3,
            nonce: u64::MAX,
            entry: c"entry",
            loaded: 0,
            argument: &[0; MAX_ARGUMENT],
        };
        assert!(data(&Library::default(), call).is_ok());
        let large = Call { argument: &[0; MAX_ARGUMENT + 1], ..call };
        assert!(matches!(data(&Library::default(), large), Err(Error::TooLarge { limit: MAX_ARGUMENT, .. })));
    }
}
