//! What the program registers: strings, domains, and names of categories.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, TryLockError};

use super::text::Name;
use crate::lifecycle;

/// The maximum number of strings, domains and categories.
const STRINGS: usize = 4096;
const DOMAINS: usize = 256;
const CATEGORIES: usize = 1024;
/// The maximum length of the name of a domain or category.
pub const SHORT: usize = 32;
/// How often a lock is tried. In a forked child it may stay locked forever.
const TRIES: usize = 1000;

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { strings: Vec::new(), domains: Vec::new(), categories: None });

/// Handles are indices, from 1.
struct Registry {
    strings: Vec<Box<[u8]>>,
    domains: Vec<Box<[u8]>>,
    categories: Option<Categories>,
}

/// Names by domain and number.
type Categories = HashMap<(usize, u32), Box<[u8]>>;

/// Locks something, but does not wait for long.
pub fn lock<T>(of: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..TRIES {
        match of.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            // SAFETY: no arguments.
            Err(TryLockError::WouldBlock) => unsafe { libc::sched_yield() },
        };
    }
    None
}

/// Copies a text; `None` without memory.
fn owned(text: &[u8]) -> Option<Box<[u8]>> {
    let mut owned = Vec::new();
    owned.try_reserve_exact(text.len()).ok()?;
    owned.extend_from_slice(text);
    Some(owned.into_boxed_slice())
}

/// Adds a text to a bounded list. Returns its handle; 0 if there is no room.
fn keep(list: impl FnOnce(&mut Registry) -> (&mut Vec<Box<[u8]>>, usize), text: &[u8]) -> usize {
    lifecycle::guarded(0, || {
        let Some(mut registry) = lock(&REGISTRY) else { return 0 };
        let (list, most) = list(&mut registry);
        if list.len() >= most || list.try_reserve(1).is_err() {
            return 0;
        }
        let Some(owned) = owned(text) else { return 0 };
        list.push(owned);
        list.len()
    })
}

/// Registers a string. Returns its handle; 0 if there are too many.
pub fn register(name: &Name) -> usize {
    keep(|registry| (&mut registry.strings, STRINGS), name.as_bytes())
}

/// Creates a domain. Returns its handle; 0, the default domain, if there are too many.
pub fn create(name: &Name) -> usize {
    let name = name.as_bytes();
    keep(|registry| (&mut registry.domains, DOMAINS), &name[..name.len().min(SHORT)])
}

/// Names a category of a domain.
pub fn name_category(domain: usize, category: u32, name: &Name) {
    lifecycle::guarded((), || {
        let Some(mut registry) = lock(&REGISTRY) else { return };
        let categories = registry.categories.get_or_insert_with(HashMap::new);
        let known = categories.contains_key(&(domain, category));
        if !known && (categories.len() >= CATEGORIES || categories.try_reserve(1).is_err()) {
            return;
        }
        let name = name.as_bytes();
        if let Some(name) = owned(&name[..name.len().min(SHORT)]) {
            categories.insert((domain, category), name);
        }
    });
}

/// Returns a registered string.
pub fn registered(handle: usize) -> Name {
    lifecycle::guarded(Name::NONE, || {
        let registry = lock(&REGISTRY);
        let text = registry.as_ref().and_then(|registry| registry.strings.get(handle.checked_sub(1)?));
        text.map_or(Name::NONE, |text| Name::of(text))
    })
}

/// Passes on the name of a domain and of a category, each empty if it has none.
pub fn with_names<T>(domain: usize, category: u32, then: impl FnOnce(&[u8], &[u8]) -> T) -> T {
    if domain == 0 && category == 0 {
        return then(b"", b"");
    }
    let registry = lock(&REGISTRY);
    let registry = registry.as_ref();
    let name = registry.and_then(|registry| registry.domains.get(domain.checked_sub(1)?)).map_or(&b""[..], |name| name);
    let category = registry.and_then(|registry| registry.categories.as_ref()?.get(&(domain, category)));
    then(name, category.map_or(&b""[..], |name| name))
}
