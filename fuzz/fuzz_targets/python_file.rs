//! Files that may be an interpreter.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::{
    cell::RefCell,
    fs::File,
    io::{Seek, Write},
};

use symbols::python::Interpreter;

thread_local! {
    static FILE: RefCell<File> = RefCell::new(tempfile::tempfile().expect("a temporary file"));
}

warpscope_fuzz::target!(|bytes: &[u8]| {
    FILE.with_borrow_mut(|file| {
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(bytes)).expect("it can be written");
        if let Some(Ok(found)) = Interpreter::find(file, "/usr/bin/python3.12") {
            assert!((8..=14).contains(&found.minor));
        }
    });
});
