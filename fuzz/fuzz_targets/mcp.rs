//! Lines from an agent: every request has one answer of bounded length, in one line of JSON with its id.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::{cell::RefCell, io, rc::Rc};

use analysis::{Events, explain::Entry};
use mcp::{Admitted, Cancel, Inbox, Library, Listed, Opened, Query, Rows, Selection, Server, SourceFile};

/// One small recording.
struct Shelf {
    run: Rc<Opened>,
    explanations: Vec<Entry>,
}

impl Library for Shelf {
    fn recordings(&mut self) -> Result<(Vec<Listed>, bool), String> {
        Ok((vec![Listed { name: "x.wscope".into(), bytes: 1, written_s: 1 }], true))
    }

    fn open(&mut self, name: &str, _: &Selection) -> Result<Rc<Opened>, String> {
        if name == "x.wscope" { Ok(self.run.clone()) } else { Err("there is no such recording".to_owned()) }
    }

    fn tables(&self) -> Option<&'static [&'static str]> {
        Some(&["kernels"])
    }

    fn query(&mut self, _: &str, _: &Selection, _: &Query, _: &Cancel) -> Result<Rows, String> {
        Ok(Rows { lines: vec![r#"{"name":"x","ns":NaN}"#.to_owned()], is_all: true })
    }

    fn has_sources(&self) -> bool {
        true
    }

    fn source(&self, path: &str) -> Result<SourceFile, String> {
        Ok(SourceFile { path: path.to_owned(), text: "line\n".repeat(100) })
    }

    fn explanations(&self) -> &[Entry] {
        &self.explanations
    }

    fn command(&self) -> Option<String> {
        Some("-- ./train".to_owned())
    }

    fn record(&mut self, _: &Cancel) -> Result<(String, String), String> {
        Err("nothing is recorded".to_owned())
    }
}

thread_local! {
    static RUN: RefCell<Option<Rc<Opened>>> = const { RefCell::new(None) };
}

fn shelf() -> Shelf {
    let run = RUN.with_borrow_mut(|run| {
        let open = || -> io::Result<Events<'static>> { Ok(Box::new(fixtures::events().into_iter())) };
        let new = || Rc::new(Opened { profile: fixtures::fold(&fixtures::events()), events: Box::new(open) });
        run.get_or_insert_with(new).clone()
    });
    Shelf { run, explanations: analysis::explain::all().collect() }
}

warpscope_fuzz::target!(|bytes: &[u8]| {
    let (mut server, mut inbox) = (Server::new(shelf()), Inbox::default());
    for line in bytes.split(|byte| *byte == b'\n') {
        let answer = match inbox.admit(line) {
            Admitted::Request(request, cancel) => {
                let answer = server.answer(&request, &cancel);
                assert!(answer.len() < 2 << 20, "{} bytes", answer.len());
                assert!(inbox.done(&request.id) || cancel.is_cancelled());
                answer
            }
            Admitted::Answer(answer) => answer,
            Admitted::Nothing => continue,
        };
        assert!(!answer.contains('\n') && answer.starts_with('{') && answer.contains(r#""jsonrpc":"2.0""#), "{answer}");
    }
});
