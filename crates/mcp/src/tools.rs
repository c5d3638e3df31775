//! The tools. Each file has one, or a few of one subject: its arguments, and its answer.

use crate::library::Library;

mod compare;
mod explain;
mod flame;
mod frames;
mod record;
mod recordings;
mod source;
mod sql;
mod summary;
mod table;
mod timeline;
mod tool;

pub use self::tool::Tool;

/// Returns the tools, always in the same order: those that the user has not allowed are not offered.
pub fn all(library: &dyn Library) -> Vec<Tool> {
    let mut tools = vec![
        recordings::tool(),
        summary::summary(),
        summary::findings(),
        flame::tool(),
        table::tool(),
        timeline::tool(),
        compare::tool(),
        explain::tool(),
    ];
    tools.extend(library.tables().map(sql::tool));
    tools.extend(library.has_sources().then(source::tool));
    tools.extend(library.command().map(record::tool));
    tools
}
