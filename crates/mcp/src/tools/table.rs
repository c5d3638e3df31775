//! `table`.

use analysis::{Flames, Table, explain, tables::Cell};
use serde::Deserialize;
use serde_json::{Value, json};

use super::tool::{About, Tool, arguments, cursor, properties};
use crate::answer::{Answer, text};

#[derive(Deserialize)]
struct Asked {
    table: String,
    cursor: Option<String>,
    contains: Option<String>,
}

pub fn tool() -> Tool {
    let names: Vec<&str> = Table::ALL.iter().map(|(name, _)| *name).collect();
    Tool::new(
        "table",
        "Returns a table, the most important rows first: kernels, lines (of user code), idle (why GPUs were idle), steps, memory, \
         stalls, waits, ranks and more. `columns` has the names, with units: ns, bytes, uj; shares are 0 to 1.",
        properties(json!({
            "table": {"type": "string", "enum": names},
            "contains": {"type": "string", "description": "only rows with this text in a name"},
            "cursor": {"type": "string"},
        })),
        &["recording", "table"],
        |library, given, cancel| {
            let known = ["recording", "filter", "max_bytes", "table", "cursor", "contains"];
            let asked: About<Asked> = arguments(given, &known)?;
            let wanted = &asked.more;
            let found = Table::ALL.into_iter().find(|(name, _)| *name == wanted.table);
            let (name, table) = found.ok_or("there is no such table; `summary` lists those with rows")?;
            let from = cursor(wanted.cursor.as_deref())?;
            let opened = asked.open(library)?;
            let mut events = || -> std::io::Result<analysis::Events<'static>> {
                let cancel = cancel.clone();
                Ok(Box::new((opened.events)()?.take_while(move |_| !cancel.is_cancelled())))
            };
            let rows = table.rows(&Flames::new(&opened.profile), &mut events).map_err(|error| error.to_string())?;
            let mut answer = Answer::about(&opened.profile);
            answer.say("table", name);
            answer.say("columns", rows.columns.iter().map(|column| column_name(column)).collect::<Vec<_>>());
            let meaning = explain::all().find(|entry| entry.kind == explain::Kind::Table && entry.name == name);
            answer.say("exactness", meaning.map(|entry| entry.exact));
            if rows.rows.is_empty() {
                answer.say("note", format!("the table is empty: {}", table.filled_by()));
            }
            let has = |row: &&Vec<Cell>| {
                let text = wanted.contains.as_deref().unwrap_or_default();
                row.iter().any(|cell| matches!(cell, Cell::Text(name) if name.contains(text))) || text.is_empty()
            };
            let selected: Vec<&Vec<Cell>> = rows.rows.iter().filter(has).collect();
            // No answer has more rows than this, because each has some bytes.
            let shown = selected.iter().skip(from).take(asked.most() / 4);
            answer.rows("rows", shown.map(|row| row.iter().map(cell).collect()).collect(), (from, selected.len()));
            Ok(answer.text(asked.most()))
        },
    )
}

/// Returns the name of a column with its unit.
fn column_name(column: &str) -> String {
    match column {
        "ns" => "total_ns".to_owned(),
        "sm_active" | "tensor" | "dram" | "issued" => format!("{column}_percent"),
        "shared_memory" => "shared_memory_bytes".to_owned(),
        other => other.to_owned(),
    }
}

fn cell(cell: &Cell) -> Value {
    match cell {
        Cell::Text(name) => text(name),
        Cell::Ns(number) | Cell::Bytes(number) | Cell::Count(number) | Cell::Microjoules(number) => json!(number),
        Cell::Share(number) => json!((number * 1e4).round() / 1e4),
        Cell::Watts(number) | Cell::Number(number) => json!((number * 1e2).round() / 1e2),
    }
}
