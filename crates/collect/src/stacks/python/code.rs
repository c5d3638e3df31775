//! Which code of a process is the interpreter's.

use std::ops::Range;

use model::event::{ADDRESS, Mapping};
use symbols::{
    Files,
    python::{Interpreter, Kind},
};

/// Libraries that the interpreter itself calls.
const SYSTEM: [&str; 6] = ["libc.so", "libc-2", "libm.so", "libpthread", "ld-linux", "[vdso]"];

/// Addresses of one process.
#[derive(Clone, Default)]
pub(crate) struct Code {
    interpreter_loop: Vec<Range<u64>>,
    pub(super) interpreter: Vec<Range<u64>>,
    system: Vec<Range<u64>>,
    generated: Vec<Range<u64>>,
}

impl Code {
    /// Adds a mapping that cannot have an interpreter; false if it can.
    pub fn add(&mut self, mapping: &Mapping) -> bool {
        let range = mapping.start..mapping.end;
        let name = mapping.path.rsplit('/').next().unwrap_or_default();
        if SYSTEM.iter().any(|system| name.starts_with(system)) {
            self.system.push(range);
            return true;
        }
        let generated = !Files::is_file(&mapping.path) && !self.generated.contains(&range);
        if generated {
            self.generated.push(range);
        }
        generated
    }

    /// Adds the mapping of an interpreter. Returns the difference between its addresses and those of its file.
    pub fn add_interpreter(&mut self, mapping: &Mapping, interpreter: &Interpreter) -> Option<u64> {
        let bias = interpreter.segments.bias(mapping.start, mapping.offset)?;
        let moved = |r: &Range<u64>| r.start.wrapping_add(bias)..r.end.wrapping_add(bias);
        self.interpreter.push(mapping.start..mapping.end);
        self.interpreter_loop = interpreter.interpreter_loop.iter().map(moved).collect();
        self.system.extend(interpreter.program.iter().map(moved));
        Some(bias)
    }

    /// Returns what a native frame is for the interpreter.
    pub fn kind(&self, address: u64) -> Kind {
        let address = address & ADDRESS;
        let inside = |ranges: &[Range<u64>]| ranges.iter().any(|range| range.contains(&address));
        match () {
            () if inside(&self.interpreter_loop) => Kind::Loop,
            () if inside(&self.system) => Kind::System,
            () if inside(&self.interpreter) => Kind::Interpreter,
            () if inside(&self.generated) => Kind::Generated,
            () => Kind::Other,
        }
    }
}
