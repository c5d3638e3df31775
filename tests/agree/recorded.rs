//! One recording, and readers of all its formats.

use std::{collections::BTreeMap, fs, io::Read};

use export::Format;
use serde_json::Value;

use self::{parquet::Table, perfetto::Trace, pprof::Pprof};
use crate::support::{Ended, Scene, jsonl::Events, program, scene::number};

// The readers of formats that the tests of `export` use, each test its part of them.
#[path = "../../crates/export/tests/support/html.rs"]
pub mod html;
#[allow(dead_code)]
#[path = "../../crates/export/tests/support/parquet.rs"]
pub mod parquet;
#[allow(dead_code)]
#[path = "../../crates/export/tests/support/perfetto.rs"]
pub mod perfetto;
#[allow(dead_code)]
#[path = "../../crates/export/tests/support/pprof.rs"]
pub mod pprof;
#[allow(dead_code)]
#[path = "../../crates/export/tests/support/proto.rs"]
pub mod proto;

/// Unpacks a compressed profile.
pub fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut all).expect("compressed");
    all
}

/// Sums by name.
pub type Sums = BTreeMap<String, u64>;

/// A recording, its report and its events.
pub struct Recorded {
    pub scene: Scene,
    pub report: Value,
    pub events: Events,
}

/// Records two programs, and writes all formats.
pub fn recorded() -> Recorded {
    let scene = Scene::new();
    let programs = format!("{} 3 & {} 12; wait", program("nvtx"), program("rich"));
    let mut command =
        scene.record_words("--sim -q -F 999 --off-cpu --memory --nvtx -o x.wscope", &["sh", "-c", &programs]);
    Ended::of(command.env("WARPSCOPE_SIM", "copy_gbps=1,kernel_ns=100us")).exits(0);
    let mut export = scene.warpscope(&["export", "x.wscope"]);
    for format in Format::ALL {
        let name = if format == Format::Recording { "y" } else { "x" };
        export.args(["-o", &format!("{name}{}", format.extension())]);
    }
    Ended::of(&mut export).exits(0);
    let (report, events) = (scene.report("x.wscope"), Events::read(&scene.read("x.jsonl")));
    Recorded { scene, report, events }
}

impl Recorded {
    /// A number of the report.
    pub fn number(&self, key: &str) -> u64 {
        number(&self.report, key)
    }

    /// A table of the report.
    pub fn table(&self, name: &str) -> Vec<Value> {
        let report = Ended::of(&mut self.scene.warpscope(&["report", "x.wscope", "--json", "--by", name])).exits(0);
        serde_json::from_str(report.out()).expect("JSON")
    }

    /// The sum of a column of a table.
    pub fn total(&self, table: &str, column: &str) -> u64 {
        self.table(table).iter().map(|row| number(row, column)).sum()
    }

    /// A table for SQL.
    pub fn sql(&self, name: &str) -> Table {
        Table::read(&fs::read(self.scene.path(&format!("x.parquet/{name}.parquet"))).expect("a table"))
    }

    /// The stacks for pprof.
    pub fn pprof(&self) -> Pprof {
        Pprof::read(&fs::read(self.scene.path("x.pb.gz")).expect("a profile"))
    }

    /// The total of each profile for speedscope.
    pub fn speedscope(&self) -> Sums {
        let file: Value = serde_json::from_str(&self.scene.read("x.speedscope.json")).expect("JSON");
        let total = |profile: &Value| number(profile, "endValue");
        let name = |profile: &Value| profile["name"].as_str().expect("a name").to_owned();
        file["profiles"].as_array().expect("profiles").iter().map(|profile| (name(profile), total(profile))).collect()
    }

    /// The page: its summary and its columns.
    pub fn page(&self) -> (Value, BTreeMap<String, Vec<u64>>) {
        let page = self.scene.read("x.html");
        let (_, data) = page.split_once("id=\"data\">").expect("the data");
        html::read(data.split('<').next().expect("the data"))
    }

    /// The timeline for Perfetto.
    pub fn perfetto(&self) -> Trace {
        Trace::read(&fs::read(self.scene.path("x.pftrace")).expect("a trace"))
    }

    /// The weights of folded stacks, in microseconds.
    pub fn folded(&self, options: &[&str]) -> u64 {
        let export = [&["export", "x.wscope", "--format", "folded", "-o", "-"], options].concat();
        let text = Ended::of(&mut self.scene.warpscope(&export)).exits(0).out().to_owned();
        text.lines().map(|line| line.rsplit(' ').next().expect(line).parse::<u64>().expect(line)).sum()
    }

    /// The events of a kind in the trace for Chrome.
    pub fn chrome(&self, kinds: &[&str]) -> Vec<Value> {
        let file: Value = serde_json::from_str(&self.scene.read("x.json")).expect("JSON");
        let all = file["traceEvents"].as_array().expect("a list").iter();
        all.filter(|event| kinds.iter().any(|kind| event["cat"] == *kind)).cloned().collect()
    }

    /// The events of some kinds.
    pub fn of(&self, kinds: &[&str]) -> Vec<&Value> {
        self.events.all.iter().filter(|event| kinds.iter().any(|kind| event["type"] == *kind)).collect()
    }
}
