//! Sends all requests to a receiver: splits what is too large, waits when it is busy, tries again, and gives up in time.

use std::{
    collections::VecDeque,
    io, thread,
    time::{Duration, Instant},
};

use crate::{answer::Answer, client::Client};

/// The longest time for one request.
const ATTEMPT: Duration = Duration::from_secs(30);
/// The wait before the second attempt; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest of these waits.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The longest time in which a stop is not noticed between two requests.
const SLICE: Duration = Duration::from_millis(50);
/// The longest time for all requests.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What is sent as one request.
pub trait Payload: Sized {
    /// Encodes the request.
    fn encode(&self) -> io::Result<Vec<u8>>;
    /// Divides it into two. `None` if that is impossible.
    fn split(&self) -> Option<(Self, Self)>;
    /// Returns how much it has, in stacks.
    fn stacks(&self) -> usize;
}

/// What delivery uses of the world.
pub trait World {
    /// Sends a request.
    fn post(&mut self, body: &[u8], patience: Duration) -> Answer;
    /// Returns the time.
    fn now(&self) -> Instant;
    /// Waits, unless it is stopped.
    fn sleep(&mut self, time: Duration);
    /// Whether the user wants it to stop.
    fn stopped(&self) -> bool;
    /// Returns a number from 0 to 1.
    fn random(&mut self) -> f64;
}

/// The network and the clock.
pub struct Network<'a> {
    /// Sends the requests.
    pub client: &'a Client,
    /// Whether the user wants it to stop.
    pub stopped: &'a dyn Fn() -> bool,
}

impl World for Network<'_> {
    fn post(&mut self, body: &[u8], patience: Duration) -> Answer {
        self.client.post(body, patience)
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&mut self, time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time && !self.stopped() {
            thread::sleep(SLICE.min(time - begin.elapsed().min(time)));
        }
    }

    fn stopped(&self) -> bool {
        (self.stopped)()
    }

    fn random(&mut self) -> f64 {
        let mut bytes = [0; 4];
        // Without entropy there is no jitter.
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
    }
}

/// What became of the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests that were accepted.
    pub requests: u64,
    /// Their bytes before compression.
    pub bytes: u64,
    /// The stacks in them.
    pub sent: usize,
    /// All stacks.
    pub stacks: usize,
    /// Stacks that may have been accepted twice: they were sent again after a connection ended without an answer.
    pub repeated: usize,
    /// What the receiver says about requests that it accepted in part.
    pub partial: Option<String>,
    /// Why the rest was not sent.
    pub failure: Option<String>,
}

/// Sends payloads in order, for at most this time in all.
pub fn deliver<P: Payload>(world: &mut impl World, payloads: Vec<P>, limit: Duration) -> Report {
    let stacks = payloads.iter().map(Payload::stacks).sum();
    let mut report = Report { stacks, ..Report::default() };
    let end = world.now() + limit.min(LONGEST);
    let mut pending = VecDeque::from(payloads);
    while let Some(payload) = pending.pop_front() {
        let body = match payload.encode() {
            Ok(body) => body,
            Err(error) => {
                report.failure = Some(format!("cannot encode it: {error}"));
                break;
            }
        };
        match attempt(world, &body, end, &mut report, payload.stacks()) {
            Ok(partial) => {
                report.requests += 1;
                report.bytes += body.len() as u64;
                report.sent += payload.stacks();
                report.partial = report.partial.take().or(partial);
            }
            Err(Stopped::TooLarge) => match payload.split() {
                Some((first, second)) => {
                    pending.push_front(second);
                    pending.push_front(first);
                }
                None => {
                    report.failure = Some(format!(
                        "the receiver does not accept a request of {} bytes (status 413): raise its limit",
                        body.len()
                    ));
                    break;
                }
            },
            Err(Stopped::For(why)) => {
                report.failure = Some(why);
                break;
            }
        }
    }
    report
}

/// Why a request was not accepted.
enum Stopped {
    TooLarge,
    For(String),
}

/// Sends a request until it is accepted or refused, or the time is over. Returns what the receiver says about what it did not accept.
fn attempt(
    world: &mut impl World,
    body: &[u8],
    end: Instant,
    report: &mut Report,
    stacks: usize,
) -> Result<Option<String>, Stopped> {
    let (mut wait, mut attempts, mut unclear) = (FIRST_WAIT, 0, false);
    loop {
        let left = end.saturating_duration_since(world.now());
        attempts += 1;
        let (why, asked) = match world.post(body, ATTEMPT.min(left)) {
            Answer::Accepted(partial) => {
                report.repeated += if unclear { stacks } else { 0 };
                return Ok(partial);
            }
            Answer::TooLarge => return Err(Stopped::TooLarge),
            Answer::Refused(why) => return Err(Stopped::For(why)),
            Answer::Busy(why, asked) => (why, asked),
            Answer::Unreachable(why) => (why, None),
            Answer::Unclear(why) => {
                unclear = true;
                (why, None)
            }
        };
        let unclear = if unclear { "; it may have been accepted nevertheless" } else { "" };
        // Between half of it and all of it, so that those who failed together do not come back together.
        let time = match asked {
            Some(asked) => asked.saturating_add(FIRST_WAIT.mul_f64(world.random())),
            None => wait.mul_f64(0.5 + 0.5 * world.random()),
        };
        let left = end.saturating_duration_since(world.now());
        if time >= left {
            let asks = match asked {
                Some(asked) if asked >= left => {
                    format!("; it asks to wait {} s, longer than --push-timeout allows", asked.as_secs())
                }
                _ => String::new(),
            };
            let times = if attempts == 1 { "once".to_owned() } else { format!("{attempts} times") };
            return Err(Stopped::For(format!("{why} (tried {times}){unclear}{asks}")));
        }
        world.sleep(time);
        if world.stopped() {
            return Err(Stopped::For(format!("{why} (interrupted){unclear}")));
        }
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver whose answers are known.
    struct Script {
        answers: VecDeque<Answer>,
        /// The last bytes of each request.
        requests: Vec<String>,
        sleeps: Vec<Duration>,
        now: Instant,
        random: f64,
        /// The user stops it during the wait with this number.
        stops_at: usize,
    }

    impl Script {
        fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
            let (requests, sleeps) = (Vec::new(), Vec::new());
            Self {
                answers: answers.into_iter().collect(),
                requests,
                sleeps,
                now: Instant::now(),
                random: 1.0,
                stops_at: usize::MAX,
            }
        }
    }

    impl World for Script {
        fn post(&mut self, body: &[u8], _: Duration) -> Answer {
            self.requests.push(String::from_utf8_lossy(body).into_owned());
            self.now += Duration::from_millis(1);
            self.answers.pop_front().unwrap_or(Answer::Accepted(None))
        }

        fn now(&self) -> Instant {
            self.now
        }

        fn sleep(&mut self, time: Duration) {
            self.sleeps.push(time);
            self.now += time;
        }

        fn stopped(&self) -> bool {
            self.sleeps.len() >= self.stops_at
        }

        fn random(&mut self) -> f64 {
            self.random
        }
    }

    /// A text whose characters are its stacks.
    #[derive(Debug)]
    struct Text(&'static str);

    impl Payload for Text {
        fn encode(&self) -> io::Result<Vec<u8>> {
            Ok(self.0.into())
        }

        fn split(&self) -> Option<(Self, Self)> {
            let (first, second) = self.0.split_at(self.0.len() / 2);
            (!first.is_empty()).then_some((Self(first), Self(second)))
        }

        fn stacks(&self) -> usize {
            self.0.len()
        }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    fn busy(seconds: Option<u64>) -> Answer {
        Answer::Busy("busy".into(), seconds.map(Duration::from_secs))
    }

    /// Check that what is too large is halved until it is accepted, in order, and that one stack is not.
    #[test]
    fn large_requests_are_split() {
        use Answer::TooLarge;
        let mut script = Script::new([TooLarge, TooLarge, Answer::Accepted(None), TooLarge]);
        let report = deliver(&mut script, vec![Text("abcd"), Text("e")], MINUTE);
        assert_eq!(script.requests, ["abcd", "ab", "a", "b"]);
        assert!(report.failure.as_ref().is_some_and(|why| why.contains("413")), "{report:?}");
        assert_eq!((report.sent, report.stacks, report.requests), (1, 5, 1));
        let mut script = Script::new([TooLarge]);
        let report = deliver(&mut script, vec![Text("abc")], MINUTE);
        assert_eq!((script.requests.join(" "), report.sent, report.failure), ("abc a bc".into(), 3, None));
    }

    /// Check that waits double up to a limit and are spread over their second half, and that the receiver's own wait is kept.
    #[test]
    fn waits_grow() {
        let mut script = Script::new((0..8).map(|_| busy(None)));
        let report = deliver(&mut script, vec![Text("a")], MINUTE);
        let waits: Vec<u128> = script.sleeps.iter().map(Duration::as_millis).collect();
        assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000, 10_000]);
        assert_eq!((report.sent, report.repeated), (1, 0));
        let mut script = Script { random: 0.0, ..Script::new([busy(None), busy(None), busy(Some(7))]) };
        deliver(&mut script, vec![Text("a")], MINUTE);
        assert_eq!(script.sleeps.iter().map(Duration::as_millis).collect::<Vec<_>>(), [250, 500, 7_000]);
    }

    /// Check that it gives up before a wait that ends too late, and says what it waited for.
    #[test]
    fn it_gives_up_in_time() {
        let mut script = Script::new((0..100).map(|_| Answer::Unreachable("refused".into())));
        let begin = script.now;
        let report = deliver(&mut script, vec![Text("a"), Text("b")], MINUTE);
        assert!(script.now - begin <= MINUTE && script.now - begin > MINUTE / 2);
        let tried = format!("refused (tried {} times)", script.requests.len());
        assert_eq!(report.failure, Some(tried));
        assert!(script.requests.iter().all(|request| request == "a"));
        let report = deliver(&mut Script::new([busy(Some(300))]), vec![Text("a")], MINUTE);
        deliver(&mut Script::new([busy(Some(u64::MAX))]), vec![Text("a")], Duration::MAX);
        let why = "busy (tried once); it asks to wait 300 s, longer than --push-timeout allows";
        assert_eq!(report.failure.as_deref(), Some(why));
    }

    /// Check that the user can stop it while it waits.
    #[test]
    fn it_can_be_stopped() {
        let mut script = Script { stops_at: 2, ..Script::new((0..9).map(|_| busy(None))) };
        let report = deliver(&mut script, vec![Text("a")], MINUTE);
        assert_eq!((script.requests.len(), report.failure.as_deref()), (2, Some("busy (interrupted)")));
    }

    /// Check that nothing is tried again that was refused, and that what may be there twice is counted.
    #[test]
    fn repetitions_are_counted() {
        let mut script = Script::new([Answer::Refused("no".into())]);
        let report = deliver(&mut script, vec![Text("a"), Text("b")], MINUTE);
        assert_eq!((script.requests.len(), report.failure.as_deref(), report.sent), (1, Some("no"), 0));
        let unclear = || Answer::Unclear("closed".into());
        let report = deliver(&mut Script::new([unclear(), unclear()]), vec![Text("abc"), Text("d")], MINUTE);
        assert_eq!((report.sent, report.repeated, report.failure), (4, 3, None));
        let report = deliver(&mut Script::new((0..100).map(|_| unclear())), vec![Text("a")], MINUTE);
        assert!(report.failure.is_some_and(|why| why.ends_with("it may have been accepted nevertheless")));
        let partial = || Answer::Accepted(Some("2 rejected".into()));
        let report = deliver(&mut Script::new([partial()]), vec![Text("abc"), Text("d")], MINUTE);
        assert_eq!((report.partial.as_deref(), report.failure), (Some("2 rejected"), None));
    }
}
