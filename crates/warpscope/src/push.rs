//! Pushes a recording to receivers of continuous profiles.

use std::{
    collections::BTreeMap,
    env, fs,
    fs::File,
    io::{self, Read},
    path::Path,
    time::Duration,
};

use analysis::{Events, View, weighted::series::AllSeries};
use anyhow::{Context, bail};
use collect::command::user::{User, acting_as};
use export::profiles::{Batch, Source, otlp, pyroscope};
use model::profile::Profile;
use push::{
    client::{Client, Setup},
    credentials::{self, Headers},
    delivery::{Network, Payload, Report, deliver},
    labels::{self, HOST, Labels, SERVICE},
    proxy,
    receiver::{Protocol, Receiver},
    trust,
};
use text::{
    names::printable,
    units::{bytes, count},
};

use crate::{args, progress::Progress, say::say, status_line};

/// Receivers that are ready: files are read, and everything that can be wrong before something is sent has been checked.
pub struct Pushes {
    receivers: Vec<(Receiver, Client)>,
    limit: Duration,
    /// The labels of all series.
    labels: Labels,
    /// Only failures are reported.
    quiet: bool,
}

impl Pushes {
    /// Reads the options and files, with the rights of the user who called sudo. `processes`: the recorded processes that already
    /// run; `None` if what is pushed was recorded elsewhere.
    pub fn prepare(options: &args::Push, processes: Option<&[u32]>, quiet: bool) -> anyhow::Result<Self> {
        let user = User::behind_sudo();
        let (limit, mut labels) = (Duration::try_from_secs_f64(options.push_timeout)?, Labels::new());
        if options.receivers.is_empty() {
            return Ok(Self { receivers: Vec::new(), limit, labels, quiet });
        }
        let receivers = options.receivers.iter().map(|text| Ok(text.parse()?));
        let receivers = receivers.collect::<anyhow::Result<Vec<Receiver>>>()?;
        let headers = headers(options, user.as_ref())?;
        if headers.are_secret() {
            if receivers.iter().any(|receiver| receiver.server() != receivers[0].server()) {
                bail!(
                    "credentials and headers are sent to one server only: push to the others with `warpscope export --push`"
                );
            }
            if receivers.iter().any(|receiver| !receiver.is_private()) {
                bail!(
                    "credentials and headers are sent over https:// only, except to this machine: others could read them"
                );
            }
        }
        let mut authorities = Vec::new();
        if receivers.iter().any(Receiver::is_https) {
            authorities = match &options.push_ca {
                Some(path) => {
                    let file = of_file(path, user.as_ref(), |file| {
                        let mut pem = Vec::new();
                        file.take(trust::MOST_BYTES).read_to_end(&mut pem).map(|_| pem)
                    })?;
                    trust::of_pem(&file).map_err(|why| anyhow::anyhow!("cannot use {}: {why}", path.display()))?
                }
                None => trust::system().map_err(anyhow::Error::msg)?,
            };
        } else if options.push_ca.is_some() {
            bail!("--push-ca needs a receiver with https://");
        }
        let client = |receiver: &Receiver| {
            let (path, content_type, compress) = match receiver.protocol {
                Protocol::Otlp => (otlp::PATH, otlp::CONTENT_TYPE, otlp::COMPRESS),
                Protocol::Pyroscope => (pyroscope::PATH, pyroscope::CONTENT_TYPE, pyroscope::COMPRESS),
            };
            let proxy = proxy::of(receiver, |name| env::var(name).ok())
                .map_err(|name| anyhow::anyhow!("{name} is not the URL of an HTTP proxy, such as http://proxy:3128"))?;
            let (headers, authorities) = (headers.clone(), authorities.clone());
            Ok(Client::new(Setup { url: receiver.url(path), content_type, compress, headers, authorities, proxy }))
        };
        if let Some(processes) = processes {
            labels = of_place(processes);
        }
        let (of_service, ignored) = labels::of_service(|name| env::var(name).ok());
        ignored.iter().for_each(say);
        labels.extend(of_service);
        let clients = receivers.iter().map(client).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self { receivers: receivers.into_iter().zip(clients).collect(), limit, labels, quiet })
    }

    /// Whether something is to be pushed.
    pub fn any(&self) -> bool {
        !self.receivers.is_empty()
    }

    /// Pushes a recording to each receiver, and says what became of it. `again`: the file that can be pushed later; `stopped`:
    /// whether the user wants no further attempts. Returns whether everything was accepted.
    pub fn push(
        &self,
        profile: &Profile,
        view: View,
        events: &mut dyn FnMut() -> io::Result<Events<'static>>,
        again: Option<&Path>,
        shows_progress: bool,
        stopped: &dyn Fn() -> bool,
    ) -> anyhow::Result<bool> {
        if !self.any() {
            return Ok(true);
        }
        if profile.is_trace() {
            bail!("a trace cannot be pushed: it has calls, but no samples and GPU times by call path");
        }
        let all = AllSeries::of(profile, view, events()?);
        if all.series.is_empty() {
            say("there is nothing to push: the recording has no GPU work, no samples and no waits");
            return Ok(true);
        }
        let labels = self.labels_of(profile);
        let source = Source { profile, all: &all, labels: &labels };
        let mut whole = true;
        for (receiver, client) in &self.receivers {
            let progress = shows_progress.then(|| Progress::begin(format!("pushing to {receiver}"), None));
            let batches = Batch::all(&source).into_iter();
            let requests = batches.map(|batch| Request { source: &source, batch, protocol: receiver.protocol });
            let report = deliver(&mut Network { client, stopped }, requests.collect(), self.limit);
            drop(progress);
            whole &= announce(receiver, &report, again, self.quiet);
        }
        Ok(whole)
    }

    /// Returns the labels of a recording: those of the environment, the host and the service.
    fn labels_of(&self, profile: &Profile) -> Labels {
        let start = profile.recording().start.as_ref();
        let host = start.map_or("", |start| &start.host);
        let mut labels = self.labels.clone();
        labels.entry(SERVICE.to_owned()).or_insert_with(|| labels::command(start.map_or(&[], |start| &start.command)));
        if !host.is_empty() {
            labels.entry(HOST.to_owned()).or_insert_with(|| printable(host).into_owned());
        }
        labels
    }
}

/// Says what became of the requests to a receiver. Returns whether everything was accepted.
fn announce(receiver: &Receiver, report: &Report, again: Option<&Path>, quiet: bool) -> bool {
    let Report { requests, bytes: sent_bytes, sent, stacks, repeated, partial, failure } = report;
    if let Some(words) = partial {
        say(format_args!("{receiver}: {words}"));
    }
    if *repeated > 0 {
        say(format_args!(
            "{receiver} may have {} stacks twice: a connection ended before the answer, and they were sent again",
            count(*repeated as u64)
        ));
    }
    if let Some(why) = failure {
        let again =
            again.map(|path| format!("; push it later with: warpscope export --push {receiver} {}", path.display()));
        say(format_args!(
            "cannot push to {receiver}: {why}; {} of {} stacks were sent{}",
            count(*sent as u64),
            count(*stacks as u64),
            again.unwrap_or_default()
        ));
    } else if !quiet {
        let _erased = status_line::erase();
        let (stacks, size) = (count(*sent as u64), bytes(*sent_bytes));
        let plural = if *requests == 1 { "" } else { "s" };
        eprintln!("pushed {stacks} stacks to {receiver}  ({requests} request{plural}, {size})");
    }
    failure.is_none() && partial.is_none()
}

/// A request to a receiver.
struct Request<'a> {
    source: &'a Source<'a>,
    batch: Batch,
    protocol: Protocol,
}

impl Payload for Request<'_> {
    fn encode(&self) -> io::Result<Vec<u8>> {
        match self.protocol {
            Protocol::Otlp => Ok(otlp::encode(self.source, &self.batch)),
            Protocol::Pyroscope => pyroscope::encode(self.source, &self.batch),
        }
    }

    fn split(&self) -> Option<(Self, Self)> {
        let (first, second) = self.batch.split()?;
        let of = |batch| Self { source: self.source, batch, protocol: self.protocol };
        Some((of(first), of(second)))
    }

    fn stacks(&self) -> usize {
        self.batch.stacks()
    }
}

/// Reads the headers of requests.
fn headers(options: &args::Push, user: Option<&User>) -> anyhow::Result<Headers> {
    let mut headers = Headers::default();
    let mut add = |path: &Option<_>, add: fn(&mut Headers, &str) -> Result<(), &'static str>| -> anyhow::Result<()> {
        let Some(path): &Option<std::path::PathBuf> = path else { return Ok(()) };
        let text = of_file(path, user, credentials::read)?;
        add(&mut headers, &text).map_err(|why| anyhow::anyhow!("cannot use {}: {why}", path.display()))
    };
    add(&options.push_token_file, Headers::bearer)?;
    add(&options.push_basic_file, Headers::basic)?;
    add(&options.push_header_file, Headers::file)?;
    if let Some(tenant) = &options.push_tenant {
        headers.tenant(tenant).map_err(|why| anyhow::anyhow!("--push-tenant: {why}"))?;
    }
    Ok(headers)
}

/// Opens and reads a file as the user who called sudo.
fn of_file<T: Send>(
    path: &Path,
    user: Option<&User>,
    read: impl FnOnce(File) -> io::Result<T> + Send,
) -> anyhow::Result<T> {
    acting_as(user, || read(File::open(path)?)).with_context(|| match user {
        Some(user) => format!("cannot read {} as {}", path.display(), user.name),
        None => format!("cannot read {}", path.display()),
    })
}

/// Returns the labels of the place where something is recorded. Without processes it is a command, which inherits ours.
fn of_place(processes: &[u32]) -> Labels {
    let groups = |pid: &str| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    if processes.is_empty() {
        return labels::of_place(|name| env::var(name).ok(), &groups("self"));
    }
    // Only what they have in common.
    let all = processes.iter().map(|pid| labels::of_place(|_| None, &groups(&pid.to_string())));
    all.reduce(|mut common, other| {
        common.retain(|name, value| other.get(name) == Some(value));
        common
    })
    .unwrap_or_else(BTreeMap::new)
}
