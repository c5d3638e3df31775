//! Programs whose steps are known: each launch is where its program says, and each step must begin at the launch where the
//! loop of the program began an iteration.

mod generated;
mod named;
mod program;
mod recorded;

use program::{Program, call, launch, maybe, repeat, steps, when};

use super::{Found, Sequence, Site};

/// Check that the steps of a training loop with inner loops begin at its first launch, and that inner loops are levels.
#[test]
fn training_has_steps() {
    let program = Program::new([
        vec![
            launch(2),
            repeat(9, vec![launch(1)], 8),
            steps(vec![launch(1), call(1), call(2), call(3)], 300),
            launch(1),
        ],
        vec![launch(1), repeat(2, vec![call(4)], 12), launch(1)],
        vec![launch(1), repeat(3, vec![launch(1), launch(1)], 12)],
        vec![repeat(4, vec![launch(1)], 5)],
        vec![launch(3), launch(1)],
    ]);
    let run = program.run(1);
    let found = run.check_steps();
    assert_eq!(found.levels.len(), 4, "{:#?}", found.levels);
    for number in 2..=4 {
        run.check_level(&found, number);
    }
}

/// Check that one launch that is repeated is a loop, as when a graph is launched in each step.
#[test]
fn a_single_launch_is_a_step() {
    Program::new([vec![steps(vec![launch(1)], 10)]]).run(1).check_steps();
    Program::new([vec![launch(1), call(1)], vec![call(2)], vec![steps(vec![call(3)], 50)], vec![launch(1)]])
        .run(1)
        .check_steps();
}

/// Check that programs without a loop have no steps: straight code, functions called from several lines, recursion.
#[test]
fn programs_without_a_loop_have_no_steps() {
    let straight = vec![launch(1), launch(3), launch(1)];
    let calls = |functions: &[usize]| functions.iter().map(|function| call(*function)).collect::<Vec<_>>();
    let programs = [
        Program::new([straight.clone()]),
        Program::new([vec![launch(1)]]),
        Program::new([vec![launch(2)]]),
        Program::new([vec![]]),
        Program::new([calls(&[1]), straight.clone()]),
        // A function that is called from several lines, directly and through others.
        Program::new([calls(&[1; 12]), straight.clone()]),
        Program::new([calls(&[1; 12]), vec![launch(1)]]),
        Program::new([calls(&[1, 2, 1, 2, 1, 2]), calls(&[3, 3, 3, 3]), calls(&[3, 3]), straight.clone()]),
        Program::new([calls(&[1, 1]), calls(&[2, 2]), calls(&[3, 3]), calls(&[4, 4]), straight.clone()]),
        // Layers that are written out.
        Program::new([(0..40).map(|_| call(1)).collect(), calls(&[2, 3, 2]), straight.clone(), vec![launch(1)]]),
        // Recursion: down, down and up, with two calls in each, mutual, and with a launch in the middle.
        Program::new([vec![launch(1), when(0, 20, vec![call(0)])]]),
        Program::new([vec![launch(1), when(0, 20, vec![call(0)]), launch(1)]]),
        Program::new([vec![when(0, 20, vec![call(0)]), launch(1)]]),
        Program::new([vec![launch(1), when(0, 6, vec![call(0), call(0)])]]),
        Program::new([vec![when(0, 6, vec![call(0), launch(1), call(0)]), launch(1)]]),
        Program::new([vec![launch(1), when(0, 12, vec![call(1)])], vec![launch(1), call(0), launch(1)]]),
        Program::new([calls(&[1]), vec![launch(1), when(1, 12, vec![call(2), launch(1)])], calls(&[1])]),
        Program::new([vec![when(0, 5, vec![call(0), call(0), call(0)]), launch(2)]]),
        // What runs only once, or twice.
        Program::new([vec![repeat(1, vec![launch(1), launch(1)], 1)]]),
        Program::new([vec![call(1), call(2)], vec![launch(1), launch(1)], vec![call(1), launch(1), call(1)]]),
        Program::new([vec![maybe(50, vec![launch(1)]), launch(1), maybe(50, vec![launch(1)]), launch(1), launch(1)]]),
    ];
    for (number, program) in programs.iter().enumerate() {
        for seed in 0..5 {
            let run = program.run(seed);
            let found = run.found();
            assert!(found.steps.is_empty(), "program {number}: {:#?}", found.levels);
        }
    }
}

/// Check that launches which are not in every step change nothing: at its beginning, in it and at its end.
#[test]
fn steps_may_differ() {
    let optional = |percent| maybe(percent, vec![launch(2)]);
    for percent in [10, 30, 50, 70, 90] {
        for seed in 0..10 {
            let bodies = [
                vec![launch(1), optional(percent), launch(1), launch(1)],
                vec![launch(1), launch(1), optional(percent)],
                vec![launch(1), optional(percent), maybe(percent, vec![call(1)])],
            ];
            for body in bodies {
                Program::new([vec![launch(1), steps(body, 200)], vec![launch(1), launch(1)]]).run(seed).check_steps();
            }
        }
    }
}

/// Check that a launch that often, but not always, comes first in a step is part of it, where lines tell that it comes first.
#[test]
fn steps_may_begin_differently() {
    for percent in [30, 50, 70, 90] {
        for seed in 0..10 {
            let optional = |what| maybe(percent, vec![what]);
            for first in
                [vec![optional(launch(1))], vec![optional(call(1))], vec![optional(launch(1)), optional(launch(1))]]
            {
                let body = [first, vec![launch(1), launch(1)]].concat();
                Program::new([vec![launch(1), steps(body, 200)], vec![launch(1), launch(1)]])
                    .with_lines()
                    .run(seed)
                    .check_steps();
            }
        }
    }
}

/// Check that first steps with other work are steps like the others.
#[test]
fn warm_up_is_part_of_the_loop() {
    let bodies = [
        vec![launch(1), maybe_first(3, call(1)), launch(1), launch(1)],
        vec![not_first(2, launch(1)), launch(1), launch(1), launch(1)],
        vec![launch(1), maybe_first(3, launch(4)), not_first(3, call(1)), launch(1)],
    ];
    for body in bodies {
        Program::new([vec![launch(1), steps(body, 100)], vec![repeat(2, vec![launch(1), launch(1)], 20)]])
            .with_lines()
            .run(1)
            .check_steps();
    }
}

fn maybe_first(iterations: u64, what: program::Statement) -> program::Statement {
    program::Statement::Iterations(0, iterations, vec![what])
}

fn not_first(iterations: u64, what: program::Statement) -> program::Statement {
    program::Statement::Iterations(iterations, u64::MAX, vec![what])
}

/// Check that micro-batches are a level, and batches that end with the optimizer the steps, although both begin with the same
/// launch.
#[test]
fn loops_may_begin_with_the_same_launch() {
    let micro = repeat(2, vec![launch(1), launch(1)], 4);
    let run = Program::new([vec![launch(1), steps(vec![micro, launch(2)], 50), launch(1)]]).run(1);
    let found = run.check_steps();
    run.check_level(&found, 2);
}

/// Check that a log of every tenth step makes it no step of its own, unless it launches much.
#[test]
fn what_happens_now_and_then_ends_no_step() {
    let body = || vec![launch(1), launch(1), launch(1), launch(1), launch(1), launch(1), launch(1), launch(1)];
    let logged = repeat(2, vec![steps(body(), 10), launch(1)], 6);
    for program in
        [Program::new([vec![launch(1), logged.clone()]]), Program::new([vec![launch(1), logged]]).with_lines()]
    {
        let run = program.run(1);
        let found = run.check_steps();
        run.check_level(&found, 2);
    }
    let updated = steps(vec![repeat(2, body(), 10), call(1)], 6);
    Program::new([vec![launch(1), updated], vec![launch(4)]]).run(1).check_steps();
}

/// Check that the innermost loop that calls an optimizer is the step, in a function of its own or not: neither a log of every
/// tenth step, nor an epoch, nor the loop of the optimizer over its parameters, nor micro-batches.
#[test]
fn an_optimizer_ends_a_step() {
    let (optimizer, layers) = (vec![repeat(3, vec![launch(1)], 12)], vec![launch(9)]);
    let step = vec![launch(1), call(2), call(3)];
    let programs = [
        // The step is a function that the loop around it calls from a single place.
        [vec![launch(1), repeat(2, vec![steps(vec![call(1)], 10), launch(1)], 20)], step.clone()],
        [vec![launch(1), repeat(2, vec![call(1), launch(1)], 20)], vec![steps(step, 12)]],
        [
            vec![launch(1), steps(vec![call(1), call(2), call(2), call(3)], 20)],
            vec![repeat(2, vec![launch(1), launch(1)], 10)],
        ],
        [vec![launch(1), steps(vec![repeat(2, vec![call(1)], 10), call(3)], 20)], vec![launch(9), launch(1)]],
    ];
    for [main, called] in programs {
        let program = Program::of(vec![main, called, layers.clone(), optimizer.clone()]);
        for program in [program.clone(), program.with_lines()] {
            program.with_names(Some(3), None).run(1).check_steps();
        }
    }
}

/// Check that what a compiler runs belongs to no step, and does not divide one: before the loop, in its first iteration, and in
/// some later ones.
#[test]
fn compilers_have_no_steps() {
    let compiled = || maybe(5, vec![call(2)]);
    let body = vec![launch(1), maybe_first(2, call(2)), compiled(), launch(1), call(1), compiled()];
    let program = Program::of(vec![
        vec![launch(1), call(2), steps(body, 60)],
        vec![launch(1), compiled(), launch(1)],
        vec![repeat(2, vec![launch(1), launch(2)], 400)],
    ]);
    for seed in 0..10 {
        let run = program.clone().with_names(None, Some(2)).run(seed);
        let found = run.found();
        assert_eq!(run.cut(&found, &found.steps), run.truth(1), "{:?}", found.levels);
    }
}

/// Check that a few epochs of many batches have the batches as steps, and many steps of a few micro-batches have not.
#[test]
fn steps_are_between_epochs_and_micro_batches() {
    let micro = repeat(3, vec![launch(1), launch(1)], 4);
    let batch = steps(vec![launch(1), micro, launch(1)], 100);
    let run = Program::new([vec![repeat(2, vec![launch(1), batch, launch(1)], 3)]]).run(1);
    let found = run.check_steps();
    run.check_level(&found, 2);
    run.check_level(&found, 3);
    let chosen = &found.levels[found.steps[0]];
    let epochs = &found.levels[chosen.within.expect("epochs")];
    assert_eq!((epochs.iterations, chosen.iterations, epochs.within), (3, 300, None));
}

/// Check that a program which launches from its functions in any order has no steps: no iteration is like another.
#[test]
fn functions_in_any_order_are_no_steps() {
    let sites: Vec<Site> =
        (0..8).map(|place| Site { id: place + 1, place, is_exact: true, ..Site::default() }).collect();
    let mut state = 7_u64;
    let order = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % 8
    });
    let found = program::find(&sites, order.take(4000), true);
    assert!(found.steps.is_empty(), "{:?}", found.levels[found.steps[0]]);
}

/// Check that launches may be recorded later than others of their thread.
#[test]
fn launches_may_come_late() {
    let main = Program::new([vec![launch(1), steps(vec![launch(1), call(1)], 400)], vec![launch(2)]]);
    let run = main.run(1);
    let mut launches: Vec<_> = run.launches_of(1).collect();
    launches.chunks_exact_mut(25).for_each(|some| some[..20].rotate_left(1));
    let mut sequence = Sequence::default();
    launches.iter().for_each(|launch| sequence.push(launch));
    let found = Found::new(sequence, &main);
    let starts: Vec<u64> =
        program::cut(&found, &found.steps, launches.into_iter()).iter().map(|step| step.start).collect();
    assert_eq!(starts, run.truth(1));
}

/// Check that tokens are steps, and not the many layers of each, also if nothing but the function with the layers launches.
#[test]
fn layers_are_no_steps() {
    let layers = repeat(2, vec![launch(1), launch(1)], 28);
    let main = Program::new([vec![launch(1), steps(vec![call(1)], 63)], vec![launch(1), layers, launch(1)]]);
    let found = main.run(1).check_steps();
    assert_eq!(found.levels[found.steps[0]].iterations, 63);
}

/// Check that each thread has its own steps, and that a thread that works for another has none.
#[test]
fn threads_have_their_own_steps() {
    let worker = Program::new([vec![launch(1), steps(vec![launch(1), call(1)], 40)], vec![launch(2)]]);
    let runs = [worker.run(1), worker.run(2)];
    let mut sequence = Sequence::default();
    let mut launches: Vec<_> = runs.iter().zip(1..).flat_map(|(run, tid)| run.launches_of(tid)).collect();
    launches.sort_by_key(|launch| launch.time);
    launches.iter().for_each(|launch| sequence.push(launch));
    let found = Found::new(sequence, &worker);
    assert_eq!(found.levels[found.steps[0]].threads, 2);
    let starts = program::cut(&found, &found.steps, launches.iter().copied());
    for (run, tid) in runs.iter().zip(1..) {
        let of_thread: Vec<u64> = starts.iter().filter(|step| step.tid == tid).map(|step| step.start).collect();
        assert_eq!(of_thread, run.truth(1));
    }
}

/// Check that the loop of a thread is the steps, also if most is launched by a thread that works for one of its calls.
#[test]
fn helpers_have_no_steps() {
    let main = Program::new([
        vec![launch(1), steps(vec![launch(1), call(1), call(2), launch(1)], 40)],
        vec![launch(2)],
        vec![repeat(2, vec![launch(10)], 1)],
    ]);
    let run = main.run(1);
    let is_backward =
        |launch: &model::event::Launch| super::Code::sites(&main, launch.process, launch.stack)[0].place == 3;
    let mut sequence = Sequence::default();
    let launches =
        || run.launches_of(1).map(|launch| model::event::Launch { tid: 1 + u32::from(is_backward(&launch)), ..launch });
    launches().for_each(|launch| sequence.push(&launch));
    let found = Found::new(sequence, &run);
    let starts = program::cut(&found, &found.steps, launches());
    assert_eq!(starts.iter().filter(|step| step.tid == 1).map(|step| step.start).collect::<Vec<_>>(), run.truth(1));
    assert_eq!(starts.iter().filter(|step| step.tid == 2).count(), 0);
}

/// Check that a recording that begins in the middle of a step, and ends in one, has all steps between.
#[test]
fn recordings_may_begin_and_end_anywhere() {
    let program =
        Program::new([vec![launch(1), steps(vec![launch(1), call(1), launch(1)], 30)], vec![launch(3), launch(1)]]);
    let whole = program.run(1);
    for (skip, leave) in [(1, 0), (2, 1), (3, 2), (5, 5), (6, 1), (7, 6), (12, 3)] {
        let part = whole.part(skip, leave);
        let found = part.found();
        let starts: Vec<u64> = part.cut(&found, &found.steps);
        let truth = part.truth(1);
        let first = starts.len() - truth.len();
        assert!(first <= 1, "at most one is incomplete");
        assert_eq!(starts[first..], truth, "without {skip} and {leave} launches");
    }
}

/// Check that launches without a stack are counted with the step that they are in, and change nothing else.
#[test]
fn launches_without_a_stack_are_in_their_step() {
    let run = Program::new([vec![launch(1), steps(vec![launch(1), launch(2)], 20)]]).run(1);
    let launches = || {
        run.launches_of(1).enumerate().map(|(index, mut launch)| {
            if index % 3 == 2 {
                launch.stack = model::event::StackId::NOT_SAMPLED;
            }
            launch
        })
    };
    let mut sequence = Sequence::default();
    launches().filter(|launch| !launch.stack.is_placeholder()).for_each(|launch| sequence.push(&launch));
    let found = Found::new(sequence, &run);
    let steps = program::cut(&found, &found.steps, launches());
    assert_eq!(steps.iter().map(|step| step.launches).sum::<u64>() + 1, run.launches_of(1).count() as u64);
}

/// Check that the condition of a `while`, which is compiled to the end of the loop, is where its iterations begin.
#[test]
fn conditions_may_be_at_the_end() {
    let site = |id: u64, place: u64| Site { id, function: 1, place, is_exact: true };
    let sites = [site(1, 90), site(2, 10), site(3, 20)];
    let order = std::iter::repeat_n([0, 1, 2], 20).flatten().chain([0]);
    let found = program::find(&sites, order.clone(), true);
    let level = &found.levels[found.steps[0]];
    assert_eq!((level.iterations, level.depth), (21, 1));
    assert_eq!(level.stack, model::event::StackId(1));
    // If the recording began in the loop, the first line is the best guess.
    let found = program::find(&sites, order, false);
    assert_eq!(found.levels[found.steps[0]].stack, model::event::StackId(2));
}

/// Check that code which a compiler has moved to the beginning of the loop does not hide where a step begins.
#[test]
fn compilers_move_code() {
    let site = |id: u64, place: u64| Site { id, function: 1, place, is_exact: true };
    let sites = [site(1, 20), site(2, 30), site(3, 10)];
    let found = program::find(&sites, std::iter::repeat_n([0, 1, 0, 1, 0, 1, 2], 60).flatten(), true);
    let level = &found.levels[found.steps[0]];
    assert_eq!((level.iterations, level.stack), (60, model::event::StackId(1)));
}

/// Check that a call whose arguments are written below it does not hide where a step begins.
#[test]
fn arguments_may_be_below_the_call() {
    let site = |id: u64, line: u64| Site { id, function: 1, place: line, is_exact: false };
    let sites = [site(1, 32), site(2, 33), site(3, 31), site(4, 34)];
    let found = program::find(&sites, std::iter::repeat_n([0, 1, 2, 3], 20).flatten(), true);
    let level = &found.levels[found.steps[0]];
    assert_eq!((level.iterations, level.stack), (20, model::event::StackId(1)));
}

/// Check that two calls on a line of Python, which look alike, are no loop.
#[test]
fn calls_on_one_line_are_no_loop() {
    let site = |id: u64| Site { id, function: 1, place: id, is_exact: false };
    let sites: Vec<Site> = (1..=6).map(site).collect();
    let found = program::find(&sites, [0, 1, 2, 1, 2, 3, 3, 4, 5], true);
    assert!(found.levels.is_empty(), "{:?}", found.levels);
}

/// Check the steps that a function gives: its iterations if it has a loop, otherwise its calls, also of calls that follow each
/// other.
#[test]
fn functions_give_steps() {
    let inner = vec![launch(2), repeat(2, vec![launch(1)], 4)];
    let program = Program::new([
        vec![launch(1), call(1), launch(1)],
        vec![steps(vec![call(2), launch(1), call(2), repeat(3, vec![call(2)], 2)], 30)],
        inner,
    ]);
    let run = program.run(1);
    let found = run.found();
    let of = |function: u64| {
        let is =
            |process, stack, index: usize| super::Code::sites(&run, process, stack)[index].function == function + 1;
        let levels = found.of_functions(&is);
        let levels: Vec<&super::Level> = levels.iter().collect();
        let mut cutter = super::Cutter::new(&found, &levels);
        run.launches_of(1).for_each(|launch| cutter.push(&launch));
        cutter.finish()
    };
    assert_eq!(of(1).iter().map(|step| step.start).collect::<Vec<_>>(), run.truth(1));
    let calls = of(2);
    assert_eq!((calls.len(), calls.iter().all(|call| call.launches == 6)), (120, true));
    assert_eq!(of(0).len(), 1, "the whole program is one call");
}
