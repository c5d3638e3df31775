//! The memory of one process, address by address: made by the monitor that runs, and printed by `monitor --map PID`, which
//! asks it.

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

/// Rows of a map; beyond them the smallest are left out.
const MOST: usize = 10_000;
/// How long `monitor --map` asks again for lines that are being looked up.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it waits before it asks again.
const BETWEEN: Duration = Duration::from_millis(600);
/// How long it waits for an answer.
const TO_ANSWER: Duration = Duration::from_secs(10);

impl Monitor {
    /// The live allocations of a process; `None` if it is not watched.
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
        suspects::ask(id, stacks.iter().copied(), state, &self.namer);
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
            // Also those that are still on their way from the kernel.
            incomplete: stacks.iter().any(|stack| stack.0 != 0 && named(stack).is_none()),
        })
    }
}

/// `monitor --map PID`: asks the monitor at this address, and prints.
pub fn print(pid: u32, address: &str) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let text = loop {
        let answer = ask(pid, address);
        let again = match &answer {
            Ok((200, text)) => text.trim_end().ends_with(INCOMPLETE),
            Ok((status, _)) => *status == 503,
            Err(_) => false,
        };
        if !again || begun.elapsed() > PATIENCE {
            let (status, text) = answer?;
            if status != 200 {
                bail!("{}", text::names::printable(text.trim_end()));
            }
            break text;
        }
        std::thread::sleep(BETWEEN);
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// The status and the text of an answer.
fn ask(pid: u32, address: &str) -> anyhow::Result<(u16, String)> {
    let unreachable =
        || format!("there is no warpscope monitor at {address}: start one, or say where it is with --metrics-addr");
    let mut stream = TcpStream::connect(address).with_context(unreachable)?;
    stream.set_read_timeout(Some(TO_ANSWER)).context("cannot set a time limit")?;
    write!(stream, "GET /map?pid={pid} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
        .with_context(unreachable)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(|| format!("the monitor at {address} does not answer"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    let status = status.with_context(|| format!("what answers at {address} is not a warpscope monitor"))?;
    Ok((status, body.to_owned()))
}
