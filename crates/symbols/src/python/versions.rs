//! Finds the counter of code objects in a stripped CPython 3.12.
//!
//! The counter is a variable without a dynamic symbol (`_Py_next_func_version`), but one place in the program reveals
//! it: when a code object is created, the counter is read, stored into `co_version`, and stored back plus one.
//!
//! ```text
//!   8b 05 xx xx xx xx    mov  versions(%rip),%eax
//!   89 43 5c             mov  %eax,0x5c(%rbx)          co_version
//!   ...
//!   89 05 yy yy yy yy    mov  %eax,versions(%rip)      or add $1, or inc
//! ```
//!
//! In shared libraries its address is loaded into a register first (`lea versions(%rip),%rdx`), and the other
//! instructions are `mov (%rdx),%eax` and `mov %eax,(%rdx)`.
//!
//! The result is a guess that its user checks: every code object must have a number below it.

/// The offset of `co_version` in 3.12.
const CO_VERSION: u8 = 92;
/// The maximum distance between the three instructions.
const NEAR: usize = 64;

/// Searches the program's instructions, which are at `base`. `None` if there is no such place, or several that
/// disagree.
pub(crate) fn find(text: &[u8], base: u64) -> Option<u64> {
    let mut found = None;
    for at in 0..text.len().saturating_sub(3) {
        // mov %r32,0x5c(%r64)
        if text[at] != 0x89 || text[at + 2] != CO_VERSION || text[at + 1] & 0xc0 != 0x40 || text[at + 1] & 7 == 4 {
            continue;
        }
        let register = text[at + 1] >> 3 & 7;
        let around = at.saturating_sub(NEAR)..(at + NEAR).min(text.len());
        let direct = |i| {
            let variable = load(text, base, i).filter(|(r, _)| *r == register)?.1;
            around.clone().any(|i| is_increment(text, base, i, variable)).then_some(variable)
        };
        let by_address = |i| {
            let (pointer, variable) = address(text, base, i)?;
            let operands = register << 3 | pointer;
            let moves = |opcode| around.clone().any(|i| text.get(i..i + 2) == Some(&[opcode, operands]));
            (moves(0x8b) && moves(0x89)).then_some(variable)
        };
        for variable in around.clone().filter_map(|i| direct(i).or_else(|| by_address(i))) {
            match found {
                Some(other) if other != variable => return None,
                _ => found = Some(variable),
            }
        }
    }
    found
}

/// Returns the variable that an instruction refers to, relative to the next instruction, which is `after` bytes
/// further.
fn target(text: &[u8], base: u64, at: usize, after: u64) -> Option<u64> {
    let distance = i32::from_le_bytes(text.get(at..at + 4)?.try_into().ok()?);
    Some(base.wrapping_add(at as u64 + 4 + after).wrapping_add_signed(distance.into()))
}

/// `mov variable(%rip),%r32`: the register and the variable.
fn load(text: &[u8], base: u64, at: usize) -> Option<(u8, u64)> {
    let &[0x8b, operands] = text.get(at..at + 2)? else { return None };
    (operands & 0xc7 == 0x05).then(|| Some((operands >> 3, target(text, base, at + 2, 0)?)))?
}

/// `lea variable(%rip),%r64`: the register and the variable. Two registers need a different encoding as pointers.
fn address(text: &[u8], base: u64, at: usize) -> Option<(u8, u64)> {
    let &[0x48, 0x8d, operands] = text.get(at..at + 3)? else { return None };
    let register = operands >> 3 & 7;
    (operands & 0xc7 == 0x05 && !matches!(register, 4 | 5)).then(|| Some((register, target(text, base, at + 3, 0)?)))?
}

/// `mov %r32,variable(%rip)`, `addl $1,variable(%rip)` or `incl variable(%rip)`
fn is_increment(text: &[u8], base: u64, at: usize, variable: u64) -> bool {
    let after = match text.get(at..at + 2) {
        Some([0x89, operands]) if operands & 0xc7 == 0x05 => 0,
        Some([0x83, 0x05]) if text.get(at + 6) == Some(&1) => 1,
        Some([0xff, 0x05]) => 0,
        _ => return false,
    };
    target(text, base, at + 2, after) == Some(variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example above, with each form of increment; two different variables are no result.
    #[test]
    fn the_counter_is_found() {
        let stores: [&[u8]; 3] = [&[0x89, 0x05], &[0x83, 0x05], &[0xff, 0x05]];
        for (store, after) in stores.into_iter().zip([0_i32, 1, 0]) {
            let mut text = vec![0x90; 40];
            text.extend([0x8b, 0x05]);
            text.extend(0x1000_i32.to_le_bytes());
            text.extend([0x89, 0x43, 0x5c]);
            text.extend(store);
            // The variable is at 46 + 0x1000.
            text.extend((46 + 0x1000 - (55 + after)).to_le_bytes());
            text.push(1);
            text.extend([0x90; 40]);
            assert_eq!(find(&text, 0x40_0000), Some(0x40_0000 + 46 + 0x1000), "{store:x?}");
            let mut twice = text.clone();
            twice.extend(&text);
            assert_eq!(find(&twice, 0x40_0000), None);
        }
        assert_eq!(find(&[0x89, 0x43, 0x5c, 0x8b, 0x05], 0), None);
        let by_address =
            [0x48, 0x8d, 0x15, 0, 0x10, 0, 0, 0x8b, 0x02, 0x89, 0x43, 0x5c, 0x83, 0xc0, 0x01, 0x89, 0x02, 0x90];
        assert_eq!(find(&by_address, 0), Some(7 + 0x1000));
    }
}
