//! Attacks by an unprivileged local user ([`Attacker`]) on the recorder and the monitor: the attacker gains, sees and breaks
//! nothing.

mod attaching;
mod bombs;
mod capabilities;
mod files;
mod hoards;
mod http;
mod monitor_maps;
mod outputs;
mod sessions;
mod siege;
mod text;
mod workspace;

use crate::support::{Ended, attacker::Attacker};

/// Check that the attacker of these tests is unprivileged: it cannot access the protected file.
#[test]
fn attacker_is_unprivileged() {
    let attacker = Attacker::new();
    let secret = attacker.secret();
    let script =
        "id -u; grep CapEff /proc/self/status; cat \"$1\" || echo closed; chmod 666 \"$1\" || echo kept; touch own";
    let run = Ended::of(attacker.command("sh").args(["-c", script, "sh"]).arg(&secret)).exits(0);
    let uid = crate::support::attacker::id("-u");
    assert_eq!(run.out().lines().collect::<Vec<_>>(), [&uid, "CapEff:\t0000000000000000", "closed", "kept"]);
    assert!(attacker.owns("own"));
    attacker.secret_is_untouched();
}
