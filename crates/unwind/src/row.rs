//! The row: 8 bytes, the same in C (`rows.h`).

/// What holds from `pc` up to the next row's `pc`. [`Row::cfa`] and [`Row::rbp`] say it in words.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Virtual address in the file, less the table's base.
    pub pc: u32,
    /// Meaning by rule, see `rows.h`.
    pub cfa_offset: i16,
    /// Low 4 bits: how the CFA is found; high 4 bits: where the caller's rbp is.
    pub rule: u8,
    /// In units of 8 bytes, meaning by rule.
    pub rbp_offset: i8,
}

const _: () = assert!(size_of::<Row>() == 8 && align_of::<Row>() == 4);

/// How the canonical frame address is found. Offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cfa {
    /// There is no caller: `_start`, `clone`.
    End,
    /// `rsp + offset`.
    Rsp(i32),
    /// `rbp + offset`.
    Rbp(i32),
    /// In a PLT stub: `rsp + 8`, and 8 more from the `push` on, where `rip & 15` reaches this.
    Plt(u8),
    /// `[rbp + offset] + addend`: a realigned stack.
    RbpSlot(i32, i32),
    /// `[rsp + offset] + addend`: hand-written code that keeps the old rsp on the stack.
    RspSlot(i32, i32),
    /// The kernel's signal frame: rsp points at a ucontext that holds every register.
    Signal,
    /// No call frame information here: frame pointers may help.
    NoRule,
    /// There is information, but no row can say it.
    Unsupported,
}

/// Where the caller's rbp is. Offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rbp {
    /// Still in rbp.
    Same,
    /// `[CFA + offset]`.
    AtCfa(i32),
    /// Nowhere a row can name.
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
const UNSUPPORTED: u8 = 15;

/// `bytes` in 8-byte units, where it is a whole number of them.
fn units(bytes: i32) -> Option<i32> {
    (bytes % 8 == 0).then_some(bytes / 8)
}

fn slot(offset: i32, addend: i32) -> Option<i16> {
    let (offset, addend) = (units(offset)?, units(addend)?);
    ((-2048..2048).contains(&offset) && (0..16).contains(&addend)).then_some((offset << 4 | addend) as i16)
}

impl Cfa {
    fn encode(self) -> Option<(u8, i16)> {
        Some(match self {
            Cfa::End => (END, 0),
            Cfa::Rsp(offset) => (RSP, i16::try_from(units(offset)?).ok()?),
            Cfa::Rbp(offset) => (RBP, i16::try_from(units(offset)?).ok()?),
            Cfa::Plt(threshold) => (PLT, i16::from(threshold)),
            Cfa::RbpSlot(offset, addend) => (RBP_SLOT, slot(offset, addend)?),
            Cfa::RspSlot(offset, addend) => (RSP_SLOT, slot(offset, addend)?),
            Cfa::Signal => (SIGNAL, 0),
            Cfa::NoRule => (NO_RULE, 0),
            Cfa::Unsupported => (UNSUPPORTED, 0),
        })
    }
}

impl Rbp {
    fn encode(self) -> Option<(u8, i8)> {
        Some(match self {
            Rbp::Same => (0, 0),
            Rbp::AtCfa(offset) => (1, i8::try_from(units(offset)?).ok()?),
            Rbp::Lost => (2, 0),
            Rbp::AtRbp(offset) => (3, i8::try_from(units(offset)?).ok()?),
        })
    }
}

impl Row {
    /// A row, or nothing where a number does not fit or is not a multiple of 8.
    pub fn new(pc: u32, cfa: Cfa, rbp: Rbp) -> Option<Row> {
        let (cfa, cfa_offset) = cfa.encode()?;
        let (rbp, rbp_offset) = rbp.encode()?;
        Some(Row { pc, cfa_offset, rule: rbp << 4 | cfa, rbp_offset })
    }

    /// The row of a hole between functions.
    pub const fn no_rule(pc: u32) -> Row {
        Row { pc, cfa_offset: 0, rule: NO_RULE, rbp_offset: 0 }
    }

    /// The row of code whose rules no row can say.
    pub const fn unsupported(pc: u32) -> Row {
        Row { pc, cfa_offset: 0, rule: UNSUPPORTED, rbp_offset: 0 }
    }

    /// How the CFA is found.
    pub fn cfa(&self) -> Cfa {
        let offset = i32::from(self.cfa_offset);
        let (slot, addend) = ((offset >> 4) * 8, (offset & 15) * 8);
        match self.rule & 15 {
            END => Cfa::End,
            RSP => Cfa::Rsp(offset * 8),
            RBP => Cfa::Rbp(offset * 8),
            PLT => Cfa::Plt(self.cfa_offset as u8),
            RBP_SLOT => Cfa::RbpSlot(slot, addend),
            RSP_SLOT => Cfa::RspSlot(slot, addend),
            SIGNAL => Cfa::Signal,
            NO_RULE => Cfa::NoRule,
            _ => Cfa::Unsupported,
        }
    }

    /// Where the caller's rbp is.
    pub fn rbp(&self) -> Rbp {
        let offset = i32::from(self.rbp_offset) * 8;
        match self.rule >> 4 {
            0 => Rbp::Same,
            1 => Rbp::AtCfa(offset),
            3 => Rbp::AtRbp(offset),
            _ => Rbp::Lost,
        }
    }

    /// Whether both say the same, wherever they stand.
    pub fn same_rules(&self, other: &Row) -> bool {
        (self.rule, self.cfa_offset, self.rbp_offset) == (other.rule, other.cfa_offset, other.rbp_offset)
    }

    /// The rows as the bytes a BPF map wants.
    pub fn bytes(rows: &[Row]) -> &[u8] {
        // SAFETY: Row is repr(C) with four fields of 4 + 2 + 1 + 1 bytes: 8 bytes without padding, every one initialised.
        unsafe { std::slice::from_raw_parts(rows.as_ptr().cast(), size_of_val(rows)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what goes into a row comes out of it, at the edges of every range.
    #[test]
    fn rows_say_what_they_were_made_of() {
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
            Cfa::Signal,
            Cfa::NoRule,
            Cfa::Unsupported,
        ];
        for cfa in cfas {
            for rbp in [Rbp::Same, Rbp::AtCfa(-16), Rbp::AtCfa(-1024), Rbp::Lost, Rbp::AtRbp(0), Rbp::AtRbp(1016)] {
                let row = Row::new(7, cfa, rbp).unwrap();
                assert_eq!((row.pc, row.cfa(), row.rbp()), (7, cfa, rbp));
            }
        }
    }

    /// Check that numbers that do not fit are refused, not cut.
    #[test]
    fn what_does_not_fit_is_refused() {
        for cfa in [
            Cfa::Rsp(4),
            Cfa::Rsp(8 * 32768),
            Cfa::Rbp(i32::MIN),
            Cfa::RbpSlot(8 * 2048, 0),
            Cfa::RspSlot(0, 128),
            Cfa::RspSlot(0, -8),
        ] {
            assert_eq!(Row::new(0, cfa, Rbp::Same), None, "{cfa:?}");
        }
        assert_eq!(Row::new(0, Cfa::Rsp(8), Rbp::AtCfa(-1032)), None);
        assert_eq!(Row::new(0, Cfa::Rsp(8), Rbp::AtRbp(3)), None);
    }

    /// Check that the bytes of a row lie as rows.h says.
    #[test]
    fn bytes_are_little_endian_fields_in_order() {
        let row = Row::new(0x1234_5678, Cfa::Rsp(16), Rbp::AtCfa(-16)).unwrap();
        assert_eq!(Row::bytes(&[row]), [0x78, 0x56, 0x34, 0x12, 2, 0, 0x11, 0xfe]);
    }
}
