//! The tables of a recording, as their reader sees them.

use std::{cell::RefCell, collections::BTreeMap, io, io::Write, rc::Rc};

use analysis::View;
use export::formats::parquet;
use model::{event::Event, profile::Profile};

use super::parquet::Table;

/// A file that can be read after its writer is gone.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the files of a recording.
pub fn files(events: &[Event], view: View) -> BTreeMap<String, Vec<u8>> {
    files_of(&super::fold(events), events, view)
}

fn files_of(profile: &Profile, events: &[Event], view: View) -> BTreeMap<String, Vec<u8>> {
    let mut files: BTreeMap<String, Shared> = BTreeMap::new();
    let mut create = |name: &str| -> io::Result<Box<dyn Write>> {
        let file = Shared::default();
        assert!(files.insert(name.to_owned(), file.clone()).is_none(), "{name} is created once");
        Ok(Box::new(file))
    };
    parquet::write(profile, view, Box::new(events.iter().cloned()), &mut create).expect("written");
    files.into_iter().map(|(name, file)| (name, file.0.take())).collect()
}

/// Returns the tables of a recording.
pub fn tables(events: &[Event]) -> BTreeMap<String, Table> {
    tables_of(&super::fold(events), events)
}

/// Returns the tables of a recording with a profile.
pub fn tables_of(profile: &Profile, events: &[Event]) -> BTreeMap<String, Table> {
    let table = |(name, bytes): (String, Vec<u8>)| (name.replace(".parquet", ""), Table::read(&bytes));
    files_of(profile, events, View::default()).into_iter().map(table).collect()
}
