//! The layout of an interpreter, for the BPF programs and for the threads of the process.

use bpf::{PythonKind, PythonProcess};
use symbols::python::{Frames, Interpreter};

/// Converts the layout to the form that the BPF programs use.
pub(super) fn layout(interpreter: &Interpreter, bias: u64) -> PythonProcess {
    let o = &interpreter.offsets;
    let runtime = interpreter.runtime.wrapping_add(bias);
    let thread_end = [o.thread_prev, o.thread_next, o.thread_interpreter, o.thread_id, o.thread_frame];
    let frame_end = [o.frame_previous, o.frame_code, o.frame_instruction, o.frame_owner & !7, o.frame_entry & !7];
    let end = |fields: &[u16]| fields.iter().max().map_or(0, |last| last + 8);
    PythonProcess {
        interpreters: runtime.wrapping_add(o.runtime_interpreters.into()),
        interpreter_next: o.interpreter_next,
        interpreter_threads: o.interpreter_threads,
        versions: interpreter.versions.map_or(0, |address| address.wrapping_add(bias)),
        interpreter_versions: o.interpreter_versions.unwrap_or(0),
        pad: 0,
        thread_size: end(&thread_end),
        thread_prev: o.thread_prev,
        thread_next: o.thread_next,
        thread_interpreter: o.thread_interpreter,
        thread_id: o.thread_id,
        thread_frame: o.thread_frame,
        frame_link: o.frame_link.map_or(0, |offset| offset + 64),
        frame_size: end(&frame_end),
        frame_previous: o.frame_previous,
        frame_code: o.frame_code,
        frame_instruction: o.frame_instruction,
        frame_owner: o.frame_owner,
        frame_entry: o.frame_entry,
        code_first_line: o.code_first_line,
        code_name: o.code_name,
        code_file: o.code_file,
        code_lines: o.code_lines,
        code_tag: o.code_tag,
        code_tag_words: o.code_tag_words,
        code_start: o.code_start,
        bytes_size: o.bytes_size,
        bytes_data: o.bytes_data,
        text_length: o.text_length,
        text_state: o.text_state,
        text_ascii: o.text_ascii,
        text_compact: o.text_compact,
        text_kind_shift: o.text_kind_shift,
        kind: match o.frames {
            Frames::Objects => PythonKind::Objects,
            Frames::Flags => PythonKind::Flags,
            Frames::Shims => PythonKind::Shims,
        } as u16,
    }
}

/// Converts the layout to the form that threads use. `None` if code objects have numbers, but it is not known where they are counted:
/// then equal hashes do not prove equal stacks.
pub(super) fn shared_layout(process: &PythonProcess, image: u32) -> Option<wire::known::Python> {
    let numbered = process.kind == PythonKind::Shims as u16;
    if numbered && process.versions == 0 && process.interpreter_versions == 0 {
        return None;
    }
    let code = wire::known::Code {
        fields: process.code_tag,
        words: process.code_tag_words,
        name: process.code_name,
        file: process.code_file,
        lines: process.code_lines,
        bytes_size: process.bytes_size,
        bytes_data: process.bytes_data,
        text_length: process.text_length,
        text_state: process.text_state,
        text_kind_shift: process.text_kind_shift,
        text_ascii: process.text_ascii,
        text_compact: process.text_compact,
    };
    Some(wire::known::Python {
        versions: process.versions,
        interpreter_versions: process.interpreter_versions,
        image,
        thread_interpreter: process.thread_interpreter,
        thread_id: process.thread_id,
        thread_frame: process.thread_frame,
        frame_link: process.frame_link,
        frame_previous: process.frame_previous,
        frame_code: process.frame_code,
        frame_instruction: process.frame_instruction,
        // A frame object has no such byte.
        frame_owner: if numbered { process.frame_owner } else { process.frame_entry },
        code: if numbered { wire::known::Code::default() } else { code },
    })
}
