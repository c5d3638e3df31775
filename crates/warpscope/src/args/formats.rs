//! The help text about output formats.

/// The output formats, by file extension.
macro_rules! formats {
    () => {
        "The file extension selects the format; -o may be repeated:
  .wscope           recording; can be converted to every other format later
  .html             report for the browser: flame graph, timeline and tables in one file
  .svg              flame graph
  .folded           folded stacks, weights in microseconds (flamegraph.pl)
  .pb.gz            stacks with GPU, CPU and off-CPU time and launches (pprof)
  .speedscope.json  the same for speedscope
  .pftrace          timeline with stacks and arrows (ui.perfetto.dev); also .pftrace.gz
  .json             Chrome trace (chrome://tracing, Perfetto); also .json.gz
  .profile.json.gz  threads and GPU work for profiler.firefox.com; also .profile.json
  .jsonl            one JSON object per event
  .csv              one table: kernels, or the one selected with `export --table`
  .parquet          directory of tables for SQL (DuckDB, pandas): kernels, launches, stacks, ...
  .cpu.txt          one line per CPU sample and launch: time, comm, pid, tid, cpu, stack"
    };
}

pub(super) use formats;
