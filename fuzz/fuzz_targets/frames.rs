//! `.eh_frame` and `.debug_frame` in an otherwise valid file.
#![cfg_attr(feature = "libfuzzer", no_main)]

#[path = "../../crates/unwind/tests/common/made.rs"]
mod made;

use unwind::{Cfa, Table};

warpscope_fuzz::target!(|bytes: &[u8]| {
    // The first byte says how much of the rest is `.eh_frame`, in parts of 255.
    let Some((first, rest)) = bytes.split_first() else { return };
    let (eh_frame, debug_frame) = rest.split_at(rest.len() * usize::from(*first) / 255);
    if let Ok(table) = Table::of(&*made::elf(eh_frame, debug_frame)) {
        assert!(table.rows.is_sorted_by(|a, b| a.pc < b.pc && !a.same_rules(b)));
        if let (Some(first), Some(last)) = (table.rows.first(), table.rows.last()) {
            assert!(first.pc < 4096, "the base is the first function's page");
            assert_eq!(last.cfa(), Cfa::NoRule, "the last function has an end");
            assert_eq!(table.lookup(table.base + u64::from(last.pc)), Some(*last));
        }
    }
});
