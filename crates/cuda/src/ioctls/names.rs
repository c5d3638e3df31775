//! Tables of names.

/// Numbers and names, sorted by number.
pub type Names = &'static [(u32, &'static str)];

/// Returns the name of a number.
pub fn name(table: Names, number: u32) -> Option<&'static str> {
    table.binary_search_by_key(&number, |&(known, _)| known).ok().map(|at| table[at].1)
}

/// Returns the number of a name.
pub fn number(table: Names, known: &str) -> Option<u32> {
    table.iter().find(|(_, name)| *name == known).map(|(number, _)| *number)
}
