//! What the fuzz targets share: each is a program for libFuzzer, and a function that the tests run on its seeds.

#[cfg(feature = "libfuzzer")]
pub use libfuzzer_sys::{self, Corpus};

/// Whether libFuzzer keeps an input.
#[cfg(not(feature = "libfuzzer"))]
#[derive(Debug)]
pub enum Corpus {
    /// It may be changed further.
    Keep,
    /// It leads nowhere.
    Reject,
}

/// An input of a target.
pub trait Input<'a>: Sized {
    /// `None` if these bytes are no such input.
    fn of(bytes: &'a [u8]) -> Option<Self>;
}

impl<'a> Input<'a> for &'a [u8] {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        Some(bytes)
    }
}

impl<'a> Input<'a> for &'a str {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok()
    }
}

/// Defines a target: `target!(|bytes: &[u8]| { ... })`.
#[macro_export]
macro_rules! target {
    (|$input:ident: $kind:ty| $(-> $result:ty)? $body:block) => {
        #[cfg(feature = "libfuzzer")]
        $crate::libfuzzer_sys::fuzz_target!(|$input: $kind| $(-> $result)? { $body });

        /// Runs the target on one input.
        #[cfg(not(feature = "libfuzzer"))]
        pub fn run(bytes: &[u8]) {
            let target = |$input: $kind| $(-> $result)? { $body };
            if let Some(input) = $crate::Input::of(bytes) {
                target(input);
            }
        }
    };
}
