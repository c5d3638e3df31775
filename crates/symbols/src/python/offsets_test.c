/* Prints a CPython version's offsets for the tables of `offsets.rs`. A test compiles it against that version's headers. */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#if PY_VERSION_HEX < 0x030b0000
#include <frameobject.h>
#else
#include "internal/pycore_frame.h"
#endif
#if PY_VERSION_HEX >= 0x03090000
#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"
#endif
#include "internal/pycore_pystate.h"

#define PRINT(name, value) printf("%s %zu\n", name, (size_t)(value))
#define FIELD(name, type, field) PRINT(name, offsetof(type, field))

int main(void)
{
	FIELD("runtime_interpreters", _PyRuntimeState, interpreters.head);
	FIELD("interpreter_next", PyInterpreterState, next);
	FIELD("thread_prev", PyThreadState, prev);
	FIELD("thread_next", PyThreadState, next);
	FIELD("thread_interpreter", PyThreadState, interp);
	FIELD("thread_id", PyThreadState, thread_id);
#if PY_VERSION_HEX < 0x030b0000
	FIELD("interpreter_threads", PyInterpreterState, tstate_head);
	FIELD("thread_frame", PyThreadState, frame);
	FIELD("frame_previous", PyFrameObject, f_back);
	FIELD("frame_code", PyFrameObject, f_code);
	FIELD("frame_instruction", PyFrameObject, f_lasti);
	FIELD("code_name", PyCodeObject, co_name);
#else
	FIELD("interpreter_threads", PyInterpreterState, threads.head);
	FIELD("frame_previous", _PyInterpreterFrame, previous);
	FIELD("frame_owner", _PyInterpreterFrame, owner);
	FIELD("code_name", PyCodeObject, co_qualname);
	FIELD("code_start", PyCodeObject, co_code_adaptive);
#if PY_VERSION_HEX < 0x030d0000
	FIELD("thread_frame", PyThreadState, cframe);
	FIELD("frame_link", _PyCFrame, current_frame);
	FIELD("frame_code", _PyInterpreterFrame, f_code);
	FIELD("frame_instruction", _PyInterpreterFrame, prev_instr);
#else
	FIELD("thread_frame", PyThreadState, current_frame);
	FIELD("frame_code", _PyInterpreterFrame, f_executable);
	FIELD("frame_instruction", _PyInterpreterFrame, instr_ptr);
#endif
#if PY_VERSION_HEX < 0x030c0000
	FIELD("frame_entry", _PyInterpreterFrame, is_entry);
#endif
#endif
	FIELD("code_first_line", PyCodeObject, co_firstlineno);
	FIELD("code_file", PyCodeObject, co_filename);
#if PY_VERSION_HEX < 0x030a0000
	FIELD("code_lines", PyCodeObject, co_lnotab);
#else
	FIELD("code_lines", PyCodeObject, co_linetable);
#endif
#if PY_VERSION_HEX < 0x030c0000
	FIELD("code_tag", PyCodeObject, co_firstlineno);
#if PY_VERSION_HEX < 0x030a0000
	PRINT("code_tag_words", (offsetof(PyCodeObject, co_lnotab) + 8 - offsetof(PyCodeObject, co_firstlineno)) / 8);
#else
	PRINT("code_tag_words", (offsetof(PyCodeObject, co_linetable) + 8 - offsetof(PyCodeObject, co_firstlineno)) / 8);
#endif
#else
#if PY_VERSION_HEX >= 0x030d0000
	FIELD("interpreter_versions", PyInterpreterState, func_state.next_version);
#endif
	PRINT("code_tag", offsetof(PyCodeObject, co_version) - 4);
	PRINT("code_tag_words", 1);
#endif
	FIELD("bytes_size", PyVarObject, ob_size);
	FIELD("bytes_data", PyBytesObject, ob_sval);
	FIELD("text_length", PyASCIIObject, length);
	FIELD("text_state", PyASCIIObject, state);
	PRINT("text_ascii", sizeof(PyASCIIObject));
	PRINT("text_compact", sizeof(PyCompactUnicodeObject));
	return 0;
}
