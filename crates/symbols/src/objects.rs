//! Names of kernels from the driver's objects behind their handles.
//!
//! A `CUfunction` or `CUkernel` is the address of an object that leads to the kernel's name, at a place that differs between
//! the two kinds and between drivers:
//!
//! ```text
//!   handle ──> [ ... | word | ... ]              or        handle ──> [ ... | word | ... ]
//!                       └──> "_Z5scalePfi"                                     └──> [ ... | word | ... ]
//!                                                                                            └──> "_Z5scalePfi"
//! ```
//!
//! The place is learned from handles whose names are known otherwise: it must lead to the right name from every one of them, and
//! from at least [`Layout::FEWEST`] different names. One name proves nothing: a word may lead to the kernel launched last. Nor do two: a
//! word may lead to the first kernel of a module, and each may be that. If several places are left, the first one must give a name,
//! and no other one a different name. Others may be outside the object: what is allocated together is often adjacent. For the same
//! reason a word that leads to text is not followed further.
//!
//! Without known names there is one guess, [`Layout::usual`]: what objects look like in the driver that was inspected.
//!
//! The memory is that of a process that may be hostile: every read is bounded, and what is read counts only if it is an
//! identifier, as names of kernels are. Such a process can give its own kernels wrong names, as it could by other means.
//!
//! In driver 580 on an H200, all 30 handles that a PyTorch program launched, those of the runtime and of cuBLAS, had
//! the number 2 in the first word of their objects and the pointer to the name in the second; functions had 0x100000001
//! there. The guess is applied to objects that begin in this way, if all of them have a name, at least three names
//! differ, and no known name contradicts.

use std::{collections::HashSet, fs::File, os::unix::fs::FileExt};

/// The most handles that are compared with their known names.
const MOST_KNOWN: usize = 64;
/// How many bytes of an object are searched.
const OBJECT: usize = 1024;
const WORD: usize = 8;
/// The longest name that is read.
const LONGEST: usize = 4096;
/// The addresses of user space. The lowest page is never mapped.
const ADDRESSES: std::ops::Range<u64> = 0x1000..1 << 47;

/// The memory of a process.
pub trait Memory {
    /// Reads bytes at an address; returns how many could be read.
    fn read(&self, address: u64, bytes: &mut [u8]) -> usize;
}

/// `/proc/PID/mem`
impl Memory for File {
    fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        self.read_at(bytes, address).unwrap_or(0)
    }
}

/// Where an object has the pointer to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    /// The offset of a word in the object.
    at: usize,
    /// The offset of another word in what this one points to; `None` if that is the name.
    then: Option<usize>,
}

/// The places of the name in objects of one kind: one level deep before two levels deep, then by offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    places: Vec<Place>,
    /// The first words of such objects; none if any will do.
    begins: &'static [u64],
}

/// Driver 580, and how a `CUkernel` and a `CUfunction` begin there.
const USUAL: Place = Place { at: 8, then: None };
const USUAL_BEGINS: &[u64] = &[2, 0x1_0000_0001];

impl Layout {
    /// The fewest different names from which it is learned.
    pub const FEWEST: usize = 3;

    /// Learns a layout from objects and their names. `None` if there are too few, or if no place is right for all of them.
    pub fn learn(memory: &dyn Memory, known: &[(u64, &str)]) -> Option<Self> {
        let usable = known.iter().filter(|(_, name)| is_name(name.as_bytes()));
        let known: Vec<_> = one_of_each_name_first(usable.copied()).into_iter().take(MOST_KNOWN).collect();
        let names: HashSet<_> = known.iter().map(|(_, name)| *name).collect();
        let ((object, name), others) = known.split_first().filter(|_| names.len() >= Self::FEWEST)?;
        let mut places = places(memory, *object, name);
        for (object, name) in others {
            places.retain(|place| place.leads_to(memory, *object, name));
        }
        Self::of(places)
    }

    fn of(places: Vec<Place>) -> Option<Self> {
        (!places.is_empty()).then_some(Self { places, begins: &[] })
    }

    /// Returns the usual layout, if these objects have it: all that begin as usual have a name, and there are enough different
    /// ones.
    pub fn usual(memory: &dyn Memory, objects: impl IntoIterator<Item = u64>) -> Option<Self> {
        let usual = Self { places: vec![USUAL], begins: USUAL_BEGINS };
        let begin = objects.into_iter().filter(|object| usual.applies(memory, *object));
        let names: Option<HashSet<String>> = begin.map(|object| usual.name(memory, object)).collect();
        names.filter(|names| names.len() >= Self::FEWEST).map(|_| usual)
    }

    fn applies(&self, memory: &dyn Memory, object: u64) -> bool {
        self.begins.is_empty() || raw_word(memory, object).is_some_and(|first| self.begins.contains(&first))
    }

    /// Returns the name of an object. `None` if there is none, or if the places do not agree.
    pub fn name(&self, memory: &dyn Memory, object: u64) -> Option<String> {
        if !self.applies(memory, object) {
            return None;
        }
        let mut names = self.places.iter().map(|place| name_at(memory, place.follow(memory, object)?));
        let first = names.next()??;
        names.flatten().all(|name| name == first).then_some(first)
    }

    /// Returns the places that two layouts of the same kind have in common; `None` if they contradict each other.
    pub fn and(&self, other: &Self) -> Option<Self> {
        Self::of(self.places.iter().filter(|place| other.places.contains(place)).copied().collect())
    }
}

impl Place {
    /// Returns the address of the name.
    fn follow(self, memory: &dyn Memory, object: u64) -> Option<u64> {
        let first = word(memory, object.checked_add(self.at as u64)?)?;
        match self.then {
            Some(then) => word(memory, first.checked_add(then as u64)?),
            None => Some(first),
        }
    }

    fn leads_to(self, memory: &dyn Memory, object: u64, name: &str) -> bool {
        let first = || word(memory, object.checked_add(self.at as u64)?);
        let through_text = self.then.is_some() && first().is_some_and(|first| is_text(memory, first));
        !through_text && self.follow(memory, object).is_some_and(|at| is_at(memory, at, name))
    }
}

/// Sorts known objects so that as many different names as possible come first.
fn one_of_each_name_first<'a>(known: impl Iterator<Item = (u64, &'a str)>) -> Vec<(u64, &'a str)> {
    let mut seen = HashSet::new();
    let (mut first, rest): (Vec<_>, Vec<_>) = known.partition(|(_, name)| seen.insert(*name));
    first.extend(rest);
    first
}

/// Returns all places in an object that lead to this name, in the order of a layout.
fn places(memory: &dyn Memory, object: u64, name: &str) -> Vec<Place> {
    let (names, others): (Vec<_>, Vec<_>) =
        pointers(memory, object).into_iter().partition(|(_, first)| is_at(memory, *first, name));
    let mut found: Vec<_> = names.into_iter().map(|(at, _)| Place { at, then: None }).collect();
    for (at, first) in others.into_iter().filter(|(_, first)| !is_text(memory, *first)) {
        let second = pointers(memory, first).into_iter().filter(|(_, second)| is_at(memory, *second, name));
        found.extend(second.map(|(then, _)| Place { at, then: Some(then) }));
    }
    found
}

/// Returns the words of an object that may be pointers, each with its offset.
fn pointers(memory: &dyn Memory, object: u64) -> Vec<(usize, u64)> {
    let mut bytes = [0; OBJECT];
    let read = memory.read(object, &mut bytes);
    let words = bytes[..read].as_chunks::<WORD>().0.iter().map(|word| u64::from_le_bytes(*word));
    (0..).step_by(WORD).zip(words).filter(|(_, word)| ADDRESSES.contains(word)).collect()
}

/// Reads a word that may be a pointer.
fn word(memory: &dyn Memory, address: u64) -> Option<u64> {
    raw_word(memory, address).filter(|word| ADDRESSES.contains(word))
}

fn raw_word(memory: &dyn Memory, address: u64) -> Option<u64> {
    let mut bytes = [0; WORD];
    let read = ADDRESSES.contains(&address) && memory.read(address, &mut bytes) == WORD;
    read.then(|| u64::from_le_bytes(bytes))
}

/// Whether this name, and its end, are at an address.
fn is_at(memory: &dyn Memory, address: u64, name: &str) -> bool {
    // Most pointers lead to something else: a few bytes show it.
    let mut start = [0; WORD];
    let length = name.len().min(WORD);
    if memory.read(address, &mut start[..length]) < length || start[..length] != name.as_bytes()[..length] {
        return false;
    }
    let mut bytes = vec![0; name.len() + 1];
    memory.read(address, &mut bytes) == bytes.len() && bytes.strip_suffix(&[0]) == Some(name.as_bytes())
}

/// Whether text is at an address, and not an object: objects begin with a word that is a small number or a pointer.
fn is_text(memory: &dyn Memory, address: u64) -> bool {
    let mut bytes = [0; WORD];
    memory.read(address, &mut bytes) == WORD && bytes.iter().all(u8::is_ascii_graphic)
}

/// Reads a name.
fn name_at(memory: &dyn Memory, address: u64) -> Option<String> {
    let mut bytes = vec![0; LONGEST];
    let read = memory.read(address, &mut bytes);
    let end = bytes[..read].iter().position(|byte| *byte == 0)?;
    bytes.truncate(end);
    String::from_utf8(bytes).ok().filter(|name| is_name(name.as_bytes()))
}

/// Whether a name from a host function is certainly that of the kernel, too: in the host's code, nvcc gives lambdas and anonymous
/// namespaces other names.
pub fn is_kernels_own(name: &str) -> bool {
    !["Unv", "Ul", "Ut", "_GLOBAL__N"].iter().any(|unnamed| name.contains(unnamed))
}

/// Whether it can be the name of a kernel: an identifier of PTX.
fn is_name(name: &[u8]) -> bool {
    let follows = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
    match name {
        [first, rest @ ..] if name.len() < LONGEST => {
            let alone = first.is_ascii_alphabetic();
            (alone || matches!(first, b'_' | b'$' | b'%') && !rest.is_empty()) && rest.iter().all(follows)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Memory in pages of different addresses; counts reads.
    #[derive(Default)]
    struct Pages(Vec<(u64, Vec<u8>)>, Cell<usize>);

    impl Memory for Pages {
        fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
            self.1.set(self.1.get() + 1);
            let page = self.0.iter().find(|(start, page)| (*start..start + page.len() as u64).contains(&address));
            let from = page.map_or(&[][..], |(start, page)| &page[(address - start) as usize..]);
            let length = from.len().min(bytes.len());
            bytes[..length].copy_from_slice(&from[..length]);
            length
        }
    }

    impl Pages {
        /// Adds a page and returns its address.
        fn add(&mut self, page: Vec<u8>) -> u64 {
            let start = 0x7f00_0000_0000 + 0x10_0000 * self.0.len() as u64;
            self.0.push((start, page));
            start
        }

        /// Adds an object of 1 KiB with these words.
        fn object(&mut self, words: &[(usize, u64)]) -> u64 {
            let mut page = vec![0; OBJECT];
            for (at, word) in words {
                page[*at..at + WORD].copy_from_slice(&word.to_le_bytes());
            }
            self.add(page)
        }

        fn text(&mut self, text: &str) -> u64 {
            self.add([text.as_bytes(), &[0]].concat())
        }

        /// Adds an object whose name is one level deep, and one whose name is two levels deep.
        fn both(&mut self, name: &str) -> [u64; 2] {
            let name = self.text(name);
            let second = self.object(&[(0x3f8, name)]);
            [self.object(&[(0x48, name), (8, 5)]), self.object(&[(0x3f8, second), (8, name + 1)])]
        }
    }

    const NAMES: [&str; 4] = ["_Z5scalePfi", "plain_sum", "_Z4gemmPKfS0_Pf", "_Z4gemmPKfS0_Pfi"];

    /// Check that a layout is learned from three names, one level or two levels deep, and applies to other objects of that kind
    /// only.
    #[test]
    fn layouts_are_learned() {
        let mut memory = Pages::default();
        let objects = NAMES.map(|name| memory.both(name));
        let [one, two] = [0, 1].map(|kind| {
            let known: Vec<_> = (0..3).map(|at| (objects[at][kind], NAMES[at])).collect();
            assert_eq!(Layout::learn(&memory, &known[..2]), None, "too few");
            let repeated = [known[0], known[1], known[0], known[1]];
            assert_eq!(Layout::learn(&memory, &repeated), None, "the same two");
            Layout::learn(&memory, &known).expect("a layout")
        });
        assert_eq!(one.places, [Place { at: 0x48, then: None }]);
        assert_eq!(two.places, [Place { at: 0x3f8, then: Some(0x3f8) }]);
        let names = |layout: &Layout| objects[3].map(|object| layout.name(&memory, object));
        assert_eq!(names(&one), [Some(NAMES[3].to_owned()), None]);
        assert_eq!(names(&two), [None, Some(NAMES[3].to_owned())]);
        assert_eq!((one.and(&one), one.and(&two)), (Some(one.clone()), None));
    }

    /// Check that the usual layout is recognised without known names, by three different ones, and only if all objects that begin
    /// as usual have a name.
    #[test]
    fn the_usual_layout_is_recognised() {
        let mut memory = Pages::default();
        let mut object = |begins: u64, name: &str| {
            let name = memory.text(name);
            memory.object(&[(0, begins), (8, name)])
        };
        let kernels = NAMES.map(|name| object(if name == NAMES[0] { 0x1_0000_0001 } else { 2 }, name));
        let (function, twin, text) = (object(3, "another"), object(2, NAMES[0]), object(2, "two words"));
        let usual = |objects: &[u64]| Layout::usual(&memory, objects.iter().copied());
        assert_eq!(usual(&[kernels[0], kernels[1], twin, function]), None, "two names");
        assert_eq!(usual(&[&kernels[..], &[text]].concat()), None, "text that is no name");
        let layout = usual(&[&kernels[..], &[function]].concat()).expect("the usual one");
        assert_eq!((layout.name(&memory, twin).as_deref(), layout.name(&memory, function)), (Some(NAMES[0]), None));
    }

    /// Check that nothing is learned if one known handle contradicts the others: another name, the beginning of the name, or an
    /// object of the other kind.
    #[test]
    fn contradictions_teach_nothing() {
        let mut memory = Pages::default();
        let objects = NAMES.map(|name| memory.both(name));
        let known: Vec<_> = (0..3).map(|at| (objects[at][0], NAMES[at])).collect();
        for wrong in [(objects[3][0], NAMES[0]), (objects[3][0], NAMES[2]), (objects[3][1], NAMES[3])] {
            assert_eq!(Layout::learn(&memory, &[&known[..], &[wrong]].concat()), None, "{wrong:x?}");
        }
        // A name that is not that of a kernel says nothing.
        let host = (objects[3][0], "gemm(float const*, float const*, float*)");
        assert!(Layout::learn(&memory, &[&known[..], &[host]].concat()).is_some());
    }

    /// Check that places that do not agree on a name give none.
    #[test]
    fn places_must_agree() {
        let mut memory = Pages::default();
        let mut object = |first: &str, second: &str| {
            let (first, second) = (memory.text(first), memory.text(second));
            memory.object(&[(0x10, first), (0x20, second)])
        };
        let known = NAMES.map(|name| (object(name, name), name));
        let (same, other) = (object("both", "both"), object("one", "two"));
        let layout = Layout::learn(&memory, &known).expect("a layout");
        assert_eq!((layout.places.len(), layout.name(&memory, same).as_deref()), (2, Some("both")));
        assert_eq!(layout.name(&memory, other), None);
    }

    /// Check that a place in what follows the known objects, by chance the same, does not take the name from another object.
    #[test]
    fn neighbours_do_not_matter() {
        let mut memory = Pages::default();
        let known = NAMES.map(|name| {
            let text = memory.text(name);
            let neighbour = memory.object(&[(0x10, text)]);
            (memory.object(&[(0x48, text), (0x200, neighbour)]), name)
        });
        let text = memory.text("alone");
        // A text that is followed by the pointer to another one.
        let mut swapped = NAMES.map(|name| (memory.object(&[]), name));
        for (at, (object, name)) in swapped.iter_mut().enumerate() {
            let text = memory.text(name);
            let other =
                memory.add([NAMES[at ^ 1].as_bytes(), &[0; 32][NAMES[at ^ 1].len()..], &text.to_le_bytes()].concat());
            *object = memory.object(&[(0x48, other)]);
        }
        assert_eq!(Layout::learn(&memory, &swapped), None);
        let alone = memory.object(&[(0x48, text), (0x200, text)]);
        let layout = Layout::learn(&memory, &known).expect("a layout");
        assert_eq!((layout.places.len(), layout.name(&memory, alone).as_deref()), (2, Some("alone")));
    }

    /// Check that malformed names and pointers give no name, and that no object takes more reads than it has pairs of words.
    #[test]
    fn hostile_memory_gives_no_names() {
        let mut memory = Pages::default();
        let known = NAMES.map(|name| (memory.both(name)[0], name));
        let layout = Layout::learn(&memory, &known).expect("a layout");
        for text in ["", "two words", "\x1b[2J", "a/b", "7up", "_", "näme", ".text", "a\nb"] {
            let name = memory.text(text);
            let object = memory.object(&[(0x48, name)]);
            assert_eq!(layout.name(&memory, object), None, "{text:?}");
        }
        let endless = memory.add(vec![b'A'; 1 << 16]);
        let long = memory.add([vec![b'A'; LONGEST], vec![0]].concat());
        let longest = memory.add([vec![b'A'; LONGEST - 1], vec![0]].concat());
        let cut = memory.add(vec![b'A'; 10]);
        for (pointer, length) in [(endless, None), (long, None), (cut, None), (longest, Some(LONGEST - 1))] {
            let object = memory.object(&[(0x48, pointer)]);
            assert_eq!(layout.name(&memory, object).map(|name| name.len()), length);
        }
        for pointer in [0, 1, 0xfff, 1 << 47, u64::MAX, 0x1000, 0x7eff_ffff_ffff] {
            let object = memory.object(&[(0x48, pointer)]);
            assert_eq!((layout.name(&memory, object), layout.name(&memory, pointer)), (None, None));
        }
        // Every word leads to an object of which every word leads to the same.
        let (start, words) = (0x7f00_0000_0000 + 0x10_0000 * memory.0.len() as u64, OBJECT / WORD);
        let web: Vec<_> = (0..words).map(|at| (at * WORD, start)).collect();
        assert_eq!(memory.object(&web), start);
        memory.1.set(0);
        assert_eq!(places(&memory, start, "x"), []);
        assert!(memory.1.get() <= 1 + words * (3 + words), "{} reads", memory.1.get());
    }
}
