//! The table of ranks.

use analysis::{
    collectives::Late,
    summary::{Rank, Summary},
};
use text::{
    names::clean,
    units::{bytes, count, counted, percent, share, time},
};

use crate::page::{Page, TextStyle, bar};

/// The most rows of operations, and of processes that made others wait.
const MOST_COLLECTIVES: usize = 5;
const MOST_LATE: usize = 3;

impl Page {
    /// What was communicated, and who made the others wait.
    fn collectives(&mut self, s: &Summary) {
        if s.collectives.is_empty() {
            return;
        }
        let columns = format!("{:>8}  {:>8}  {:>10}  {:>12}", "transfer", "count", "bytes", "bus");
        self.heading_of("Communication", "of waits", "waited", &columns);
        let whole = s.collectives.iter().map(|row| row.waited_ns).sum::<u64>();
        for row in s.collectives.iter().take(MOST_COLLECTIVES) {
            let bus =
                row.bus_bytes_per_second.map_or_else(|| "-".to_owned(), |rate| format!("{}/s", bytes(rate as u64)));
            let waited = self.row(TextStyle::Yellow, row.waited_ns, share(row.waited_ns, whole), whole);
            let (transfer, size, times) = (time(row.transfer_ns), bytes(row.bytes), count(row.count));
            let (name, members) = (row.operation.name(), row.members);
            let short = row.communicator.get(8..).unwrap_or_default();
            self.line(&format!(
                "{waited}  {transfer:>8}  {times:>8}  {size:>10}  {bus:>12}  {name} of {members} members, communicator {short}"
            ));
        }
        if s.collectives.len() > MOST_COLLECTIVES {
            let rest = counted((s.collectives.len() - MOST_COLLECTIVES) as u64, "more", "more");
            self.line(&format!("{rest}: --by collectives"));
        }
        // Others wait also for those that have waited themselves: these are not the reason.
        let own = |late: &Late| late.host_ns.saturating_add(late.gpu_ns);
        let most = s.waits.iter().map(own).max().unwrap_or(0);
        for late in s.waits.iter().filter(|late| own(late) >= most / 100).take(MOST_LATE) {
            let who = late.rank.map_or_else(|| format!("process {}", late.pid), |rank| format!("rank {rank}"));
            let waited = time(late.waited_ns);
            self.line(&format!(
                "others waited {waited} for {who}, in {} of {} operations",
                count(late.count),
                count(late.of)
            ));
            let whole = late.host_ns.saturating_add(late.gpu_ns);
            let is_much = |ns: u64| ns > 0 && ns.saturating_mul(10) >= whole;
            let instead = late.instead.iter().filter(|instead| is_much(instead.ns)).take(MOST_LATE).map(|instead| {
                let reason = instead.reason.as_ref().map(|reason| format!(" {reason}")).unwrap_or_default();
                format!("{} in {}{reason}", time(instead.ns), instead.place.short())
            });
            let on_gpu = is_much(late.gpu_ns).then(|| format!("{} with a busy GPU", time(late.gpu_ns)));
            let what: Vec<String> = instead.chain(on_gpu).collect();
            if !what.is_empty() {
                self.line(&format!("  it was late itself by {}: {}", time(whole), what.join(", ")));
            } else if is_much(late.host_ns) {
                let host = time(late.host_ns);
                self.line(&format!(
                    "  it was late itself by {host} while its GPU was idle: record with --off-cpu to see why"
                ));
            }
        }
    }

    /// How far the clocks of other hosts can be trusted.
    fn clocks(&mut self, s: &Summary) {
        let mut others = s.clocks.iter();
        let Some(first) = others.next() else { return };
        for clock in others {
            let host = clean(&clock.host);
            let Some(bound) = clock.bound_ns.map(time) else {
                self.line(&format!(
                    "clock of {host}: by its wall clock; nothing says how wrong it is, so waits across it are left out"
                ));
                continue;
            };
            let by = counted(clock.operations, "operation", "operations");
            let corrected = match clock.wall_clock_fits {
                true => "its wall clock fits".to_owned(),
                false => {
                    let sign = if clock.offset_ns < 0 { "-" } else { "+" };
                    format!("{sign}{}, {:+.1} ppm", time(clock.offset_ns.unsigned_abs()), clock.drift_ppm)
                }
            };
            self.line(&format!(
                "clock of {host}: {corrected}; right within {bound} of {}, by {by}",
                clean(&first.host)
            ));
        }
        let hidden = s.communication.as_ref().map_or(0, |all| all.within_bound);
        if hidden > 0 {
            let waits = counted(hidden, "wait is", "waits are");
            self.line(&format!("{waits} left out: shorter than the clocks of the hosts may be wrong"));
        }
    }

    pub(crate) fn ranks(&mut self, s: &Summary) {
        if let Some(communication) = &s.communication {
            let share = percent(communication.ns, s.gpu_time_ns);
            let kernels = counted(communication.kernels, "NCCL kernel", "NCCL kernels");
            self.line(&format!("communication {}, {share} of the GPU time, in {kernels}", time(communication.ns)));
        }
        if s.mps_processes > 0 {
            let processes = counted(s.mps_processes, "CUDA process uses", "CUDA processes use");
            self.line(&format!("{processes} the Multi-Process Service (MPS)"));
        }
        self.collectives(s);
        self.clocks(s);
        if s.ranks.len() < 2 {
            return;
        }
        let columns = format!("{:>8}  {:>8}  {:>8}", "launches", "NCCL", "waited");
        self.heading("Ranks", "busy", &columns);
        for rank in &s.ranks {
            let busy = self.ink(TextStyle::Blue, &bar(rank.busy_share, self.bar_width()));
            let (share, launches) = (percent(rank.busy_ns, s.wall_ns), count(rank.launches));
            let (nccl, waited) = (time(rank.communication_ns), time(rank.waited_ns));
            let devices = rank.devices.join(", ");
            let row = format!("{busy} {share:>8}  {:>8}  {launches:>8}  {nccl:>8}  {waited:>8}", time(rank.busy_ns));
            self.line(&format!("{row}  rank {} on GPU {devices}", rank.rank));
        }
        if let (Some(first), Some(last)) =
            (s.ranks.iter().min_by_key(|rank| rank.end_ns), s.ranks.iter().max_by_key(|rank| rank.end_ns))
        {
            let text = format!(
                "rank {} ended its work first, after {}, and rank {} last, after {}",
                first.rank,
                time(first.end_ns),
                last.rank,
                time(last.end_ns)
            );
            self.line(&text);
        }
        let Some(communication) = s.communication.as_ref().filter(|all| all.collectives > 0) else { return };
        if !communication.assumed {
            return;
        }
        let caused = |rank: u32| {
            let of =
                |waiting: &Rank| waiting.waited_for.iter().filter(move |w| w.rank == rank).map(|w| w.ns).sum::<u64>();
            s.ranks.iter().map(of).sum::<u64>()
        };
        if let Some(slowest) = s.ranks.iter().max_by_key(|rank| caused(rank.rank)) {
            let last = format!("{} of {}", count(slowest.started_last), count(communication.collectives));
            let text = format!(
                "rank {} started last in {last} collectives: the other ranks waited {} for it",
                slowest.rank,
                time(caused(slowest.rank))
            );
            self.line(&text);
        }
        let assumption =
            "(if all ranks took part in each collective; the k-th run of a kernel on each rank is one collective)";
        let line = self.ink(TextStyle::Dim, assumption);
        self.line(&line);
    }
}
