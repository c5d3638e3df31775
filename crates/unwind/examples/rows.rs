//! Compiles files and prints their number of rows, the time taken, and what the rows could not express.
//!
//! ```text
//! cargo run --release -p unwind --example rows -- /lib/x86_64-linux-gnu/libc.so.6
//! ```

use std::fs::File;
use std::time::Instant;

use unwind::Table;

fn main() {
    for path in std::env::args().skip(1) {
        let start = Instant::now();
        match File::open(&path)
            .map_err(|error| error.to_string())
            .and_then(|file| Table::of(&file).map_err(|error| error.to_string()))
        {
            Ok(table) => {
                let (elapsed, stats) = (start.elapsed(), &table.stats);
                println!("{path}: {} rows in {:.1} ms", table.rows.len(), elapsed.as_secs_f64() * 1e3);
                println!(
                    "  {} functions, {} malformed, {} outside, {} overlapping, {} gaps; {} of {} bytes unsupported",
                    stats.functions,
                    stats.malformed,
                    stats.outside,
                    stats.overlapping,
                    stats.gaps,
                    stats.unsupported,
                    stats.covered,
                );
                for (loss, rows) in stats.losses() {
                    println!("  {loss}: {rows} rows");
                }
            }
            Err(error) => println!("{path}: {error}"),
        }
    }
}
