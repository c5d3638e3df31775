//! The row: 8 bytes, the same in C (`rows.h`).

/// The rules valid from `pc` up to the next row's `pc`. [`Row::cfa`], [`Row::rbp`] and [`Row::rbx`] decode them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Virtual address in the file, minus the table's base.
    pub pc: u32,
    /// Its meaning depends on the rule, see `rows.h`.
    pub cfa_offset: i16,
    /// 4 bits: how the CFA is computed; then 6 bits for the location of the caller's rbp, and 6 for its rbx.
    pub rule: u16,
}

const _: () = assert!(size_of::<Row>() == 8 && align_of::<Row>() == 4);

/// How the canonical frame address is computed. Offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cfa {
    /// There is no caller: `_start`, `clone`.
    End,
    /// `rsp + offset`.
    Rsp(i32),
    /// `rbp + offset`.
    Rbp(i32),
    /// In a PLT stub: `rsp + 8`, and 8 more after the `push`, where `rip & 15` reaches this value.
    Plt(u8),
    /// `[rbp + offset] + addend`: a realigned stack.
    RbpSlot(i32, i32),
    /// `[rsp + offset] + addend`: hand-written code that keeps the old rsp on the stack.
    RspSlot(i32, i32),
    /// A register, by DWARF number, + offset.
    Register(u8, i32),
    /// `rsp + offset`, and the return address is in the register with this DWARF number: vfork.
    Return(u8, i32),
    /// After the system call that creates a thread: no caller in the new thread, where rax is 0; otherwise `rsp + 8`.
    Thread,
    /// The kernel's signal frame: rsp points at a ucontext that holds every register.
    Signal,
    /// No call frame information: try frame pointers.
    NoRule,
    /// There is information, but a row cannot express it.
    Unsupported,
    /// The function has not been compiled yet.
    Unknown,
}

/// The location of the caller's rbp or rbx. Offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Saved {
    /// Still in the register.
    Same,
    /// `[CFA + offset]`.
    AtCfa(i32),
    /// In a location that a row cannot express.
    Lost,
    /// `[rbp + offset]`: a realigned stack.
    AtRbp(i32),
}

const END: u8 = 0;
const RSP: u8 = 1;
const RBP: u8 = 2;
const PLT: u8 = 3;
const RBP_SLOT: u8 = 4;
const RSP_SLOT: u8 = 5;
const SIGNAL: u8 = 6;
const NO_RULE: u8 = 7;
const REGISTER: u8 = 8;
const RETURN: u8 = 9;
const THREAD: u8 = 10;
const UNKNOWN: u8 = 11;
const UNSUPPORTED: u8 = 15;

const SAME: u8 = 0;
const LOST: u8 = 1;
/// From 2 up to here: this many words below the CFA. From here on: relative to rbp.
const FRAME: u8 = 48;
const FRAME_ZERO: i32 = 56;

/// Returns `bytes` in 8-byte units, if it is a multiple.
fn units(bytes: i32) -> Option<i32> {
    (bytes % 8 == 0).then_some(bytes / 8)
}

/// Packs two numbers into one: 12 bits signed, 4 bits unsigned.
fn pair(high: i32, low: i32) -> Option<i16> {
    ((-2048..2048).contains(&high) && (0..16).contains(&low)).then_some((high << 4 | low) as i16)
}

impl Cfa {
    fn encode(self) -> Option<(u8, i16)> {
        Some(match self {
            Cfa::End => (END, 0),
            Cfa::Rsp(offset) => (RSP, i16::try_from(units(offset)?).ok()?),
            Cfa::Rbp(offset) => (RBP, i16::try_from(units(offset)?).ok()?),
            Cfa::Plt(threshold) => (PLT, i16::from(threshold)),
            Cfa::RbpSlot(offset, addend) => (RBP_SLOT, pair(units(offset)?, units(addend)?)?),
            Cfa::RspSlot(offset, addend) => (RSP_SLOT, pair(units(offset)?, units(addend)?)?),
            Cfa::Register(number, offset) => (REGISTER, pair(units(offset)?, number.into())?),
            Cfa::Return(number, offset) => (RETURN, pair(units(offset)?, number.into())?),
            Cfa::Thread => (THREAD, 0),
            Cfa::Signal => (SIGNAL, 0),
            Cfa::NoRule => (NO_RULE, 0),
            Cfa::Unsupported => (UNSUPPORTED, 0),
            Cfa::Unknown => (UNKNOWN, 0),
        })
    }
}

impl Saved {
    fn encode(self) -> Option<u8> {
        let (number, within) = match self {
            Saved::Same => return Some(SAME),
            Saved::Lost => return Some(LOST),
            Saved::AtCfa(offset) => (units(offset)?.checked_neg()?, i32::from(LOST) + 1..i32::from(FRAME)),
            Saved::AtRbp(offset) => (units(offset)? + FRAME_ZERO, FRAME.into()..64),
        };
        within.contains(&number).then_some(number as u8)
    }

    fn decode(number: u8) -> Saved {
        match number {
            SAME => Saved::Same,
            LOST => Saved::Lost,
            below if below < FRAME => Saved::AtCfa(-8 * i32::from(below)),
            place => Saved::AtRbp(8 * (i32::from(place) - FRAME_ZERO)),
        }
    }
}

impl Row {
    /// Creates a row; `None` if a number does not fit or is not a multiple of 8.
    pub fn new(pc: u32, cfa: Cfa, rbp: Saved, rbx: Saved) -> Option<Row> {
        let (cfa, cfa_offset) = cfa.encode()?;
        let rule = u16::from(rbx.encode()?) << 10 | u16::from(rbp.encode()?) << 4 | u16::from(cfa);
        Some(Row { pc, cfa_offset, rule })
    }

    /// Creates the row of code without a caller.
    pub const fn end(pc: u32) -> Row {
        Row { pc, cfa_offset: 0, rule: END as u16 }
    }

    /// Creates the row of a system call that creates a thread.
    pub const fn thread(pc: u32) -> Row {
        Row { pc, cfa_offset: 0, rule: THREAD as u16 }
    }

    /// Creates the row of a gap between functions.
    pub const fn no_rule(pc: u32) -> Row {
        Row { pc, cfa_offset: 0, rule: NO_RULE as u16 }
    }

    /// Creates the row of code whose rules a row cannot express.
    pub const fn unsupported(pc: u32) -> Row {
        Row { pc, cfa_offset: 0, rule: UNSUPPORTED as u16 }
    }

    /// Creates the row of functions that have not been compiled yet.
    pub const fn unknown(pc: u32) -> Row {
        Row { pc, cfa_offset: 0, rule: UNKNOWN as u16 }
    }

    /// Returns how the CFA is computed.
    pub fn cfa(&self) -> Cfa {
        let offset = i32::from(self.cfa_offset);
        let (high, low) = (offset >> 4, offset & 15);
        match self.rule as u8 & 15 {
            END => Cfa::End,
            RSP => Cfa::Rsp(offset * 8),
            RBP => Cfa::Rbp(offset * 8),
            PLT => Cfa::Plt(self.cfa_offset as u8),
            RBP_SLOT => Cfa::RbpSlot(high * 8, low * 8),
            RSP_SLOT => Cfa::RspSlot(high * 8, low * 8),
            REGISTER => Cfa::Register(low as u8, high * 8),
            RETURN => Cfa::Return(low as u8, high * 8),
            THREAD => Cfa::Thread,
            SIGNAL => Cfa::Signal,
            NO_RULE => Cfa::NoRule,
            UNKNOWN => Cfa::Unknown,
            _ => Cfa::Unsupported,
        }
    }

    /// Returns the location of the caller's rbp.
    pub fn rbp(&self) -> Saved {
        Saved::decode((self.rule >> 4 & 63) as u8)
    }

    /// Returns the location of the caller's rbx.
    pub fn rbx(&self) -> Saved {
        Saved::decode((self.rule >> 10) as u8)
    }

    /// Whether both have the same rules, at any address.
    pub fn same_rules(&self, other: &Row) -> bool {
        (self.rule, self.cfa_offset) == (other.rule, other.cfa_offset)
    }

    /// Returns the rows as bytes for a BPF map.
    pub fn bytes(rows: &[Row]) -> &[u8] {
        // SAFETY: Row is repr(C) with three fields of 4 + 2 + 2 bytes: 8 bytes without padding, every one initialised.
        unsafe { std::slice::from_raw_parts(rows.as_ptr().cast(), size_of_val(rows)) }
    }

    /// Reads rows from bytes in any place; `None` if some bytes are left over.
    pub fn read_all(bytes: &[u8]) -> Option<Vec<Row>> {
        let (rows, []) = bytes.as_chunks::<8>() else { return None };
        let row = |[a, b, c, d, e, f, g, h]: &[u8; 8]| Row {
            pc: u32::from_le_bytes([*a, *b, *c, *d]),
            cfa_offset: i16::from_le_bytes([*e, *f]),
            rule: u16::from_le_bytes([*g, *h]),
        };
        Some(rows.iter().map(row).collect())
    }

    /// Returns bytes as rows; empty if they are not aligned as rows.
    pub fn of_bytes(bytes: &[u8]) -> &[Row] {
        // SAFETY: Row is repr(C), integers without padding: any bytes are some row.
        match unsafe { bytes.align_to() } {
            ([], rows, []) => rows,
            _ => &[],
        }
    }

    /// Returns the row for a `pc` from sorted rows.
    pub fn find(rows: &[Row], pc: u32) -> Option<Row> {
        let above = rows.partition_point(|row| row.pc <= pc);
        rows.get(above.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that rows are encoded and decoded, at the limits of every range.
    #[test]
    fn rows_round_trip() {
        let cfas = [
            Cfa::End,
            Cfa::Rsp(8),
            Cfa::Rsp(-8 * 32768),
            Cfa::Rsp(8 * 32767),
            Cfa::Rbp(16),
            Cfa::Rbp(-8),
            Cfa::Plt(11),
            Cfa::RbpSlot(-8, 0),
            Cfa::RbpSlot(-8 * 2048, 120),
            Cfa::RspSlot(8 * 2047, 8),
            Cfa::Register(3, 24),
            Cfa::Register(15, -8 * 2048),
            Cfa::Return(5, 0),
            Cfa::Thread,
            Cfa::Signal,
            Cfa::NoRule,
            Cfa::Unsupported,
            Cfa::Unknown,
        ];
        for cfa in cfas {
            for saved in
                [Saved::Same, Saved::Lost, Saved::AtCfa(-16), Saved::AtCfa(-376), Saved::AtRbp(-64), Saved::AtRbp(56)]
            {
                let row = Row::new(7, cfa, saved, Saved::Same).unwrap();
                assert_eq!((row.pc, row.cfa(), row.rbp(), row.rbx()), (7, cfa, saved, Saved::Same));
                let row = Row::new(7, cfa, Saved::Lost, saved).unwrap();
                assert_eq!((row.pc, row.cfa(), row.rbp(), row.rbx()), (7, cfa, Saved::Lost, saved));
            }
        }
    }

    /// Check that numbers that do not fit are rejected, not truncated.
    #[test]
    fn numbers_that_do_not_fit_are_rejected() {
        for cfa in [
            Cfa::Rsp(4),
            Cfa::Rsp(8 * 32768),
            Cfa::Rbp(i32::MIN),
            Cfa::RbpSlot(8 * 2048, 0),
            Cfa::RspSlot(0, 128),
            Cfa::RspSlot(0, -8),
            Cfa::Register(16, 0),
            Cfa::Register(0, 8 * 2048),
        ] {
            assert_eq!(Row::new(0, cfa, Saved::Same, Saved::Same), None, "{cfa:?}");
        }
        for saved in [-384, -8, 0, 8, i32::MIN].map(Saved::AtCfa).into_iter().chain([-72, 3, 64].map(Saved::AtRbp)) {
            assert_eq!(Row::new(0, Cfa::Rsp(8), saved, Saved::Same), None, "{saved:?}");
            assert_eq!(Row::new(0, Cfa::Rsp(8), Saved::Same, saved), None, "{saved:?}");
        }
    }

    /// Check that the bytes of a row match rows.h.
    #[test]
    fn bytes_are_little_endian_fields_in_order() {
        let row = Row::new(0x1234_5678, Cfa::Rsp(16), Saved::AtCfa(-16), Saved::AtCfa(-24)).unwrap();
        assert_eq!(Row::bytes(&[row]), [0x78, 0x56, 0x34, 0x12, 2, 0, 0x21, 0x0c]);
        assert_eq!(Row::of_bytes(Row::bytes(&[row, row])), [row, row]);
        assert_eq!(Row::read_all(&[&[0], Row::bytes(&[row, row])].concat()[1..]), Some(vec![row, row]));
        assert_eq!(Row::read_all(&[0; 15]), None);
        assert_eq!(Row::of_bytes(&Row::bytes(&[row, row])[1..9]), []);
    }
}
