//! Loops in which something more runs after every tenth iteration. Launches alone do not say whether that ends a step of ten
//! micro-batches, or is a log of ten steps; the names of functions do.

use model::{
    event::{
        Event, Frame, FrameKind, Launch, Mapping, NamedFrame, Origin, Process, ProcessId, Stack, StackEnd, StackId,
        Symbol,
    },
    fold::Fold,
};

use super::super::{Choice, Sequence, find};
use crate::Events;

/// Iterations of the loop, and how many of them come before each call of what is in question.
const ITERATIONS: u64 = 200;
const TOGETHER: u64 = 10;

/// A function with the number of its launches, and where it is.
struct Function {
    name: &'static str,
    module: &'static str,
    launches: u64,
}

/// A loop that calls `forward` and `backward`, and one more function after each tenth iteration.
struct Loop {
    kind: FrameKind,
    then: Function,
}

const TORCH: &str = "/venv/lib/python3.12/site-packages/torch/optim/adamw.py";

impl Loop {
    fn python(name: &'static str, module: &'static str, launches: u64) -> Self {
        Self { kind: FrameKind::Python, then: Function { name, module, launches } }
    }

    fn native(name: &'static str, launches: u64) -> Self {
        Self { kind: FrameKind::Native, then: Function { name, module: "app", launches } }
    }

    /// Returns its events: each launch is 10 ns after the one before.
    fn events(&self) -> Vec<Event> {
        let process = ProcessId(1);
        let origin = Origin::Exec;
        let python = self.kind == FrameKind::Python;
        let (start, end, module) = (0, 1 << 40, "/home/user/train.py");
        let mut events = vec![
            Event::Process(Process { id: process, parent: ProcessId(0), origin, pid: 70, time: 1, comm: "app".into() }),
            Event::Mapping(Mapping {
                process,
                time: 1,
                start,
                end,
                offset: 0,
                path: if python { "/usr/bin/python3.12" } else { "/bin/app" }.into(),
                build_id: Vec::new(),
            }),
        ];
        let number = |number: u64| if python { Frame::Python(number as u32) } else { Frame::User(0x1000 + number) };
        let mut name = |at: u64, name: String, module: &str| {
            let owner = if python { ProcessId(0) } else { process };
            let names = vec![NamedFrame { kind: self.kind, name: name.into(), module: module.into() }];
            events.push(Event::Symbol(Symbol { process: owner, frame: number(at), since: 0, names }));
        };
        let line = |function: &str, line: u64| match python {
            true => format!("{function} (train.py:{line})"),
            false => function.to_owned(),
        };
        let app = if python { module } else { "app" };
        name(1, line("<module>", 90), app);
        // The sites of the loop, and those of the functions that it calls.
        for (site, function, launches) in [(10, "forward", 4), (11, "backward", 4)] {
            name(site, line("train", site), app);
            (0..launches).for_each(|at| name(site * 100 + at, line(function, site * 10 + at), app));
        }
        name(13, line("train", 13), app);
        for at in 0..self.then.launches {
            let Function { name: function, module, .. } = self.then;
            let file = module.rsplit('/').next().unwrap_or(module);
            let function = if python { format!("{function} ({file}:{})", 200 + at) } else { function.to_owned() };
            name(1300 + at, function, module);
        }
        let stacks: Vec<u64> = (1000..1004).chain(1100..1104).chain(1300..1300 + self.then.launches).collect();
        for &id in &stacks {
            let frames = [id, id / 100, 1].map(number).to_vec();
            events.push(Event::Stack(Stack { id: StackId(id), process, time: 1, frames, end: StackEnd::Whole }));
        }
        let mut time = 0;
        for iteration in 1..=ITERATIONS {
            let last = if iteration % TOGETHER == 0 { stacks.len() } else { 8 };
            for &stack in &stacks[..last] {
                time += 10;
                events.push(Event::Launch(Launch {
                    process,
                    tid: 7,
                    time,
                    stack: StackId(stack),
                    ..Launch::default()
                }));
            }
        }
        events
    }

    /// Returns when its steps begin, and their launches.
    fn steps(&self) -> Vec<(u64, u64)> {
        let all = self.events();
        let (mut fold, mut sequence) = (Fold::new(), Sequence::default());
        for event in &all {
            fold.push(event);
            if let Event::Launch(launch) = event {
                sequence.push(launch);
            }
        }
        let mut events = || -> std::io::Result<Events<'_>> { Ok(Box::new(all.iter().cloned())) };
        let found = find(&fold.finish(), sequence, &Choice::Loop, &mut events).expect("events can be read");
        let [series] = &found.series[..] else { panic!("{} of {found:?}", self.then.name) };
        series.steps.iter().map(|step| (step.start, step.work.launches)).collect()
    }

    /// Check that the steps are of so many iterations.
    fn check(&self, iterations: u64) {
        let more = |step: u64| self.then.launches * u64::from((step * iterations).is_multiple_of(TOGETHER));
        let mut start = 10;
        let expected = (1..=ITERATIONS / iterations).map(|step| {
            let launches = 8 * iterations + more(step);
            start += 10 * launches;
            (start - 10 * launches, launches)
        });
        assert_eq!(self.steps(), expected.collect::<Vec<_>>(), "{} in {:?}", self.then.name, self.kind);
    }
}

/// Check that an optimizer after ten micro-batches ends a step of ten, however little it launches.
#[test]
fn an_optimizer_ends_a_step() {
    for launches in [1, 2, 40] {
        Loop::python("AdamW.step", TORCH, launches).check(TOGETHER);
    }
    Loop::python("Trainer.optimizer_step", "/home/user/trainer.py", 1).check(TOGETHER);
    Loop::native("optimizer_step(Model&)", 1).check(TOGETHER);
    Loop::native("optimizer_step(Model&)", 30).check(TOGETHER);
}

/// Check that nothing else does where names say what it is, however much it launches: a log, an evaluation, a function that is
/// called `step` but is no optimizer's.
#[test]
fn a_log_ends_no_step() {
    for launches in [1, 2, 40] {
        Loop::python("log", "/home/user/train.py", launches).check(1);
        Loop::python("evaluate", "/home/user/train.py", launches).check(1);
        Loop::python("Scheduler.step", "/home/user/scheduler.py", launches).check(1);
    }
    Loop::native("print_loss(Model const&)", 1).check(1);
}

/// Check that in native code, whose functions rarely say, what launches much ends a step.
#[test]
fn what_launches_much_ends_a_step_of_native_code() {
    Loop::native("update(Model&)", 1).check(1);
    Loop::native("update(Model&)", 2).check(TOGETHER);
}
