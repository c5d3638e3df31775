//! The help text about output formats.

use export::Format;

/// Returns a help text after the list of output formats.
pub(super) fn with_formats(text: &str) -> String {
    format!("The file extension selects the format; -o may be repeated:{}{text}", Format::help())
}
