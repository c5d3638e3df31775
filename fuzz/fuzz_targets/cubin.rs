//! GPU code: line tables, barriers and listings. The first byte is the number of the function's instruction to look up; what
//! follows is a cubin, and also what a disassembler prints.
#![cfg_attr(feature = "libfuzzer", no_main)]

use symbols::cubin::{Barriers, Listing, lines};

warpscope_fuzz::target!(|bytes: &[u8]| {
    let Some((instruction, cubin)) = bytes.split_first() else { return };
    let offset = 16 * u64::from(*instruction);
    let barriers = Barriers::of(cubin);
    for function in ["_Z5waitsPf", "_Z7stridedPKfPfmi", "gather"] {
        let wanted = [(function, offset), (function, 0), (function, u64::MAX)];
        let lines = lines(cubin, &wanted);
        assert_eq!(lines.len(), wanted.len());
        assert!(lines.iter().all(|lines| lines.len() <= 64));
        assert!(barriers.of_wait(function.as_bytes(), offset).is_none_or(|barrier| barrier <= offset));
        let mut listing = Listing::new(cubin, &wanted);
        String::from_utf8_lossy(cubin).lines().for_each(|line| listing.line(line));
        assert_eq!(listing.finish().len(), wanted.len());
    }
});
