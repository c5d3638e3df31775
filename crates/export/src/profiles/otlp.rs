//! OTLP profiles, `opentelemetry.proto.profiles.v1development` as of opentelemetry-proto 1.10 (1.9 removed the aggregation temporality,
//! 1.10 renumbered the fields of `Sample`): <https://github.com/open-telemetry/opentelemetry-proto>. The field numbers below are its
//! numbers; a new version of the schema changes this file only.

use std::collections::{BTreeMap, HashMap};

use analysis::{names, weighted::Frame};

use super::{Batch, Piece, Source, Used};
use crate::formats::{
    pprof::{Strings, unit},
    proto::Message,
};

/// Where requests are posted, below the address of the receiver.
pub const PATH: &str = "/v1development/profiles";
/// The type of their contents.
pub const CONTENT_TYPE: &str = "application/x-protobuf";
/// Requests are compressed.
pub const COMPRESS: bool = true;

/// The name of a mapping's build id.
const BUILD_ID: &str = "process.executable.build_id.gnu";

/// Encodes an `ExportProfilesServiceRequest`: a resource for each rank and GPU, and a dictionary.
pub fn encode(source: &Source<'_>, batch: &Batch) -> Vec<u8> {
    let mut resources: BTreeMap<_, Vec<Piece<'_>>> = BTreeMap::new();
    for piece in batch.of(source) {
        resources.entry((piece.series.rank, &piece.series.device)).or_default().push(piece);
    }
    let mut tables = Tables::default();
    tables.strings.index("");
    let mut request = Message::default();
    for pieces in resources.values() {
        request.message(1, |resource| tables.resource(resource, source, pieces));
    }
    request.message(2, |dictionary| tables.write(dictionary, source));
    request.bytes().to_vec()
}

/// What profiles refer to by index. Index 0 of each table means that there is none.
#[derive(Default)]
struct Tables {
    strings: Strings,
    used: Used,
    /// By the numbers of frames, outermost first.
    stacks: HashMap<Vec<u32>, u64>,
    paths: Vec<Vec<u32>>,
}

impl Tables {
    /// Writes a `ResourceProfiles`.
    fn resource(&mut self, message: &mut Message, source: &Source<'_>, pieces: &[Piece<'_>]) {
        message.message(1, |resource| {
            for (key, value) in pieces.first().map(|piece| piece.labels(source)).unwrap_or_default() {
                resource.message(1, |attribute| {
                    attribute.text(1, &key);
                    attribute.message(2, |any| any.text(1, &value));
                });
            }
        });
        message.message(2, |scope| {
            scope.message(1, |scope| {
                scope.text(1, "warpscope");
                scope.text(2, source.profile.start.as_ref().map_or("", |start| &start.version));
            });
            for piece in pieces {
                scope.message(2, |profile| self.profile(profile, source, piece));
            }
        });
    }

    /// Writes a `Profile`.
    fn profile(&mut self, message: &mut Message, source: &Source<'_>, piece: &Piece<'_>) {
        let kind = piece.series.kind;
        let (name, unit) = (self.strings.index(kind.name()), self.strings.index(unit(kind.measure())));
        let value_type = |message: &mut Message| {
            message.number(1, name);
            message.number(2, unit);
        };
        message.message(1, value_type);
        for (path, amount) in piece.stacks {
            let stack = self.stack(path);
            message.message(2, |sample| {
                sample.number(1, stack);
                sample.packed(4, [(*amount).min(i64::MAX as u64)]);
            });
        }
        message.fixed(3, source.profile.start.as_ref().map_or(0, |start| start.wall_clock));
        message.number(4, source.profile.wall_ns());
        // Pyroscope names a profile by the type of its period.
        message.message(5, value_type);
        message.amount(6, piece.period(source.profile));
        message.octets(7, &piece.id(source));
    }

    fn stack(&mut self, path: &[u32]) -> u64 {
        let path = self.used.path(path);
        if let Some(stack) = self.stacks.get(&path) {
            return *stack;
        }
        self.paths.push(path.clone());
        let stack = self.paths.len() as u64;
        self.stacks.insert(path, stack);
        stack
    }

    /// Writes the `ProfilesDictionary`.
    fn write(&mut self, message: &mut Message, source: &Source<'_>) {
        let frames: Vec<&Frame> = self.used.all(&source.all.frames).collect();
        let mut functions: HashMap<(&str, &str), u64> = HashMap::new();
        let mut mappings: HashMap<&str, u64> = HashMap::new();
        let mut build_ids = Vec::new();
        for table in [1, 2, 3, 4, 6, 7] {
            message.message(table, |_| {});
        }
        for frame in frames {
            let next = mappings.len() as u64 + 1;
            let mapping = match &*frame.module {
                "" => 0,
                module => *mappings.entry(module).or_insert(next),
            };
            if mapping == next {
                self.mapping(message, source, &frame.module, &mut build_ids);
            }
            let next = functions.len() as u64 + 1;
            let function = *functions.entry((&frame.name, &frame.file)).or_insert(next);
            if function == next {
                let (name, file) = (self.strings.index(&frame.name), self.strings.index(&frame.file));
                message.message(3, |message| {
                    message.number(1, name);
                    message.number(3, file);
                });
            }
            message.message(2, |location| {
                location.number(1, mapping);
                location.message(3, |line| {
                    line.number(1, function);
                    line.amount(2, frame.line);
                });
            });
        }
        for (key, build_id) in build_ids {
            message.message(6, |attribute| {
                attribute.number(1, key);
                attribute.message(2, |any| any.text(1, &build_id));
            });
        }
        for path in &self.paths {
            // Innermost first; location 0 is none.
            message.message(7, |stack| stack.packed(1, path.iter().rev().map(|frame| u64::from(*frame) + 1)));
        }
        for text in &self.strings.texts {
            message.text(5, text);
        }
    }

    /// Writes a `Mapping`: a program or library. Locations have names instead of addresses, so it has no addresses either.
    fn mapping(
        &mut self,
        message: &mut Message,
        source: &Source<'_>,
        module: &str,
        build_ids: &mut Vec<(u64, String)>,
    ) {
        let known = names::mapping(source.profile, module);
        let file = self.strings.index(known.map_or(module, |mapping| &mapping.path));
        let build_id = known.map(names::build_id).filter(|build_id| !build_id.is_empty());
        let key = self.strings.index(BUILD_ID);
        let attribute = build_id.map(|build_id| {
            build_ids.push((key, build_id));
            build_ids.len() as u64
        });
        message.message(1, |mapping| {
            mapping.number(4, file);
            mapping.packed(5, attribute);
        });
    }
}
