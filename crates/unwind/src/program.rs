//! Runs the programs of call frame information, for four columns only: CFA, frame pointer, base pointer, return
//! address.
//!
//! gimli decodes the instructions. Its own table is not used: it also keeps every other register's rule, which rows
//! have no space for. Tests can therefore compare with it.

use gimli::{CallFrameInstruction, CommonInformationEntry, EndianSlice, LittleEndian, Register, UnwindSection};

use crate::{Loss, Row};

pub(crate) type Bytes<'data> = EndianSlice<'data, LittleEndian>;

/// GCC nests two or three levels.
const MAX_REMEMBERED: usize = 16;
/// Longer than any recognised expression.
const MAX_EXPRESSION: usize = 16;

/// The differences between machines.
pub(crate) trait Machine {
    const FRAME_POINTER: Register;
    /// Another register that CFAs are relative to, in code that realigns its stack.
    const BASE_POINTER: Register;
    const RETURN_ADDRESS: Register;

    /// Returns the CFA that an expression computes.
    fn cfa_expression(expression: &[u8]) -> Base;
    /// Returns the location of a saved register whose address an expression computes.
    fn saved_expression(expression: &[u8]) -> Location;
    /// Returns the row for a state, and what it cannot express.
    fn row(pc: u32, state: &State, signal: bool) -> (Row, Option<Loss>);
    /// Corrects rules that are missing or wrong in the file. `code` reads the code from a row's pc on.
    fn correct(rows: &mut Vec<Row>, code: &dyn Fn(u32, u32) -> Option<Vec<u8>>);
}

/// How the CFA is computed.
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

/// The location of the caller's value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Unspecified,
    Undefined,
    Same,
    /// [CFA + offset].
    AtCfa(i64),
    /// [register + offset].
    At(Register, i64),
    /// In another register.
    In(Register),
    Other,
}

/// The columns at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub cfa: Base,
    pub frame_pointer: Location,
    pub base_pointer: Location,
    pub return_address: Location,
}

impl State {
    const START: State = State {
        cfa: Base::Unset,
        frame_pointer: Location::Unspecified,
        base_pointer: Location::Unspecified,
        return_address: Location::Unspecified,
    };

    fn column<M: Machine>(&mut self, register: Register) -> Option<&mut Location> {
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

/// The program cannot be run any further.
#[derive(Debug)]
pub(crate) struct Malformed;

impl From<gimli::Error> for Malformed {
    fn from(_: gimli::Error) -> Malformed {
        Malformed
    }
}

/// The common parts of a CIE's functions.
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
    ) -> Result<Common<'data>, Malformed> {
        if cie.address_size() != 8 || cie.return_address_register() != M::RETURN_ADDRESS {
            return Err(Malformed);
        }
        let mut state = State::START;
        let mut instructions = cie.instructions(section, bases);
        while let Some(instruction) = instructions.next()? {
            step::<M, S>(section, &cie, &State::START, &mut state, &mut Vec::new(), instruction)?;
        }
        Ok(Common { cie, initial: state })
    }
}

/// A function's program, run address by address.
pub(crate) struct Program<'a, 'data, S> {
    section: &'a S,
    common: &'a Common<'data>,
    instructions: gimli::CallFrameInstructionIter<'a, Bytes<'data>>,
    remembered: Vec<State>,
    state: State,
    /// The address from which the state is valid; `None` once the program has ended.
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

    /// Returns the next address and the state that is valid from there. An error has the address where the program is
    /// malformed, and ends it.
    pub fn next<M: Machine>(&mut self) -> Option<(u64, Result<State, Malformed>)> {
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

    /// Runs up to the instruction that advances past `location`.
    fn advance<M: Machine>(&mut self, location: u64) -> Result<(State, Option<u64>), Malformed> {
        while let Some(instruction) = self.instructions.next()? {
            let next = match instruction {
                CallFrameInstruction::SetLoc { address } => address,
                CallFrameInstruction::AdvanceLoc { delta } => {
                    let bytes =
                        u64::from(delta).checked_mul(self.common.cie.code_alignment_factor()).ok_or(Malformed)?;
                    location.checked_add(bytes).ok_or(Malformed)?
                }
                other => {
                    let (cie, initial) = (&self.common.cie, &self.common.initial);
                    step::<M, S>(self.section, cie, initial, &mut self.state, &mut self.remembered, other)?;
                    continue;
                }
            };
            if next < location {
                return Err(Malformed);
            }
            if next > location {
                return Ok((self.state, Some(next)));
            }
        }
        Ok((self.state, None))
    }
}

/// Runs one instruction that changes the state but not the address.
fn step<'data, M: Machine, S: UnwindSection<Bytes<'data>>>(
    section: &S,
    cie: &CommonInformationEntry<Bytes<'data>>,
    initial: &State,
    state: &mut State,
    remembered: &mut Vec<State>,
    instruction: CallFrameInstruction<usize>,
) -> Result<(), Malformed> {
    use CallFrameInstruction as I;
    let signed = |factored: i64| factored.checked_mul(cie.data_alignment_factor()).ok_or(Malformed);
    let unsigned = |factored: u64| signed(i64::try_from(factored).map_err(|_| Malformed)?);
    let (register, saved) = match instruction {
        I::DefCfa { register, offset } => {
            state.cfa = Base::Register(register, i64::try_from(offset).map_err(|_| Malformed)?);
            return Ok(());
        }
        I::DefCfaSf { register, factored_offset } => {
            state.cfa = Base::Register(register, signed(factored_offset)?);
            return Ok(());
        }
        I::DefCfaRegister { register } => {
            let Base::Register(_, offset) = state.cfa else { return Err(Malformed) };
            state.cfa = Base::Register(register, offset);
            return Ok(());
        }
        I::DefCfaOffset { offset } => {
            let Base::Register(register, _) = state.cfa else { return Err(Malformed) };
            state.cfa = Base::Register(register, i64::try_from(offset).map_err(|_| Malformed)?);
            return Ok(());
        }
        I::DefCfaOffsetSf { factored_offset } => {
            let Base::Register(register, _) = state.cfa else { return Err(Malformed) };
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
                return Err(Malformed);
            }
            remembered.push(*state);
            return Ok(());
        }
        I::RestoreState => {
            *state = remembered.pop().ok_or(Malformed)?;
            return Ok(());
        }
        I::Undefined { register } => (register, Location::Undefined),
        I::SameValue { register } => (register, Location::Same),
        I::Offset { register, factored_offset } => (register, Location::AtCfa(unsigned(factored_offset)?)),
        I::OffsetExtendedSf { register, factored_offset } => (register, Location::AtCfa(signed(factored_offset)?)),
        I::ValOffset { register, .. } | I::ValOffsetSf { register, .. } => (register, Location::Other),
        I::Register { dest_register, src_register } => (dest_register, Location::In(src_register)),
        I::ValExpression { register, .. } => (register, Location::Other),
        I::Expression { register, expression } => match expression.length {
            0..=MAX_EXPRESSION => (register, M::saved_expression(expression.get(section)?.0.slice())),
            _ => (register, Location::Other),
        },
        I::Restore { register } => {
            let mut initial = *initial;
            match initial.column::<M>(register) {
                Some(saved) => (register, *saved),
                None => return Ok(()),
            }
        }
        // Address changes are handled by the caller; other instructions change no column.
        _ => return Ok(()),
    };
    if let Some(column) = state.column::<M>(register) {
        *column = saved;
    }
    Ok(())
}
