//! The walker of `walk.h` in Rust: for stacks whose bytes were copied because the kernel had no table for them yet.

use crate::{Cfa, Rbp, Row};

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No mapping holds it.
    NoMapping,
    /// Its mapping has no rule for it.
    NoRule,
    /// The row for it.
    Row(Row),
}

/// Why a walk ended: `enum walk_result` of `walk_types.h`, by the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ended {
    /// At the outermost frame: the stack is whole.
    Whole = 1,
    /// At the most frames asked for.
    Truncated = 2,
    /// At an address in no known mapping.
    NoMapping = 3,
    /// At code without a rule, where rbp is no frame pointer.
    NoRow = 4,
    /// At a rule that no row can say.
    Unsupported = 5,
    /// At a rule that needs rbp, which was lost on the way.
    NoRbp = 6,
    /// At memory that could not be read.
    BadRead = 7,
    /// Where the stack did not shrink.
    Stuck = 8,
}

/// The registers a walk starts from.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer.
    pub bp: u64,
}

// Where the kernel's ucontext keeps the interrupted registers.
const UCONTEXT_RBP: u64 = 120;
const UCONTEXT_RSP: u64 = 160;
const UCONTEXT_RIP: u64 = 168;

struct State {
    ip: u64,
    sp: u64,
    bp: Option<u64>,
    exact: bool,
}

/// Walks a stack, innermost frame first. Addresses other than the innermost lie in the calling instruction.
pub fn walk(
    registers: Registers,
    most: usize,
    find: impl Fn(u64) -> Found,
    read: impl Fn(u64) -> Option<u64>,
) -> (Vec<u64>, Ended) {
    let mut frames = Vec::new();
    let mut state = State { ip: registers.ip, sp: registers.sp, bp: Some(registers.bp), exact: true };
    while frames.len() < most {
        let address = if state.exact { state.ip } else { state.ip.wrapping_sub(1) };
        frames.push(address);
        let stepped = match find(address) {
            Found::NoMapping => Err(Ended::NoMapping),
            Found::NoRule => state.by_frame_pointer(&read),
            Found::Row(row) => state.by_row(row, &read),
        };
        match stepped {
            Ok(next) => state = next,
            Err(ended) => return (frames, ended),
        }
    }
    (frames, Ended::Truncated)
}

impl State {
    fn by_row(&self, row: Row, read: &impl Fn(u64) -> Option<u64>) -> Result<State, Ended> {
        let at = |base: u64, offset: i32| base.wrapping_add_signed(offset.into());
        let slot = |address| read(address).ok_or(Ended::BadRead);
        let cfa = match row.cfa() {
            Cfa::End => return Err(Ended::Whole),
            Cfa::NoRule => return self.by_frame_pointer(read),
            Cfa::Unsupported => return Err(Ended::Unsupported),
            Cfa::Signal => {
                let bp = Some(slot(self.sp.wrapping_add(UCONTEXT_RBP))?);
                let sp = slot(self.sp.wrapping_add(UCONTEXT_RSP))?;
                return Ok(State { ip: slot(self.sp.wrapping_add(UCONTEXT_RIP))?, sp, bp, exact: true });
            }
            Cfa::Rsp(offset) => at(self.sp, offset),
            Cfa::Rbp(offset) => at(self.bp.ok_or(Ended::NoRbp)?, offset),
            Cfa::Plt(threshold) => at(self.sp, if self.ip & 15 >= u64::from(threshold) { 16 } else { 8 }),
            Cfa::RbpSlot(offset, addend) => at(slot(at(self.bp.ok_or(Ended::NoRbp)?, offset))?, addend),
            Cfa::RspSlot(offset, addend) => at(slot(at(self.sp, offset))?, addend),
        };
        if cfa <= self.sp {
            return Err(Ended::Stuck);
        }
        let ip = slot(cfa.wrapping_sub(8))?;
        if ip == 0 {
            return Err(Ended::Whole);
        }
        let bp = match row.rbp() {
            Rbp::Same => self.bp,
            Rbp::AtCfa(offset) => Some(slot(at(cfa, offset))?),
            Rbp::AtRbp(offset) => Some(slot(at(self.bp.ok_or(Ended::NoRbp)?, offset))?),
            Rbp::Lost => None,
        };
        Ok(State { ip, sp: cfa, bp, exact: false })
    }

    /// Code without rules: takes rbp for a frame pointer.
    fn by_frame_pointer(&self, read: &impl Fn(u64) -> Option<u64>) -> Result<State, Ended> {
        let frame = self.bp.filter(|bp| *bp >= self.sp && bp % 8 == 0).ok_or(Ended::NoRow)?;
        let bp = read(frame).ok_or(Ended::NoRow)?;
        let ip = read(frame.wrapping_add(8)).ok_or(Ended::NoRow)?;
        if ip == 0 {
            return Err(Ended::Whole);
        }
        Ok(State { ip, sp: frame.wrapping_add(16), bp: Some(bp), exact: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack of two frames by rule and one by frame pointer, read from copied words:
    ///
    /// ```text
    ///   0x1000  local
    ///   0x1008  return to 0x200   (f: CFA = rsp + 16)
    ///   0x1010  saved rbp = 0
    ///   0x1018  return to 0x300   (g: no rule, rbp = 0x1010)
    ///   0x1020  ...               (_start: end)
    /// ```
    #[test]
    fn walks_by_rule_and_by_frame_pointer() {
        let words = [7, 0x200, 0, 0x300, 0];
        let read = |address: u64| words.get(address.checked_sub(0x1000)? as usize / 8).copied();
        let find = |address| match address {
            0x100 => Found::Row(Row::new(0, Cfa::Rsp(16), Rbp::Same).expect("row")),
            0x1ff => Found::NoRule,
            0x2ff => Found::Row(Row::new(0, Cfa::End, Rbp::Same).expect("row")),
            _ => Found::NoMapping,
        };
        let start = Registers { ip: 0x100, sp: 0x1000, bp: 0x1010 };
        assert_eq!(walk(start, 9, find, read), (vec![0x100, 0x1ff, 0x2ff], Ended::Whole));
        assert_eq!(walk(start, 2, find, read), (vec![0x100, 0x1ff], Ended::Truncated));
        assert_eq!(walk(Registers { ip: 0x500, ..start }, 9, find, read), (vec![0x500], Ended::NoMapping));
    }
}
