//! The exported entry points of libcuda: stubs with the first instructions of the real library, then the Rust body.

/// Declares exports of libcuda, one per line: `callback id, name(arguments) => body`, the body an `Outcome`. A kernel's
/// name for the callbacks can be given in brackets before the arrow. Callback id 0: the call has no callbacks.
///
/// The stub is the same as the real driver's: compare, jump if the driver is closed, jump through a slot. A probe on
/// its second instruction (offset 10) is cheap.
macro_rules! driver {
    ($($cbid:literal $name:ident($($arg:ident: $type:ty),*) $([$symbol:expr])? => $body:expr;)*) => {$(
        const _: () = {
            #[repr(C)]
            #[allow(dead_code)]
            struct Params { $($arg: $type),* }

            extern "C" fn body($($arg: $type),*) -> u32 {
                let params = Params { $($arg),* };
                let symbol = $crate::stub::symbol!($($symbol)?);
                let name = $crate::stub::c_name!($name);
                $crate::gpu::call::driver($cbid, name, (&raw const params).cast(), symbol, || $body)
            }

            $crate::cuda::stub::driver_stub!($name, extern "C" fn($($type),*) -> u32, body);
        };
    )*};
}

/// Declares one export of libcuda whose body is a plain function, without callbacks.
macro_rules! driver_stub {
    ($name:ident, $type:ty, $body:ident) => {
        static SLOT: $type = $body;

        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "cmp dword ptr [rip + {gate}], {closed}",
                "je 2f",
                "jmp qword ptr [rip + {slot}]",
                "2:",
                "mov eax, {deinitialized}",
                "ret",
                ".cfi_endproc",
                gate = sym $crate::gpu::init::GATE,
                closed = const $crate::gpu::init::CLOSED,
                slot = sym SLOT,
                deinitialized = const $crate::gpu::status::DEINITIALIZED,
            )
        }
    };
}

pub(crate) use {driver, driver_stub};
