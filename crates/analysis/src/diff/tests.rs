use std::slice;

use super::{
    run::{Amount, BUSY},
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
