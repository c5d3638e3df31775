//! `.pb.gz`: a profile for pprof (<https://github.com/google/pprof>), and for the many services that read its format.
//!
//! The schema is pprof's `proto/profile.proto`; the field numbers below are its numbers. Sample types are `gpu`,
//! `operations`, `cpu` and `launches`, `wait` if time off the CPU was recorded, and each counted event. The ledger is in the
//! comments.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use analysis::weighted::{Frame, Kind, Row, Weighted};
use analysis::{
    Events,
    flame_tree::{Measure, View},
    names,
};
use model::profile::Profile;

use crate::formats::proto::Message;

/// Writes the stacks of a recording with all their weights.
pub fn write(profile: &Profile, view: View, events: Events<'_>, out: &mut dyn Write) -> io::Result<()> {
    let weighted = Weighted::of(profile, view, events);
    let mut pprof = Pprof::new(profile, out);
    for kind in &weighted.kinds {
        pprof.value_type(1, &kind.name, unit(kind.measure))?;
    }
    for row in weighted.rows.iter().filter(|row| row.amounts.iter().any(|amount| *amount > 0)) {
        pprof.sample(row)?;
    }
    pprof.locations(&weighted.frames)?;
    pprof.about(&weighted.kinds, weighted.first())?;
    pprof.strings()?;
    pprof.out.flush()
}

/// Writes stacks of one type without labels, for services that keep many profiles: what is measured and from when to when is the
/// same in every part of a series.
pub(crate) fn write_stacks<'a>(
    profile: &Profile,
    (name, period): (&str, u64),
    measure: Measure,
    frames: &[Frame],
    stacks: impl Iterator<Item = (&'a [u32], u64)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut pprof = Pprof::new(profile, out);
    pprof.value_type(1, name, unit(measure))?;
    for (path, amount) in stacks {
        pprof.write(|message, _| {
            message.message(2, |sample| {
                sample.packed(1, path.iter().rev().map(|frame| u64::from(*frame) + 1));
                sample.packed(2, [amount.min(i64::MAX as u64)]);
            });
        })?;
    }
    pprof.locations(frames)?;
    pprof.value_type(11, name, unit(measure))?;
    pprof.write(|message, _| message.amount(12, period))?;
    pprof.times()?;
    pprof.strings()?;
    pprof.out.flush()
}

/// Returns a unit as pprof names it.
pub(crate) fn unit(measure: Measure) -> &'static str {
    match measure {
        Measure::Time => "nanoseconds",
        Measure::Bytes => "bytes",
        Measure::Number => "count",
    }
}

struct Pprof<'a> {
    profile: &'a Profile,
    out: &'a mut dyn Write,
    message: Message,
    strings: Strings,
}

/// The table of strings; index 0 is the empty one.
#[derive(Default)]
pub(crate) struct Strings {
    indexes: HashMap<String, u64>,
    /// In the order of their indexes.
    pub texts: Vec<String>,
}

impl Strings {
    /// Returns the index of a string, which is added if it is new.
    pub fn index(&mut self, text: &str) -> u64 {
        if let Some(&index) = self.indexes.get(text) {
            return index;
        }
        let index = self.texts.len() as u64;
        self.indexes.insert(text.to_owned(), index);
        self.texts.push(text.to_owned());
        index
    }
}

impl<'a> Pprof<'a> {
    fn new(profile: &'a Profile, out: &'a mut dyn Write) -> Self {
        let mut strings = Strings::default();
        strings.index("");
        Self { profile, out, message: Message::default(), strings }
    }

    /// Writes the message as a field of the profile.
    fn write(&mut self, fill: impl FnOnce(&mut Message, &mut Strings)) -> io::Result<()> {
        self.message.clear();
        fill(&mut self.message, &mut self.strings);
        self.out.write_all(self.message.bytes())
    }

    fn value_type(&mut self, field: u32, name: &str, unit: &str) -> io::Result<()> {
        self.write(|message, strings| {
            let (name, unit) = (strings.index(name), strings.index(unit));
            message.message(field, |message| {
                message.number(1, name);
                message.number(2, unit);
            });
        })
    }

    fn sample(&mut self, row: &Row) -> io::Result<()> {
        let profile = self.profile;
        let origin = row.origin;
        let mut texts: Vec<(&str, String)> = Vec::new();
        let mut numbers: Vec<(&str, u64)> = Vec::new();
        if let Some(info) = profile.processes.get(&origin.process) {
            texts.push(("process", info.comm.clone()));
            numbers.push(("pid", info.pid.into()));
        }
        if let Some(tid) = origin.tid {
            let process = profile.processes.get(&origin.process).map(|info| &info.comm);
            let comm = profile.threads.get(&(origin.process, tid)).or(process);
            texts.extend(comm.map(|comm| ("thread", comm.clone())));
            numbers.push(("tid", tid.into()));
        }
        texts.extend(origin.device.map(|device| ("device", profile.device_label(device).to_owned())));
        texts.extend(origin.stream.map(|stream| ("stream", stream.to_string())));
        texts.extend(profile.rank(origin.process).map(|rank| ("rank", rank.to_string())));
        self.write(|message, strings| {
            message.message(2, |sample| {
                // Innermost first; numbers start at 1.
                sample.packed(1, row.frames.iter().rev().map(|frame| u64::from(*frame) + 1));
                sample.packed(2, row.amounts.iter().map(|amount| (*amount).min(i64::MAX as u64)));
                for (key, text) in texts {
                    let (key, text) = (strings.index(key), strings.index(&text));
                    sample.message(3, |label| {
                        label.number(1, key);
                        label.number(2, text);
                    });
                }
                for (key, number) in numbers {
                    let (key, unit) = (strings.index(key), strings.index("id"));
                    sample.message(3, |label| {
                        label.number(1, key);
                        label.number(3, number);
                        label.number(4, unit);
                    });
                }
            });
        })
    }

    /// Writes a location for each frame, the functions, and the files that they are in.
    fn locations(&mut self, frames: &[Frame]) -> io::Result<()> {
        let mut functions: HashMap<(&str, &str), u64> = HashMap::new();
        let mut modules: HashMap<&str, u64> = HashMap::new();
        for (frame, id) in frames.iter().zip(1..) {
            let next = functions.len() as u64 + 1;
            let function = *functions.entry((&frame.name, &frame.file)).or_insert(next);
            if function == next {
                self.function(next, frame)?;
            }
            let next = modules.len() as u64 + 1;
            let module = match &*frame.module {
                "" => 0,
                module => *modules.entry(module).or_insert(next),
            };
            if module == next {
                self.mapping(next, &frame.module)?;
            }
            self.write(|message, _| {
                message.message(4, |location| {
                    location.number(1, id);
                    location.number(2, module);
                    location.message(4, |line| {
                        line.number(1, function);
                        line.amount(2, frame.line);
                    });
                });
            })?;
        }
        Ok(())
    }

    fn function(&mut self, id: u64, frame: &Frame) -> io::Result<()> {
        self.write(|message, strings| {
            // An empty name would be index 0, which pprof reads as an unknown function.
            let name = strings.index(if frame.name.is_empty() { "[unnamed]" } else { &frame.name });
            let file = strings.index(&frame.file);
            message.message(5, |function| {
                function.number(1, id);
                // No system name: pprof would demangle it again, and drop the template arguments of kernels.
                function.number(2, name);
                function.number(4, file);
            });
        })
    }

    /// Writes a program or library: its path and build id. Locations have names instead of addresses, so it has no
    /// addresses either.
    fn mapping(&mut self, id: u64, module: &str) -> io::Result<()> {
        let known = names::mapping(self.profile, module);
        let path = known.map_or(module, |mapping| &mapping.path);
        let build_id = known.map(names::build_id).unwrap_or_default();
        self.write(|message, strings| {
            let (path, build_id) = (strings.index(path), strings.index(&build_id));
            message.message(3, |mapping| {
                mapping.number(1, id);
                mapping.number(5, path);
                mapping.number(6, build_id);
                // Functions are named: pprof need not look for the file.
                mapping.number(7, 1);
                mapping.number(8, 1);
                mapping.number(9, 1);
                mapping.number(10, 1);
            });
        })
    }

    /// Writes what concerns the whole profile.
    fn about(&mut self, kinds: &[Kind], first: usize) -> io::Result<()> {
        let profile = self.profile;
        let mut comments = Vec::new();
        if let Some(start) = &profile.start {
            comments.push(format!("warpscope {} on {}: {}", start.version, start.host, start.command.join(" ")));
            if start.frequency > 0 {
                self.value_type(11, "cpu", "nanoseconds")?;
                let period = 1_000_000_000 / u64::from(start.frequency);
                self.write(|message, _| message.amount(12, period))?;
            }
        }
        comments.push(format!("ledger: {}", serde_json::to_string(&profile.ledger)?));
        comments.extend(profile.notes.iter().map(|note| format!("note: {note}")));
        self.times()?;
        self.write(|message, strings| {
            for comment in &comments {
                message.number(13, strings.index(comment));
            }
            if let Some(kind) = kinds.get(first) {
                message.number(14, strings.index(&kind.name));
            }
        })
    }

    /// Writes when the recording began and how long it took.
    fn times(&mut self) -> io::Result<()> {
        let profile = self.profile;
        self.write(|message, _| {
            message.amount(9, profile.start.as_ref().map_or(0, |start| start.wall_clock));
            message.amount(10, profile.wall_ns());
        })
    }

    fn strings(&mut self) -> io::Result<()> {
        for text in std::mem::take(&mut self.strings.texts) {
            self.write(|message, _| message.text(6, &text))?;
        }
        Ok(())
    }
}
