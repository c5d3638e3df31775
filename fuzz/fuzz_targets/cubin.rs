//! Line tables of GPU code: the first byte is the number of the function's instruction to look up.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((instruction, cubin)) = bytes.split_first() else { return };
    let offset = 16 * u64::from(*instruction);
    for function in ["_Z5waitsPf", "_Z7stridedPKfPfmi", "gather"] {
        let wanted = [(function, offset), (function, 0), (function, u64::MAX)];
        let lines = symbols::cubin::lines(cubin, &wanted);
        assert_eq!(lines.len(), wanted.len());
        assert!(lines.iter().all(|lines| lines.len() <= 64));
    }
});
