//! The recording with counted events.

use model::event::{Counter, CounterId, CounterPoint, Event, Hits, PointId, ProcessId, StackId, Unit};

fn hits(point: u32, process: ProcessId, stack: StackId, count: u64, weight: u64) -> Event {
    Event::Hits(Hits {
        point: PointId(point),
        process,
        stack,
        count,
        weight,
        outside: u64::from(weight == 0 && point == 0),
    })
}

/// Returns the recording of the other tests, with one weighted and one unweighted event.
pub fn events() -> Vec<Event> {
    let mut events = super::events();
    let stacks: Vec<(ProcessId, StackId)> = events
        .iter()
        .filter_map(|event| if let Event::Stack(stack) = event { Some((stack.process, stack.id)) } else { None })
        .collect();
    let ((first, one), (second, two)) = (stacks[0], stacks[1]);
    let counter = |id, name: &str, source: &str, weight: &str, unit| {
        let (name, source, weight) = (name.into(), source.into(), weight.into());
        Event::Counter(Counter { id: CounterId(id), name, source, weight, unit })
    };
    let point = |id, counter, function: &str| {
        let (function, file) = (function.into(), "/usr/lib/libc.so.6".into());
        Event::CounterPoint(CounterPoint { id: PointId(id), counter: CounterId(counter), function, file })
    };
    let end = events.pop().expect("an end");
    events.extend([
        counter(0, "malloc", "uprobe:libc.so.6:malloc,weight=arg1,unit=bytes", "arg1", Unit::Bytes),
        counter(1, "syscalls:sys_enter_write", "tracepoint:syscalls:sys_enter_write", "", Unit::Number),
        point(0, 0, "malloc"),
        point(1, 1, ""),
        hits(0, first, one, 3, 4096),
        hits(0, second, two, 2, 100),
        hits(1, first, one, 7, 0),
        hits(0, first, one, 1, 0),
        end,
    ]);
    events
}
