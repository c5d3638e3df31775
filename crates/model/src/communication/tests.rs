use super::{join::join, *};
use crate::event::{CommunicatorCall, NO_PEER, Operation as What, StackId};

/// What happened, for [`join()`].
#[derive(Default)]
struct Story {
    communicators: Vec<event::Communicator>,
    parts: Parts,
    kernels: u64,
    clocks: Clocks,
}

impl Story {
    /// A communicator of processes: the first one is member 0.
    fn communicator(&mut self, id: u64, sessions: &[u32]) {
        for (rank, session) in (0..).zip(sessions) {
            let (session, size) = (SessionId(*session), sessions.len() as u32);
            self.communicators.push(event::Communicator { session, id, parent: 0, size, rank });
        }
    }

    fn call(&mut self, session: u32, time: u64, (communicator, number): (u64, u64), operation: What) {
        self.call_of(session, time, (communicator, number), operation, 1024, NO_PEER);
    }

    fn call_of(
        &mut self,
        session: u32,
        time: u64,
        (communicator, number): (u64, u64),
        operation: What,
        bytes: u64,
        peer: u32,
    ) {
        let session = SessionId(session);
        self.parts.call(&CommunicatorCall { session, communicator, operation, number, bytes, peer, tid: 1, time });
    }

    fn kernel(&mut self, session: u32, launched: u64, start: u64, end: u64) {
        self.kernels += 1;
        let (session, stack) = (SessionId(session), StackId(launched));
        self.parts.kernel(Kernel { session, tid: 1, launched, stack, start, end });
    }

    fn join(mut self) -> Communication {
        join(&mut self.parts, &self.communicators, self.kernels, self.clocks)
    }
}

/// Returns the waits of the members of an operation, with whom they waited for.
fn waits(all: &Communication, operation: usize) -> Vec<(u32, u64, u32)> {
    let members = all.members_of(&all.operations[operation]);
    let row = |m: &Member| (m.session.0, m.waited, members[m.waited_for as usize].session.0);
    members.iter().map(row).collect()
}

/// ```text
///   session 0   call 10   20 ####====== 50
///   session 1   call 12      24 ##===== 50
///   session 2   call 14          30 === 50
/// ```
#[test]
fn members_wait_for_the_last_one() {
    let mut story = Story::default();
    story.communicator(7, &[0, 1, 2]);
    for (session, start) in [(0, 20), (1, 24), (2, 30)] {
        story.call(session, 10 + u64::from(session), (7, 0), What::AllReduce);
        story.kernel(session, 15, start, 50);
    }
    let all = story.join();
    assert_eq!((all.operations.len(), all.unidentified, all.incomplete), (1, 0, 0));
    assert_eq!(waits(&all, 0), [(0, 10, 2), (1, 6, 2), (2, 0, 2)]);
    assert_eq!(Operation::transfer(all.members_of(&all.operations[0])), 20);
    assert_eq!((all.operations[0].operation, all.operations[0].bytes), (What::AllReduce, 1024));
}

/// Check that members of sub-groups that communicate unequally often are joined by communicator, not by order.
#[test]
fn sub_groups_are_distinguished() {
    let mut story = Story::default();
    story.communicator(1, &[0, 1, 2, 3]);
    story.communicator(2, &[0, 1]);
    story.communicator(3, &[2, 3]);
    for session in 0..4 {
        let (group, count) = if session < 2 { (2, 1) } else { (3, 3) };
        let mut time = 100;
        for number in 0..count {
            story.call(session, time, (group, number), What::AllReduce);
            story.kernel(session, time + 1, time + 10 + u64::from(session), time + 50);
            time += 100;
        }
        story.call(session, time, (1, 0), What::AllReduce);
        story.kernel(session, time + 1, 1000 + u64::from(session), 1100);
    }
    let all = story.join();
    assert_eq!((all.operations.len(), all.unidentified, all.incomplete), (1 + 3 + 1, 0, 0));
    let of = |id: u64| all.operations.iter().filter(|operation| operation.communicator == id).count();
    assert_eq!((of(1), of(2), of(3)), (1, 1, 3));
    assert_eq!(waits(&all, 4), [(0, 3, 3), (1, 2, 3), (2, 1, 3), (3, 0, 3)]);
    let others = |at: usize| waits(&all, at).iter().map(|(_, waited, _)| *waited).collect::<Vec<_>>();
    assert!((0..4).all(|at| others(at) == [1, 0]));
}

/// Check that a group is one operation, whose kernels belong together, and that calls without work belong to no kernel.
#[test]
fn groups_are_one_operation() {
    let mut story = Story::default();
    story.communicator(7, &[0, 1]);
    for session in 0..2 {
        let late = u64::from(session) * 5;
        story.call_of(session, 8, (7, 0), What::AllReduce, 0, NO_PEER);
        story.call(session, 10, (7, 1), What::AllReduce);
        story.call(session, 11, (7, 2), What::AllGather);
        story.kernel(session, 20, 30 + late, 40);
        story.kernel(session, 21, 41 + late, 60);
        story.call(session, 70, (7, 3), What::Broadcast);
        story.kernel(session, 71, 80 + late, 90);
    }
    let all = story.join();
    let found: Vec<_> = all.operations.iter().map(|o| (o.operation, o.number, o.bytes)).collect();
    assert_eq!(found, [(What::Other, 1, 2048), (What::Broadcast, 3, 1024)]);
    assert_eq!((waits(&all, 0)[0].1, waits(&all, 1)[0].1), (5, 5));
    assert_eq!((all.unidentified, all.incomplete), (0, 0));
}

/// Check that sends wait for the receives of their peers, and for nobody else.
///
/// ```text
///   session 0   10 send to 1 ####== 30
///   session 1           14 recv ## 30     40 send to 2 ====== 60
///   session 2                         35 recv ########### 60
/// ```
#[test]
fn sends_belong_to_receives() {
    let mut story = Story::default();
    story.communicator(7, &[0, 1, 2]);
    for (session, time, what, peer, kernel) in [
        (0, 1, What::Send, 1, (10, 30)),
        (1, 2, What::Receive, 0, (14, 30)),
        (1, 20, What::Send, 2, (40, 60)),
        (2, 3, What::Receive, 1, (35, 60)),
    ] {
        story.call_of(session, time, (7, 0), what, 64, peer);
        story.kernel(session, time + 1, kernel.0, kernel.1);
    }
    let all = story.join();
    assert_eq!((all.operations.len(), all.unidentified, all.incomplete), (2, 0, 0));
    assert_eq!(waits(&all, 0), [(0, 4, 1), (1, 0, 1)]);
    assert_eq!(waits(&all, 1), [(1, 0, 1), (2, 5, 1)]);
    assert!(all.operations.iter().all(|operation| operation.operation == What::SendReceive));
    let from = |at: usize| all.members_of(&all.operations[at]).iter().map(|member| member.from).collect::<Vec<_>>();
    assert_eq!([from(0), from(1)], [[0, 0], [0, 0]]);
}

/// Check that nothing is said about an operation of which a member is missing, and that it is counted.
#[test]
fn missing_members_are_counted() {
    let mut story = Story::default();
    story.communicator(7, &[0, 1, 2]);
    for session in 0..3 {
        story.call(session, 10, (7, 0), What::AllReduce);
        if session < 2 {
            story.kernel(session, 15, 20, 50);
        }
    }
    // A kernel before the first call, and one of a process without communicators.
    story.kernel(0, 5, 6, 7);
    story.kernel(9, 5, 6, 7);
    let all = story.join();
    assert_eq!((all.kernels, all.operations.len(), all.unidentified, all.incomplete), (4, 0, 2, 2));
}

/// Check that a member that calls nothing any more is named, and nobody who only was not recorded or is beyond the window.
#[test]
fn members_that_stop_calling_are_named() {
    let mut story = Story::default();
    story.communicator(7, &[0, 1, 2]);
    story.communicators.push(event::Communicator { session: SessionId(0), id: 8, parent: 0, size: 2, rank: 0 });
    for session in 0..3 {
        // The first call of member 0 is not recorded.
        for number in u64::from(session == 0)..if session == 1 { 2 } else { 4 } {
            let time = 100 * number + 10 + u64::from(session);
            story.call(session, time, (7, number), What::AllReduce);
            story.kernel(session, time + 5, time + 20, time + 50);
        }
    }
    story.call(0, 500, (8, 0), What::AllReduce);
    let all = story.join();
    assert_eq!(all.operations.len(), 1);
    let (present, absent) = (vec![SessionId(0), SessionId(2)], vec![SessionId(1)]);
    let last = Some((1, Some(StackId(116))));
    let operation = What::AllReduce;
    assert_eq!(all.missing, [Missing { communicator: 7, number: 2, operation, time: 210, present, absent, last }]);
}

/// Check that members that call different operations are reported, and that their communicator is not joined any further.
#[test]
fn mismatches_stop_the_join() {
    let mut story = Story::default();
    story.communicator(7, &[0, 1]);
    story.communicator(8, &[0, 1]);
    for session in 0..2 {
        for number in 0..4 {
            let what = if (session, number) == (1, 2) { What::AllGather } else { What::AllReduce };
            for communicator in [7, 8] {
                let what = if communicator == 7 { what } else { What::AllReduce };
                let time = number * 100 + communicator * 2;
                story.call(session, time, (communicator, number), what);
                story.kernel(session, time + 1, time + 10, time + 20);
            }
        }
    }
    let all = story.join();
    let called = [(0, What::AllReduce), (1, What::AllGather)].map(|(session, operation)| Called {
        session: SessionId(session),
        operation,
        bytes: 1024,
        stack: Some(StackId(215)),
    });
    let called = called.to_vec();
    assert_eq!(all.mismatches, [Mismatch { communicator: 7, number: 2, called }]);
    assert_eq!((all.operations.len(), all.incomplete), (2 + 4, 4));
}

/// Check that a group of several communicators, and a process with several members of one, are not guessed.
#[test]
fn what_is_ambiguous_is_not_identified() {
    let mut story = Story::default();
    story.communicator(7, &[0, 1]);
    story.communicator(8, &[0, 1]);
    story.communicator(9, &[0, 0]);
    for session in 0..2 {
        story.call(session, 10, (7, 0), What::AllReduce);
        story.call(session, 11, (8, 0), What::AllReduce);
        story.kernel(session, 15, 20, 50);
        story.kernel(session, 16, 20, 50);
    }
    story.call(0, 60, (9, 0), What::AllReduce);
    story.kernel(0, 61, 70, 80);
    let all = story.join();
    assert_eq!((all.kernels, all.operations.len(), all.unidentified), (5, 0, 5));
}
