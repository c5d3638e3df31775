//! Maps between offsets in a file and addresses.

use std::ops::Range;

const PAGE: u64 = 4096;

/// A `PT_LOAD` segment: `file_size` bytes from `offset` appear at `address`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Virtual address in the file.
    pub address: u64,
    /// Offset of its bytes in the file.
    pub offset: u64,
    /// Its size in the file, in bytes.
    pub file_size: u64,
    /// Its size in memory, in bytes.
    pub memory_size: u64,
    /// Whether it is executable.
    pub executable: bool,
}

sandbox::plain! { Segment { address, offset, file_size, memory_size, executable } }

impl Segment {
    /// Returns its virtual addresses in memory.
    pub fn addresses(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.memory_size)
    }

    /// Returns the part of the file that its mapping covers: whole pages.
    fn mapped_offsets(&self) -> Range<u64> {
        let end = self.offset.saturating_add(self.file_size);
        self.offset & !(PAGE - 1)..end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)
    }

    fn address_of(&self, offset: u64) -> u64 {
        self.address.wrapping_sub(self.offset).wrapping_add(offset)
    }
}

/// The loaded segments, in the order of the program headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments(pub Vec<Segment>);

impl Segments {
    /// Every segment.
    pub fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.0.iter()
    }

    /// Returns the segments that contain code.
    pub fn executable(&self) -> impl Iterator<Item = &Segment> {
        self.0.iter().filter(|segment| segment.executable)
    }

    /// Returns the virtual address of a byte of the file. If segments share a byte, executable ones take precedence.
    pub fn vaddr_of_offset(&self, offset: u64) -> Option<u64> {
        let holds =
            |segment: &&Segment| offset.checked_sub(segment.offset).is_some_and(|inside| inside < segment.file_size);
        let others = self.0.iter().filter(|segment| !segment.executable);
        self.executable().chain(others).find(holds).map(|segment| segment.address_of(offset))
    }

    /// Returns the offset of a virtual address in the file, and how many bytes of its segment follow in the file.
    pub fn offset_of_vaddr(&self, address: u64) -> Option<(u64, u64)> {
        self.0.iter().find_map(|segment| {
            let inside = address.checked_sub(segment.address).filter(|&inside| inside < segment.file_size)?;
            Some((segment.offset.checked_add(inside)?, segment.file_size - inside))
        })
    }

    /// Returns the bias to add to the file's virtual addresses to get those of a process that maps the file executable,
    /// with `offset` in the file at `start`: the columns of `/proc/PID/maps`.
    ///
    /// Mappings are whole pages, so a mapping starts up to a page before its segment, with the end of the previous one:
    /// that is why this is not `start - vaddr_of_offset(offset)`.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let exact = |segment: &&Segment| segment.mapped_offsets().start == offset;
        let within = |segment: &&Segment| segment.mapped_offsets().contains(&offset);
        let segment = self.executable().find(exact).or_else(|| self.executable().find(within))?;
        Some(start.wrapping_sub(segment.address_of(offset)))
    }

    /// Returns the executable segment that contains all of a range.
    pub fn executable_around(&self, start: u64, end: u64) -> Option<&Segment> {
        let holds = |addresses: Range<u64>| addresses.start <= start && end <= addresses.end;
        self.executable().find(|segment| holds(segment.addresses()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A layout as created by lld: segments follow each other in the file within one page, and are on different pages
    /// in memory.
    ///
    /// ```text
    /// file    0        0x1234          0x2500     0x2600
    ///         [ r      )[ x            )[ rw      )
    /// memory  0        0x2234          0x4500
    /// ```
    fn packed() -> Segments {
        let segment = |address, offset, file_size, executable| Segment {
            address,
            offset,
            file_size,
            memory_size: file_size,
            executable,
        };
        Segments(vec![
            segment(0, 0, 0x1234, false),
            segment(0x2234, 0x1234, 0x12cc, true),
            segment(0x4500, 0x2500, 0x100, false),
        ])
    }

    /// Check that offsets are converted to addresses segment by segment, and back.
    #[test]
    fn offsets_and_addresses_are_converted() {
        let segments = packed();
        for (offset, address) in [(0, 0), (0x1233, 0x1233), (0x1234, 0x2234), (0x24ff, 0x34ff), (0x2500, 0x4500)] {
            assert_eq!(segments.vaddr_of_offset(offset), Some(address));
            assert_eq!(segments.offset_of_vaddr(address).map(|(offset, _)| offset), Some(offset));
        }
        assert_eq!(segments.vaddr_of_offset(0x2600), None);
        assert_eq!(segments.offset_of_vaddr(0x2000), None);
        assert_eq!(segments.offset_of_vaddr(0x45f0), Some((0x25f0, 0x10)));
    }

    /// Check that a mapping's bias comes from the executable segment, even if its first page begins in another one.
    #[test]
    fn bias_of_an_executable_mapping() {
        let segments = packed();
        let bias = 0x7f00_0000_0000;
        assert_eq!(segments.bias(bias + 0x2000, 0x1000), Some(bias));
        assert_eq!(segments.bias(bias + 0x3000, 0x2000), Some(bias), "a mapping split in two by mprotect");
        assert_eq!(segments.bias(bias, 0), None, "the first page is not executable");
    }
}
