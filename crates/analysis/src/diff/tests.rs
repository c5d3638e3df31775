use std::slice;

use super::{
    run::{Amount, BUSY, RunSteps},
    *,
};

const MS: u64 = 1_000_000;

/// A recording of some milliseconds with these kernels.
fn run(wall: u64, kernels: &[(&str, u64, u64)]) -> Run {
    let mut run = Run::default();
    run.set(Total::Wall, wall * MS);
    run.set(Total::Gpu, kernels.iter().map(|(_, ns, _)| ns).sum());
    for (name, ns, count) in kernels {
        for subject in [Subject::Kernels, Subject::Paths] {
            run.add(subject, (*name).to_owned(), *ns, *count);
        }
    }
    run
}

/// How a GPU spent the time of a recording.
fn run_of_gpu(parts: &[(&str, u64)]) -> Run {
    let mut run = run(parts.iter().map(|(_, ms)| ms).sum(), &[("gemm", parts[0].1 * MS, 100)]);
    let amount = |ms: &u64| Amount { amount: ms * MS, count: 0 };
    run.gpus.insert("0".to_owned(), parts.iter().map(|(name, ms)| ((*name).to_owned(), amount(ms))).collect());
    run
}

/// Check that kernels are compared by name, with the largest change first, and that new and missing ones are among them.
#[test]
fn the_largest_change_is_first() {
    let before = run(100, &[("same", 1_000_000, 10), ("gemm", 2_000_000, 10), ("gone", 500_000, 5)]);
    let after = run(100, &[("same", 1_000_000, 10), ("gemm", 3_000_000, 10), ("fused", 100_000, 1)]);
    let diff = Diff::of(&[before], &[after]);
    let kernels = &diff.changes[&Subject::Kernels];
    let names: Vec<&str> = kernels.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["gemm", "gone", "fused", "same"]);
    assert_eq!((kernels[0].change, kernels[1].change), (Some(0.5), Some(-1.0)));
    assert_eq!((kernels[2].change, kernels[2].significant), (None, None));
    assert_eq!((kernels[0].percent().as_deref(), kernels[2].percent()), (Some("+50.0 %"), None));
    let above = |share| diff.above(Total::Gpu, share).is_some();
    assert!(above(0.1) && !above(0.2), "3.5 to 4.1 ms");
    assert_eq!(diff.above(Total::Wall, 0.0), None, "the wall time is the same");
}

/// Check that the explanation is the part of the GPU's time that has changed as the wall time has.
#[test]
fn the_change_that_explains_the_difference_is_named() {
    let before = run_of_gpu(&[(BUSY, 100), ("load (data.py)", 20), ("[launching]", 10)]);
    let slow_loader = run_of_gpu(&[(BUSY, 101), ("load (data.py)", 80), ("[launching]", 9)]);
    let diff = Diff::of(slice::from_ref(&before), &[slow_loader]);
    let expected = "the wall time has increased by 60.0 ms (+46.2 %): GPU 0 was idle 60.0 ms longer: load (data.py)";
    assert_eq!(diff.explained().as_deref(), Some(expected));
    let said = diff.above(Total::Wall, 0.03);
    assert_eq!(said.as_deref(), Some("the wall time has increased by 46.2 %, more than 3 %"));
    assert_eq!(diff.above(Total::Gpu, 0.03), None, "the kernels took 1 % longer");

    let slow_kernel = run_of_gpu(&[(BUSY, 200), ("load (data.py)", 20), ("[launching]", 10)]);
    let explained = Diff::of(slice::from_ref(&before), &[slow_kernel]).explained().unwrap_or_default();
    let expected = "(+76.9 %): GPU 0 was busy 100 ms longer, most in gemm (+100 ms)";
    assert!(explained.ends_with(expected), "{explained}");

    let same = Diff::of(slice::from_ref(&before), slice::from_ref(&before));
    assert_eq!((same.explanation.as_ref(), same.above(Total::Wall, 0.0)), (None, None));
}

/// Check that without a GPU the function or the wait that has changed most explains the difference.
#[test]
fn programs_without_a_gpu_are_explained_by_functions_and_waits() {
    let side = |wall, parse, read| {
        let mut run = run(wall, &[]);
        run.add(Subject::Functions, "parse".to_owned(), parse * MS, parse);
        run.add(Subject::Waits, "read [waiting for a device]".to_owned(), read * MS, 10);
        run
    };
    let diff = Diff::of(&[side(1_000, 500, 400)], &[side(1_500, 505, 890)]);
    let explained = diff.explained().unwrap_or_default();
    assert!(explained.ends_with("(+50.0 %): 490 ms longer in read [waiting for a device]"), "{explained}");
    let is_beyond_noise = |subject| diff.is_beyond_noise(subject, &diff.changes[&subject][0]);
    assert!(!is_beyond_noise(Subject::Functions), "5 of 500 samples are chance");
    assert!(is_beyond_noise(Subject::Waits));
}

/// Check that with several recordings only changes beyond the differences between runs are significant, and that others fail
/// no gate and need no explanation.
#[test]
fn chance_is_not_significant() {
    let side = |times: [u64; 3]| times.map(|ms| run(ms, &[("gemm", ms, 1)]));
    let noisy = Diff::of(&side([900, 1_000, 1_100]), &side([1_000, 1_100, 1_150]));
    assert_eq!(noisy.changes[&Subject::Kernels][0].significant, Some(false));
    for total in [Total::Gpu, Total::Wall] {
        assert_eq!(noisy.above(total, 0.01), None);
    }
    assert_eq!(noisy.explanation, None);
    let real = Diff::of(&side([995, 1_000, 1_005]), &side([1_095, 1_100, 1_105]));
    assert_eq!(real.changes[&Subject::Kernels][0].significant, Some(true));
    for total in [Total::Gpu, Total::Wall] {
        assert!(real.above(total, 0.05).is_some() && real.above(total, 0.2).is_none());
    }
    let exact = Diff::of(&side([1_000; 3]), &side([1_000; 3]));
    assert_eq!(exact.changes[&Subject::Kernels][0].significant, Some(false));
    assert_eq!(exact.above(Total::Wall, 0.0), None);
}

/// A recording with steps of some microseconds, in which the GPU waited for `load` for some milliseconds in all.
fn run_of_steps(place: &str, times: impl Iterator<Item = u64>, load: u64) -> Run {
    let times: Vec<u64> = times.map(|us| us * 1_000).collect();
    let whole: u64 = times.iter().sum();
    let amount = |amount| Amount { amount, count: 0 };
    let parts = [("load (data.py)", load * MS), (BUSY, whole - load * MS)];
    let parts = parts.into_iter().map(|(name, ns)| (name.to_owned(), amount(ns))).collect();
    let kernels = [("gemm".to_owned(), amount(whole - load * MS))].into();
    let steps = RunSteps { place: place.to_owned(), times, gpu: "0".to_owned(), parts, kernels };
    let mut made = run(whole / MS, &[]);
    made.steps = Some(steps);
    made
}

/// Check that recordings of different length are compared by their steps, and that this needs steps of the same place.
#[test]
fn steps_of_runs_of_different_length_compare() {
    let times = |from: u64, count: u64| (0..count).map(move |step| from + step * 7 % 11 * 100);
    let before = run_of_steps("train (train.py)", times(10_000, 100), 200);
    let after = run_of_steps("train (train.py)", times(12_000, 33), 132);
    let diff = Diff::of(slice::from_ref(&before), &[after]);
    let steps = diff.steps.as_ref().expect("steps");
    assert_eq!((steps.median.before_count, steps.median.after_count), (100, 33));
    assert_eq!(steps.median.significant, Some(true));
    let expected = "the median step of train (train.py) has become 2.00 ms longer (+19.0 %); in each, GPU 0 was idle 2.00 ms \
                    longer: load (data.py)";
    assert_eq!(steps.sentence().as_deref(), Some(expected));
    let part = |name: &str, before, after| MadeOf { name: name.to_owned(), before, after };
    assert_eq!(steps.made_of, [part(BUSY, 8_495_000, 8_500_000), part("load (data.py)", 2_000_000, 4_000_000)]);
    let longer = (0..33).map(|step| (12_000 + step * 7 % 11 * 100) * 1_000).collect();
    assert_eq!(steps.times, [before.steps.clone().expect("steps").times, longer]);
    assert!(diff.step_above(0.1).is_some() && diff.step_above(0.3).is_none());
    assert_eq!(diff.above(Total::Wall, 0.0), None, "it ran for fewer steps");

    let other = run_of_steps("evaluate (train.py)", times(12_000, 33), 132);
    let diff = Diff::of(slice::from_ref(&before), &[other]);
    assert_eq!((diff.steps.as_ref(), diff.step_above(0.0)), (None, None));
    assert_eq!(Diff::of(slice::from_ref(&before), &[run(5, &[])]).steps, None);
}

/// Check that a change of the median step is not significant if parts of a run differ as much, and unknown with few steps.
#[test]
fn steps_that_drift_differ_by_chance() {
    let drifting = |from: u64| run_of_steps("train", (0..100).map(|step| from + step * 100), 0);
    let diff = Diff::of(&[drifting(10_000)], &[drifting(11_000)]);
    let steps = diff.steps.as_ref().expect("steps");
    assert_eq!((steps.median.significant, steps.sentence(), diff.step_above(0.0)), (Some(false), None, None));

    let few = |us: u64| run_of_steps("train", (0..5).map(|_| us), 0);
    let diff = Diff::of(&[few(10_000)], &[few(20_000)]);
    let steps = diff.steps.as_ref().expect("steps");
    assert_eq!(steps.median.significant, None);
    assert!(steps.sentence().is_some_and(|text| text.ends_with("most in gemm (+10.0 ms)")), "{:?}", steps.sentence());
    assert!(diff.step_above(0.5).is_some());

    let same = Diff::of(&[few(10_000), few(10_000)], &[few(10_000), few(10_000)]);
    assert_eq!(same.steps.and_then(|steps| steps.sentence()), None);
}

/// Check that few samples more in each step are chance.
#[test]
fn few_samples_explain_no_step() {
    let side = |us: u64, samples| {
        let mut run = run_of_steps("train", (0..30).map(|_| us), 0);
        if let Some(steps) = &mut run.steps {
            steps.parts.insert("parse (data.py)".to_owned(), Amount { amount: 10 * samples * MS, count: samples });
            steps.parts.remove(BUSY);
        }
        run
    };
    let sentence = |samples| {
        let diff = Diff::of(&[side(10_000, 2)], &[side(20_000, samples)]);
        diff.steps.as_ref().and_then(StepsChange::sentence).expect("it is longer")
    };
    assert!(!sentence(5).contains("parse"), "{}", sentence(5));
    assert!(sentence(32).contains("GPU 0 was idle 10.0 ms longer: parse (data.py)"), "{}", sentence(32));
}
