//! Redirects the imports of the program's modules while there is a session.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::imports::{self, To};
use super::{known, standing, wrappers};
use crate::library::Cupti;

/// Whether imports are redirected, and how many modules had been loaded then.
static WATCHING: AtomicBool = AtomicBool::new(false);
static MODULES: AtomicU64 = AtomicU64::new(0);

/// Redirects the imports of all modules; of those loaded since, if it has done so before.
pub fn watch(cupti: &Cupti) {
    let modules = imports::modules_loaded();
    let new = MODULES.swap(modules, Ordering::Relaxed) != modules;
    if !WATCHING.swap(true, Ordering::Relaxed) || new {
        imports::redirect(&wrappers::imports(cupti), To::Wrapper);
    }
}

/// The session has ended. Restores the imports, unless a client is subscribed: a later session can borrow its subscription
/// only if nothing was missed.
pub fn end(cupti: Option<&Cupti>) {
    standing::end();
    let Some(cupti) = cupti.filter(|_| !known::is_subscribed()) else { return };
    if WATCHING.swap(false, Ordering::Relaxed) {
        imports::redirect(&wrappers::imports(cupti), To::Real);
    }
}
