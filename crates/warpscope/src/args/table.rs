//! `--table` and `--by`.

use std::str::FromStr;

/// A table, by its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Table(pub analysis::Table);

impl FromStr for Table {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        // `--by kernel` and `--table kernels` read naturally, so both are accepted.
        let wanted = |known: &str| known == name || known.strip_suffix('s') == Some(name);
        let found = analysis::Table::ALL.into_iter().find(|(known, _)| wanted(known));
        found.map(|(_, table)| Self(table)).ok_or_else(|| {
            let names: Vec<&str> = analysis::Table::ALL.iter().map(|(name, _)| *name).collect();
            format!("there is no such table; there are: {}", names.join(", "))
        })
    }
}
