//! The little programs of call frame information, run for four columns only: CFA, frame pointer, base pointer,
//! return address.
//!
//! gimli decodes the instructions. Its own table also keeps every other register's rule, which no row has room for; and as
//! it is not used here, tests can compare with it.

use gimli::{CallFrameInstruction, CommonInformationEntry, EndianSlice, LittleEndian, Register, UnwindSection};

use crate::{Loss, Row};

pub(crate) type Bytes<'data> = EndianSlice<'data, LittleEndian>;

/// GCC nests two or three deep.
const MAX_REMEMBERED: usize = 16;
/// Longer than any expression that is recognised.
const MAX_EXPRESSION: usize = 16;

/// What differs between machines.
pub(crate) trait Machine {
    const FRAME_POINTER: Register;
    /// Another register that frames are found by, in code that realigns its stack.
    const BASE_POINTER: Register;
    const RETURN_ADDRESS: Register;

    /// The CFA that an expression computes.
    fn cfa_expression(expression: &[u8]) -> Base;
    /// The place of a saved register whose address an expression computes.
    fn saved_expression(expression: &[u8]) -> Kept;
    /// The row for a state, and what it leaves out.
    fn row(pc: u32, state: &State, signal: bool) -> (Row, Option<Loss>);
}

/// What the CFA is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Unset,
    /// Register + offset.
    Register(Register, i64),
    /// [register + offset] + addend.
    Slot(Register, i64, i64),
    /// See [`crate::Cfa::Plt`].
    Plt(u8),
    Other,
}

/// Where the caller's value of a register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Unspecified,
    Undefined,
    Same,
    /// [CFA + offset].
    AtCfa(i64),
    /// [register + offset].
    At(Register, i64),
    Other,
}

/// The columns at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub cfa: Base,
    pub frame_pointer: Kept,
    pub base_pointer: Kept,
    pub return_address: Kept,
}

impl State {
    const START: State = State {
        cfa: Base::Unset,
        frame_pointer: Kept::Unspecified,
        base_pointer: Kept::Unspecified,
        return_address: Kept::Unspecified,
    };

    fn column<M: Machine>(&mut self, register: Register) -> Option<&mut Kept> {
        if register == M::FRAME_POINTER {
            Some(&mut self.frame_pointer)
        } else if register == M::BASE_POINTER {
            Some(&mut self.base_pointer)
        } else if register == M::RETURN_ADDRESS {
            Some(&mut self.return_address)
        } else {
            None
        }
    }
}

/// The program cannot be followed from here on.
#[derive(Debug)]
pub(crate) struct Broken;

impl From<gimli::Error> for Broken {
    fn from(_: gimli::Error) -> Broken {
        Broken
    }
}

/// What a CIE gives to all of its functions.
pub(crate) struct Common<'data> {
    pub cie: CommonInformationEntry<Bytes<'data>>,
    initial: State,
}

impl<'data> Common<'data> {
    /// Runs the CIE's own instructions, once for all of its functions.
    pub fn new<M: Machine, S: UnwindSection<Bytes<'data>>>(
        section: &S,
        bases: &gimli::BaseAddresses,
        cie: CommonInformationEntry<Bytes<'data>>,
    ) -> Result<Common<'data>, Broken> {
        if cie.address_size() != 8 || cie.return_address_register() != M::RETURN_ADDRESS {
            return Err(Broken);
        }
        let mut state = State::START;
        let mut instructions = cie.instructions(section, bases);
        while let Some(instruction) = instructions.next()? {
            step::<M, S>(section, &cie, &State::START, &mut state, &mut Vec::new(), instruction)?;
        }
        Ok(Common { cie, initial: state })
    }
}

/// A function's program, run place by place.
pub(crate) struct Program<'a, 'data, S> {
    section: &'a S,
    common: &'a Common<'data>,
    instructions: gimli::CallFrameInstructionIter<'a, Bytes<'data>>,
    remembered: Vec<State>,
    state: State,
    /// Where the state holds from; nothing once the program has ended.
    location: Option<u64>,
}

impl<'a, 'data, S: UnwindSection<Bytes<'data>>> Program<'a, 'data, S> {
    pub fn new(
        section: &'a S,
        common: &'a Common<'data>,
        start: u64,
        instructions: gimli::CallFrameInstructionIter<'a, Bytes<'data>>,
    ) -> Self {
        let (state, location) = (common.initial, Some(start));
        Program { section, common, instructions, remembered: Vec::new(), state, location }
    }

    /// The next place and the state that holds from there. An error says where the program broke, and ends it.
    pub fn next<M: Machine>(&mut self) -> Option<(u64, Result<State, Broken>)> {
        let location = self.location?;
        match self.advance::<M>(location) {
            Ok((state, next)) => {
                self.location = next;
                Some((location, Ok(state)))
            }
            Err(broken) => {
                self.location = None;
                Some((location, Err(broken)))
            }
        }
    }

    /// Runs up to the instruction that leaves `location`.
    fn advance<M: Machine>(&mut self, location: u64) -> Result<(State, Option<u64>), Broken> {
        while let Some(instruction) = self.instructions.next()? {
            let next = match instruction {
                CallFrameInstruction::SetLoc { address } => address,
                CallFrameInstruction::AdvanceLoc { delta } => {
                    let bytes = u64::from(delta).checked_mul(self.common.cie.code_alignment_factor()).ok_or(Broken)?;
                    location.checked_add(bytes).ok_or(Broken)?
                }
                other => {
                    let (cie, initial) = (&self.common.cie, &self.common.initial);
                    step::<M, S>(self.section, cie, initial, &mut self.state, &mut self.remembered, other)?;
                    continue;
                }
            };
            if next < location {
                return Err(Broken);
            }
            if next > location {
                return Ok((self.state, Some(next)));
            }
        }
        Ok((self.state, None))
    }
}

/// One instruction that changes the state but not the place.
fn step<'data, M: Machine, S: UnwindSection<Bytes<'data>>>(
    section: &S,
    cie: &CommonInformationEntry<Bytes<'data>>,
    initial: &State,
    state: &mut State,
    remembered: &mut Vec<State>,
    instruction: CallFrameInstruction<usize>,
) -> Result<(), Broken> {
    use CallFrameInstruction as I;
    let signed = |factored: i64| factored.checked_mul(cie.data_alignment_factor()).ok_or(Broken);
    let unsigned = |factored: u64| signed(i64::try_from(factored).map_err(|_| Broken)?);
    let (register, saved) = match instruction {
        I::DefCfa { register, offset } => {
            state.cfa = Base::Register(register, i64::try_from(offset).map_err(|_| Broken)?);
            return Ok(());
        }
        I::DefCfaSf { register, factored_offset } => {
            state.cfa = Base::Register(register, signed(factored_offset)?);
            return Ok(());
        }
        I::DefCfaRegister { register } => {
            let Base::Register(_, offset) = state.cfa else { return Err(Broken) };
            state.cfa = Base::Register(register, offset);
            return Ok(());
        }
        I::DefCfaOffset { offset } => {
            let Base::Register(register, _) = state.cfa else { return Err(Broken) };
            state.cfa = Base::Register(register, i64::try_from(offset).map_err(|_| Broken)?);
            return Ok(());
        }
        I::DefCfaOffsetSf { factored_offset } => {
            let Base::Register(register, _) = state.cfa else { return Err(Broken) };
            state.cfa = Base::Register(register, signed(factored_offset)?);
            return Ok(());
        }
        I::DefCfaExpression { expression } => {
            state.cfa = match expression.length {
                0..=MAX_EXPRESSION => M::cfa_expression(expression.get(section)?.0.slice()),
                _ => Base::Other,
            };
            return Ok(());
        }
        I::RememberState => {
            if remembered.len() == MAX_REMEMBERED {
                return Err(Broken);
            }
            remembered.push(*state);
            return Ok(());
        }
        I::RestoreState => {
            *state = remembered.pop().ok_or(Broken)?;
            return Ok(());
        }
        I::Undefined { register } => (register, Kept::Undefined),
        I::SameValue { register } => (register, Kept::Same),
        I::Offset { register, factored_offset } => (register, Kept::AtCfa(unsigned(factored_offset)?)),
        I::OffsetExtendedSf { register, factored_offset } => (register, Kept::AtCfa(signed(factored_offset)?)),
        I::ValOffset { register, .. } | I::ValOffsetSf { register, .. } => (register, Kept::Other),
        I::Register { dest_register, .. } => (dest_register, Kept::Other),
        I::ValExpression { register, .. } => (register, Kept::Other),
        I::Expression { register, expression } => match expression.length {
            0..=MAX_EXPRESSION => (register, M::saved_expression(expression.get(section)?.0.slice())),
            _ => (register, Kept::Other),
        },
        I::Restore { register } => {
            let mut initial = *initial;
            match initial.column::<M>(register) {
                Some(saved) => (register, *saved),
                None => return Ok(()),
            }
        }
        // Places are the caller's; the rest changes no column.
        _ => return Ok(()),
    };
    if let Some(column) = state.column::<M>(register) {
        *column = saved;
    }
    Ok(())
}
