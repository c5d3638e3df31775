//! A directory below which files are read. No path, link or race leads out of it: the kernel checks each step (`openat2` with
//! `RESOLVE_BENEATH`).

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

use collect::command::user::{User, acting_as};
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, openat2};

/// The entries and the depth of a search.
const MOST_ENTRIES: usize = 20_000;
const MOST_DEPTH: usize = 12;

/// A file of a directory.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Its path below the directory.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// When it was written, in seconds since 1970.
    pub written_s: u64,
}

/// The files that a search has found.
#[derive(Debug, PartialEq, Eq)]
pub struct Search {
    /// Those near the directory first.
    pub files: Vec<Found>,
    /// All of it was searched.
    pub is_complete: bool,
}

/// A directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    file: File,
    /// Whose rights apply: those of the user behind sudo, not root's.
    user: Option<User>,
}

impl Directory {
    /// Opens a directory.
    pub fn open(path: &Path, user: Option<User>) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let file = acting_as(user.as_ref(), || File::open(&path))?;
        if !file.metadata()?.is_dir() {
            return Err(io::Error::other("it is not a directory"));
        }
        Ok(Self { path, file, user })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a regular file below it.
    pub fn file(&self, name: &str) -> io::Result<File> {
        self.beneath(Path::new(name), OFlags::RDONLY | OFlags::NONBLOCK).and_then(|file| {
            match file.metadata()?.is_file() {
                true => Ok(file),
                false => Err(io::Error::other("it is not a file")),
            }
        })
    }

    fn beneath(&self, name: &Path, flags: OFlags) -> io::Result<File> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        acting_as(self.user.as_ref(), || {
            Ok(File::from(openat2(&self.file, name, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty(), resolve)?))
        })
    }

    /// Returns the files below it that are wanted. Links are not followed, and hidden directories are left out.
    pub fn files(&self, wanted: &dyn Fn(&str) -> bool) -> io::Result<Search> {
        let (mut found, mut entries) = (Vec::new(), 0);
        let mut open = VecDeque::from([(PathBuf::from("."), 0)]);
        while let Some((folder, depth)) = open.pop_front() {
            let Ok(file) = self.beneath(&folder, OFlags::RDONLY | OFlags::DIRECTORY) else { continue };
            for entry in Dir::read_from(&file)? {
                let entry = entry?;
                let Ok(name) = entry.file_name().to_str() else { continue };
                entries += 1;
                if entries > MOST_ENTRIES {
                    return Ok(Search { files: found, is_complete: false });
                }
                let path = folder.join(name);
                match entry.file_type() {
                    FileType::Directory if !name.starts_with('.') && depth < MOST_DEPTH => {
                        open.push_back((path, depth + 1));
                    }
                    FileType::RegularFile if wanted(name) => {
                        let path = path.strip_prefix(".").unwrap_or(&path).to_string_lossy().into_owned();
                        let Ok(info) = self.file(&path).and_then(|file| file.metadata()) else { continue };
                        let written_s = u64::try_from(info.mtime()).unwrap_or(0);
                        found.push(Found { name: path, bytes: info.len(), written_s });
                    }
                    _ => {}
                }
            }
        }
        Ok(Search { files: found, is_complete: true })
    }

    /// Reads the file that a recording names, if it is below this directory: by its path or, if that leads elsewhere, by its name,
    /// if only one file has it. Returns its path below the directory, and its text.
    pub fn text(&self, path: &str, most: u64) -> Result<Option<(String, String)>, String> {
        let path = Path::new(path);
        let inside = path
            .strip_prefix(&self.path)
            .ok()
            .filter(|path| path.components().all(|part| matches!(part, Component::Normal(_))));
        let name = match inside.and_then(Path::to_str).filter(|inside| self.file(inside).is_ok()) {
            Some(inside) => inside.to_owned(),
            None => {
                let Some(wanted) = path.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
                let search = self.files(&|name| name == wanted).map_err(|error| error.to_string())?;
                let mut found = search.files;
                match found.len() {
                    _ if !search.is_complete => {
                        return Err("there are too many files below --source: give a smaller directory".to_owned());
                    }
                    0 => return Ok(None),
                    1 => found.remove(0).name,
                    several => {
                        return Err(format!(
                            "{several} files below --source have this name: give the directory of the one"
                        ));
                    }
                }
            }
        };
        let file = self.file(&name).map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if bytes.len() as u64 > most {
            return Err("the file is too large for a source file".to_owned());
        }
        Ok(Some((name, String::from_utf8_lossy(&bytes).into_owned())))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    /// Check that no path and no link leads out of the directory, and that a file is found by the path and by the name that a
    /// recording has.
    #[test]
    fn nothing_outside_is_read() {
        let scene = tempfile::tempdir().expect("a directory");
        let (inside, outside) = (scene.path().join("inside"), scene.path().join("secret.py"));
        fs::create_dir_all(inside.join("a/.hidden")).expect("directories");
        fs::write(&outside, "secret").expect("a file");
        fs::write(inside.join("a/train.py"), "one\ntwo\n").expect("a file");
        fs::write(inside.join("a/.hidden/other.py"), "hidden").expect("a file");
        symlink(&outside, inside.join("link.py")).expect("a link");
        symlink(scene.path(), inside.join("up")).expect("a link");
        let directory = Directory::open(&inside, None).expect("a directory");
        for name in
            ["../secret.py", "link.py", "up/secret.py", "/etc/passwd", "a/../../secret.py", "a", "", "a/train.py/"]
        {
            assert!(directory.file(name).is_err(), "{name}");
        }
        assert!(directory.file("a/train.py").is_ok());
        let names: Vec<String> = directory
            .files(&|name| name.ends_with(".py"))
            .expect("files")
            .files
            .into_iter()
            .map(|file| file.name)
            .collect();
        assert_eq!(names, ["a/train.py"]);
        let text = |path: &str| directory.text(path, 100);
        let expected = Ok(Some(("a/train.py".to_owned(), "one\ntwo\n".to_owned())));
        let path = directory.path().join("a/train.py");
        assert_eq!(text(path.to_str().expect("UTF-8")), expected);
        assert_eq!(text("/container/app/train.py"), expected);
        assert_eq!(text("train.py"), expected);
        for path in [outside.to_str().expect("UTF-8"), "../secret.py", "/etc/passwd", "", "/"] {
            assert_eq!(text(path), Ok(None), "{path}");
        }
        assert!(directory.text("train.py", 3).is_err(), "it is too large");
        fs::write(inside.join("train.py"), "three").expect("a file");
        assert!(text("train.py").is_err(), "two files have the name");
    }
}
