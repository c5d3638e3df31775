//! Where a function returns.
//!
//! A return probe of the kernel replaces the return address, and a C++ exception that leaves the function then terminates
//! the program. Probes on the return instructions themselves change nothing in the program.

use iced_x86::{Decoder, DecoderOptions, FlowControl};

/// Returns the distances from the entry to the return instructions of a function with this code; `None` if it contains bytes
/// that are no instructions, so that some could be missing.
pub fn returns(code: &[u8]) -> Option<Vec<u64>> {
    let mut found = Vec::new();
    for instruction in Decoder::with_ip(64, code, 0, DecoderOptions::NONE).iter() {
        if instruction.is_invalid() {
            return None;
        }
        if instruction.flow_control() == FlowControl::Return {
            found.push(instruction.ip());
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every return is found, also those with a prefix or an operand, and none in the bytes of another
    /// instruction.
    #[test]
    fn returns_are_found() {
        // push %rbx; mov $0xc3,%eax; je; pop %rbx; ret; pop %rbx; repz ret; ret $8
        let code = [0x53, 0xb8, 0xc3, 0, 0, 0, 0x74, 2, 0x5b, 0xc3, 0x5b, 0xf3, 0xc3, 0xc2, 8, 0];
        assert_eq!(returns(&code), Some(vec![9, 11, 13]));
        assert_eq!(returns(&[0x53, 0xe8, 0, 0]), None, "truncated");
        assert_eq!(returns(&[]), Some(vec![]));
    }
}
