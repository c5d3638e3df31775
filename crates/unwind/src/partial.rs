//! The rows of some functions of a file.

use crate::{Cfa, Row};

/// The rows of one function and of the gap behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The addresses that it covers, minus the table's base.
    pub start: u32,
    /// One past the last.
    pub end: u32,
    /// The first one is at `start`.
    pub rows: Vec<Row>,
}

impl Piece {
    /// Removes rows outside its addresses.
    pub(crate) fn clipped(mut self) -> Self {
        let first = Row::find(&self.rows, self.start).unwrap_or(Row::no_rule(self.start));
        self.rows.retain(|row| (self.start..self.end).contains(&row.pc));
        if self.rows.first().is_none_or(|row| row.pc > self.start) {
            self.rows.insert(0, Row { pc: self.start, ..first });
        }
        self
    }
}

/// A table that grows function by function. Addresses that no piece covers have the rule [`Cfa::Unknown`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partial {
    rows: Vec<Row>,
}

impl Default for Partial {
    fn default() -> Self {
        Self { rows: vec![Row::unknown(0)] }
    }
}

impl Partial {
    /// Returns the rows, sorted by address.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the row for a `pc`; `None` if it has to be compiled first.
    pub fn find(&self, pc: u32) -> Option<Row> {
        Row::find(&self.rows, pc).filter(|row| row.cfa() != Cfa::Unknown)
    }

    /// Adds a piece; it replaces the rows of its addresses.
    pub fn add(&mut self, piece: &Piece) {
        let Piece { start, end, rows } = piece;
        if start >= end {
            return;
        }
        let behind = Row::find(&self.rows, *end).unwrap_or(Row::unknown(0));
        let from = self.rows.partition_point(|row| row.pc < *start);
        let to = self.rows.partition_point(|row| row.pc <= *end);
        self.rows.splice(from..to, rows.iter().copied().chain([Row { pc: *end, ..behind }]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u32, end: u32) -> Piece {
        Piece { start, end, rows: vec![Row::end(start), Row::unsupported(start + 1)] }
    }

    fn rules(table: &Partial) -> Vec<(u32, Cfa)> {
        table.rows().iter().map(|row| (row.pc, row.cfa())).collect()
    }

    /// Check that pieces are put in order, that addresses between them stay unknown, and that neighbours join.
    #[test]
    fn pieces_are_added_in_any_order() {
        let mut table = Partial::default();
        assert_eq!(table.find(20), None);
        table.add(&piece(20, 30));
        table.add(&piece(10, 20));
        table.add(&piece(40, 50));
        let (unknown, end, unsupported) = (Cfa::Unknown, Cfa::End, Cfa::Unsupported);
        let expected = [(0, unknown), (10, end), (11, unsupported), (20, end), (21, unsupported), (30, unknown)];
        let rest = [(40, end), (41, unsupported), (50, unknown)];
        assert_eq!(rules(&table), [&expected[..], &rest[..]].concat());
        assert_eq!(table.find(9), None);
        assert_eq!(table.find(10).map(|row| row.cfa()), Some(end));
        assert_eq!(table.find(29).map(|row| row.cfa()), Some(unsupported));
        assert_eq!(table.find(30), None);
        let before = table.clone();
        table.add(&piece(20, 30));
        assert_eq!(table, before, "adding it again changes nothing");
        table.add(&piece(0, 10));
        table.add(&Piece { start: 50, end: u32::MAX, rows: vec![Row::no_rule(50)] });
        assert_eq!(table.find(0).map(|row| row.cfa()), Some(end));
        assert_eq!(table.find(u32::MAX - 1).map(|row| row.cfa()), Some(Cfa::NoRule));
    }

    /// Check that rows of neighbours are removed, and that the row in effect at the start is kept.
    #[test]
    fn rows_of_neighbours_are_removed() {
        let rows = vec![Row::end(5), Row::no_rule(12), Row::end(20)];
        let clipped = Piece { start: 10, end: 20, rows }.clipped();
        assert_eq!(clipped.rows, [Row::end(10), Row::no_rule(12)]);
    }
}
