use std::borrow::Cow;

use super::*;

const IMAGE: ProcessId = ProcessId(7);

/// A sink that keeps stacks.
#[derive(Default)]
struct Stacks(HashMap<StackId, Stack>);

impl Sink for Stacks {
    fn push(&mut self, event: &Event) {
        if let Event::Stack(stack) = event {
            self.0.insert(stack.id, stack.clone());
        }
    }

    fn stack(&self, id: StackId) -> Option<Cow<'_, Stack>> {
        self.0.get(&id).map(Cow::Borrowed)
    }
}

fn stack(id: u64, addresses: &[u64]) -> Event {
    let frames = addresses.iter().copied().map(Frame::User).collect();
    Event::Stack(Stack { id: StackId(id), process: IMAGE, time: 1, frames, end: StackEnd::Whole })
}

/// Functions at 100 (hands over) and 200 (works).
fn handovers() -> Handovers {
    let mut handovers = Handovers::new(false);
    let places = Places { hands: vec![100..105, 105..110], works: vec![200..205, 205..210], files: Vec::new() };
    handovers.images.insert(IMAGE, Rc::new(places));
    handovers
}

fn call(id: u32, tid: u32, cause: Cause) -> bpf::Handover {
    bpf::Handover { id, image: IMAGE.0, stack: 0, python: 0, time: 1, tid, cause }
}

fn addresses(sink: &Stacks, id: StackId) -> Vec<Option<u64>> {
    let address = |frame: &Frame| if let Frame::User(address) = frame { Some(*address) } else { None };
    sink.0[&id].frames.iter().map(address).collect()
}

/// Check that a worker's stack is below its cause's, and that other stacks are as they were: those of other threads,
/// and of the caller itself.
#[test]
fn workers_appear_under_their_cause() {
    let (mut handovers, mut sink) = (handovers(), Stacks::default());
    for (id, frames) in [(1, &[1, 2][..]), (2, &[9, 205, 8]), (3, &[9, 8]), (4, &[9, 205, 105, 2])] {
        sink.push(&stack(id, frames));
    }
    handovers.begun(&call(1, 10, Cause::None), StackId(1));
    let under = |handovers: &mut Handovers, sink: &Stacks, id, tid| {
        handovers.under(IMAGE, (StackId(id), StackId(id)), (Cause::Call(1), tid), 5, sink)
    };
    let joined = under(&mut handovers, &sink, 2, 11);
    assert_eq!(under(&mut handovers, &sink, 2, 12), joined);
    assert_eq!(under(&mut handovers, &sink, 3, 11), StackId(3), "another thread");
    assert_eq!(under(&mut handovers, &sink, 4, 10), StackId(4), "the caller");
    assert_eq!(handovers.under(IMAGE, (StackId(2), StackId(2)), (Cause::None, 11), 5, &sink), StackId(2));
    handovers.settle(&mut sink, &|_| None);
    assert_eq!(addresses(&sink, joined), [Some(9), Some(205), Some(8), None, Some(1), Some(2)]);
    assert_eq!(handovers.unknown(), 0);
}

/// Check that a call within such work appears under the outer call, and that a worker's own call does not hide it.
#[test]
fn calls_within_work_have_causes() {
    let (mut handovers, mut sink) = (handovers(), Stacks::default());
    for (id, frames) in [(1, &[1][..]), (2, &[3, 205, 8]), (3, &[9, 205, 7]), (4, &[9, 206, 105, 3, 205, 8])] {
        sink.push(&stack(id, frames));
    }
    handovers.begun(&call(1, 10, Cause::None), StackId(1));
    let inner = handovers.under(IMAGE, (StackId(2), StackId(2)), (Cause::Call(1), 11), 5, &sink);
    handovers.begun(&call(2, 11, Cause::Call(1)), inner);
    let other = handovers.under(IMAGE, (StackId(3), StackId(3)), (Cause::Call(2), 12), 6, &sink);
    let same = handovers.under(IMAGE, (StackId(4), StackId(4)), (Cause::Call(2), 11), 6, &sink);
    for _ in 0..2 {
        handovers.settle(&mut sink, &|_| None);
    }
    let outer = [Some(3), Some(205), Some(8), None, Some(1)];
    assert_eq!(addresses(&sink, other)[..4], [Some(9), Some(205), Some(7), None]);
    assert_eq!(addresses(&sink, other)[4..], outer);
    assert_eq!(addresses(&sink, same)[..3], [Some(9), Some(206), Some(105)]);
    assert_eq!(addresses(&sink, same)[3..], outer);
}

/// Check that stacks of the same parts in another order are different.
#[test]
fn chains_have_an_order() {
    let (a, b, c) = (StackId(11), StackId(23), StackId(5));
    let joint = |worker, caller| joint(Kind::HandedOver, worker, caller, None);
    assert_ne!(joint(a, joint(b, c)), joint(b, joint(a, c)));
    assert_ne!(joint(a, b), joint(b, a));
    assert_ne!(joint(a, b), super::joint(Kind::Started, a, b, None));
    assert_ne!(joint(a, b), super::joint(Kind::HandedOver, a, b, Some(a)));
}

/// Check that work of an unknown call is counted and stays where it is, also if its stack arrives later.
#[test]
fn unknown_calls_are_counted() {
    let (mut handovers, mut sink) = (handovers(), Stacks::default());
    sink.push(&stack(2, &[9, 205, 8]));
    sink.push(&stack(3, &[9, 8]));
    for (id, cause) in [(2, Cause::Unknown), (2, Cause::Call(77)), (3, Cause::Unknown), (4, Cause::Unknown)] {
        assert_eq!(handovers.under(IMAGE, (StackId(id), StackId(id)), (cause, 11), 5, &sink), StackId(id));
    }
    assert_eq!(handovers.unknown(), 2);
    sink.push(&stack(4, &[205]));
    handovers.settle(&mut sink, &|_| None);
    assert_eq!(handovers.unknown(), 3);
}

/// Check that a worker's stack waits for its cause's, and that memory is bounded.
#[test]
fn parts_arrive_in_any_order() {
    let (mut handovers, mut sink) = (handovers(), Stacks::default());
    handovers.begun(&call(1, 10, Cause::None), StackId(1));
    let joined = handovers.under(IMAGE, (StackId(2), StackId(2)), (Cause::Call(1), 11), 5, &sink);
    let idle = handovers.under(IMAGE, (StackId(3), StackId(3)), (Cause::Call(1), 11), 5, &sink);
    sink.push(&stack(2, &[9, 205]));
    sink.push(&stack(3, &[9]));
    handovers.settle(&mut sink, &|_| None);
    assert!(sink.stack(joined).is_none());
    sink.push(&stack(1, &[1]));
    handovers.settle(&mut sink, &|_| None);
    assert_eq!(addresses(&sink, joined), [Some(9), Some(205), None, Some(1)]);
    assert_eq!(addresses(&sink, idle), [Some(9)], "no work of the engine");
    for id in 2..MAX_CALLS as u32 + 10 {
        handovers.begun(&call(id, 10, Cause::None), StackId(1));
    }
    assert_eq!((handovers.calls.len(), handovers.order.len()), (MAX_CALLS, MAX_CALLS));
}

/// Check that a part of a call's work has the frame of the forward code that made it, within the boundary, once that stack has
/// arrived, and that a part of an unknown call has none.
#[test]
fn parts_of_work_name_their_forward_code() {
    let (mut handovers, mut sink) = (handovers(), Stacks::default());
    for (id, frames) in [(1, &[1, 2][..]), (2, &[9, 205, 8])] {
        sink.push(&stack(id, frames));
    }
    handovers.begun(&call(1, 10, Cause::None), StackId(1));
    handovers.part(&call(2, 0, Cause::Call(1)), StackId(5));
    handovers.part(&call(3, 0, Cause::Call(9)), StackId(5));
    assert!(handovers.knows(2) && !handovers.knows(3));
    let plain = handovers.under(IMAGE, (StackId(2), StackId(2)), (Cause::Call(1), 11), 5, &sink);
    let part = handovers.under(IMAGE, (StackId(2), StackId(2)), (Cause::Call(2), 11), 5, &sink);
    handovers.settle(&mut sink, &|_| None);
    assert!(sink.stack(plain).is_some() && sink.stack(part).is_none(), "its forward code has not arrived");
    sink.push(&stack(5, &[3, 4]));
    handovers.settle(&mut sink, &|_| None);
    assert_eq!(addresses(&sink, plain), [Some(9), Some(205), Some(8), None, Some(1), Some(2)]);
    assert_eq!(addresses(&sink, part), [Some(9), Some(205), Some(8), None, None, Some(1), Some(2)]);
}

/// Check that a forked image shares its parent's functions, and that ended images are removed in the end.
#[test]
fn forked_images_share_their_functions() {
    let mut handovers = handovers();
    for child in 0..10_000 {
        let child = ProcessId(100 + child);
        handovers.born(child, Some(IMAGE));
        assert!(Rc::ptr_eq(&handovers.images[&child], &handovers.images[&IMAGE]));
        handovers.died(child);
    }
    assert_eq!((handovers.images.len(), handovers.gone.len()), (MOST_GONE + 1, MOST_GONE));
}

/// Check that stacks whose parts never arrive do not accumulate, and that those which are not combined are counted.
#[test]
fn stacks_that_wait_are_bounded() {
    let (mut handovers, sink) = (handovers(), Stacks::default());
    handovers.begun(&call(1, 10, Cause::None), StackId(1));
    for id in 10..20 + MAX_WAITING as u64 {
        handovers.under(IMAGE, (StackId(id), StackId(id)), (Cause::Call(1), 11), 5, &sink);
    }
    assert_eq!((handovers.waiting.len(), handovers.unknown()), (MAX_WAITING, 10));
}
