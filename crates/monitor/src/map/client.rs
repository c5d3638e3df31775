//! `monitor --map PID`: requests the map from the running monitor, and prints it.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use super::INCOMPLETE;

/// How long to retry while source lines are being resolved.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The delay between retries.
const RETRY_DELAY: Duration = Duration::from_millis(600);
/// How long to wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// `monitor --map PID`: queries the monitor at this address and prints the reply.
pub fn print(pid: u32, json: bool, address: &str) -> anyhow::Result<()> {
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
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
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
