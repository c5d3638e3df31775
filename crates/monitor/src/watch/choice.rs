//! Selects the functions to watch, and what to gather at their calls, from the user's options.

use bpf::calls::{Gather, Memory};
use collect::calls::libraries::Choice;
use cuda::calls::{Role, Space};

use crate::{config::Options, snapshot};

/// Returns what to gather at the calls of a function.
pub fn choice(options: &Options) -> Choice {
    let Options { memleak, cudatrace, bandwidth, errors, stacks, .. } = *options;
    Box::new(move |name, gather| {
        // Every probe interrupts the program: the driver's launch within it is enough.
        if name.starts_with("__cudaLaunchKernel") {
            return None;
        }
        let role = cuda::call(name).map_or(Role::Other, |call| call.role);
        // Calls that select or destroy a context determine which memory is released with it.
        let memory = memleak && gather.memory != Memory::None;
        let moves = bandwidth && matches!(role, Role::Copy | Role::Set);
        let launches = cudatrace && (matches!(role, Role::Launch | Role::GraphLaunch) || gather.names_kernels);
        // Every probe interrupts the program, and errors of query functions are of no interest.
        let fails = errors && !cuda::calls::is_query(name);
        if !(memory || moves || launches || fails) {
            return None;
        }
        let kind = cuda::call(name).and_then(|call| call.space);
        let space = kind.and_then(space);
        let counts = memory && (kind.is_none() || space.is_some());
        Some(Gather {
            memory: if counts { gather.memory } else { Memory::None },
            space: space.map_or(0, |space| space as u8),
            stack: stacks && counts && gather.memory == Memory::Alloc,
            launches: gather.launches.filter(|_| launches),
            names_kernels: gather.names_kernels && launches,
            ..gather
        })
    })
}

/// Returns the space that memory is counted in; `None` if it is not separate memory.
fn space(space: Space) -> Option<snapshot::Space> {
    match space {
        Space::Device | Space::Array | Space::Physical => Some(snapshot::Space::Device),
        Space::Managed => Some(snapshot::Space::Managed),
        Space::Host | Space::Registered => Some(snapshot::Space::Host),
        Space::Mapped | Space::Reserved | Space::Imported => None,
    }
}

/// Returns the space with this number.
pub fn numbered(number: u32) -> snapshot::Space {
    match number {
        1 => snapshot::Space::Managed,
        2 => snapshot::Space::Host,
        _ => snapshot::Space::Device,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use collect::calls::functions::gather;

    /// Check that each option watches only what it needs, and that query functions are not watched.
    #[test]
    fn each_option_watches_only_what_it_needs() {
        let chosen = |settings: Settings, name: &str| choice(&settings.options().expect("good"))(name, gather(name));
        let memory = || Settings { memleak: Some(true), ..Settings::default() };
        let malloc = chosen(memory(), "cudaMallocManaged").expect("watched");
        assert!(malloc.stack && malloc.memory == Memory::Alloc);
        assert_eq!(numbered(malloc.space.into()), snapshot::Space::Managed);
        assert!(chosen(memory(), "cuMemFree_v2").is_some_and(|free| !free.stack && free.memory == Memory::Free));
        assert!(chosen(memory(), "cudaLaunchKernel").is_none());
        assert!(chosen(memory(), "cudaDeviceReset").is_some_and(|reset| reset.memory == Memory::ResetDevice));
        assert!(chosen(memory(), "cuMemMap").is_some_and(|map| map.memory == Memory::None && !map.stack));
        let launches = || Settings { cudatrace: Some(true), ..Settings::default() };
        assert!(chosen(launches(), "cuModuleGetFunction").is_some_and(|gather| gather.names_kernels));
        assert!(chosen(launches(), "cudaMalloc").is_none() && chosen(launches(), "__cudaLaunchKernel").is_none());
        let errors = || Settings { errors: Some(true), ..Settings::default() };
        assert!(chosen(errors(), "cudaMalloc").is_some_and(|malloc| malloc.memory == Memory::None && !malloc.stack));
        assert!(chosen(Settings::default(), "cudaDeviceSynchronize").is_some());
        assert!(chosen(errors(), "cuEventRecord").is_some() && chosen(errors(), "cuModuleLoadData").is_some());
        assert!(chosen(Settings::default(), "cudaGetDevice").is_none());
        assert!(chosen(Settings::default(), "cuKernelGetFunction").is_some_and(|gather| gather.names_kernels));
        assert!(chosen(Settings::default(), "cuMemAddressReserve").is_some_and(|g| g.memory == Memory::None));
    }

    /// Check that space numbers passed to the kernel map back to the same spaces.
    #[test]
    fn space_numbers_round_trip() {
        for space in [snapshot::Space::Device, snapshot::Space::Managed, snapshot::Space::Host] {
            assert_eq!(numbered(space as u32), space);
        }
    }
}
