//! The memory map of one process, address by address: built by the running monitor, and requested and printed by
//! `monitor --map PID`.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::TcpStream,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use metrics::map::{Allocation, INCOMPLETE, Map};
use model::event::{ProcessId, StackId};

use super::{choice, daemon::Monitor, suspects};

/// The most rows of a map; beyond it the smallest allocations are left out.
const MOST: usize = 10_000;
/// How long `monitor --map` retries while source lines are being resolved.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The delay between retries.
const RETRY_DELAY: Duration = Duration::from_millis(600);
/// How long it waits for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

impl Monitor {
    /// Returns the live allocations of a process; `None` if it is not watched.
    pub fn map(&mut self, pid: u32) -> Option<Map> {
        let known = self.collector.sink.processes.iter().find(|(_, known)| known.pid == pid && !known.ended);
        let (id, comm, user) = known.map(|(id, known)| (*id, known.comm.clone(), known.user.clone()))?;
        let mut all = self.collector.recorder.allocations();
        all.retain(|allocation| ProcessId(allocation.image) == id);
        all.sort_by_key(|allocation| Reverse(allocation.bytes));
        let left_out = all.split_off(MOST.min(all.len()));
        all.sort_by_key(|allocation| allocation.address);

        let stack_of: BTreeMap<(u64, u64), StackId> = all
            .iter()
            .map(|allocation| {
                let bpf::calls::Allocation { image, stack, python, time, .. } = *allocation;
                let whole = self.collector.whole_stack(image, stack, python, time);
                ((stack, python), self.collector.sink.canonical(whole))
            })
            .collect();
        let stacks: BTreeSet<StackId> = stack_of.values().copied().collect();
        let state = &mut self.collector.sink;
        suspects::request(id, stacks.iter().copied(), state, &self.namer);
        let known = state.processes.get(&id)?;
        let named = |stack: &StackId| known.stack_names.get(stack).cloned();
        let now = bpf::now();
        let allocations = all.iter().map(|allocation| Allocation {
            address: allocation.address,
            bytes: allocation.bytes,
            space: choice::numbered(allocation.space),
            age: Duration::from_nanos(now.saturating_sub(allocation.time)),
            function: state.functions.get(&allocation.function).map_or_else(|| "".into(), |f| f.name.clone()),
            stack: stack_of.get(&(allocation.stack, allocation.python)).and_then(named).unwrap_or_else(|| Arc::new([])),
        });
        Some(Map {
            pid,
            comm,
            user,
            allocations: allocations.collect(),
            left_out: (left_out.len() as u64, left_out.iter().map(|allocation| allocation.bytes).sum()),
            // Including stacks that have not arrived from the kernel yet.
            incomplete: stacks.iter().any(|stack| stack.0 != 0 && named(stack).is_none()),
        })
    }
}

/// `monitor --map PID`: queries the monitor at this address and prints the reply.
pub fn print(pid: u32, json: bool, address: &str) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let text = loop {
        let answer = request(pid, json, address);
        let again = match &answer {
            Ok((200, text)) if json => {
                serde_json::from_str::<serde_json::Value>(text).is_ok_and(|map| map["incomplete"] == true)
            }
            Ok((200, text)) => text.trim_end().ends_with(INCOMPLETE),
            Ok((status, _)) => *status == 503,
            Err(_) => false,
        };
        if !again || begun.elapsed() > TIMEOUT {
            let (status, text) = answer?;
            if status != 200 {
                bail!("{}", text::names::printable(text.trim_end()));
            }
            break text;
        }
        std::thread::sleep(RETRY_DELAY);
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the status and the body of the reply.
fn request(pid: u32, json: bool, address: &str) -> anyhow::Result<(u16, String)> {
    let unreachable =
        || format!("there is no warpscope monitor at {address}: start one, or give its address with --metrics-addr");
    let mut stream = TcpStream::connect(address).with_context(unreachable)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT)).context("cannot set a timeout")?;
    let format = if json { "&format=json" } else { "" };
    write!(stream, "GET /map?pid={pid}{format} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
        .with_context(unreachable)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(|| format!("the monitor at {address} does not answer"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    let status = status.with_context(|| format!("the server at {address} is not a warpscope monitor"))?;
    Ok((status, body.to_owned()))
}
