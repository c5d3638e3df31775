//! What the commands keep once they have started: docs/privileges.md has the table.

use collect::command::{priority, user::User};
use sandbox::{Keep, capability, keep};

/// To follow processes of every user, to read their files and memory, and to attach probes to what they load later. Signals end
/// processes that read files, and are forwarded to the command.
const FOLLOW: [u32; 7] = [
    capability::BPF,
    capability::PERFMON,
    capability::SYS_PTRACE,
    capability::DAC_READ_SEARCH,
    capability::CHECKPOINT_RESTORE,
    capability::SYSLOG,
    capability::KILL,
];
/// To write outputs, and to run the disassembler, as the user who called sudo.
const AS_USER: [u32; 2] = [capability::SETUID, capability::SETGID];
/// To write outputs to any directory, as root can.
const AS_ROOT: [u32; 2] = [capability::DAC_OVERRIDE, capability::FOWNER];

/// Gives up what `record` and `trace` do not need once the command runs. `executes`: a disassembler is started at the end;
/// `attaches`: a library is loaded into running processes. Returns notes on what the kernel refused.
pub fn keep_for_recording(executes: bool, attaches: bool) -> Vec<String> {
    // This needs CAP_SYS_NICE, which is given up.
    priority::raise();
    let outputs = if User::behind_sudo().is_some() { AS_USER } else { AS_ROOT };
    let capabilities = FOLLOW.into_iter().chain(outputs).collect();
    reduce(&Keep { capabilities, executes, attaches })
}

/// Gives up what `monitor` does not need once it runs. Returns notes on what the kernel refused.
pub fn keep_for_monitor() -> Vec<String> {
    reduce(&Keep { capabilities: FOLLOW.to_vec(), ..Keep::default() })
}

fn reduce(what: &Keep) -> Vec<String> {
    let refused = keep(what).err().map(|why| format!("warpscope keeps more privileges than it needs: {why}"));
    refused.into_iter().chain(sandbox::missing()).collect()
}
