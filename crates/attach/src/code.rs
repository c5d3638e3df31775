//! The code and data that the new thread uses in the target.
//!
//! They are one mapping of the memory file, behind the library's bytes: a page of code, then a page of data. The file
//! stays open here, so that the result can be read after the thread has removed the mapping.

use std::{ffi::CStr, slice};

use crate::{Error, library::Library};

/// The size of each part.
pub(crate) const PAGE: u64 = 4096;
/// The whole mapping.
pub(crate) const SIZE: u64 = 2 * PAGE;
/// The most bytes of an argument.
pub(crate) const MAX_ARGUMENT: usize = 1024;
const MAX_NAME: usize = 256;
const MAX_MESSAGE: usize = 512;

/// Where the fields of the data page are. The assembly has the same numbers.
const STATE: usize = 0;
const RESULT: usize = 8;
const FUNCTIONS: usize = 16;
const BASE: usize = 72;
const FILE: usize = 88;
const LENGTH: usize = 96;
const PATH: usize = 128;
const ENTRY: usize = PATH + MAX_NAME;
const MESSAGE: usize = ENTRY + MAX_NAME;
const ARGUMENT: usize = MESSAGE + MAX_MESSAGE;

std::arch::global_asm!(
    ".pushsection .rodata.attach_thread, \"a\"",
    ".balign 16",
    ".globl attach_thread_start",
    ".hidden attach_thread_start",
    "attach_thread_start:",
    // The entry of a thread: rdi is the data page. Two pushes and 8 bytes keep the stack aligned.
    "push rbx",
    "push rbp",
    "sub rsp, 8",
    "mov rbx, rdi",
    "mov dword ptr [rbx], 1",
    "call [rbx + 48]", // pthread_self
    "mov rdi, rax",
    "call [rbx + 56]", // pthread_detach
    "lea rdi, [rbx + 128]",
    "mov esi, 2",      // RTLD_NOW | RTLD_LOCAL
    "call [rbx + 16]", // dlopen
    "mov rbp, rax",
    "mov rdi, [rbx + 88]",
    "mov eax, 3", // close
    "syscall",
    "test rbp, rbp",
    "jz 2f",
    "mov rdi, rbp",
    "lea rsi, [rbx + 384]",
    "call [rbx + 24]", // dlsym
    "test rax, rax",
    "jz 2f",
    "lea rdi, [rbx + 1152]",
    "mov rsi, [rbx + 96]",
    "call rax",
    "mov [rbx + 8], rax",
    "mov ebp, 2",
    "jmp 4f",
    // Failed: copy the loader's message.
    "2:",
    "call [rbx + 32]", // dlerror
    "mov ebp, 3",
    "test rax, rax",
    "jz 4f",
    "xor ecx, ecx",
    "3:",
    "mov dl, [rax + rcx]",
    "mov [rbx + rcx + 640], dl",
    "inc ecx",
    "test dl, dl",
    "jz 4f",
    "cmp ecx, 511",
    "jb 3b",
    // Report the result, then remove this mapping: munmap returns to the caller of this function.
    "4:",
    "mov rdi, [rbx + 72]",
    "mov rsi, [rbx + 80]",
    "mov rax, [rbx + 64]", // munmap
    "mov [rbx], ebp",
    "add rsp, 8",
    "pop rbp",
    "pop rbx",
    "jmp rax",
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

/// Returns the data page. `nonce` makes the library's path unique: the loader compares paths with those of loaded
/// libraries first, and the number of the file may be the same at the next time.
pub(crate) fn data(library: &Library, base: u64, file: u64, nonce: u64, entry: &CStr, argument: &[u8]) -> Result<Vec<u8>, Error> {
    let mut path = b"/proc/self/fd/".to_vec();
    (0..u64::BITS).for_each(|bit| path.extend(if nonce >> bit & 1 == 1 { "./" } else { "/" }.bytes()));
    path.extend(file.to_string().bytes());
    let mut page = vec![0_u8; PAGE as usize];
    let mut put = |at: usize, bytes: &[u8], limit: usize, what: &'static str| match page.get_mut(at..at + bytes.len()) {
        Some(place) if bytes.len() <= limit => {
            place.copy_from_slice(bytes);
            Ok(())
        }
        _ => Err(Error::TooLarge { what, limit }),
    };
    let names = ["dlopen", "dlsym", "dlerror", "", "pthread_self", "pthread_detach", "munmap"];
    for (index, name) in names.into_iter().enumerate() {
        put(FUNCTIONS + 8 * index, &library.function(name).to_le_bytes(), 8, "an address")?;
    }
    for (at, value) in [(BASE, base), (BASE + 8, SIZE), (FILE, file), (LENGTH, argument.len() as u64)] {
        put(at, &value.to_le_bytes(), 8, "a number")?;
    }
    put(PATH, &path, MAX_NAME - 1, "the path of the library")?;
    put(ENTRY, entry.to_bytes(), MAX_NAME - 1, "the name of the entry")?;
    put(ARGUMENT, argument, MAX_ARGUMENT, "the argument")?;
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
    /// Reads the data page. The target may have written anything.
    pub fn read(page: &[u8]) -> Report {
        let word = |at: usize| page.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
        match word(STATE) as u32 {
            2 => Report::Returned(word(RESULT)),
            3 => {
                let message = page.get(MESSAGE..MESSAGE + MAX_MESSAGE).unwrap_or_default();
                let end = message.iter().position(|byte| *byte == 0).unwrap_or(message.len());
                let text = String::from_utf8_lossy(&message[..end]);
                Report::Failed(text.chars().map(|c| if c.is_control() { '?' } else { c }).collect())
            }
            _ => Report::None,
        }
    }
}
