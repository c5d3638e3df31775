use super::*;

const SESSION: SessionId = SessionId(3);

fn created(node: u64, mark: u32, own: bool) -> NodeCreated {
    NodeCreated { session: SESSION, node, mark, own }
}

fn marked(mark: u32, stack: u64) -> NodeStack {
    NodeStack { session: SESSION, mark, process: ProcessId(1), tid: 1, time: 1, stack: StackId(stack) }
}

fn copied(node: u64, original: u64, time: u64) -> NodeCopied {
    NodeCopied { session: SESSION, node, original, time }
}

fn node(graph: u64, number: u64) -> u64 {
    graph << 32 | number
}

/// Check that a node finds its stack, whether the stack or the node arrives first, and so do its clones.
#[test]
fn stacks_and_nodes_arrive_in_any_order() {
    let mut nodes = Nodes::default();
    nodes.marked(&marked(1, 71));
    nodes.created(&created(node(1, 0), 1, true), None);
    nodes.created(&created(node(1, 1), 2, true), None);
    nodes.created(&created(node(1, 2), 9, false), None);
    nodes.created(&created(node(1, 3), 10, false), Some(StackId(74)));
    for number in 0..4 {
        nodes.copied(&copied(node(2, number), node(1, number), 5));
    }
    nodes.marked(&marked(2, 72));
    let launch = Launch { session: SESSION, correlation: 9, stack: StackId(73), ..Launch::default() };
    nodes.launched(&launch);
    for graph in [1, 2] {
        for number in 0..4 {
            assert_eq!(nodes.stack(SESSION, node(graph, number), 9), Some(StackId(71 + number)));
        }
    }
    assert_eq!(nodes.stack(SessionId(4), node(1, 0), 9), None, "another process");
    assert_eq!((nodes.unknown(), nodes.dropped()), (1, 0));
}

/// Check that an update applies to later launches only, and to no other executable graph.
#[test]
fn updates_apply_from_their_time_on() {
    let mut nodes = Nodes::default();
    nodes.created(&created(node(1, 0), 1, false), Some(StackId(1)));
    nodes.created(&created(node(4, 0), 2, false), Some(StackId(2)));
    nodes.copied(&copied(node(2, 0), node(1, 0), 10));
    nodes.copied(&copied(node(3, 0), node(1, 0), 10));
    nodes.copied(&copied(node(2, 0), node(4, 0), 20));
    nodes.copied(&copied(node(2, 0), node(4, 0), 30));
    nodes.copied(&copied(node(2, 0), node(1, 0), 40));
    let at = |nodes: &mut Nodes, graph, time| nodes.stack(SESSION, node(graph, 0), time).map(|stack| stack.0);
    let seen: Vec<_> = [15, 20, 35, 39, 40].map(|time| at(&mut nodes, 2, time)).into();
    assert_eq!(seen, [Some(1), Some(2), Some(2), Some(2), Some(1)]);
    assert_eq!(at(&mut nodes, 3, 50), Some(1));
    assert_eq!(nodes.node(SESSION, node(2, 0)).map(|node| node.updates().count()), Some(2));
}

/// Check that a clone of a node that was never seen is unknown, and that the creation of a clone does not hide its
/// original.
#[test]
fn clones_have_the_stacks_of_their_originals() {
    let mut nodes = Nodes::default();
    nodes.copied(&copied(node(2, 0), node(1, 0), 10));
    assert_eq!(nodes.stack(SESSION, node(2, 0), 20), None);
    assert_eq!(nodes.stack(SESSION, node(2, 0), 20), None);
    assert_eq!(nodes.unknown(), 1);
    nodes.created(&created(node(1, 1), 1, false), Some(StackId(5)));
    nodes.copied(&copied(node(2, 1), node(1, 1), 10));
    nodes.created(&created(node(2, 1), 2, false), Some(StackId(6)));
    assert_eq!(nodes.stack(SESSION, node(2, 1), 20), Some(StackId(5)));
}

/// Check that memory is bounded: destroyed graphs make room, and what does not fit is counted. One session does not
/// use the room of the others.
#[test]
fn destroyed_graphs_make_room() {
    let mut nodes = Nodes::default();
    let per_graph = 1 << 10;
    let graphs = (MAX_NODES_OF_SESSION / per_graph) as u64;
    for graph in 1..=graphs + 10 {
        for number in 0..per_graph as u64 {
            nodes.created(&created(node(graph, number), 1, false), Some(StackId(graph)));
        }
        nodes.destroyed(&GraphDestroyed { session: SESSION, graph: graph as u32 });
    }
    assert_eq!((nodes.count, nodes.dropped()), (MAX_NODES_OF_SESSION, 0));
    assert_eq!(nodes.stack(SESSION, node(1, 0), 1), None, "the oldest went first");
    assert_eq!(nodes.stack(SESSION, node(11, 0), 1), Some(StackId(11)), "kept until its place is needed");

    let mut nodes = Nodes::default();
    for number in 0..MAX_NODES_OF_SESSION as u64 + 5 {
        nodes.created(&created(node(1, number), 1, false), Some(StackId(1)));
    }
    assert_eq!((nodes.count, nodes.dropped()), (MAX_NODES_OF_SESSION, 5));
    nodes.created(&NodeCreated { session: SessionId(4), ..created(node(1, 0), 1, false) }, Some(StackId(2)));
    assert_eq!(nodes.stack(SessionId(4), node(1, 0), 1), Some(StackId(2)));
    for mark in 0..MAX_WAITING as u32 + 7 {
        nodes.marked(&marked(mark, 1));
    }
    assert_eq!((nodes.marks.stacks.len(), nodes.dropped()), (MAX_WAITING, 12));
}
