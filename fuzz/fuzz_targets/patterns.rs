//! Patterns of `trace --match`, and the names that they are matched against: patterns first, then names, one per line.
#![cfg_attr(feature = "libfuzzer", no_main)]

use text::pattern::Selection;

warpscope_fuzz::target!(|text: &str| {
    let (patterns, names) = text.split_once("\n\n").unwrap_or((text, "cudaMalloc"));
    let lists: Vec<String> = patterns.lines().map(str::to_owned).collect();
    let (include, exclude) = lists.split_at(lists.len().div_ceil(2));
    if let Ok(selection) = Selection::parse(include, exclude) {
        for name in names.lines() {
            selection.takes(name);
        }
        selection.unmatched(names.lines());
    }
});
