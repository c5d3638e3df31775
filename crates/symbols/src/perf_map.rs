//! `/tmp/perf-PID.map`: the names that a JIT compiler gives to the code it makes. V8, the JVM and CPython write such files.
//!
//! Each line is `START SIZE name`, in hexadecimal. Code is moved and thrown away, so a range may be told again: what was
//! told last counts. The file is the program's, and may contain anything.

use std::collections::{BTreeSet, HashMap};

/// The longest name that is kept, in bytes.
const LONGEST: usize = 4096;

/// The names of addresses. The last line is read first: an address has its name from the first line that holds it.
pub fn names(text: &[u8], mut addresses: BTreeSet<u64>) -> HashMap<u64, String> {
    let mut names = HashMap::new();
    for line in text.rsplit(|byte| *byte == b'\n') {
        if addresses.is_empty() {
            break;
        }
        let Some((start, end, name)) = entry(line) else { continue };
        while let Some(address) = addresses.range(start..end).next().copied() {
            addresses.remove(&address);
            names.insert(address, name.to_owned());
        }
    }
    names
}

fn entry(line: &[u8]) -> Option<(u64, u64, &str)> {
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let (start, size) = (hexadecimal(words.next()?)?, hexadecimal(words.next()?)?);
    let name = words.next()?;
    let name = &name[..name.len().min(LONGEST)];
    // Cut in the middle of a character, or no text at all: what is text of it.
    let name = match std::str::from_utf8(name) {
        Ok(name) => name,
        Err(error) => std::str::from_utf8(&name[..error.valid_up_to()]).ok()?,
    };
    let name = name.trim();
    (size > 0 && !name.is_empty()).then_some((start, start.saturating_add(size), name))
}

fn hexadecimal(word: &[u8]) -> Option<u64> {
    let word = word.strip_prefix(b"0x").unwrap_or(word);
    u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[u8], addresses: &[u64]) -> Vec<(u64, String)> {
        let mut names: Vec<_> = names(text, addresses.iter().copied().collect()).into_iter().collect();
        names.sort();
        names
    }

    /// Ranges hold their first address and not their end; the later of two lines counts.
    #[test]
    fn lines() {
        let text = b"1000 10 first\n1010 10 JS:*busy /a b.js:3:14\n0x1000 0x8 again\n1008 0 nothing\n";
        let expected = [(0x1000, "again"), (0x1008, "first"), (0x101f, "JS:*busy /a b.js:3:14")];
        assert_eq!(of(text, &[0xfff, 0x1000, 0x1008, 0x101f, 0x1020]), expected.map(|(a, n)| (a, n.to_owned())));
    }

    /// Lines that make no sense are passed over, however many they are, and names have an end.
    #[test]
    fn garbage() {
        let mut text =
            b"\n\n  \nzz 10 x\n1000\n1000 10\n1000 10 \n1000 10 \xff\n-1 10 y\n+1000 10 y\n1000 10 \xc3\xa9\xff\n"
                .to_vec();
        assert_eq!(of(&text, &[0x1000]), [(0x1000, "é".to_owned())]);
        text.extend_from_slice(b"ffffffffffffffff ffffffffffffffff end\n1000 20 ");
        text.extend(std::iter::repeat_n(b'n', 1 << 20));
        let names = of(&text, &[0x1000, u64::MAX]);
        assert_eq!(names[0].1.len(), LONGEST);
        assert_eq!(names.len(), 1);
    }

    /// Many lines over many addresses take each address once.
    #[test]
    fn many_lines_over_all() {
        let text: Vec<u8> = b"0 ffffffffffffffff all\n".repeat(200_000);
        let addresses: Vec<u64> = (0..50_000).collect();
        assert_eq!(of(&text, &addresses).len(), addresses.len());
    }
}
