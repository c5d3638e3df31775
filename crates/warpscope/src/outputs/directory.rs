//! Outputs that are directories of files.
//!
//! Like a file, a directory is written under a temporary name and renamed at the end. An earlier directory with its name is
//! replaced only if it contains nothing but files of the same format: nothing else is ever removed.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use anyhow::{Context, bail};
use collect::command::{
    random::random,
    user::{User, acting_as},
};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags},
    io::Errno,
};

use super::place::{Name, Place, existing, may_create, may_replace, refusal};

/// Opens a file of the directory by its name.
pub type Create<'a> = dyn FnMut(&str) -> io::Result<Box<dyn Write>> + 'a;

impl Place {
    /// Resolves the place of a directory that may contain `files`, and checks that `user` may write there.
    pub fn open_directory(path: &Path, files: &[&str], user: Option<&User>) -> anyhow::Result<Self> {
        let opened = acting_as(user, || {
            let (directory, name, existing) = existing(path)?;
            match existing.map(|existing| FileType::from_raw_mode(existing.st_mode)) {
                None => {}
                Some(FileType::Directory) => {
                    let there = open(&directory, name)?;
                    may_create(&there)?;
                    only(&there, files)?;
                }
                Some(_) => bail!("it exists and is not a directory, but this format is a directory of files"),
            }
            may_replace(&directory, name, existing.as_ref(), user)?;
            Ok::<_, anyhow::Error>(Name::new(directory, name.to_owned(), None, user.cloned()))
        });
        opened.map(Self::Name).with_context(|| refusal(path, user))
    }
}

impl Name {
    /// Writes a directory that may contain `files`: completely, or not at all. Returns the size of its files.
    pub fn write_directory(
        &self,
        files: &[&str],
        contents: impl FnOnce(&mut Create<'_>) -> io::Result<()>,
    ) -> io::Result<u64> {
        let temporary = OsString::from(format!(".warpscope-{:016x}", random()?));
        let directory = self.acting(|| {
            rustix::fs::mkdirat(&self.directory, &temporary, Mode::from_raw_mode(0o777))?;
            open(&self.directory, &temporary)
        })?;
        let mut create = |name: &str| -> io::Result<Box<dyn Write>> {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = self.acting(|| Ok(rustix::fs::openat(&directory, name, flags, Mode::from_raw_mode(0o666))?))?;
            Ok(Box::new(File::from(file)))
        };
        let finished = contents(&mut create).and_then(|()| {
            let size = |name: &&str| rustix::fs::statat(&directory, *name, AtFlags::SYMLINK_NOFOLLOW);
            let size = files.iter().filter_map(|name| size(name).ok()).map(|info| info.st_size as u64).sum();
            self.acting(|| self.replace(&temporary, files)).map(|()| size)
        });
        finished.inspect_err(|_| {
            // A failure leaves files behind; nothing can be done about it.
            let _ = self.acting(|| {
                remove(&directory, files);
                Ok(rustix::fs::unlinkat(&self.directory, &temporary, AtFlags::REMOVEDIR)?)
            });
        })
    }

    /// Gives the new directory its name. Only an empty directory can be replaced, so the files of an earlier one are removed.
    fn replace(&self, temporary: &OsStr, files: &[&str]) -> io::Result<()> {
        let rename = || rustix::fs::renameat(&self.directory, temporary, &self.directory, &self.name);
        match rename() {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            renamed => return Ok(renamed?),
        }
        let earlier = open(&self.directory, &self.name)?;
        only(&earlier, files)?;
        remove(&earlier, files);
        Ok(rename()?)
    }

    fn acting<T: Send>(&self, action: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        acting_as(self.user.as_ref(), action)
    }
}

fn open(parent: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

/// Checks that a directory contains nothing else.
fn only(directory: &OwnedFd, files: &[&str]) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if !matches!(&*name, "." | "..") && !files.contains(&&*name) {
            let name = text::names::printable(&name).into_owned();
            return Err(io::Error::other(format!("the directory exists and contains another file: {name}")));
        }
    }
    Ok(())
}

fn remove(directory: &OwnedFd, files: &[&str]) {
    for file in files {
        // Renaming fails if a file remains.
        let _ = rustix::fs::unlinkat(directory, *file, AtFlags::empty());
    }
}
