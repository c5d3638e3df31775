//! Statistics of a compilation, mainly on what rows could not express.

/// Why a row contains less than the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The CFA is relative to a word that a register other than rsp and rbp points to, or to nothing.
    CfaRegister,
    /// The CFA is an expression of an unknown form.
    CfaExpression,
    /// The CFA's offset is too large, or not a multiple of 8.
    CfaOffset,
    /// The return address is not at CFA - 8.
    ReturnAddress,
    /// A signal trampoline that does not leave rsp at a ucontext.
    SignalFrame,
    /// The function's program is malformed from here on.
    Program,
    /// The caller's rbp is too far from the CFA, in another register, or given by an unknown expression. The row itself
    /// is valid: only callers that need rbp cannot be reached.
    Rbp,
    /// The same for rbx.
    Rbx,
}

impl Loss {
    const ALL: [(Loss, &'static str); 8] = [
        (Loss::CfaRegister, "CFA from another register"),
        (Loss::CfaExpression, "CFA by unknown expression"),
        (Loss::CfaOffset, "CFA offset out of range"),
        (Loss::ReturnAddress, "return address not at CFA-8"),
        (Loss::SignalFrame, "unknown signal frame"),
        (Loss::Program, "broken CFI program"),
        (Loss::Rbp, "rbp out of reach"),
        (Loss::Rbx, "rbx out of reach"),
    ];
}

/// Counts of one compilation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Functions (FDEs) compiled.
    pub functions: u64,
    /// Entries that could not be parsed, or whose CIE could not.
    pub malformed: u64,
    /// Functions outside every executable segment: code dropped by the linker, or invalid.
    pub outside: u64,
    /// Functions dropped or truncated because another one covers their addresses.
    pub overlapping: u64,
    /// Rows for gaps between functions.
    pub gaps: u64,
    /// Bytes of code covered by a function.
    pub covered: u64,
    /// Bytes of code whose row is [`crate::Cfa::Unsupported`].
    pub unsupported: u64,
    losses: [u64; Loss::ALL.len()],
}

impl Stats {
    pub(crate) fn lose(&mut self, loss: Loss) {
        self.losses[loss as usize] += 1;
    }

    /// Returns the number of rows that contain less than the file, for this reason.
    pub fn lost(&self, loss: Loss) -> u64 {
        self.losses[loss as usize]
    }

    /// Returns the reasons that occurred, as text, with their number of rows.
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Loss::ALL.iter().map(|&(loss, name)| (name, self.lost(loss))).filter(|&(_, rows)| rows > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every loss has its own counter and name.
    #[test]
    fn losses_are_listed_in_the_order_of_the_enum() {
        for (index, (loss, _)) in Loss::ALL.iter().enumerate() {
            assert_eq!(*loss as usize, index);
        }
        let mut stats = Stats::default();
        stats.lose(Loss::Rbp);
        assert_eq!(stats.losses().collect::<Vec<_>>(), [("rbp out of reach", 1)]);
    }
}
