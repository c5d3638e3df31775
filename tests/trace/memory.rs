//! Memory events, compared with the program's own account.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{
    Ended, Scene,
    calls::{Trace, account},
    program,
    scene::number,
};

/// The allocation in a memory event: kind, address, size.
fn allocation(event: &Value) -> (String, String, u64) {
    let text = |key: &str| event[key].as_str().unwrap_or_else(|| panic!("no {key}: {event}")).to_owned();
    (text("kind"), text("address"), number(event, "size"))
}

/// The kind of an allocation in the program's account, by the function called.
fn kind(name: &str) -> Option<&'static str> {
    Some(match name {
        "cudaMallocManaged" | "cuMemAllocManaged" => "managed",
        "cudaMallocHost" | "cuMemAllocHost_v2" | "cudaHostAlloc" | "cuMemHostAlloc" => "host",
        _ if name.starts_with("cudaMalloc") || name.starts_with("cuMemAlloc") => "device",
        _ => return None,
    })
}

/// Check that every successful allocation and free has an event with its address, size and kind, under the call that made it,
/// and that live memory adds up and agrees with the summary.
#[test]
fn allocations_and_frees_are_exact() {
    let scene = Scene::new();
    let command = format!("{} account account", program("traced"));
    Ended::of(&mut scene.trace("--sim -q -o t.jsonl -o t.wscope", &command)).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    let calls: BTreeMap<u64, &Value> = trace.of("userspace").map(|call| (number(call, "event_id"), call)).collect();

    let mut made = Vec::new();
    let mut freed = Vec::new();
    for call in account(&scene.read("account")).into_values().flatten() {
        let succeeded = call.ret == "cudaSuccess" || call.ret == "CUDA_SUCCESS";
        let pointer = call.args["ptr"].as_str().map(str::to_owned);
        match (kind(&call.name), pointer) {
            (Some(kind), Some(pointer)) if succeeded => {
                made.push((kind.to_owned(), pointer, call.args["size"].as_u64().expect("a size")));
            }
            (None, Some(pointer)) if succeeded && call.name.contains("Free") && pointer != "0x0" => freed.push(pointer),
            _ => {}
        }
    }
    assert!(made.len() >= 7 && freed.len() >= 7, "{made:?} {freed:?}");

    let mut live = BTreeMap::<String, (u64, u64)>::new();
    let mut sizes = BTreeMap::<(String, String), u64>::new();
    let (mut allocated_events, mut freed_events) = (Vec::new(), Vec::new());
    for event in trace.of("memory") {
        let call = calls[&number(event, "parent_id")];
        assert_eq!((&event["name"], &event["tid"]), (&event["op"], &call["tid"]), "{event} of {call}");
        assert!(call.get("nested").is_none() && call["error"].is_null(), "{event} of {call}");
        let (kind, address, bytes) = allocation(event);
        assert_eq!(number(call, "size"), bytes, "{event} of {call}");
        let (now, peak) = live.entry(kind.clone()).or_default();
        match event["op"].as_str() {
            Some("alloc") => {
                *now += bytes;
                sizes.insert((kind.clone(), address.clone()), bytes);
                allocated_events.push((kind, address, bytes));
            }
            Some("free") => {
                *now -= bytes;
                assert_eq!(sizes.remove(&(kind, address.clone())), Some(bytes), "{event}");
                freed_events.push(address);
            }
            _ => panic!("{event}"),
        }
        *peak = (*peak).max(*now);
        assert_eq!(number(event, "live_bytes"), *now, "{event}");
    }
    for list in [&mut made, &mut allocated_events] {
        list.sort();
    }
    freed.sort();
    freed_events.sort();
    assert_eq!((allocated_events, freed_events), (made, freed));
    for row in scene.report("t.wscope")["trace"]["memory"].as_array().expect("memory") {
        let (now, peak) = live[row["space"].as_str().expect("a name")];
        assert_eq!((number(row, "live_bytes"), number(row, "peak_bytes")), (now, peak), "{row}");
    }
}
