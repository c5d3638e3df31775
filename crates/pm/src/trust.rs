//! Which files only root can change: a process with root's rights may load no others.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Returns the file that a path leads to if only root can change it, and every directory on the way to it.
pub fn owned_by_root(path: &Path) -> Option<PathBuf> {
    let file = fs::canonicalize(path).ok()?;
    file.ancestors().all(only_root_changes).then_some(file)
}

fn only_root_changes(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|info| info.uid() == 0 && info.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Check that a system library is trusted, also through a link, and that nothing in a directory that others can write
    /// to is.
    #[test]
    fn only_roots_files_are_trusted() {
        let shell = fs::canonicalize("/bin/sh").expect("a shell");
        assert_eq!(owned_by_root(Path::new("/bin/sh")), Some(shell.clone()));
        assert_eq!(owned_by_root(Path::new("/no/such/file")), None);
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "").expect("ours");
        assert_eq!(owned_by_root(&file), None);
        // The link can be changed, but what it leads to now cannot: that file is loaded, not the link.
        symlink("/bin/sh", &link).expect("ours");
        assert_eq!(owned_by_root(&link), Some(shell));
    }
}
