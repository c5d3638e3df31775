//! Where one output is written. The place is resolved before the command starts and held open: later changes to the
//! path have no effect.
//!
//! A file is written under a temporary name in its directory and renamed at the end. So a link is replaced, never
//! followed; an existing file stays unchanged until the new one is complete; and only files that we created change
//! owner or mode. Everything is done with the rights of the user who called sudo ([`acting_as`]).

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
};

use anyhow::{Context, bail};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};

use collect::command::{
    random::random,
    user::{User, acting_as},
};

use super::stream::Stream;

/// The most files that are kept under other names.
const MOST_OLD: u32 = 100;

/// The place of one output.
#[derive(Debug)]
pub enum Place {
    /// A name in a directory.
    Name(Name),
    /// A device or a FIFO, opened before the command started.
    Stream(File),
}

/// A name in a directory that is held open.
#[derive(Debug)]
pub struct Name {
    pub(super) directory: OwnedFd,
    pub(super) name: OsString,
    /// The permissions of the file to be replaced.
    mode: Option<Mode>,
    pub(super) user: Option<User>,
}

/// A file under a temporary name that will replace another.
#[derive(Debug)]
pub struct Unfinished {
    /// The file, for reading and writing.
    pub file: File,
    name: OsString,
}

impl Place {
    /// Resolves the place at `path`, and checks that `user` may write there.
    pub fn open(path: &Path, user: Option<&User>) -> anyhow::Result<Self> {
        let opened = acting_as(user, || open(path, user));
        opened.with_context(|| refusal(path, user))
    }

    /// Resolves a name that may still change ([`Name::rename`]), so an existing file with this
    /// name is not checked.
    pub fn open_default(name: &Path, user: Option<&User>) -> anyhow::Result<Self> {
        let opened = acting_as(user, || {
            let Some(file) = name.file_name() else { bail!("it is a directory") };
            let parent = name.parent().filter(|parent| !parent.as_os_str().is_empty());
            let directory = directory(parent.unwrap_or(Path::new(".")))?;
            may_create(&directory)?;
            Ok::<_, anyhow::Error>(Name::new(directory, file.into(), None, user.cloned()))
        });
        opened.map(Self::Name).with_context(|| refusal(name, user))
    }
}

/// Says what failed, and with whose rights.
pub(super) fn refusal(path: &Path, user: Option<&User>) -> String {
    match user {
        Some(user) => format!("cannot write {} (as {}, who called sudo)", path.display(), user.name),
        None => format!("cannot write {}", path.display()),
    }
}

fn directory(path: &Path) -> anyhow::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty()).with_context(|| format!("the directory {}", path.display()))
}

/// Returns the directory and the name of a path, and what is there.
pub(super) fn existing(path: &Path) -> anyhow::Result<(OwnedFd, &OsStr, Option<Stat>)> {
    let Some(name) = path.file_name() else { bail!("it is a directory") };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = directory(parent)?;
    match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(existing) => Ok((directory, name, Some(existing))),
        Err(rustix::io::Errno::NOENT) => Ok((directory, name, None)),
        Err(error) => Err(error.into()),
    }
}

fn open(path: &Path, user: Option<&User>) -> anyhow::Result<Place> {
    let (directory, name, existing) = existing(path)?;
    match existing.map(|existing| FileType::from_raw_mode(existing.st_mode)) {
        None | Some(FileType::RegularFile) => {}
        Some(FileType::Symlink) => {
            let target = rustix::fs::statat(&directory, name, AtFlags::empty()).ok();
            if let Some(stream) = target.and_then(|target| own_stream(&target)) {
                return Ok(Place::Stream(stream?));
            }
            let trusted = existing.is_some_and(|link| link.st_uid == 0 || link.st_uid == User::uid_or_own(user));
            if trusted && target.is_some_and(|target| is_stream(&target)) {
                return stream(&directory, name, OFlags::empty());
            }
        }
        Some(FileType::CharacterDevice | FileType::Fifo) => return stream(&directory, name, OFlags::NOFOLLOW),
        Some(FileType::Directory) => bail!("it is a directory"),
        Some(other) => bail!("it is neither a file nor a character device nor a FIFO ({other:?})"),
    }
    let mode = may_replace(&directory, name, existing.as_ref(), user)?;
    Ok(Place::Name(Name::new(directory, name.to_owned(), mode, user.cloned())))
}

fn is_stream(info: &Stat) -> bool {
    matches!(FileType::from_raw_mode(info.st_mode), FileType::CharacterDevice | FileType::Fifo)
}

/// Returns our own standard output or error if a link such as `x.folded -> /dev/stdout` leads to it. It is already
/// open, so no permission is needed.
fn own_stream(target: &Stat) -> Option<io::Result<File>> {
    let (out, err) = (io::stdout(), io::stderr());
    [out.as_fd(), err.as_fd()].into_iter().find_map(|own| {
        let info = rustix::fs::fstat(own).ok()?;
        let same = (info.st_dev, info.st_ino) == (target.st_dev, target.st_ino);
        same.then(|| own.try_clone_to_owned().map(File::from))
    })
}

/// Opens a device or FIFO. Never blocks: a FIFO without a reader is rejected.
fn stream(directory: &OwnedFd, name: &OsStr, follow: OFlags) -> anyhow::Result<Place> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | follow;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::NXIO) => bail!("it is a FIFO without a reader: start the reader first"),
        Err(error) => return Err(error.into()),
    };
    if !is_stream(&rustix::fs::fstat(&file)?) {
        bail!("it was replaced while it was opened");
    }
    Ok(Place::Stream(file.into()))
}

/// Checks that a file can be created in a directory.
pub(super) fn may_create(directory: &OwnedFd) -> anyhow::Result<()> {
    // The C library's function would check the real user id.
    // SAFETY: a valid C string; the call changes nothing.
    let answer = unsafe {
        let (how, flags) = (libc::W_OK | libc::X_OK, libc::AT_EACCESS);
        libc::syscall(libc::SYS_faccessat2, directory.as_raw_fd(), c".".as_ptr(), how, flags)
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error()).context("no file can be created in its directory")
    }
}

/// Checks that a file can be created in `directory` and can replace `existing`. Returns the permissions to keep.
pub(super) fn may_replace(
    directory: &OwnedFd,
    name: &OsStr,
    existing: Option<&Stat>,
    user: Option<&User>,
) -> anyhow::Result<Option<Mode>> {
    may_create(directory)?;
    let Some(existing) = existing else { return Ok(None) };
    let (uid, parent) = (User::uid_or_own(user), rustix::fs::fstat(directory)?);
    let sticky = parent.st_mode & libc::S_ISVTX != 0;
    if uid != 0 && sticky && ![existing.st_uid, parent.st_uid].contains(&uid) {
        bail!("it belongs to another user, and in this directory only its owner may replace it (sticky bit)");
    }
    if FileType::from_raw_mode(existing.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    // A file that the user cannot write to must not be replaced. Opening it changes nothing, and does not block on a
    // FIFO that has just replaced the file.
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())?;
    Ok((existing.st_uid == uid).then(|| Mode::from_raw_mode(existing.st_mode & 0o777)))
}

impl Name {
    /// A name whose place has been checked.
    pub(super) fn new(directory: OwnedFd, name: OsString, mode: Option<Mode>, user: Option<User>) -> Self {
        Self { directory, name, mode, user }
    }

    /// Whether the name, or the name of its partial recording, is in use.
    pub fn is_taken(&self) -> bool {
        let taken = |name: &OsStr| {
            let info = rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW);
            !matches!(info, Err(rustix::io::Errno::NOENT))
        };
        let answer = acting_as(self.user.as_ref(), || Ok::<_, io::Error>(taken(&self.name) || taken(&self.partial())));
        answer.unwrap_or(true)
    }

    /// Changes to another name in the same directory.
    pub fn rename(&mut self, name: OsString) {
        (self.name, self.mode) = (name, None);
    }

    /// Creates the file that will replace the one with this name.
    pub fn begin(&self) -> io::Result<Unfinished> {
        self.create(format!(".warpscope-{:016x}", random()?).into())
    }

    /// Creates a recording as `NAME.partial`: if warpscope is killed, the file remains and can be read.
    pub fn begin_recording(&self) -> io::Result<Unfinished> {
        match self.create(self.partial()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut name = self.partial();
                name.push(format!("-{:08x}", random()? as u32));
                self.create(name)
            }
            created => created,
        }
    }

    /// Creates a recording as `NAME.partial`, unless it already exists.
    pub fn begin_first(&self) -> io::Result<Unfinished> {
        self.create(self.partial())
    }

    fn partial(&self) -> OsString {
        let mut name = self.name.clone();
        name.push(".partial");
        name
    }

    fn create(&self, name: OsString) -> io::Result<Unfinished> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = acting_as(self.user.as_ref(), || {
            let file = rustix::fs::openat(&self.directory, &name, flags, Mode::from_raw_mode(0o666))?;
            if let Some(mode) = self.mode {
                rustix::fs::fchmod(&file, mode)?;
            }
            Ok::<_, io::Error>(File::from(file))
        })?;
        Ok(Unfinished { file, name })
    }

    /// Renames an existing file to `NAME.old`, or `NAME.old-2` and so on. Returns its new name, if there was one.
    pub fn set_aside(&self) -> io::Result<Option<OsString>> {
        for number in 1..=MOST_OLD {
            let mut kept = self.name.clone();
            kept.push(if number == 1 { ".old".to_owned() } else { format!(".old-{number}") });
            let renamed = acting_as(self.user.as_ref(), || {
                let flags = rustix::fs::RenameFlags::NOREPLACE;
                Ok::<_, io::Error>(rustix::fs::renameat_with(
                    &self.directory,
                    &self.name,
                    &self.directory,
                    &kept,
                    flags,
                )?)
            });
            match renamed {
                Ok(()) => return Ok(Some(kept)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("there are {MOST_OLD} old ones already: remove some")))
    }

    /// Undoes [`Self::set_aside`], because nothing replaces the file.
    pub fn put_back(&self, kept: &OsStr) {
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        // A failure leaves the file under its other name; nothing is lost.
        let _ = acting_as(self.user.as_ref(), || {
            Ok::<_, io::Error>(rustix::fs::renameat_with(&self.directory, kept, &self.directory, &self.name, flags)?)
        });
    }

    /// Renames a finished file to its final name.
    pub fn finish(&self, unfinished: &Unfinished) -> io::Result<()> {
        let (directory, from) = (&self.directory, &unfinished.name);
        acting_as(self.user.as_ref(), || {
            // A foreign file under our name would do no harm, but it is not the output.
            let (ours, there) =
                (rustix::fs::fstat(&unfinished.file)?, rustix::fs::statat(directory, from, AtFlags::SYMLINK_NOFOLLOW)?);
            if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino) {
                return Err(io::Error::other(format!("{} was replaced while it was written", from.display())));
            }
            Ok(rustix::fs::renameat(directory, from, directory, &self.name)?)
        })
    }

    /// Removes an unfinished file.
    pub fn discard(&self, unfinished: &Unfinished) {
        let (directory, name) = (&self.directory, &unfinished.name);
        // A failure leaves a file behind; nothing can be done about it.
        let _ = acting_as(self.user.as_ref(), || -> io::Result<()> {
            Ok(rustix::fs::unlinkat(directory, name, AtFlags::empty())?)
        });
    }

    /// Creates an unnamed file, in this directory if it supports that.
    pub fn nameless(&self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        acting_as(self.user.as_ref(), || {
            Ok(File::from(rustix::fs::openat(&self.directory, ".", flags, Mode::from_raw_mode(0o600))?))
        })
    }
}

impl Place {
    /// Writes the output: completely, or not at all for a name. Returns its size.
    pub fn write(&self, contents: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> io::Result<u64> {
        match self {
            Self::Stream(file) => {
                let mut stream = Stream::new(file);
                contents(&mut stream)?;
                Ok(stream.written())
            }
            Self::Name(name) => {
                let begun = name.begin()?;
                let mut file = &begun.file;
                let written = contents(&mut file).and_then(|()| Ok(file.metadata()?.len()));
                let finished = written.and_then(|size| name.finish(&begun).map(|()| size));
                finished.inspect_err(|_| name.discard(&begun))
            }
        }
    }

    /// Whether this is the place of an open file.
    pub fn is(&self, file: &File) -> bool {
        let same = |info: rustix::io::Result<Stat>| {
            let (Ok(one), Ok(other)) = (info, rustix::fs::fstat(file)) else { return false };
            (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
        };
        match self {
            Self::Stream(stream) => same(rustix::fs::fstat(stream)),
            Self::Name(name) => same(rustix::fs::statat(&name.directory, &name.name, AtFlags::SYMLINK_NOFOLLOW)),
        }
    }
}
