//! A table as text for a terminal.

use analysis::tables::{Cell, Rows};
use text::{
    names::printable,
    short::{cut, short},
    units::{bytes, count, energy, time},
};

use crate::page::joined_path_text;

/// The width of a name, where the line would be too long.
const SHORTEST: usize = 20;
/// The width of an instruction, which cannot be shortened like a name.
const INSTRUCTION: usize = 48;

/// Returns a table as text: numbers first, then names, which are shortened to fit into `width` columns. The longest
/// names come last, where they have the most room.
pub fn table(table: &Rows, width: usize) -> String {
    let shown: Vec<Vec<String>> = table.rows.iter().map(|row| row.iter().map(show).collect()).collect();
    let column = |at: usize| {
        let cells = shown.iter().map(|row| row[at].chars().count());
        cells.chain([heading(table.columns[at]).chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(column).collect();
    let (numbers, mut texts): (Vec<usize>, Vec<usize>) = (0..table.columns.len()).partition(|at| is_number(table, *at));
    // A meaning is a sentence that cannot be shortened; it is last already.
    if !table.columns.contains(&"meaning")
        && let Some(longest) = (0..texts.len()).max_by_key(|at| widths[texts[*at]])
    {
        let longest = texts.remove(longest);
        texts.push(longest);
    }
    let used: usize = numbers.iter().map(|at| widths[*at] + 2).sum();
    let most = |at: usize| widths[at].min(if table.columns[at] == "instruction" { INSTRUCTION } else { SHORTEST });
    let mut text = String::new();
    let mut line = |cells: &dyn Fn(usize) -> String| {
        let mut line = String::new();
        for at in &numbers {
            line += &format!("{:>width$}  ", cells(*at), width = widths[*at]);
        }
        for (index, at) in texts.iter().enumerate() {
            let last = index + 1 == texts.len();
            let others: usize = texts[..texts.len() - 1].iter().map(|at| most(*at) + 2).sum();
            let room = if last { width.saturating_sub(used + others).max(SHORTEST) } else { most(*at) };
            let cell = match table.columns[*at] {
                "path" => joined_path_text(&cells(*at), room),
                // Not every name can be shortened: columns must not run together.
                _ => cut(&short(&printable(&cells(*at)), room), room),
            };
            let padding = if last { 0 } else { most(*at) + 2 };
            line += &format!("{cell:<padding$}");
        }
        text += line.trim_end();
        text.push('\n');
    };
    line(&|at| heading(table.columns[at]).to_owned());
    for row in &shown {
        line(&|at| row[at].clone());
    }
    text
}

/// Whether a column has numbers. A number that was not measured is an empty text.
fn is_number(table: &Rows, column: usize) -> bool {
    table.rows.iter().any(|row| !matches!(row[column], Cell::Text(_)))
}

/// Returns a column's name without its unit, which each value has, and with what a share is a share of.
fn heading(column: &str) -> &str {
    match column {
        "ns" => "time",
        "watts" => "power",
        "gpu_ns" => "GPU time",
        "cpu_ns" => "CPU time",
        "gpu_share" => "of GPU time",
        "cpu_share" => "of CPU time",
        "wall_share" => "of recording",
        "busy_share" => "busy of recording",
        "wait_share" => "of waits",
        "held_share" => "of held",
        "energy_share" => "of energy",
        "kernel_share" => "of kernel",
        "stall_share" => "of line",
        other => other.strip_suffix("_ns").or_else(|| other.strip_suffix("_uj")).unwrap_or(other),
    }
}

fn show(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Ns(ns) => time(*ns),
        Cell::Bytes(number) => bytes(*number),
        Cell::Microjoules(number) => energy(*number),
        Cell::Watts(watts) => format!("{watts:.0} W"),
        Cell::Number(number) => format!("{number:.1}"),
        Cell::Count(number) => count(*number),
        Cell::Share(share) => format!("{:.1} %", share * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that columns do not run together where names cannot be shortened and where a number was not measured, that the
    /// longest names come last, and that lines fit.
    #[test]
    fn columns_do_not_run_together() {
        let text = |text: &str| Cell::Text(text.to_owned());
        let name = "a_kernel_whose_name_has_no_part_that_could_be_removed_to_make_it_shorter";
        let rows = Rows {
            columns: vec!["kernel", "verdict", "ns", "dram", "limiter"],
            rows: vec![
                vec![text(name), text("memory-bandwidth-bound-kernel"), Cell::Ns(5_000), text(""), text("registers")],
                vec![text("short"), text("tensor-bound"), Cell::Ns(7), Cell::Number(93.25), text("shared memory")],
            ],
        };
        let shown = table(&rows, 100);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "   time  dram  verdict               limiter        kernel");
        assert_eq!(lines[2], "   7 ns  93.2  tensor-bound          shared memory  short");
        assert!(
            lines[1].starts_with("5.00 µs        memory-bandwidth-bo…  registers      a_kernel_whose_name_"),
            "{shown}"
        );
        assert!(lines.iter().all(|line| line.chars().count() <= 100), "{shown}");
    }
}
