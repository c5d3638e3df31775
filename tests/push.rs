//! `--push`: to a receiver on this machine that behaves, and to one that fails in every way.

mod receiver;
mod requests;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use self::{
    receiver::{Behaviour, Receiver, Request},
    requests::{Sums, by_type, gunzip, series, sums},
};
use crate::support::{Ended, Running, Scene, oracle::Walk, program, wait_until};

/// A scene with a recording, `x.wscope`. It is recorded once.
fn recorded() -> Scene {
    static RECORDING: OnceLock<Vec<u8>> = OnceLock::new();
    let scene = Scene::new();
    let recording = RECORDING.get_or_init(|| {
        let scene = Scene::new();
        let command = format!("{} {}", program("truth"), Walk::of(125).arguments());
        let mut record = scene.record("--sim -q -F 999 -o x.wscope", &command);
        Ended::of(record.env("WARPSCOPE_SIM", "devices=2")).exits(0);
        fs::read(scene.path("x.wscope")).expect("the recording")
    });
    fs::write(scene.path("x.wscope"), recording).expect("written");
    scene
}

/// `warpscope export x.wscope --push RECEIVER OPTIONS`.
fn push(scene: &Scene, receiver: &str, options: &str) -> Command {
    let mut arguments = vec!["export", "x.wscope", "--push", receiver];
    arguments.extend(options.split_whitespace());
    scene.warpscope(&arguments)
}

/// Pushes to a receiver that behaves like this in the end: there is time for many attempts.
fn pushed(behaviour: Vec<Behaviour>) -> (Ended, Vec<Request>, Duration) {
    pushed_within("1m", behaviour)
}

/// Pushes to a receiver that behaves like this, for at most this time.
fn pushed_within(limit: &str, behaviour: Vec<Behaviour>) -> (Ended, Vec<Request>, Duration) {
    let scene = recorded();
    let receiver = Receiver::start(behaviour);
    let begin = Instant::now();
    let ended = Ended::of(&mut push(&scene, &format!("otlp={}", receiver.url()), &format!("--push-timeout {limit}")));
    (ended, receiver.requests(), begin.elapsed())
}

/// The number of stacks that were pushed in all, as warpscope says.
fn stacks(text: &str) -> u64 {
    let number = text.split("pushed ").nth(1).and_then(|rest| rest.split(' ').next()).expect(text);
    number.replace(',', "").parse().expect(number)
}

/// Check that a recording arrives at Pyroscope's API with its labels, and that each stack has the GPU time of the pprof file; and
/// that `export` pushes what `record` pushes.
#[test]
fn pyroscope_gets_every_stack() {
    let scene = Scene::new();
    let receiver = Receiver::start(Vec::new());
    let command = format!("{} {}", program("truth"), Walk::of(125).arguments());
    let options = format!("--sim --gpu-only -o x.wscope -o x.pb.gz --push pyroscope={}", receiver.url());
    let mut record = scene.record(&options, &command);
    record.env("WARPSCOPE_SIM", "devices=2").env("OTEL_SERVICE_NAME", "truth");
    record.env("WARPSCOPE_LABELS", "team=a,process.pid=1").env("SLURM_JOB_ID", "77");
    let ended = Ended::of(&mut record).exits(0);
    assert!(stacks(ended.err()) > 100, "{}", ended.err());
    assert!(ended.err().contains("`process.pid` is not used as a label"));
    let requests = receiver.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].line, "POST /push.v1.PusherService/Push HTTP/1.1");
    assert_eq!(requests[0].header("content-type"), Some("application/proto"));
    for (labels, _) in series(&requests[0].body) {
        for (name, value) in [("service_name", "truth"), ("team", "a"), ("job", "77")] {
            assert_eq!(labels.get(name).map(String::as_str), Some(value), "{labels:?}");
        }
        assert!(!labels.contains_key("process_pid") && labels.contains_key("host"));
        assert_eq!(labels["__name__"] == "gpu_launches", !labels.contains_key("device"), "{labels:?}");
    }
    let pushed = by_type(&requests[0].body);
    assert_eq!(pushed.keys().collect::<Vec<_>>(), ["gpu_idle", "gpu_launches", "gpu_time"]);
    // The first amount of a sample is its GPU time. The GPU is a label, not a part of the frame.
    let mut expected: Sums = BTreeMap::new();
    for (path, ns) in sums(&gunzip(&fs::read(scene.path("x.pb.gz")).expect("a file"))) {
        let path = path.iter().map(|frame| frame.replace("[GPU0_", "[GPU_").replace("[GPU1_", "[GPU_")).collect();
        *expected.entry(path).or_default() += ns;
    }
    expected.retain(|_, ns| *ns > 0);
    assert!(pushed["gpu_time"] == expected);

    let again = Receiver::start(Vec::new());
    Ended::of(&mut push(&scene, &format!("pyroscope={}", again.url()), "")).exits(0);
    assert!(by_type(&again.requests()[0].body) == pushed);
    let services: Vec<_> =
        series(&again.requests()[0].body).into_iter().map(|(labels, _)| labels["service_name"].clone()).collect();
    assert!(services.iter().all(|service| service == "truth"), "named by the command: {services:?}");
}

/// Check that several receivers get the recording, that OTLP is compressed, and that a failure at one does not keep it from the
/// others.
#[test]
fn several_receivers_are_independent() {
    let scene = recorded();
    let (broken, working) = (Receiver::start(vec![Behaviour::answer(400, "no")]), Receiver::start(Vec::new()));
    let second = format!("--push otlp={}/prefix", working.url());
    let ended = Ended::of(&mut push(&scene, &format!("pyroscope={}", broken.url()), &second)).exits(1);
    assert!(ended.err().contains("rejects it (status 400); the receiver says: no"), "{}", ended.err());
    let requests = working.requests();
    assert_eq!(requests[0].line, "POST /prefix/v1development/profiles HTTP/1.1");
    assert_eq!(requests[0].header("content-encoding"), Some("gzip"));
    assert!(!gunzip(&requests[0].body).is_empty());
    assert_eq!(broken.requests().len(), 1, "what is refused is not sent again");
}

/// Check that a receiver that is busy, fails, closes or answers nonsense at first gets everything in the end, and that what may
/// have arrived twice is reported, and only that.
#[test]
fn failures_are_retried() {
    for (behaviour, twice) in [
        (Behaviour::answer(503, ""), false),
        (Behaviour::answer(500, "oops"), false),
        (Behaviour::Answer(429, vec![("Retry-After", "1".into())], String::new()), false),
        (Behaviour::Close, true),
        (Behaviour::Garbage, true),
    ] {
        let (ended, requests, took) = pushed(vec![behaviour.clone()]);
        let ended = ended.exits(0);
        assert_eq!(requests.len(), 2, "{behaviour:?}");
        assert!(requests[0].body == requests[1].body);
        assert_eq!(ended.err().contains("stacks twice"), twice, "{behaviour:?}: {}", ended.err());
        if let Behaviour::Answer(429, ..) = behaviour {
            assert!(took >= Duration::from_secs(1), "the receiver's wait is kept: {took:?}");
        }
    }
}

/// Check that it gives up in time and says why, what was sent and what to do, if nobody listens or answers, or if the answer
/// never ends.
#[test]
fn it_gives_up() {
    let scene = recorded();
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
    let ended = Ended::of(&mut push(&scene, &format!("otlp=http://127.0.0.1:{port}"), "--push-timeout 2s")).exits(1);
    assert!(ended.err().contains("the connection was refused") && ended.err().contains("0 of "), "{}", ended.err());
    for (behaviour, expected) in [
        (vec![Behaviour::Silent], "there was no answer in time"),
        (vec![Behaviour::Drip], "there was no answer in time"),
        (vec![Behaviour::Answer(429, vec![("Retry-After", "3600".into())], String::new())], "asks to wait 3600 s"),
        ((0..100).map(|_| Behaviour::answer(500, "")).collect(), "has an error (status 500) (tried "),
        ((0..100).map(|_| Behaviour::Close).collect(), "it may have been accepted nevertheless"),
        (vec![Behaviour::HugeHeaders], "headers of the answer are too large"),
    ] {
        let (ended, _, took) = pushed_within("3s", behaviour);
        let ended = ended.exits(1);
        assert!(ended.err().contains(expected), "{expected}: {}", ended.err());
        assert!(took < Duration::from_secs(60), "{took:?}");
    }
}

/// Check that an answer without end is not read, and that success counts even if the rest of an answer is missing.
#[test]
fn answers_are_bounded() {
    let scene = recorded();
    let receiver = Receiver::start(vec![Behaviour::Huge]);
    let running = Running::start(&mut push(&scene, &format!("otlp={}", receiver.url()), ""));
    let (ended, footprint) = running.wait_measured();
    ended.exits(0);
    assert!(footprint.memory < 200 << 20, "{} bytes", footprint.memory);
    assert!(receiver.sent() < 64 << 20, "{} bytes were read", receiver.sent());
    let (ended, requests, _) = pushed(vec![Behaviour::CloseMidBody]);
    assert!(!ended.exits(0).err().contains("twice"));
    assert_eq!(requests.len(), 1);
}

/// Check that what is too large is sent in parts, and that nothing is missing or sent twice.
#[test]
fn large_requests_are_split() {
    let (ended, whole, _) = pushed(Vec::new());
    let all = stacks(ended.exits(0).err());
    let (ended, requests, _) = pushed(vec![Behaviour::Limit(gunzip(&whole[0].body).len() / 3)]);
    let ended = ended.exits(0);
    assert_eq!(stacks(ended.err()), all);
    let accepted: Vec<_> = requests.iter().filter(|request| request.accepted).collect();
    assert!(accepted.len() >= 3 && requests.len() > accepted.len(), "{} of {}", accepted.len(), requests.len());
    let mut parts: Vec<u64> = accepted.iter().flat_map(|request| requests::amounts(&request.body)).collect();
    parts.sort_unstable();
    assert_eq!(parts, requests::amounts(&whole[0].body));
    let (ended, ..) = pushed(vec![Behaviour::Limit(0)]);
    assert!(ended.exits(1).err().contains("(status 413): raise its limit"));
}

/// Check that redirects, logins and pages are explained, and that no other server gets the profiles or the credentials.
#[test]
fn redirects_are_not_followed() {
    let other = Receiver::start(Vec::new());
    for status in [301, 302, 307, 308] {
        let to = format!("{}/elsewhere", other.url());
        let (ended, ..) = pushed(vec![Behaviour::Answer(status, vec![("Location", to.clone())], String::new())]);
        let ended = ended.exits(1);
        assert!(ended.err().contains(&format!("redirects to {to}")), "{}", ended.err());
    }
    assert!(other.requests().is_empty());
    let page = vec![("Content-Type", "text/html".to_owned())];
    let (ended, ..) = pushed(vec![Behaviour::Answer(200, page, "<html>log in".into())]);
    assert!(ended.exits(1).err().contains("a web page was returned"));
    let (ended, ..) = pushed(vec![Behaviour::answer(401, "who are you")]);
    assert!(ended.exits(1).err().contains("--push-token-file"));
    let (ended, ..) = pushed(vec![Behaviour::answer(404, "")]);
    assert!(ended.exits(1).err().contains("--feature-gates=service.profilesSupport"));
}

/// Check that a receiver cannot write to the terminal, forge a line, or make us print the credentials that it was sent.
#[test]
fn words_of_receivers_are_harmless() {
    let scene = recorded();
    fs::write(scene.path("token"), "hunter22-token\n").expect("written");
    let words = "bad\x1b[2J token Bearer hunter22-token\nwarpscope: all is well";
    let receiver = Receiver::start(vec![Behaviour::answer(400, words)]);
    let ended = Ended::of(&mut push(&scene, &format!("otlp={}", receiver.url()), "--push-token-file token")).exits(1);
    assert_eq!(receiver.requests()[0].header("authorization"), Some("Bearer hunter22-token"));
    assert!(!ended.err().contains("hunter22") && !ended.err().contains('\x1b'), "{}", ended.err());
    assert_eq!(ended.err().lines().count(), 1, "{}", ended.err());
}

/// Check that credentials, tenants and headers are sent, that the files are not named to other servers or sent in the clear, and
/// that no error and no command line has a password.
#[test]
fn credentials_come_from_files() {
    let scene = recorded();
    fs::write(scene.path("basic"), "me:hunter22\n").expect("written");
    fs::write(scene.path("headers"), "# of the proxy\nX-Key: hunter23\n").expect("written");
    let receiver = Receiver::start(Vec::new());
    let url = receiver.url();
    let options = "--push-basic-file basic --push-header-file headers --push-tenant team-a";
    Ended::of(&mut push(&scene, &format!("pyroscope={url}"), options)).exits(0);
    let request = &receiver.requests()[0];
    // printf me:hunter22 | base64
    assert_eq!(request.header("authorization"), Some("Basic bWU6aHVudGVyMjI="));
    assert_eq!((request.header("x-key"), request.header("x-scope-orgid")), (Some("hunter23"), Some("team-a")));
    for (target, options, expected) in [
        ("otlp=http://example.invalid", "--push-basic-file basic", "https:// only"),
        ("otlp=https://a.invalid", "--push otlp=https://b.invalid --push-basic-file basic", "one server only"),
        ("otlp=https://me:hunter22@a.invalid", "", "--push-basic-file"),
        ("otlp=https://a.invalid?key=hunter22", "", "--push-header-file"),
        ("hunter22", "", "--push expects"),
        (&*format!("otlp={url}"), "--push-token-file missing", "cannot read missing"),
        (&*format!("otlp={url}"), "--push-basic-file headers --push-tenant x", "one line, USER:PASSWORD"),
        (&*format!("otlp={url}"), "--push-ca basic", "needs a receiver with https://"),
    ] {
        let ended = Ended::of(&mut push(&scene, target, options)).exits(1).says(&[expected]);
        assert!(!ended.err().contains("hunter2"), "{}", ended.err());
    }
    assert_eq!(receiver.requests().len(), 1);
}

/// Check that a certificate of a private authority is accepted with `--push-ca` and not otherwise, and that the reason is given.
#[test]
fn certificates_are_checked() {
    let scene = recorded();
    let authority =
        |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/push").join(name).display().to_string();
    let receiver = Receiver::start_encrypted(Vec::new());
    let url = receiver.url();
    let right = format!("--push-ca {}", authority("authority.pem"));
    Ended::of(&mut push(&scene, &format!("otlp={url}"), &right)).exits(0);
    assert_eq!(receiver.requests().len(), 1);
    let wrong = format!("--push-ca {}", authority("other_authority.pem"));
    let plain = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = plain.local_addr().expect("an address").port();
    let answer = thread::spawn(move || {
        let (mut stream, _) = plain.accept().expect("a connection");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("written");
        // Until the client closes.
        let _ = io::copy(&mut stream, &mut io::sink());
    });
    for (target, options, expected) in [
        (url.clone(), wrong.as_str(), "not trusted: name the file"),
        (url.replace("localhost", "127.0.0.1"), &right, "belongs to another host"),
        (format!("https://127.0.0.1:{port}"), &right, "does not answer with TLS"),
    ] {
        let ended = Ended::of(&mut push(&scene, &format!("otlp={target}"), options)).exits(1);
        assert!(ended.err().contains(expected), "{expected}: {}", ended.err());
    }
    answer.join().expect("one connection");
    // The system's list.
    let mut command = push(&scene, &format!("otlp={url}"), "");
    command.env("SSL_CERT_FILE", authority("other_authority.pem"));
    assert!(Ended::of(&mut command).exits(1).err().contains("not trusted"));
    let mut command = push(&scene, &format!("otlp={url}"), "");
    command.env("SSL_CERT_FILE", authority("authority.pem"));
    Ended::of(&mut command).exits(0);
    assert_eq!(receiver.requests().len(), 2, "nothing was sent without trust");
}

/// Check that the proxy of the environment is used, and that it gets neither the profiles nor the credentials in the clear.
#[test]
fn proxies_see_no_contents() {
    let scene = recorded();
    let authority = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/push/authority.pem").display().to_string();
    let receiver = Receiver::start_encrypted(Vec::new());
    let port = receiver.url().rsplit(':').next().expect("a port").to_owned();
    // A name that the proxy resolves; the certificate is for localhost, so the receiver is not accepted.
    let proxy = Receiver::start(vec![Behaviour::Forward(format!("127.0.0.1:{port}"))]);
    let mut command = push(
        &scene,
        &format!("otlp=https://receiver.invalid:{port}"),
        &format!("--push-ca {authority} --push-timeout 5s"),
    );
    command.env("HTTPS_PROXY", proxy.url());
    let ended = Ended::of(&mut command).exits(1);
    assert!(ended.err().contains("belongs to another host"), "{}", ended.err());
    assert_eq!(proxy.requests()[0].line, format!("CONNECT receiver.invalid:{port} HTTP/1.1"));
    assert!(receiver.requests().is_empty());
    let mut command = push(&scene, &format!("otlp=https://receiver.invalid:{port}"), "--push-timeout 1s");
    command.env("HTTPS_PROXY", "socks5://me:hunter22@x");
    Ended::of(&mut command).exits(1).says(&["HTTPS_PROXY is not the URL of an HTTP proxy"]);
}

/// Check that a recording that was not pushed is kept, that the message says how to push it later, and that the exit status of the
/// command comes first.
#[test]
fn record_keeps_what_was_not_pushed() {
    let scene = Scene::new();
    let receiver = Receiver::start(vec![Behaviour::answer(401, ""), Behaviour::answer(401, "")]);
    let url = receiver.url();
    let run = |status: i32| {
        let options = format!("--cpu-only -F 999 -o x.wscope --push pyroscope={url}");
        let mut record = scene.record_words(
            &options,
            &["sh", "-c", &format!("i=0; while [ $i -lt 99999 ]; do i=$((i+1)); done; exit {status}")],
        );
        Ended::of(&mut record)
    };
    let ended = run(0).exits(1);
    assert!(
        ended.err().contains(&format!("push it later with: warpscope export --push pyroscope={url} x.wscope")),
        "{}",
        ended.err()
    );
    run(7).exits(7);
    assert!(scene.files().contains(&"x.wscope".to_owned()));
    let options = ["record", "--last", "5s", "--push", "otlp=http://localhost", "--", "true"];
    Ended::of(&mut scene.warpscope(&options)).exits(1).says(&["--push cannot be combined with --last"]);
    let mut two = scene.warpscope(&["export", "x.wscope", "x.wscope", "--push", "otlp=http://localhost"]);
    Ended::of(&mut two).exits(1).says(&["push one recording at a time"]);
}

/// Check that a signal ends the attempts to push, and not only their time.
#[test]
fn a_signal_stops_the_push() {
    let scene = Scene::new();
    let receiver = Receiver::start((0..1000).map(|_| Behaviour::answer(503, "")).collect());
    let options = format!("--cpu-only -o x.wscope --push-timeout 10m --push otlp={}", receiver.url());
    let command = ["sh", "-c", "i=0; while [ $i -lt 99999 ]; do i=$((i+1)); done"];
    let record = Running::start(&mut scene.record_words(&options, &command));
    wait_until("something is pushed", || !receiver.requests().is_empty());
    record.signal(libc::SIGINT);
    let ended = record.wait().exits(1);
    assert!(ended.err().contains("is not available (status 503) (interrupted)"), "{}", ended.err());
    assert_eq!(scene.files(), ["x.wscope"]);
}

/// Check that a recording without anything to push, and a trace, are not pushed, and that a sentence says so.
#[test]
fn what_has_no_series_is_not_pushed() {
    let scene = Scene::new();
    let receiver = Receiver::start(Vec::new());
    let to = format!("otlp={}", receiver.url());
    let options = "--events-only --event tracepoint:syscalls:sys_enter_write -q -o x.wscope";
    Ended::of(&mut scene.record(options, "true")).exits(0);
    Ended::of(&mut push(&scene, &to, "")).exits(0).says(&["there is nothing to push"]);
    let command = format!("{} {}", program("truth"), Walk::of(5).arguments());
    let mut trace = scene.trace("--sim -q -o x.wscope", &command);
    Ended::of(trace.env("WARPSCOPE_SIM", "devices=2")).exits(0);
    Ended::of(&mut push(&scene, &to, "")).exits(1).says(&["a trace cannot be pushed"]);
    assert!(receiver.requests().is_empty());
}

/// Check that files are read as the user who called sudo: it is no way to read files of root.
#[test]
fn files_are_read_as_the_caller() {
    let scene = recorded();
    fs::write(scene.path("secret"), "hunter22").expect("written");
    fs::set_permissions(scene.path("secret"), fs::Permissions::from_mode(0o600)).expect("set");
    let receiver = Receiver::start(Vec::new());
    let mut command = push(&scene, &format!("otlp={}", receiver.url()), "--push-token-file secret");
    command.env("SUDO_UID", "65534").env("SUDO_GID", "65534").env("SUDO_USER", "nobody");
    Ended::of(&mut command).exits(1).says(&["cannot read secret as nobody"]);
    assert!(receiver.requests().is_empty());
}
