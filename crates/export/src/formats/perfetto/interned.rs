//! Names, arguments and stacks that are written once.

use std::{collections::HashMap, sync::Arc};

use analysis::names;
use model::{
    event::{Direction, FrameKind, NamedFrame, StackId, Work},
    profile::Profile,
};
use rustc_hash::FxHashMap;
use text::short::split_place;

use crate::formats::proto::Message;

/// The most kernel shapes that are distinguished.
const MOST_SHAPES: usize = 1 << 16;

/// A table of `InternedData`, by its field number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Table {
    EventNames = 2,
    ArgumentNames = 3,
    Functions = 5,
    BuildIds = 16,
    Paths = 17,
    Sources = 18,
    Values = 29,
}

/// What has been written, and what is new.
pub(super) struct Interned<'a> {
    profile: &'a Profile,
    texts: HashMap<Table, HashMap<Arc<str>, u64>>,
    modules: HashMap<Arc<str>, u64>,
    frames: HashMap<NamedFrame, u64>,
    stacks: FxHashMap<StackId, u64>,
    shapes: FxHashMap<Work, u64>,
    /// Frequent ones, which need no look-up by text.
    copies: FxHashMap<Direction, u64>,
    arguments: FxHashMap<&'static str, u64>,
    fixed: FxHashMap<&'static str, u64>,
    new: Message,
}

impl<'a> Interned<'a> {
    pub fn new(profile: &'a Profile) -> Self {
        Self {
            profile,
            texts: HashMap::new(),
            modules: HashMap::new(),
            frames: HashMap::new(),
            stacks: FxHashMap::default(),
            shapes: FxHashMap::default(),
            copies: FxHashMap::default(),
            arguments: FxHashMap::default(),
            fixed: FxHashMap::default(),
            new: Message::default(),
        }
    }

    /// The entries that no packet contains yet.
    pub fn new_data(&mut self) -> &mut Message {
        &mut self.new
    }

    /// Returns the number of an event's name.
    pub fn name(&mut self, name: &str) -> u64 {
        self.text(Table::EventNames, name)
    }

    /// The same of a name that is not part of the recording.
    pub fn fixed_name(&mut self, name: &'static str) -> u64 {
        if let Some(&known) = self.fixed.get(name) {
            return known;
        }
        let id = self.name(name);
        self.fixed.insert(name, id);
        id
    }

    /// Returns the number of an argument's name.
    pub fn argument(&mut self, name: &'static str) -> u64 {
        if let Some(&known) = self.arguments.get(name) {
            return known;
        }
        let id = self.text(Table::ArgumentNames, name);
        self.arguments.insert(name, id);
        id
    }

    /// Returns the number of an argument's value.
    pub fn value(&mut self, value: &str) -> u64 {
        self.text(Table::Values, value)
    }

    /// Returns the number of a copy's name.
    pub fn copy(&mut self, direction: Direction) -> u64 {
        if let Some(&known) = self.copies.get(&direction) {
            return known;
        }
        let id = self.name(names::memcpy(direction));
        self.copies.insert(direction, id);
        id
    }

    /// Returns the number of the text that describes how a kernel was launched.
    pub fn shape(&mut self, work: &Work) -> u64 {
        let Work::Kernel { grid, block, registers, shared_memory, .. } = *work else { return self.value("") };
        // Kernels with the same shape share it.
        let key = Work::Kernel { name: 0, grid, block, registers, shared_memory };
        if let Some(&known) = self.shapes.get(&key) {
            return known;
        }
        if self.shapes.len() == MOST_SHAPES {
            return self.value("[not recorded: too many different shapes]");
        }
        let three = |[x, y, z]: [u32; 3]| format!("{x}x{y}x{z}");
        let id = self.value(&format!(
            "grid {}, block {}, {registers} registers, {shared_memory} bytes of shared memory",
            three(grid),
            three(block)
        ));
        self.shapes.insert(key, id);
        id
    }

    /// Returns the number of a stack.
    pub fn stack(&mut self, id: StackId) -> u64 {
        if let Some(&known) = self.stacks.get(&id) {
            return known;
        }
        let frames: Vec<u64> = self.profile.frames(id).iter().map(|frame| self.frame(frame)).collect();
        let number = self.stacks.len() as u64 + 1;
        self.stacks.insert(id, number);
        self.new.message(7, |stack| {
            stack.number(1, number);
            // Outermost first, not packed: the schema is proto2.
            frames.iter().for_each(|frame| stack.number(2, *frame));
        });
        number
    }

    fn frame(&mut self, frame: &NamedFrame) -> u64 {
        if let Some(&known) = self.frames.get(frame) {
            return known;
        }
        let text = names::raw_frame(frame);
        let (_, place) = split_place(&text);
        let place = place.strip_prefix(" (").and_then(|place| place.strip_suffix(')'));
        let (file, line) = place.and_then(|place| place.rsplit_once(':')).unwrap_or_default();
        let python = frame.kind == FrameKind::Python;
        let source = if python { &*frame.module } else { file };
        // The line stays in the name: it is what a reader of the flame graph looks for.
        let function = self.text(Table::Functions, &text);
        let source = if source.is_empty() { None } else { Some(self.text(Table::Sources, source)) };
        let module = self.module(if python { "" } else { &frame.module });
        let number = self.frames.len() as u64 + 1;
        self.frames.insert(frame.clone(), number);
        self.new.message(6, |frame| {
            frame.number(1, number);
            frame.number(2, function);
            frame.number(3, module);
            frame.number(4, 0);
            if let Some(source) = source {
                frame.number(5, source);
                frame.number(6, line.parse::<u32>().unwrap_or(0).into());
            }
        });
        number
    }

    /// Returns the number of a program or library. Every frame needs one, even if it is not known.
    fn module(&mut self, module: &str) -> u64 {
        if let Some(&known) = self.modules.get(module) {
            return known;
        }
        let known = names::mapping(self.profile, module);
        let build_id = self.text(Table::BuildIds, &known.map(names::build_id).unwrap_or_default());
        let path = known.map_or(module, |mapping| mapping.path.trim_start_matches('/'));
        let parts: Vec<u64> = path.split('/').map(|part| self.text(Table::Paths, part)).collect();
        let number = self.modules.len() as u64 + 1;
        self.modules.insert(module.into(), number);
        self.new.message(19, |mapping| {
            mapping.number(1, number);
            mapping.number(2, build_id);
            parts.iter().for_each(|part| mapping.number(7, *part));
        });
        number
    }

    fn text(&mut self, table: Table, text: &str) -> u64 {
        let known = self.texts.entry(table).or_default();
        if let Some(&known) = known.get(text) {
            return known;
        }
        let number = known.len() as u64 + 1;
        known.insert(text.into(), number);
        self.new.message(table as u32, |entry| {
            entry.number(1, number);
            entry.text(2, text);
        });
        number
    }
}
