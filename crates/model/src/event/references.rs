//! What the fields of events refer to.

use super::{CounterId, Frame, FunctionId, PointId, ProcessId, SessionId, StackId};

/// A number that means something in one recording only.
pub(crate) enum Number<'a> {
    Process(&'a mut ProcessId),
    Session(&'a mut SessionId),
    Stack(&'a mut StackId),
    Function(&'a mut FunctionId),
    Counter(&'a mut CounterId),
    Point(&'a mut PointId),
    Frame(&'a mut Frame),
}

/// What identifies an event among those of its kind: the values of some of its fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    parts: [u64; 4],
    count: usize,
}

impl Key {
    /// Adds a part.
    pub fn push(&mut self, part: u64) {
        self.parts[self.count] = part;
        self.count += 1;
    }

    /// Adds the parts of a field.
    pub fn with<T>(mut self, field: &T, parts: impl Fn(&T, &mut Self)) -> Self {
        parts(field, &mut self);
        self
    }

    /// Whether it has no part.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Whose event it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// That of a process image.
    Process(ProcessId),
    /// That of a CUDA process.
    Session(SessionId),
    /// That of a whole GPU, which several processes may use.
    Gpu,
}
