//! The layout of an interpreter, for the BPF programs.

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
