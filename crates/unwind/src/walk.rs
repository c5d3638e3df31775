//! The walker of `walk.h` in Rust: for stacks whose bytes were copied because the BPF program had no table for them
//! yet.

use crate::{Cfa, Row, Saved};

/// The result of looking up an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No mapping contains it.
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
    /// At the outermost frame: the stack is complete.
    Whole = 1,
    /// At the maximum number of frames.
    Truncated = 2,
    /// At an address in no known mapping.
    NoMapping = 3,
    /// At code without a rule, where rbp is not a frame pointer.
    NoRow = 4,
    /// At a rule that a row cannot express.
    Unsupported = 5,
    /// At a rule that needs an unknown register.
    NoRegister = 6,
    /// At memory that could not be read.
    BadRead = 7,
    /// Where the stack did not shrink.
    Stuck = 8,
}

/// The registers a walk starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// The general registers, by DWARF number.
    pub general: [u64; 16],
}

const RAX: u8 = 0;
const RBX: u8 = 3;
const RBP: u8 = 6;
const RSP: u8 = 7;

impl Registers {
    /// Stack pointer.
    pub fn sp(&self) -> u64 {
        self.general[usize::from(RSP)]
    }
}

/// The offsets of rip in the kernel's ucontext, and of the general registers by DWARF number.
const UCONTEXT_RIP: u64 = 168;
const UCONTEXT: [u64; 16] = [144, 136, 152, 128, 112, 104, 120, 160, 40, 48, 56, 64, 72, 80, 88, 96];

/// What is known about a register.
#[derive(Clone, Copy)]
enum Known {
    Value(u64),
    /// An inner frame saved it at this address.
    At(u64),
    Lost,
}

/// The source of all registers of a frame that did not call the next one.
#[derive(Clone, Copy)]
enum All<'a> {
    Start(&'a Registers),
    /// The address of a ucontext.
    Interrupted(u64),
    None,
}

struct State<'a> {
    ip: u64,
    sp: u64,
    bp: Known,
    bx: Known,
    all: All<'a>,
}

/// Walks a stack, innermost frame first. All addresses except the innermost are within the calling instruction.
pub fn walk(
    registers: &Registers,
    most: usize,
    find: impl Fn(u64) -> Found,
    read: impl Fn(u64) -> Option<u64>,
) -> (Vec<u64>, Ended) {
    let mut frames = Vec::new();
    let ended = walk_frames(registers, most, find, read, |address, _| frames.push(address));
    (frames, ended)
}

/// The same, passing on the address of each frame, and its stack pointer: where it will be when the frame it has called returns.
pub fn walk_frames(
    registers: &Registers,
    most: usize,
    find: impl Fn(u64) -> Found,
    read: impl Fn(u64) -> Option<u64>,
    mut each: impl FnMut(u64, u64),
) -> Ended {
    let general = |number: u8| registers.general[usize::from(number)];
    let (bp, bx) = (Known::Value(general(RBP)), Known::Value(general(RBX)));
    let mut state = State { ip: registers.ip, sp: registers.sp(), bp, bx, all: All::Start(registers) };
    for _ in 0..most {
        let address = if matches!(state.all, All::None) { state.ip.wrapping_sub(1) } else { state.ip };
        each(address, state.sp);
        let stepped = match find(address) {
            Found::NoMapping => Err(Ended::NoMapping),
            Found::NoRule => state.by_frame_pointer(&read),
            Found::Row(row) => state.by_row(row, &read),
        };
        match stepped {
            Ok(next) => state = next,
            Err(ended) => return ended,
        }
    }
    Ended::Truncated
}

impl Known {
    fn value(self, read: &impl Fn(u64) -> Option<u64>) -> Result<u64, Ended> {
        match self {
            Known::Value(value) => Ok(value),
            Known::At(address) => read(address).ok_or(Ended::BadRead),
            Known::Lost => Err(Ended::NoRegister),
        }
    }

    /// Returns the caller's value, according to a row.
    fn saved(self, saved: Saved, cfa: u64, bp: Option<u64>) -> Known {
        match (saved, bp) {
            (Saved::Same, _) => self,
            (Saved::AtCfa(offset), _) => Known::At(at(cfa, offset)),
            (Saved::AtRbp(offset), Some(bp)) => Known::At(at(bp, offset)),
            (Saved::AtRbp(_), None) | (Saved::Lost, _) => Known::Lost,
        }
    }
}

fn at(base: u64, offset: i32) -> u64 {
    base.wrapping_add_signed(offset.into())
}

impl<'a> State<'a> {
    fn by_row(&self, row: Row, read: &impl Fn(u64) -> Option<u64>) -> Result<State<'a>, Ended> {
        let slot = |address| read(address).ok_or(Ended::BadRead);
        let cfa = match row.cfa() {
            Cfa::End => return Err(Ended::Whole),
            Cfa::NoRule => return self.by_frame_pointer(read),
            Cfa::Unsupported => return Err(Ended::Unsupported),
            Cfa::Unknown => return Err(Ended::NoMapping),
            Cfa::Signal => {
                let place = |number: u8| self.sp.wrapping_add(UCONTEXT[usize::from(number)]);
                let (ip, sp) = (slot(self.sp.wrapping_add(UCONTEXT_RIP))?, slot(place(RSP))?);
                let (bp, bx) = (Known::At(place(RBP)), Known::At(place(RBX)));
                return Ok(State { ip, sp, bp, bx, all: All::Interrupted(self.sp) });
            }
            Cfa::Rsp(offset) => at(self.sp, offset),
            Cfa::Rbp(offset) => at(self.bp.value(read)?, offset),
            Cfa::Plt(threshold) => at(self.sp, if self.ip & 15 >= u64::from(threshold) { 16 } else { 8 }),
            Cfa::RbpSlot(offset, addend) => at(slot(at(self.bp.value(read)?, offset))?, addend),
            Cfa::RspSlot(offset, addend) => at(slot(at(self.sp, offset))?, addend),
            Cfa::Register(number, offset) => at(self.register(number, read)?, offset),
            Cfa::Return(_, offset) => at(self.sp, offset),
            Cfa::Thread if self.register(RAX, read)? == 0 => return Err(Ended::Whole),
            Cfa::Thread => at(self.sp, 8),
        };
        let ip = match row.cfa() {
            Cfa::Return(number, _) => self.register(number, read)?,
            _ if cfa <= self.sp => return Err(Ended::Stuck),
            _ => slot(cfa.wrapping_sub(8))?,
        };
        if ip == 0 {
            return Err(Ended::Whole);
        }
        let own = self.bp.value(read).ok();
        let (bp, bx) = (self.bp.saved(row.rbp(), cfa, own), self.bx.saved(row.rbx(), cfa, own));
        Ok(State { ip, sp: cfa, bp, bx, all: All::None })
    }

    /// Returns a register by DWARF number. Except for rbx, registers are known only in a frame that did not call the
    /// next one.
    fn register(&self, number: u8, read: &impl Fn(u64) -> Option<u64>) -> Result<u64, Ended> {
        let index = usize::from(number & 15);
        match self.all {
            _ if number == RBX => self.bx.value(read),
            All::Start(registers) => Ok(registers.general[index]),
            All::Interrupted(context) => read(context.wrapping_add(UCONTEXT[index])).ok_or(Ended::BadRead),
            All::None => Err(Ended::NoRegister),
        }
    }

    /// Code without rules: uses rbp as a frame pointer.
    fn by_frame_pointer(&self, read: &impl Fn(u64) -> Option<u64>) -> Result<State<'a>, Ended> {
        let frame = self.bp.value(read).ok().filter(|bp| *bp >= self.sp && bp % 8 == 0).ok_or(Ended::NoRow)?;
        let ip = read(frame.wrapping_add(8)).ok_or(Ended::NoRow)?;
        if ip == 0 {
            return Err(Ended::Whole);
        }
        Ok(State { ip, sp: frame.wrapping_add(16), bp: Known::At(frame), bx: Known::Lost, all: All::None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack of two frames with rules and one with a frame pointer, read from copied words:
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
            0x100 => Found::Row(Row::new(0, Cfa::Rsp(16), Saved::Same, Saved::Same).expect("row")),
            0x1ff => Found::NoRule,
            0x2ff => Found::Row(Row::new(0, Cfa::End, Saved::Same, Saved::Same).expect("row")),
            _ => Found::NoMapping,
        };
        let mut start = Registers { ip: 0x100, ..Registers::default() };
        (start.general[usize::from(RSP)], start.general[usize::from(RBP)]) = (0x1000, 0x1010);
        assert_eq!(walk(&start, 9, find, read), (vec![0x100, 0x1ff, 0x2ff], Ended::Whole));
        assert_eq!(walk(&start, 2, find, read), (vec![0x100, 0x1ff], Ended::Truncated));
        assert_eq!(walk(&Registers { ip: 0x500, ..start }, 9, find, read), (vec![0x500], Ended::NoMapping));
    }
}
