//! x86-64: register numbers, the expressions of compilers and linkers, and the conversion of rules to rows.

mod corrections;

use gimli::Register;

use crate::program::{Base, Location, Machine, State};
use crate::{Cfa, Loss, Row, Saved};

const RBX: Register = Register(3);
const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RIP: Register = Register(16);

/// The offset of rsp in the ucontext that rsp itself points to, when a signal handler has returned to its trampoline.
/// glibc's rules for `__restore_rt` use it; this identifies a known trampoline.
const UCONTEXT_RSP: i64 = 160;

const DW_OP_DEREF: u8 = 0x06;
const DW_OP_PLUS: u8 = 0x22;
const DW_OP_PLUS_UCONST: u8 = 0x23;
const DW_OP_LIT0: u8 = 0x30;
const DW_OP_BREG0: u8 = 0x70;
const DW_OP_BREG7: u8 = 0x77;

pub(crate) struct X86_64;

impl Machine for X86_64 {
    const FRAME_POINTER: Register = RBP;
    const BASE_POINTER: Register = RBX;
    const RETURN_ADDRESS: Register = RIP;

    fn cfa_expression(expression: &[u8]) -> Base {
        // ld's expression for .plt: breg7 8; breg16 0; lit15; and; litN; ge; lit3; shl; plus.
        // N is the offset behind the stub's push: 11, or less in stubs that begin with endbr64.
        if let [DW_OP_BREG7, 8, 0x80, 0, 0x3f, 0x1a, lit @ 0x31..=0x3f, 0x2a, 0x33, 0x24, DW_OP_PLUS] = *expression {
            return Base::Plt(lit - DW_OP_LIT0);
        }
        let Some((register, offset, rest)) = base_register(expression) else { return Base::Other };
        let slot = |addend| Base::Slot(register, offset, addend);
        match *rest {
            [] => Base::Register(register, offset),
            [DW_OP_DEREF] => slot(0),
            [DW_OP_DEREF, DW_OP_PLUS_UCONST, addend @ 0..0x80] => slot(addend.into()),
            [DW_OP_DEREF, lit @ DW_OP_LIT0..=0x4f, DW_OP_PLUS] => slot((lit - DW_OP_LIT0).into()),
            _ => Base::Other,
        }
    }

    fn saved_expression(expression: &[u8]) -> Location {
        match base_register(expression) {
            Some((register, offset, [])) => Location::At(register, offset),
            _ => Location::Other,
        }
    }

    fn row(pc: u32, state: &State, signal: bool) -> (Row, Option<Loss>) {
        match cfa(state, signal) {
            Ok(cfa) => with_saved(pc, cfa, state),
            Err(loss) => (Row::unsupported(pc), Some(loss)),
        }
    }

    fn correct(rows: &mut Vec<Row>, code: &dyn Fn(u32, u32) -> Option<Vec<u8>>) {
        corrections::new_threads(rows, code);
        corrections::signal_returns(rows, code);
        corrections::landings(rows, code);
    }
}

/// Parses a register and an offset at the start of an expression, and returns the rest.
fn base_register(expression: &[u8]) -> Option<(Register, i64, &[u8])> {
    let (&operation, rest) = expression.split_first()?;
    let number = operation.checked_sub(DW_OP_BREG0).filter(|&number| number < RIP.0 as u8)?;
    let register = Register(number.into());
    let mut value = 0;
    // Four bytes of SLEB128 hold any offset that a row can hold.
    for (index, &byte) in rest.iter().enumerate().take(4) {
        let shift = 7 * index;
        value |= i64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            if byte & 0x40 != 0 {
                value -= 1 << (shift + 7);
            }
            return Some((register, value, &rest[index + 1..]));
        }
    }
    None
}

fn cfa(state: &State, signal: bool) -> Result<Cfa, Loss> {
    if state.return_address == Location::Undefined {
        return Ok(Cfa::End);
    }
    if signal {
        let known = state.cfa == Base::Slot(RSP, UCONTEXT_RSP, 0);
        return if known { Ok(Cfa::Signal) } else { Err(Loss::SignalFrame) };
    }
    let narrow = |offset: i64| i32::try_from(offset).map_err(|_| Loss::CfaOffset);
    match (state.return_address, state.cfa) {
        (Location::AtCfa(-8), _) => {}
        (Location::In(Register(number @ 0..16)), Base::Register(RSP, offset)) => {
            return Ok(Cfa::Return(number as u8, narrow(offset)?));
        }
        _ => return Err(Loss::ReturnAddress),
    }
    Ok(match state.cfa {
        Base::Register(RSP, offset) => Cfa::Rsp(narrow(offset)?),
        Base::Register(RBP, offset) => Cfa::Rbp(narrow(offset)?),
        Base::Slot(RBP, offset, addend) => Cfa::RbpSlot(narrow(offset)?, narrow(addend)?),
        Base::Slot(RSP, offset, addend) => Cfa::RspSlot(narrow(offset)?, narrow(addend)?),
        Base::Plt(threshold) => Cfa::Plt(threshold),
        Base::Register(Register(number), offset) if number < RIP.0 => Cfa::Register(number as u8, narrow(offset)?),
        Base::Register(..) | Base::Slot(..) | Base::Unset => return Err(Loss::CfaRegister),
        Base::Other => return Err(Loss::CfaExpression),
    })
}

fn with_saved(pc: u32, cfa: Cfa, state: &State) -> (Row, Option<Loss>) {
    let same = Saved::Same;
    // Neither uses other registers' rules: there is no caller, or the ucontext has them.
    if matches!(cfa, Cfa::End | Cfa::Signal) {
        return (Row::new(pc, cfa, same, same).unwrap_or(Row::unsupported(pc)), None);
    }
    if Row::new(pc, cfa, same, same).is_none() {
        return (Row::unsupported(pc), Some(Loss::CfaOffset));
    }
    // A register that a row cannot express is lost, and nothing else is.
    let fits = |saved: &Saved| Row::new(pc, Cfa::End, *saved, same).is_some();
    let (rbp, rbx) = (saved(state.frame_pointer).filter(fits), saved(state.base_pointer).filter(fits));
    let loss = match (rbp, rbx) {
        (None, _) => Some(Loss::Rbp),
        (_, None) => Some(Loss::Rbx),
        _ => None,
    };
    let [rbp, rbx] = [rbp, rbx].map(|saved| saved.unwrap_or(Saved::Lost));
    (Row::new(pc, cfa, rbp, rbx).unwrap_or(Row::unsupported(pc)), loss)
}

/// Converts the rule of a saved register for a row.
fn saved(rule: Location) -> Option<Saved> {
    let narrow = |offset: i64| i32::try_from(offset).ok();
    match rule {
        Location::Unspecified | Location::Same => Some(Saved::Same),
        Location::Undefined => Some(Saved::Lost),
        Location::AtCfa(offset) => narrow(offset).map(Saved::AtCfa),
        Location::At(RBP, offset) => narrow(offset).map(Saved::AtRbp),
        Location::At(..) | Location::In(_) | Location::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the forms that exist in practice: ld's PLT, gcc's realigned stack, OpenSSL's hand-written code, glibc's
    /// signals.
    #[test]
    fn known_expressions_are_recognised() {
        let cfa = X86_64::cfa_expression;
        assert_eq!(cfa(&[0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22]), Base::Plt(11));
        assert_eq!(cfa(&[0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x39, 0x2a, 0x33, 0x24, 0x22]), Base::Plt(9));
        assert_eq!(cfa(&[0x76, 0x78, 0x06]), Base::Slot(RBP, -8, 0));
        assert_eq!(cfa(&[0x77, 0x98, 0x01, 0x06, 0x23, 0x08]), Base::Slot(RSP, 152, 8));
        assert_eq!(cfa(&[0x77, 0xa0, 0x01, 0x06]), Base::Slot(RSP, 160, 0));
        assert_eq!(cfa(&[0x77, 0x10]), Base::Register(RSP, 16));
        assert_eq!(cfa(&[0x7d, 0x10]), Base::Register(Register(13), 16));
        assert_eq!(cfa(&[0x80, 0x10]), Base::Other);
        assert_eq!(cfa(&[0x77, 0x80]), Base::Other);
        assert_eq!(cfa(&[]), Base::Other);
        assert_eq!(X86_64::saved_expression(&[0x76, 0]), Location::At(RBP, 0));
        assert_eq!(X86_64::saved_expression(&[0x76, 0, 0x06]), Location::Other);
    }
}
