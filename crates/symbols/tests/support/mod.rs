//! Small programs, compiled for a test, and the names of their addresses.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use model::{
    event::{Frame, Mapping, ProcessId, Stack, StackEnd, StackId},
    profile::Profile,
};
use object::{Object, ObjectSegment, ObjectSymbol, SegmentFlags};
use symbols::{DebugFiles, Kept, Named, Options};
use tempfile::TempDir;

/// The process image of all tests.
pub const IMAGE: ProcessId = ProcessId(1);
/// Where files are mapped.
const START: u64 = 0x7000_0000_0000;

/// A directory for one test.
pub struct Scene(TempDir);

impl Scene {
    pub fn new() -> Self {
        Self(TempDir::with_prefix("symbols-").expect("a temporary directory"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a command in the directory; its words are separated by spaces.
    #[track_caller]
    pub fn run(&self, words: &str) -> String {
        let mut words = words.split_whitespace();
        let mut command = Command::new(words.next().expect("a command"));
        let output = command.args(words).current_dir(self.0.path()).output();
        let output = output.unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("the directory is ours");
    }

    /// Returns a program as it currently is in the directory.
    pub fn program(&self, name: &str) -> Program {
        Program { path: self.path(name), bytes: fs::read(self.path(name)).expect("it is there") }
    }
}

/// A program at some point in time.
pub struct Program {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Program {
    /// The address of a symbol.
    #[track_caller]
    pub fn symbol(&self, name: &str) -> u64 {
        let file = object::File::parse(&*self.bytes).expect("it is ELF");
        let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name) && symbol.is_definition());
        symbol.unwrap_or_else(|| panic!("{name} does not exist")).address()
    }

    /// Returns the addresses of the instructions that call a function, by its name: each one less than the return
    /// address, as in stacks.
    #[track_caller]
    pub fn calls(&self, scene: &Scene, callee: &str) -> Vec<u64> {
        let text = scene.run(&format!("objdump -d --no-show-raw-insn {}", self.path.display()));
        let mut found = Vec::new();
        let mut inside = false;
        for line in text.lines() {
            let address = line.trim().split_once(":\t").and_then(|(a, _)| u64::from_str_radix(a, 16).ok());
            if inside && let Some(address) = address {
                found.push(address - 1);
            }
            if inside && address.is_none() && line.ends_with(":") {
                // The call was the last instruction of its function.
                let address = u64::from_str_radix(line.split(' ').next().unwrap_or_default(), 16).expect("an address");
                found.push(address - 1);
            }
            inside = (inside && line.is_empty()) || (line.contains("call") && line.contains(&format!("<{callee}>")));
        }
        assert!(!found.is_empty(), "no calls of {callee}: {text}");
        found
    }

    /// Returns the mapping of the program's code as the kernel would report it.
    pub fn mapping(&self) -> Mapping {
        let file = object::File::parse(&*self.bytes).expect("it is ELF");
        let code =
            file.segments().find(|s| matches!(s.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & 1 != 0));
        let code = code.expect("it has code");
        let (offset, size) = code.file_range();
        Mapping {
            process: IMAGE,
            time: 10,
            start: START,
            end: START + size.next_multiple_of(4096),
            offset: offset & !4095,
            path: self.path.to_string_lossy().into_owned(),
            build_id: file.build_id().expect("readable").unwrap_or_default().to_vec(),
        }
    }

    /// Returns the address in the process for an address of the file.
    pub fn in_process(&self, address: u64) -> u64 {
        let file = object::File::parse(&*self.bytes).expect("it is ELF");
        let code =
            file.segments().find(|s| (s.address()..s.address() + s.size()).contains(&address)).expect("a segment");
        address - code.address() + code.file_range().0 - self.mapping().offset + START
    }

    /// Keeps the program, as if it had just been mapped.
    pub fn kept(&self, most: usize) -> Kept {
        let mut kept = Kept::new(most);
        kept.mapped(&self.mapping(), std::process::id());
        kept
    }

    /// Returns the names at addresses of the file, each outermost first and joined by ` > `, and notes.
    pub fn names_and_notes(&self, kept: &mut Kept, options: &Options, addresses: &[u64]) -> (Vec<String>, Vec<String>) {
        let addresses: Vec<u64> = addresses.iter().map(|address| self.in_process(*address)).collect();
        names(self.mapping(), kept, options, &addresses)
    }

    /// The same without notes.
    #[track_caller]
    pub fn names(&self, kept: &mut Kept, options: &Options, addresses: &[u64]) -> Vec<String> {
        let (names, notes) = self.names_and_notes(kept, options, addresses);
        assert_eq!(notes, Vec::<String>::new());
        names
    }
}

/// Returns the names at addresses of a process with one mapping, and notes.
pub fn names(mapping: Mapping, kept: &mut Kept, options: &Options, addresses: &[u64]) -> (Vec<String>, Vec<String>) {
    let frames = addresses.iter().copied().map(Frame::User).collect();
    let stack = Stack { id: StackId(1), process: IMAGE, time: 20, frames, end: StackEnd::Whole };
    let mut profile = Profile { mappings: vec![mapping], ..Profile::default() };
    profile.stacks.insert(&stack);
    let Named { symbols, notes, .. } = symbols::resolve(&profile, kept, options);
    let name = |address: &u64| {
        let symbol = symbols.iter().find(|symbol| symbol.frame == Frame::User(*address)).expect("each has a symbol");
        symbol.names.iter().map(|name| &*name.name).collect::<Vec<_>>().join(" > ")
    };
    (addresses.iter().map(name).collect(), notes)
}

/// Function names only, with debug files in these directories.
pub fn plain(directories: &[&Path]) -> Options {
    let directories: Vec<PathBuf> = directories.iter().map(|directory| directory.to_path_buf()).collect();
    Options {
        injector: "injector.so",
        lines: false,
        debug_files: DebugFiles::new(&directories, &[]),
        ..Options::default()
    }
}

/// With lines.
pub fn with_lines(directories: &[&Path]) -> Options {
    Options { lines: true, ..plain(directories) }
}
