//! One recording with one fault, and the checks afterwards.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::{fs::FileExt, process::CommandExt, process::ExitStatusExt},
    path::PathBuf,
    process::Command,
    thread::sleep,
    time::Duration,
};

use serde_json::Value;

use super::fault::{Fault, Random};
use crate::support::{
    Ended, Running, Scene,
    oracle::Walk,
    program, programs,
    running::kill,
    scene::{lost, number},
    truth::Truth,
    wait_until,
};

/// The plan of a round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    fault: Fault,
    /// The time from the start to the fault.
    delay: Duration,
    walk: Walk,
    /// Formats besides the recording.
    outputs: &'static str,
}

impl Round {
    pub fn new(seed: u64, round: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x1_0000_0001).wrapping_add(round));
        let walk = Walk {
            processes: random.within(1..3),
            threads: random.within(1..5),
            streams: 2,
            devices: random.within(1..3),
            launches: random.one(&[1, 100, 2_000, 20_000]),
            graphs: false,
        };
        let fault = Fault::random(&mut random);
        let delay = Duration::from_millis(random.within(0..350));
        let outputs =
            random.one(&["", "-o out/x.folded", "-o out/x.svg -o out/x.jsonl", "-o out/x.json -o out/x.cpu.txt"]);
        Self { fault, delay, walk, outputs }
    }

    /// Runs the round, and panics if a check fails.
    pub fn run(&self) {
        let scene = Scene::new();
        fs::create_dir(scene.path("out")).expect("a directory");
        let running = Running::start(&mut self.command(&scene));
        let group = running.pid();
        self.inject(&scene, &running);
        let ended = running.wait();
        wait_until("no process of the round is left", || kill(-group, 0) != 0);

        self.check_status(&ended);
        self.check_target(&ended, &scene);
        if self.fault == Fault::KillTool {
            // The killed process could not remove its directory. The next run does.
            Ended::of(&mut scene.record("--sim -q -o next.wscope", "true")).exits(0);
        }
        match self.fault {
            Fault::CutAfterwards(thousandth) => cut(&scene, thousandth),
            Fault::Changed(how) => change(&scene, how),
            _ => {}
        }
        self.check_recording(&ended, &scene);
    }

    fn command(&self, scene: &Scene) -> Command {
        let options = format!("record --sim -q -o out/x.wscope {} -- {}", self.outputs, program("truth"));
        let arguments = format!("{options} {}", self.walk.arguments());
        let arguments = arguments.split_whitespace();
        let mut command = if let Fault::SmallDisk(kib) = self.fault {
            let script = format!(
                r#"mkdir small && mount -t tmpfs -o size={kib}k none small && rmdir out && ln -s small out && "$@"; s=$?
                rm out; mkdir out; cp small/* out/ 2> /dev/null; exit $s"#
            );
            let mut shell = scene.bare("unshare");
            shell.args(["-m", "sh", "-c", &script, "sh", programs::WARPSCOPE]).args(arguments);
            shell
        } else {
            scene.warpscope(&arguments.collect::<Vec<_>>())
        };
        let limit = match self.fault {
            Fault::FileSize(bytes) => Some((libc::RLIMIT_FSIZE, bytes)),
            Fault::Descriptors(count) => Some((libc::RLIMIT_NOFILE, count)),
            _ => None,
        };
        if let Some((resource, most)) = limit {
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            // SAFETY: a system call between fork and exec.
            unsafe {
                command.pre_exec(move || {
                    libc::setrlimit(resource, &raw const limit);
                    Ok(())
                });
            }
        }
        let sim = format!("devices=2,kernel_ns=3us,truth={}", scene.text("truth"));
        command.env("WARPSCOPE_SIM", sim);
        command
    }

    /// Waits for the time of the fault, and injects it.
    fn inject(&self, scene: &Scene, running: &Running) {
        let tool = running.pid();
        // A process that has ended already is past all faults.
        let signal = |pid: libc::pid_t, signal: libc::c_int| {
            let _ = kill(pid, signal);
        };
        let pause = |pid: libc::pid_t, time: Duration| {
            signal(pid, libc::SIGSTOP);
            sleep(time);
            signal(pid, libc::SIGCONT);
        };
        let is_timed = !matches!(
            self.fault,
            Fault::None
                | Fault::SmallDisk(_)
                | Fault::FileSize(_)
                | Fault::Descriptors(_)
                | Fault::CutAfterwards(_)
                | Fault::Changed(_)
        );
        if is_timed {
            sleep(self.delay);
        }
        match self.fault {
            Fault::KillTool => signal(tool, libc::SIGKILL),
            Fault::KillTarget => target_of(tool).map_or((), |pid| signal(pid, libc::SIGKILL)),
            Fault::StopTool(time) => pause(tool, time),
            Fault::StopTarget(time) => target_of(tool).map_or((), |pid| pause(pid, time)),
            Fault::Interrupt => signal(-tool, libc::SIGINT),
            Fault::InterruptTool => signal(tool, libc::SIGINT),
            Fault::CutWhileWritten => {
                for file in recordings(scene) {
                    let file = OpenOptions::new().write(true).open(file);
                    let _ = file.and_then(|file| file.set_len(file.metadata()?.len() / 2));
                }
            }
            _ => {}
        }
    }

    /// Checks how warpscope ended: with the target's status, or as the fault requires; with a message if it failed.
    fn check_status(&self, ended: &Ended) {
        let (code, signal) = (ended.status.code(), ended.status.signal());
        let right = match self.fault {
            Fault::KillTool | Fault::KillTarget => code == Some(0) || signal == Some(libc::SIGKILL),
            Fault::Interrupt | Fault::InterruptTool => code == Some(0) || signal == Some(libc::SIGINT),
            Fault::SmallDisk(_) => code.is_some_and(|code| code <= 1),
            Fault::FileSize(_) | Fault::Descriptors(_) => code.is_some(),
            _ => code == Some(0),
        };
        let text = String::from_utf8_lossy(&ended.stderr);
        assert!(right, "{:?}: {}\n{text}", self.fault, ended.status);
        if code.is_some_and(|code| code != 0) {
            assert!(!text.is_empty(), "{:?}: it failed without a message", self.fault);
        }
        assert!(!text.contains("panicked"), "{:?}: {text}", self.fault);
    }

    /// Checks that the target's own result is the same as without warpscope.
    fn check_target(&self, ended: &Ended, scene: &Scene) {
        let whole = format!("launched {}\n", self.walk.total());
        if self.fault.leaves_the_target_alone() {
            // If warpscope was killed early, the target was not started.
            let unstarted = self.fault == Fault::KillTool && ended.out().is_empty() && !scene.path("truth").exists();
            assert!(ended.out() == whole || unstarted, "{:?}: {:?}", self.fault, ended.out());
        } else {
            assert!(ended.out().is_empty() || ended.out() == whole, "{:?}: {:?}", self.fault, ended.out());
        }
    }

    /// Checks that whatever is left of the recording can be read, and that its ledger adds up.
    fn check_recording(&self, ended: &Ended, scene: &Scene) {
        for file in recordings(scene) {
            let length = file.metadata().expect("it is there").len();
            let mut command = scene.warpscope(&[PathBuf::from("report"), "--json".into(), file.clone()]);
            let report = Ended::of(&mut command);
            let changed = matches!(self.fault, Fault::Changed(_));
            // Without its header the file is not a recording, and `report` says so.
            if report.out().is_empty() {
                assert!(length < 16 || changed, "{:?}: {}", self.fault, report.err());
                report.exits(1).says(&[]);
                continue;
            }
            let succeeded = report.status.success();
            let report: Value = serde_json::from_str(report.out()).expect("the report is JSON");
            // Of a damaged recording, the rest is reported, with a note.
            if !succeeded {
                let damaged = report["notes"].to_string().contains("the recording");
                assert!(changed && damaged, "{:?}: {report}", self.fault);
            }
            let of = |key: &str| number(&report, key);
            let activities = of("kernels") + of("copies") + of("memsets");
            assert_eq!(of("matched") + of("unmatched_activities"), activities, "{:?}: {report}", self.fault);
            if lost(&report) == 0 {
                let explained =
                    of("matched") + of("pending_launches") + of("failed_launches") + of("captured_launches");
                assert_eq!(of("launches"), explained, "{:?}: {report}", self.fault);
            }
            let untouched = !matches!(self.fault, Fault::CutAfterwards(_) | Fault::Changed(_));
            if self.fault.leaves_the_tool_alone() && untouched && ended.status.success() {
                self.check_whole(&report, &Truth::of(scene, "truth"));
            }
        }
        if self.fault.leaves_the_tool_alone() {
            assert!(scene.path("out/x.wscope").exists(), "{:?}: there is no recording", self.fault);
        }
    }

    /// Checks that the ledger has every launch and every activity, or counts it as lost.
    fn check_whole(&self, report: &Value, truth: &Truth) {
        let lost = |cause: &str| number(&report["lost"], cause);
        assert_eq!(truth.launched, self.walk.total());
        assert_eq!(number(report, "launches") + lost("ring_launches"), truth.launched, "{:?}: {report}", self.fault);
        let activities = number(report, "kernels") + number(report, "copies") + number(report, "memsets");
        let delivered = truth.delivered();
        let explained = activities <= delivered && activities + lost("queue_full") >= delivered;
        assert!(explained, "{:?}: {delivered} activities, but {report}", self.fault);
    }
}

/// The recording, finished or partial.
fn recordings(scene: &Scene) -> Vec<PathBuf> {
    let paths = ["out/x.wscope", "out/x.wscope.partial"].map(|name| scene.path(name));
    paths.into_iter().filter(|path| path.exists()).collect()
}

/// The process that warpscope has started, if any.
fn target_of(tool: libc::pid_t) -> Option<libc::pid_t> {
    let children = fs::read_to_string(format!("/proc/{tool}/task/{tool}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

fn cut(scene: &Scene, thousandth: u64) {
    let file = OpenOptions::new().write(true).open(scene.path("out/x.wscope")).expect("a recording");
    let length = file.metadata().expect("its length").len();
    file.set_len(length * thousandth / 1000).expect("it can be cut");
}

fn change(scene: &Scene, how: u64) {
    let file = File::options().write(true).open(scene.path("out/x.wscope")).expect("a recording");
    let length = file.metadata().expect("its length").len();
    let mut random = Random(how);
    for _ in 0..random.within(1..9) {
        let at = random.within(0..length);
        file.write_all_at(&[random.next() as u8], at).expect("it can be changed");
    }
}
