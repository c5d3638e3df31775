//! An unprivileged local attacker: commands run as that user, in a directory that the user owns.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::PathBuf,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use super::Scene;

/// A user that exists on every system.
pub const USER: &str = "nobody";

/// The output of `id OPTION USER`.
pub fn id(option: &str) -> String {
    let output = Command::new("id").args([option, USER]).output().expect("id can be run");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn number(option: &str) -> u32 {
    id(option).parse().expect("an id is a number")
}

/// Sets the variables that sudo sets when the attacker calls it.
pub fn with_sudo(command: &mut Command) -> &mut Command {
    command.env("SUDO_UID", id("-u")).env("SUDO_GID", id("-g")).env("SUDO_USER", USER)
}

/// The attacker's directory, and a file next to it that only root may read or write.
pub struct Attacker {
    directory: TempDir,
    secret: TempDir,
    uid: u32,
    gid: u32,
}

/// The contents of the file that only root may access.
const SECRET: &str = "only root may read or write this\n";

impl Attacker {
    /// Creates an attacker with an empty directory.
    pub fn new() -> Self {
        let directory = TempDir::with_prefix("e2e-attacker-").expect("a temporary directory");
        let secret = TempDir::with_prefix("e2e-secret-").expect("a temporary directory");
        let (uid, gid) = (number("-u"), number("-g"));
        chown(directory.path(), Some(uid), Some(gid)).expect("root may do that");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("the directory is ours");
        // Searchable, so that links to the file resolve; the file itself is not readable.
        fs::set_permissions(secret.path(), fs::Permissions::from_mode(0o755)).expect("the directory is ours");
        let attacker = Self { directory, secret, uid, gid };
        fs::write(attacker.secret(), SECRET).expect("a file");
        fs::set_permissions(attacker.secret(), fs::Permissions::from_mode(0o600)).expect("the file is ours");
        attacker
    }

    /// A path in the attacker's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The file that only root may read or write.
    pub fn secret(&self) -> PathBuf {
        self.secret.path().join("secret")
    }

    /// Asserts that the file that only root may access has its original contents, owner and mode.
    #[track_caller]
    pub fn secret_is_untouched(&self) {
        let info = fs::symlink_metadata(self.secret()).expect("the file is there");
        assert_eq!((info.uid(), info.gid(), info.mode() & 0o7777), (0, 0, 0o600), "owner, group and mode");
        assert_eq!(fs::read_to_string(self.secret()).expect("root can read it"), SECRET);
    }

    /// A command that runs as the attacker, with the attacker's directory as working directory and TMPDIR.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.run_by(Command::new(program))
    }

    /// The same in a scene's control group, if it has one.
    pub fn command_in(&self, scene: &Scene, program: impl AsRef<OsStr>) -> Command {
        self.run_by(scene.grouped(Command::new(program)))
    }

    fn run_by(&self, mut command: Command) -> Command {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.directory.path())
            .env("TMPDIR", self.directory.path())
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let (uid, gid) = (self.uid, self.gid);
        // SAFETY: only system calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                if libc::setgroups(0, std::ptr::null()) != 0 || libc::setgid(gid) != 0 || libc::setuid(uid) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        command
    }

    /// Whether a file belongs to the attacker.
    pub fn owns(&self, name: &str) -> bool {
        fs::symlink_metadata(self.path(name)).is_ok_and(|info| (info.uid(), info.gid()) == (self.uid, self.gid))
    }
}
