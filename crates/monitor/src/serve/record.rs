//! `monitor --allow-record`: recordings of running processes on request, one at a time.
//!
//! ```text
//!   POST /record?pid=PID&seconds=SECONDS   202, Location: /record/ID
//!   GET /record/ID                         202 while it runs, then 200 with the recording
//! ```
//!
//! Whoever has the token can have any process recorded, which loads a library into it. So requests must come from this
//! machine and carry the token, which is in a file that only its owner may read.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    http::{Method, Peer, Request, Response},
    recording::Recording,
};
use anyhow::{Context, bail};
use collect::{
    command::{random, workspace::Workspace},
    process::procfs,
};

/// The length of a recording in seconds.
const DEFAULT_SECONDS: f64 = 5.0;
const MAX_SECONDS: f64 = 60.0;
/// The largest recording that is sent: it is in memory meanwhile.
const MAX_BYTES: u64 = 64 << 20;
/// The length of a token.
const MIN_TOKEN_LENGTH: usize = 16;
const MAX_TOKEN_BYTES: u64 = 4096;

/// Recordings on request.
pub struct Remote {
    token: String,
    latest: Mutex<Option<Latest>>,
}

/// The recording in progress, or the last one: its result is kept until the next one starts.
struct Latest {
    id: String,
    path: PathBuf,
    state: State,
    /// Removed with its files; if the monitor is killed, by the next run.
    _directory: Workspace,
}

enum State {
    Running(Recording),
    Done(Arc<[u8]>),
    Failed(String),
}

impl Remote {
    /// Reads the token from a file, or creates both.
    pub fn new(path: &Path) -> anyhow::Result<Self> {
        let token = read_token(path).with_context(|| format!("--allow-record {}", path.display()))?;
        Ok(Self { token, latest: Mutex::default() })
    }

    /// Answers a request for `/record` or a path below it.
    pub fn answer(&self, request: &Request) -> Response {
        if !matches!(request.peer, Peer::User(_) | Peer::Local) {
            return Response::text(403, "recordings can be requested on this machine only\n");
        }
        if !self.is_authorised(&request.header("authorization")) {
            return Response::text(401, "the token is missing or wrong: send Authorization: Bearer TOKEN\n")
                .with("WWW-Authenticate", "Bearer");
        }
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(latest) = &mut *latest {
            latest.advance();
        }
        match (request.method, request.path.strip_prefix("/record/")) {
            (Method::Post, None) => match start(request, &mut latest) {
                Ok(id) => {
                    let place = format!("/record/{id}");
                    Response::text(202, &format!("{place}\n")).with("Location", &place)
                }
                Err((status, why)) => Response::text(status, &format!("{why}\n")),
            },
            (Method::Get | Method::Head, Some(id)) => match &*latest {
                Some(latest) if latest.id == id => latest.answer(),
                _ => Response::text(404, "there is no such recording: only the last one is kept\n"),
            },
            _ => Response::text(404, "use POST /record?pid=PID&seconds=SECONDS, then GET /record/ID\n"),
        }
    }

    /// Compares the token in a time that does not depend on its contents.
    fn is_authorised(&self, header: &str) -> bool {
        let (scheme, given) = header.split_once(' ').unwrap_or_default();
        let (given, token) = (given.trim().as_bytes(), self.token.as_bytes());
        let differences = given.iter().zip(token).fold(0, |differences, (a, b)| differences | (a ^ b));
        scheme.eq_ignore_ascii_case("bearer") && given.len() == token.len() && differences == 0
    }
}

/// Starts the recording that a request describes; returns its id, or a status and the reason.
fn start(request: &Request, latest: &mut Option<Latest>) -> Result<String, (u16, String)> {
    let pid = request.parameter("pid").and_then(|pid| pid.parse::<u32>().ok()).filter(|pid| *pid > 0);
    let pid = pid.ok_or((400, "the pid is missing: use /record?pid=PID&seconds=SECONDS".to_owned()))?;
    let seconds = match request.parameter("seconds").map(str::parse::<f64>) {
        None => DEFAULT_SECONDS,
        Some(Ok(seconds)) if seconds > 0.0 && seconds <= MAX_SECONDS => seconds,
        Some(_) => return Err((400, format!("seconds: expected a number from 0 to {MAX_SECONDS}"))),
    };
    if let Some(Latest { state: State::Running(running), id, .. }) = latest {
        return Err((
            409,
            format!("process {} is being recorded (/record/{id}): one recording at a time", running.pid),
        ));
    }
    if procfs::comm(pid).is_none() {
        return Err((404, format!("there is no process {pid}")));
    }
    let failed = |error: std::io::Error| (500, format!("cannot record process {pid}: {error}"));
    let directory = Workspace::create().map_err(|error| (500, format!("cannot record process {pid}: {error:#}")))?;
    let path = directory.make_private_directory("record").map_err(failed)?.join("recording.wscope");
    let id = random::token().map_err(failed)?;
    let state = State::Running(Recording::start(pid, seconds, Some(path.as_os_str())).map_err(failed)?);
    *latest = Some(Latest { id: id.clone(), path, state, _directory: directory });
    Ok(id)
}

impl Latest {
    /// Reads the result if it has just ended.
    fn advance(&mut self) {
        let State::Running(running) = &mut self.state else { return };
        let Some(ended) = running.ended() else { return };
        let result = match ended {
            Ok(_) => read(&self.path).map_err(|error| format!("the recording cannot be read: {error:#}")),
            Err(why) => Err(format!("process {}: {why}", running.pid)),
        };
        self.state = result.map_or_else(State::Failed, State::Done);
        // It is in memory now, or of no use.
        let _ = std::fs::remove_file(&self.path);
    }

    fn answer(&self) -> Response {
        match &self.state {
            State::Running(_) => Response::text(202, "the recording is in progress\n").with("Retry-After", "1"),
            State::Done(bytes) => {
                Response { content_type: "application/octet-stream", body: bytes.clone(), ..Response::text(200, "") }
            }
            State::Failed(why) => Response::text(500, &format!("{}\n", text::names::printable(why))),
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Arc<[u8]>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    if size > MAX_BYTES {
        bail!("it has {} MiB, more than the limit of {} MiB: record fewer seconds", size >> 20, MAX_BYTES >> 20);
    }
    let mut bytes = Vec::with_capacity(size as usize);
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// Reads the token from a file that only its owner may read: root, or the user of the monitor. Creates a missing file.
fn read_token(path: &Path) -> anyhow::Result<String> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    if let Ok(mut file) = created {
        let token = random::token()? + &random::token()?;
        file.write_all(token.as_bytes())?;
        file.write_all(b"\n")?;
        return Ok(token);
    }
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let info = file.metadata()?;
    let own = rustix::process::geteuid().as_raw();
    if !info.is_file() || ![0, own].contains(&info.uid()) || info.mode() & 0o077 != 0 {
        bail!("the file with the token must belong to root, and nobody else may read or write it (chmod 600)");
    }
    let mut text = String::new();
    file.take(MAX_TOKEN_BYTES).read_to_string(&mut text)?;
    let token = text.trim();
    if token.len() < MIN_TOKEN_LENGTH || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!(
            "the token must have at least {MIN_TOKEN_LENGTH} characters without blanks: remove the file to get a new one"
        );
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// Check that a missing file is created for its owner only, that the same token is read from it again, and that files
    /// that others can read, short tokens and links are rejected.
    #[test]
    fn tokens_are_private() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let created = read_token(&path).expect("a token");
        assert!(created.len() >= 32);
        assert_eq!(fs::metadata(&path).expect("the file").mode() & 0o777, 0o600);
        assert_eq!(read_token(&path).expect("the same"), created);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("a mode");
        assert!(read_token(&path).expect_err("others may read it").to_string().contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
        fs::write(&path, "short\n").expect("a file");
        assert!(read_token(&path).expect_err("too short").to_string().contains("at least 16"));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert!(read_token(&link).is_err());
    }

    /// Check that only the whole token is accepted.
    #[test]
    fn only_the_token_is_accepted() {
        let remote = Remote { token: "0123456789abcdef".into(), latest: Mutex::default() };
        assert!(remote.is_authorised("Bearer 0123456789abcdef") && remote.is_authorised("bearer  0123456789abcdef"));
        for header in
            ["", "Bearer", "Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "Basic 0123456789abcdef"]
        {
            assert!(!remote.is_authorised(header), "{header}");
        }
    }
}
