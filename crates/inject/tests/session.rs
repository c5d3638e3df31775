//! Whole sessions: this binary runs itself again as the target, which uses the fake libcupti, and reads the other end
//! of a real socket.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it")]

mod fake;
mod peer;

use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use cupti::ids::{resource, result, sync_kind};
use inject::Found;
use peer::{Listener, ROLE, Received, Target, connect_until_closed};
use wire::Notice;

/// Not a test: this is the target process when this binary runs itself.
#[test]
fn target() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let path = std::env::var(wire::SOCKET_VARIABLE).unwrap();
    let socket = inject::connect(Path::new(&path).as_os_str().as_encoded_bytes()).expect("connects");
    let library = Found::Library(Box::new(fake::functions()), "/fake/libcupti.so.13".into());
    match role.as_str() {
        "launches" => {
            inject::start(socket, library, 13000);
            launch_all();
        }
        "graphs" => {
            inject::start(socket, library, 13000);
            assert!(fake::logged().contains(&"callback 3 13".into()));
            build_graphs();
        }
        "nodes" => {
            inject::start(socket, library, 13000);
            let logged = fake::logged();
            for callback in ["3 13", "3 20", "3 22", "3 10", "3 19", "1 643"] {
                assert!(logged.contains(&format!("callback {callback}")), "{callback}");
            }
            create_nodes();
        }
        "no nodes" => {
            fake::NODES_RESULT.store(result::NOT_INITIALIZED, SeqCst);
            inject::start(socket, library, 13000);
            fake::launch(1, 0, 0);
        }
        "late" => {
            fake::LATE.store(true, SeqCst);
            inject::start(socket, library, 13000);
            fake::launch(1, 0, 0);
        }
        "clock" => {
            fake::CLOCK_RESULT.store(7, SeqCst);
            inject::start(socket, library, 13000);
        }
        "subscriber" => {
            fake::SUBSCRIBE_RESULT.store(39, SeqCst);
            inject::start(socket, library, 13000);
            assert!(fake::logged().iter().all(|call| call == "subscribe"), "only the refused call is repeated");
        }
        "nothing" => assert_eq!(inject::start(socket, Found::Nothing("tried /usr/local".into()), 12080), None),
        "peer" => {
            inject::start(socket, library, 13000);
            fake::launch(1, 0, 0);
            println!("launched");
            fake::wait_for("unsubscribe");
            assert!(fake::logged().contains(&"disable 10".into()));
            // The program continues as before.
            fake::launch(2, 0, 0);
            let (buffer, _) = fake::request();
            fake::complete(buffer, fake::put_kernel(buffer, 2, fake::name("late"), 1, 2));
        }
        "fork" => fork(socket, library),
        "descriptors" => close_all(socket, library),
        "flood" => {
            inject::start(socket, library, 13000);
            flood(1_000_000);
            println!("flooded");
        }
        "flood and wait" => {
            inject::start(socket, library, 13000);
            flood(1_000_000);
            println!("flooded");
            std::io::stdin().read_line(&mut String::new()).unwrap();
        }
        other => panic!("no role {other}"),
    }
}

fn launch_all() {
    // SAFETY: errno belongs to this thread.
    unsafe { *libc::__errno_location() = 42 };
    fake::launch(1, 0, 0);
    fake::launch(2, 700, 700);
    // The runtime recovered from the driver's failure.
    fake::launch(3, 0, 201);
    fake::synchronize(7, 0);
    // A failed call does not count as a wait.
    fake::synchronize(9, 700);
    let (buffer, size) = fake::request();
    assert_eq!(size, 1 << 20);
    let (first, second) = (fake::name("_Z6matmulPf"), fake::name("_Z6matmulPf"));
    let mut at = fake::put_kernel(buffer, 1, first, 1000, 1500);
    // SAFETY: all of it is within the buffer's 1 MiB.
    unsafe {
        at += fake::put_kernel(buffer.add(at), 3, second, 2000, 2100);
        at += fake::put_kernel(buffer.add(at), 4, first, 0, 0);
        at += fake::put_kernel(buffer.add(at), 5, first, 9, 8);
        at += fake::put_kernel(buffer.add(at), 6, std::ptr::null(), 10, 20);
    }
    fake::DROPPED.store(3, SeqCst);
    fake::complete(buffer, at);
    // SAFETY: as above.
    assert_eq!(unsafe { *libc::__errno_location() }, 42);
    let (again, _) = fake::request();
    assert_eq!(again, buffer, "buffers are reused");
    let at = fake::put_kernel(again, 8, fake::name("_Z4lastv"), 5000, 0);
    fake::AT_EXIT_VALID.store(at, SeqCst);
    fake::AT_EXIT.store(again, SeqCst);
}

fn build_graphs() {
    fake::launch(1, 0, 0);
    // Captured; the second creates more than one node.
    fake::launch_around(2, (0, 0), fake::node_created);
    fake::launch_around(3, (0, 0), || (0..3).for_each(|_| fake::node_created()));
    // Not captured: nodes added explicitly, by another thread or by copying; the graph's own launch.
    fake::node_created();
    fake::launch(4, 0, 0);
    fake::launch_around(5, (0, 0), || std::thread::spawn(fake::node_created).join().unwrap());
    fake::launch_around(6, (0, 0), || fake::node(resource::GRAPH_NODE_CLONED));
    fake::graph_launch(7, fake::node_created);
    // A failed call counts as failed, even if it created a node.
    fake::launch_around(8, (901, 901), fake::node_created);
    fake::launch(9, 0, 0);
}

fn create_nodes() {
    use cupti::ids::{node_type::*, resource::*};
    let created = |node, kind| fake::graph_event(GRAPH_NODE_CREATED, (node, kind), 0, 0);
    // By launches, explicitly, and of types without work on the GPU.
    fake::launch_around(2, (0, 0), || created(0x1_0000_0000, KERNEL));
    fake::launch_around(3, (0, 0), || {
        created(0x1_0000_0001, MEMCPY);
        created(0x1_0000_0002, GRAPH);
    });
    created(0x1_0000_0003, MEMSET);
    created(0x1_0000_0004, 5);
    created(0x1_0000_0005, KERNEL);
    fake::instantiate(4, || {
        fake::graph_event(GRAPH_NODE_CLONED, (0x2_0000_0000, KERNEL), 0x1_0000_0000, 2);
        created(0x2_0000_0000, KERNEL);
        fake::graph_event(GRAPH_NODE_CLONED, (0x2_0000_0002, GRAPH), 0x1_0000_0002, 2);
    });
    created(0x3_0000_0000, KERNEL);
    fake::graph_event(GRAPH_NODE_UPDATED, (0x2_0000_0000, KERNEL), 0x3_0000_0000, 2);
    fake::graph_event(GRAPH_NODE_UPDATED, (0x2_0000_0000, KERNEL), 0, 2);
    fake::graph_event(GRAPH_DESTROY_STARTING, (0, 0), 0, 1);
    fake::graph_event(GRAPH_EXEC_DESTROY_STARTING, (0, 0), 0, 2);
}

fn fork(socket: i32, library: Found) {
    inject::start(socket, library, 13000);
    fake::launch(1, 0, 0);
    // SAFETY: the child calls only what a program may call there, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        fake::launch(2, 0, 0);
        fake::launch(3, 1, 1);
        let (buffer, _) = fake::request();
        fake::complete(buffer, fake::put_kernel(buffer, 2, std::ptr::null(), 1, 2));
        // The parent's connection must be closed here.
        let open = (3..1024).any(is_socket);
        // SAFETY: runs the exit handlers, which is what is being tested.
        unsafe { libc::exit(if open { 1 } else { 7 }) };
    }
    let before = Instant::now();
    let mut status = 0;
    // SAFETY: waits for the child just forked.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 7);
    // Waiting for a sender thread, which the child does not have, would take two seconds.
    assert!(before.elapsed() < Duration::from_secs(2), "the child's exit waited for a thread it does not have");
}

fn is_socket(descriptor: i32) -> bool {
    // SAFETY: queries a number that may or may not be a descriptor; all zeros is a value of the type.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        libc::fstat(descriptor, &mut status) == 0 && status.st_mode & libc::S_IFMT == libc::S_IFSOCK
    }
}

/// The program closes every descriptor, as daemons do, and its own socket gets the same number.
fn close_all(socket: i32, library: Found) {
    inject::start(socket, library, 13000);
    let ours = (3..1024).find(|d| is_socket(*d)).unwrap();
    let mut pair = [0; 2];
    // SAFETY: the number is given to one end of the new pair in one step.
    unsafe {
        assert_eq!(libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()), 0);
        assert_eq!(libc::dup2(pair[0], ours), ours);
    }
    fake::launch(1, 0, 0);
    fake::wait_for("unsubscribe");
    let mut byte = 0u8;
    // SAFETY: the byte is writable.
    let got = unsafe { libc::recv(pair[1], (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) };
    assert_eq!(got, -1, "nothing was written to the program's own socket");
    assert!(is_socket(ours), "the program's own socket is still open");
}

/// Delivers `kernels` kernels, a full buffer at a time.
fn flood(kernels: u32) {
    let name = fake::name("flood");
    let mut sent = 0;
    while sent < kernels {
        let (buffer, size) = fake::request();
        let mut at = 0;
        while sent < kernels && at + 216 <= size {
            // SAFETY: the record fits, as just checked.
            at += fake::put_kernel(unsafe { buffer.add(at) }, sent, name, 100, 101);
            sent += 1;
        }
        fake::complete(buffer, at);
    }
}

/// Check that processes that connect all the time, and fill the backlog, do not keep another one from connecting.
#[test]
fn a_crowd_at_the_listener_is_waited_out() {
    let listener = Listener::new();
    let path = listener.path();
    let (done, over) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| connect_until_closed(&path));
        }
        scope.spawn(move || {
            // Slower than the crowd connects.
            while over.recv_timeout(Duration::from_millis(2)).is_err() {
                drop(listener.accept());
            }
        });
        let connects = || inject::connect(path.as_os_str().as_encoded_bytes()).is_ok();
        let connected = (0..20).filter(|_| connects()).count();
        done.send(()).unwrap();
        assert_eq!(connected, 20);
    });
}

/// Launches, failures, valid and invalid records and the flush at exit all arrive, each counted once.
#[test]
fn a_whole_session_is_received() {
    let target = Target::run("launches");
    let pid = target.process.id();
    let received = target.read();
    target.ended_well();
    let hello = received.hello.unwrap();
    assert_eq!((hello.version, hello.pid, hello.cupti), (wire::VERSION, pid, 130_001));
    assert_eq!((hello.driver, hello.clock_offset), (13000, 0));
    assert_ne!(hello.session, 0);
    assert_eq!(received.notice(Notice::Library), "/fake/libcupti.so.13");
    assert_eq!(received.notice(Notice::CuptiFailed), "cuptiActivityEnable(22): CUPTI_ERROR_TEST (33)");
    let matmul = String::from("_Z6matmulPf");
    let expected = [(1, matmul.clone()), (3, matmul.clone()), (4, matmul), (6, String::new()), (8, "_Z4lastv".into())];
    assert_eq!(received.kernels, expected);
    let waits: Vec<_> = received.syncs.iter().map(|wait| (wait.correlation, wait.kind, wait.context)).collect();
    assert_eq!(waits, [(7, sync_kind::STREAM, 1)], "the driver's call within the runtime's is the same wait");
    assert!(received.syncs[0].start > 0 && received.syncs[0].end >= received.syncs[0].start);
    assert_eq!(received.failed, [wire::Failed { correlation: 2, code: 700 }]);
    let expected = wire::Totals {
        launches: 3,
        kernels: 6,
        kernel_ns: 610,
        syncs: 1,
        dropped_by_cupti: 3,
        zero_time: 1,
        unfinished: 1,
        invalid: 1,
        nameless: 1,
        failed: 1,
        ..Default::default()
    };
    assert_eq!(received.totals, expected);
    assert_eq!(received.ends, [pid]);
}

/// A launch that became a graph node is reported as captured; graphs built or launched in any other way are not.
#[test]
fn captured_launches_are_reported() {
    let target = Target::run("graphs");
    let received = target.read();
    target.ended_well();
    assert_eq!(received.captured, [2, 3]);
    assert_eq!(received.failed, [wire::Failed { correlation: 8, code: 901 }]);
    assert_eq!((received.totals.launches, received.totals.failed, received.totals.dropped_queue_full), (9, 1, 0));
}

/// Nodes of graphs are reported with the call that created them or a mark of their own, clones and updates with their
/// originals. What a graph's instantiation creates is not reported.
#[test]
fn graph_nodes_are_reported() {
    let target = Target::run("nodes");
    let received = target.read();
    target.ended_well();
    let created = [
        (0x1_0000_0000, 2, 0),
        (0x1_0000_0001, 3, 0),
        (0x1_0000_0003, 0, 1),
        (0x1_0000_0005, 1, 1),
        (0x3_0000_0000, 2, 1),
    ];
    assert_eq!(received.created, created);
    assert_eq!(received.copied, [(0x2_0000_0000, 0x1_0000_0000), (0x2_0000_0000, 0x3_0000_0000)]);
    assert_eq!((received.destroyed, received.captured), (vec![1, 2], vec![2, 3]));
}

/// A release without graph node callbacks causes no notice.
#[test]
fn graph_nodes_may_be_refused() {
    let target = Target::run("no nodes");
    let received = target.read();
    target.ended_well();
    let complaints = |text: &str| text.contains("cuptiEnableCallback");
    assert!(!received.notices.iter().any(|(_, text)| complaints(text)), "{:?}", received.notices);
    assert_eq!((received.totals.launches, received.ends.len()), (1, 1));
}

/// Work without a buffer at program exit is still flushed.
#[test]
fn the_exit_flush_needs_no_buffer() {
    let target = Target::run("late");
    let received = target.read();
    target.ended_well();
    assert_eq!(received.kernels, [(1, "late".into())]);
}

/// If CUPTI rejects the clock, its offset is measured instead.
#[test]
fn a_foreign_clock_is_measured() {
    let target = Target::run("clock");
    let received = target.read();
    target.ended_well();
    let offset = received.hello.unwrap().clock_offset.cast_signed();
    assert!((offset + 3_600_000_000_000).abs() < 50_000_000, "{offset}");
    assert!(received.notice(Notice::ForeignClock).contains("CUPTI_ERROR_TEST (7)"));
}

/// Another subscriber is named and not disturbed.
#[test]
fn another_subscriber_is_named() {
    let target = Target::run("subscriber");
    let received = target.read();
    target.ended_well();
    assert_eq!(received.notice(Notice::OtherSubscriber), "CUPTI for Kineto");
    let (from, to, client) = &received.pauses[&0];
    assert!(from < to && *to < u64::MAX && client == "CUPTI for Kineto" && received.pauses.len() == 1);
    assert_eq!(received.ends.len(), 1);
}

/// Without libcupti the session reports so and ends.
#[test]
fn a_missing_library_is_reported() {
    let target = Target::run("nothing");
    let received = target.read();
    target.ended_well();
    assert_eq!(received.hello.unwrap().cupti, 0);
    assert_eq!(received.notice(Notice::NoCupti), "tried /usr/local");
    assert_eq!(received.ends.len(), 1);
}

/// When warpscope disconnects, the library releases CUPTI and the program runs to its end undisturbed.
#[test]
fn the_target_outlives_its_peer() {
    let mut target = Target::run("peer");
    let mut received = Received::default();
    assert!(target.read_packet(&mut received));
    assert!(received.hello.is_some());
    target.wait_for_line("launched");
    target.socket = None;
    target.ended_well();
}

/// A forked child leaves the session to its parent.
#[test]
fn a_forked_child_is_silent() {
    let target = Target::run("fork");
    let pid = target.process.id();
    let received = target.read();
    target.ended_well();
    assert_eq!((received.totals.launches, received.totals.kernels, received.totals.failed), (1, 0, 0));
    assert_eq!(received.ends, [pid]);
}

/// A program that closes our descriptor and reuses its number finds its own file untouched.
#[test]
fn a_reused_descriptor_is_not_touched() {
    let target = Target::run("descriptors");
    let received = target.read();
    target.ended_well();
    assert_eq!(received.ends, []);
}

/// A reader that falls behind loses records, and every lost record is counted.
#[test]
fn losses_are_counted_exactly() {
    let mut target = Target::run("flood and wait");
    target.wait_for_line("flooded");
    let mut received = Received::default();
    while received.kernel_count + received.totals.dropped_queue_full < 1_000_000 {
        assert!(target.read_packet(&mut received));
    }
    assert!(received.totals.dropped_queue_full > 0);
    // Only now may the target exit: at exit it waits for a slow reader, but only up to the deadline.
    drop(target.process.stdin.take());
    while target.read_packet(&mut received) {}
    target.ended_well();
    assert_eq!(received.totals.kernels, 1_000_000);
    assert_eq!(received.kernel_count + received.totals.dropped_queue_full, 1_000_000);
    assert_eq!(received.ends.len(), 1);
}

/// A reader that is slow, but advances, gets everything, even if that takes longer than a stalled reader is given.
#[test]
fn a_slow_reader_gets_everything() {
    let mut target = Target::run("flood");
    target.wait_for_line("flooded");
    let mut received = Received::default();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(1_000));
        for _ in 0..200 {
            assert!(target.read_packet(&mut received), "the target has given up");
        }
    }
    while target.read_packet(&mut received) {}
    target.ended_well();
    assert_eq!(received.ends.len(), 1);
    assert_eq!(received.kernel_count + received.totals.dropped_queue_full, 1_000_000);
}

/// A reader that never reads delays the exit by no more than the deadline.
#[test]
fn a_stalled_reader_does_not_block_exit() {
    let mut target = Target::run("flood");
    target.wait_for_line("flooded");
    let since = Instant::now();
    assert!(target.process.wait().unwrap().success());
    let waited = since.elapsed();
    assert!(waited > Duration::from_millis(1500) && waited < Duration::from_secs(60), "{waited:?}");
}
