//! Redirects calls of libcupti's functions to others. A module reaches another module's function in two ways: through a slot
//! of its own, which the loader has filled with the function's address; and by name (`dlsym`), for which the loader reads the
//! address from the other module's symbol table. Both are words that can be changed at any time with one store.
//!
//! Only modules that name libcupti as a dependency are changed, and only slots that lead to the libcupti that this library
//! uses; and the symbols of that libcupti. What a client has looked up before leads to libcupti itself.
//!
//! No code is modified, no thread is stopped, and the old value is restored in the same way. Slots that the loader has
//! protected (RELRO) are made writable for the store. Slots that it has not filled yet (lazy binding, as in
//! libtorch_cpu.so) are recognised because they lead into their own module. Modules that are loaded later are found at
//! the next tick of the sender.

use core::ffi::CStr;
use core::sync::atomic::Ordering;

use super::modules::{self, Module};

/// A function of libcupti: its name, its address, and the function to call instead.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    pub name: &'static CStr,
    pub real: usize,
    pub wrapper: usize,
}

/// Where calls lead afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    Wrapper,
    Real,
}

impl Function {
    /// Where a word leads now, and where it will.
    fn change(&self, to: Destination) -> (usize, usize) {
        match to {
            Destination::Wrapper => (self.real, self.wrapper),
            Destination::Real => (self.wrapper, self.real),
        }
    }
}

/// Redirects the slots of all modules, and the symbols of libcupti; returns the number of words changed.
pub fn redirect(functions: &[Function], to: Destination) -> usize {
    let mut soname = None;
    let mut changed = 0;
    modules::each(&mut |module| {
        let is_cupti = functions.first().is_some_and(|function| module.contains(function.real));
        if is_cupti {
            changed += symbols(module, functions, to);
            // The name stays where it is: this library never closes libcupti.
            soname = module.dynamic().and_then(|dynamic| dynamic.soname());
        }
        is_cupti
    });
    if let Some(soname) = soname {
        modules::each(&mut |module| {
            changed += slots(module, soname, functions, to);
            false
        });
    }
    changed
}

fn symbols(module: &Module<'_>, functions: &[Function], to: Destination) -> usize {
    let Some(dynamic) = module.dynamic() else { return 0 };
    let mut changed = 0;
    for function in functions {
        let (from, target) = function.change(to);
        dynamic.exports(function.name, &mut |value| {
            let Some(word) = module.word(value) else { return };
            // The loader adds the module's base to it.
            let leads_here = word.load(Ordering::Acquire) == from.wrapping_sub(module.base);
            changed += usize::from(leads_here && module.store(word, target.wrapping_sub(module.base)));
        });
    }
    changed
}

fn slots(module: &Module<'_>, soname: &CStr, functions: &[Function], to: Destination) -> usize {
    let Some(dynamic) = module.dynamic().filter(|dynamic| dynamic.needs(soname)) else { return 0 };
    let mut changed = 0;
    dynamic.slots(&mut |name, slot| {
        let Some(function) = functions.iter().find(|function| function.name == name) else { return };
        let Some(word) = module.word(slot) else { return };
        let (from, target) = function.change(to);
        let value = word.load(Ordering::Acquire);
        // An unfilled slot leads to the module's own code, which calls the loader.
        let unfilled = to == Destination::Wrapper && module.contains(value);
        changed += usize::from((value == from || unfilled) && module.store(word, target));
    });
    changed
}
