//! Redirects the calls of libcupti by the program's modules while there is a session.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::redirect::{Destination, redirect};
use super::{modules, other, standing, wrappers};
use crate::library::Cupti;

/// Whether calls are redirected, and how many modules had been loaded then.
static WATCHING: AtomicBool = AtomicBool::new(false);
static MODULES: AtomicU64 = AtomicU64::new(0);

/// Redirects the calls of all modules; of those loaded since, if it has done so before.
pub fn watch(cupti: &Cupti) {
    let modules = modules::loaded();
    let new = MODULES.swap(modules, Ordering::Relaxed) != modules;
    if !WATCHING.swap(true, Ordering::Relaxed) || new {
        redirect(&wrappers::functions(cupti), Destination::Wrapper);
    }
}

/// The session has ended. Restores the calls, unless a client is subscribed: a later session can borrow its subscription
/// only if nothing was missed.
pub fn end(cupti: Option<&Cupti>) {
    standing::end();
    let Some(cupti) = cupti.filter(|_| !other::is_subscribed()) else { return };
    if WATCHING.swap(false, Ordering::Relaxed) {
        redirect(&wrappers::functions(cupti), Destination::Real);
    }
}
