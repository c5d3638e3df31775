//! Names close to one that does not exist: "did you mean cuMemAlloc?"

/// How many to suggest.
const MOST: usize = 5;
/// Longer names are compared by their beginning.
const LONGEST: usize = 128;

/// Up to five names near the wanted one, a name or a glob, the nearest first. Case is a small difference, a part of a name
/// is near the whole.
pub fn near<'a>(names: impl IntoIterator<Item = &'a str>, wanted: &str) -> Vec<String> {
    let wanted: String = wanted.chars().filter(|letter| !"*?[]".contains(*letter)).collect();
    let wanted = plain(&wanted);
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<(usize, &str)> =
        names.into_iter().filter_map(|name| Some((distance(&plain(name), &wanted)?, name))).collect();
    found.sort_unstable_by_key(|&(distance, name)| (distance, name.len(), name));
    found.dedup();
    found.into_iter().take(MOST).map(|(_, name)| name.to_owned()).collect()
}

/// "; did you mean this, or that?"
pub fn did_you_mean(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
}

fn plain(name: &str) -> Vec<u8> {
    name.bytes().take(LONGEST).map(|byte| byte.to_ascii_lowercase()).collect()
}

/// How far apart two names are; none if too far to be meant. One that is part of the other comes before any typing error
/// but one.
fn distance(name: &[u8], wanted: &[u8]) -> Option<usize> {
    const PART: usize = 3;
    let part = |whole: &[u8], part: &[u8]| part.len() >= PART && whole.windows(part.len()).any(|window| window == part);
    let edits = strsim::generic_levenshtein(&Bytes(name), &Bytes(wanted));
    if edits > 1 && (part(name, wanted) || part(wanted, name)) {
        return Some(2);
    }
    (edits <= wanted.len().div_ceil(3)).then_some(edits)
}

/// Bytes as [`strsim`] takes them: by reference to something of known size.
struct Bytes<'a>(&'a [u8]);

impl<'a> IntoIterator for &'a Bytes<'_> {
    type Item = &'a u8;
    type IntoIter = std::slice::Iter<'a, u8>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 9] = [
        "cuMemAlloc_v2",
        "cuMemAllocHost_v2",
        "cuMemAllocManaged",
        "cuMemAllocPitch_v2",
        "cuMemFree_v2",
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "cuLaunchCooperativeKernel",
        "cuInit",
    ];

    /// Check what is suggested for typing errors, wrong case, parts of names and globs.
    #[test]
    fn suggestions() {
        assert_eq!(near(NAMES, "cuinit"), ["cuInit"]);
        assert_eq!(near(NAMES, "cuLanchKernel")[0], "cuLaunchKernel");
        assert_eq!(near(NAMES, "cuMemAlloc")[0], "cuMemAlloc_v2");
        assert_eq!(near(NAMES, "cumemfree*")[0], "cuMemFree_v2");
        assert_eq!(near(NAMES, "Kernel"), ["cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel"]);
        assert_eq!(near(NAMES, "cuMem").len(), 5);
    }

    /// Check that nothing is suggested where nothing is near.
    #[test]
    fn no_suggestions() {
        assert!(near(NAMES, "printf").is_empty());
        assert!(near(NAMES, "***").is_empty());
        assert!(near(NAMES, "").is_empty());
        assert!(near([], "cuInit").is_empty());
    }
}
