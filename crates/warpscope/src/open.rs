//! `open`: serves a report on the loopback interface and opens it in the browser.

use std::{
    env,
    fs::File,
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    sync::Arc,
};

use analysis::Flames;
use anyhow::{Context, bail};
use collect::command::{
    capabilities::keep_own_capabilities,
    random::token,
    user::{User, acting_as, become_user},
};
use export::Format;
use monitor::http::{Method, Peer, Refusal, Request, Response, Server};

use crate::{
    args,
    load::{Find, load},
    outputs,
    progress::Progress,
};

/// The longest report that is read.
const LONGEST: u64 = 1 << 30;

/// Runs the command until it is interrupted.
pub fn run(options: &args::Open) -> anyhow::Result<ExitCode> {
    let user = User::behind_sudo();
    let page: Arc<[u8]> = page(&options.files, user.as_ref())?.into();
    let path = format!("/{}/", token().context("cannot get random numbers")?);
    let owner = User::uid_or_own(user.as_ref());
    let expected = path.clone();
    let answer = move |request: &Request| answer(request, &expected, owner, &page);
    let server = Server::start(&format!("127.0.0.1:{}", options.port), Arc::new(answer)).map_err(anyhow::Error::msg)?;
    let port = server.address().port();
    let url = format!("http://localhost:{port}{path}");
    writeln!(io::stdout(), "{url}")?;
    if !options.no_browser && has_display() && start_browser(&url, user.as_ref()) {
        eprintln!("Opened in the browser. Press Ctrl-C to stop.");
    } else {
        eprintln!("Open this address in a browser. If this machine has none, first run on yours:");
        eprintln!("  ssh -L {port}:localhost:{port} {}", login(user.as_ref()));
        eprintln!("Press Ctrl-C to stop.");
    }
    loop {
        std::thread::park();
    }
}

/// Returns the page: an HTML file as it is, or the report of a recording.
fn page(paths: &[PathBuf], user: Option<&User>) -> anyhow::Result<Vec<u8>> {
    let path = match paths {
        [path] => path.as_path(),
        paths => return report(paths),
    };
    match Format::from_path(path) {
        Ok(Format::Html) => acting_as(user, || -> anyhow::Result<Vec<u8>> {
            let mut page = Vec::new();
            let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            file.take(LONGEST).read_to_end(&mut page).with_context(|| format!("cannot read {}", path.display()))?;
            Ok(page)
        }),
        Ok(Format::Recording) => report(paths),
        _ => bail!("cannot open {}: give a recording (.wscope) or a report (.html)", path.display()),
    }
}

/// Returns the report of recordings.
fn report(paths: &[PathBuf]) -> anyhow::Result<Vec<u8>> {
    let loaded = load(paths, &args::Filters::default(), Find::Outliers)?;
    let _progress = Progress::begin("making the report".to_owned(), Some(loaded.source.reading()));
    let mut page = Vec::new();
    let view = outputs::view::default(&loaded.profile);
    let mut events = || loaded.source.events(None);
    export::write(Format::Html, &Flames::new(&loaded.profile), view, &mut events, &mut page)?;
    Ok(page)
}

/// Answers with the page only if the path contains the token and the connection is the user's own: the address is visible
/// to others on this machine while the browser starts.
fn answer(request: &Request, expected: &str, owner: u32, page: &Arc<[u8]>) -> Response {
    match request.peer {
        Peer::User(uid) if uid != owner && uid != 0 => Response::text(403, "this report belongs to another user\n"),
        _ if request.path != expected => Response::text(404, "not found: use the address that warpscope printed\n"),
        _ if request.method == Method::Post => Refusal::Method.response(),
        _ => Response { content_type: "text/html; charset=utf-8", body: page.clone(), ..Response::text(200, "") },
    }
}

/// Whether a browser can show something here. Over ssh, it would show it on the wrong machine.
fn has_display() -> bool {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    (set("DISPLAY") || set("WAYLAND_DISPLAY")) && !set("SSH_CONNECTION")
}

/// Starts the browser, as the user who called sudo.
fn start_browser(url: &str, user: Option<&User>) -> bool {
    let mut command = Command::new("xdg-open");
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let user = user.cloned();
    if let Some(user) = &user {
        if let Some(home) = &user.home {
            command.env("HOME", home);
        }
        command.env("USER", &user.name).env("XDG_RUNTIME_DIR", format!("/run/user/{}", user.uid));
    }
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            keep_own_capabilities();
            user.as_ref().map_or(Ok(()), become_user)
        });
    }
    command.status().is_ok_and(|status| status.success())
}

/// `user@host`, as ssh needs it.
fn login(user: Option<&User>) -> String {
    let name =
        user.map(|user| user.name.clone()).or_else(|| env::var("USER").ok()).unwrap_or_else(|| "USER".to_owned());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{name}@{}", host.trim())
}
