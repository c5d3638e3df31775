//! Builds rows, in the order of their addresses.

use crate::{Cfa, Error, Loss, Row, Stats};

/// The maximum size of a program's first function if it has no rules: glibc's loader has 61 bytes.
const ENTRY: u64 = 128;

/// The rows so far.
pub(crate) struct Builder {
    base: u64,
    pub rows: Vec<Row>,
    most: usize,
    /// The end of the last function.
    end: Option<u64>,
    /// The program's entry point, 0 if there is none.
    entry: u64,
    pub stats: Stats,
}

impl Builder {
    /// No rows yet. At most `most` rows are added; `entry` is the program's entry point, 0 if there is none.
    pub fn new(base: u64, most: usize, entry: u64, stats: Stats) -> Self {
        Self { base, rows: Vec::new(), most, end: None, entry, stats }
    }

    /// Starts a function: a gap before it gets its own row.
    pub fn begin(&mut self, start: u64) -> Result<(), Error> {
        match self.end {
            Some(end) if end < start => self.gap(end, start),
            _ => Ok(()),
        }
    }

    /// Adds rules that are valid from an address on. A row that repeats the previous one is omitted.
    pub fn push(&mut self, address: u64, row: impl FnOnce(u32) -> (Row, Option<Loss>)) -> Result<(), Error> {
        // Every function is within 4 GiB of the base, and addresses are within their function.
        let (row, loss) = row((address - self.base) as u32);
        if self.rows.last().is_some_and(|last| last.same_rules(&row)) {
            return Ok(());
        }
        if self.rows.len() == self.most {
            return Err(Error::TooMany { what: "rows", limit: self.most as u64 });
        }
        if let Some(loss) = loss {
            self.stats.lose(loss);
        }
        self.rows.push(row);
        Ok(())
    }

    /// Ends the function started last.
    pub fn end(&mut self, end: u64) {
        self.end = Some(end);
    }

    /// Adds a gap. If the program's entry point is in one, as in glibc's loader, it has no caller: the stack ends
    /// there.
    fn gap(&mut self, from: u64, to: u64) -> Result<(), Error> {
        self.stats.gaps += 1;
        if from != self.entry || from == to {
            self.push(from, |pc| (Row::no_rule(pc), None))?;
        }
        if (from..to).contains(&self.entry) {
            let end = self.entry.saturating_add(ENTRY).min(to);
            self.push(self.entry, |pc| (Row::end(pc), None))?;
            if end < to {
                self.push(end, |pc| (Row::no_rule(pc), None))?;
            }
        }
        Ok(())
    }

    /// Adds the row that ends the last function.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.end.map_or(Ok(()), |end| self.gap(end, end))
    }

    /// Returns the rows and their statistics.
    pub fn into_parts(mut self) -> (Vec<Row>, Stats) {
        for pair in self.rows.windows(2) {
            let bytes = u64::from(pair[1].pc - pair[0].pc);
            match pair[0].cfa() {
                Cfa::NoRule => continue,
                Cfa::Unsupported => self.stats.unsupported += bytes,
                _ => {}
            }
            self.stats.covered += bytes;
        }
        self.rows.shrink_to_fit();
        (self.rows, self.stats)
    }
}
