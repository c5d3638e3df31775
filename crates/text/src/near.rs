//! Suggests existing names similar to an unknown one: "did you mean cuMemAlloc?"

/// The maximum number of suggestions.
const MOST: usize = 5;
/// Only the beginning of longer names is compared.
const LONGEST: usize = 128;

/// Returns up to five names similar to `target`, a name or a glob, the most similar first. Case is a small difference;
/// a part of a name is similar to the whole.
pub fn near<'a>(names: impl IntoIterator<Item = &'a str>, target: &str) -> Vec<String> {
    let target: String = target.chars().filter(|letter| !"*?[]".contains(*letter)).collect();
    let target = plain(&target);
    if target.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<(usize, &str)> =
        names.into_iter().filter_map(|name| Some((distance(&plain(name), &target)?, name))).collect();
    found.sort_unstable_by_key(|&(distance, name)| (distance, name.len(), name));
    found.dedup();
    found.into_iter().take(MOST).map(|(_, name)| name.to_owned()).collect()
}

/// Formats suggestions: "; did you mean this or that?", empty if there are none.
pub fn did_you_mean(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
}

fn plain(name: &str) -> Vec<u8> {
    name.bytes().take(LONGEST).map(|byte| byte.to_ascii_lowercase()).collect()
}

/// Returns the distance between two names; `None` if they are too different. If one is part of the other, it ranks
/// after a single typing error and before all others.
fn distance(name: &[u8], target: &[u8]) -> Option<usize> {
    const PART: usize = 3;
    let part = |whole: &[u8], part: &[u8]| part.len() >= PART && whole.windows(part.len()).any(|window| window == part);
    let edits = strsim::generic_levenshtein(&Bytes(name), &Bytes(target));
    if edits > 1 && (part(name, target) || part(target, name)) {
        return Some(2);
    }
    (edits <= target.len().div_ceil(3)).then_some(edits)
}

/// Bytes in the form that [`strsim`] accepts.
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

    /// Check the suggestions for typing errors, wrong case, parts of names and globs.
    #[test]
    fn similar_names_are_suggested() {
        assert_eq!(near(NAMES, "cuinit"), ["cuInit"]);
        assert_eq!(near(NAMES, "cuLanchKernel")[0], "cuLaunchKernel");
        assert_eq!(near(NAMES, "cuMemAlloc")[0], "cuMemAlloc_v2");
        assert_eq!(near(NAMES, "cumemfree*")[0], "cuMemFree_v2");
        assert_eq!(near(NAMES, "Kernel"), ["cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel"]);
        assert_eq!(near(NAMES, "cuMem").len(), 5);
    }

    /// Check that nothing is suggested if nothing is similar.
    #[test]
    fn different_names_are_not_suggested() {
        assert!(near(NAMES, "printf").is_empty());
        assert!(near(NAMES, "***").is_empty());
        assert!(near(NAMES, "").is_empty());
        assert!(near([], "cuInit").is_empty());
    }
}
