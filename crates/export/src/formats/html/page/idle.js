// Why the GPUs were idle in a part of the time, by the rules of crates/model/src/idle.rs.

const CAUSE = { launching: 0, waiting: 1, running: 2, meanwhile: 3, unknown: 4 };
const PHASE = { before: 0, between: 1, after: 2 };
/** In gaps of at least this length, other threads of the process are looked at. */
const LONG_GAP = 10e6;

class IdleTime {
  constructor(recording) {
    this.recording = recording;
    this.rows = Array.from(recording.charge.device, (device, i) => ({ device, phase: recording.charge.phase[i], thread: recording.charge.thread[i],
      cause: recording.charge.cause[i], stack: recording.charge.stack[i], node: recording.charge.node[i], place: recording.charge.place[i], reason: recording.charge.reason[i] }));
    const { stride } = recording.head;
    // A gap is known only if all operations are.
    this.isKnown = this.rows.length > 0 && [0, 1, 3, 6].every(kind => stride[kind] === 1);
    this.kept = new Map();
  }

  /** What the idle time of a range is charged to: rows with their time, and the number of gaps or samples. */
  in(range) {
    const [from, to] = range || [0, this.recording.wall];
    const key = `${from} ${to}`;
    if (!this.kept.has(key)) {
      if (this.kept.size > 8) this.kept.clear();
      this.kept.set(key, this.charge(from, to));
    }
    return this.kept.get(key);
  }

  charge(from, to) {
    this.prepare();
    const sums = new Map();
    const add = (row, ns, count) => {
      if (!(ns > 0)) return;
      const sum = sums.get(row) || { ...row, ns: 0, count: 0 };
      sum.ns += ns;
      sum.count += count;
      sums.set(row, sum);
    };
    for (const [device, gaps] of this.gaps) {
      const pools = new Map();
      for (let at = lowerBound(gaps.end, from + 1, 0, gaps.end.length); at < gaps.end.length && gaps.start[at] < to; at++) {
        const start = Math.max(from, gaps.start[at]), end = Math.min(to, gaps.end[at]);
        const phase = gaps.phase[at], thread = gaps.thread[at];
        const launched = Math.min(end, Math.max(start, gaps.launched[at]));
        if (launched < end) add(this.row(device, phase, thread, CAUSE.launching, gaps.stack[at]), end - launched, 1);
        if (launched <= start) continue;
        const key = phase * 0x1000000 + thread;
        if (!pools.has(key)) pools.set(key, { phase, thread, own: 0, unwatched: 0, waits: new Map(), samples: new Map(), others: new Map() });
        const pool = pools.get(key);
        pool.own += launched - start;
        pool.unwatched += Math.max(0, Math.min(launched, this.first.get(thread) ?? Infinity) - start);
        this.assign(pool, start, launched);
      }
      for (const pool of pools.values()) this.divide(device, pool, add);
    }
    return [...sums.values()];
  }

  /** Assigns what threads did to a part of a gap in which the feeding thread had not launched. */
  assign(pool, start, end) {
    const { head, switch: other } = this.recording;
    const put = (sums, key, ns) => {
      const sum = sums.get(key) || [0, 0];
      sums.set(key, [sum[0] + ns, sum[1] + 1]);
      return ns;
    };
    const samples = (thread, each) => {
      for (const { time, node, weight, parts } of this.samples) {
        const [first, last] = parts.get(thread) || [0, 0];
        for (let i = lowerBound(time, start, first, last); i < last && time[i] < end; i++) each(node[i], weight[i]);
      }
    };
    let covered = 0;
    samples(pool.thread, (node, weight) => { covered += put(pool.samples, node, weight); });
    const [first, last] = this.waits.get(pool.thread) || [0, 0];
    // Waits of a thread do not overlap: at most the one before has not ended.
    for (let i = Math.max(first, lowerBound(other.start, start, first, last) - 1); i < last && other.start[i] < end; i++) {
      const ns = Math.min(end, other.start[i] + other.duration[i]) - Math.max(start, other.start[i]);
      if (ns > 0) covered += put(pool.waits, other.node[i], ns);
    }
    if (pool.phase === PHASE.before || !pool.thread || end - start < LONG_GAP || covered >= (end - start) / 2) return;
    const { process } = head.threads[pool.thread - 1];
    head.threads.forEach((other, index) => {
      if (index + 1 !== pool.thread && other.process === process) samples(index + 1, (node, weight) => put(pool.others, (index + 1) * 0x4000000 + node, weight));
    });
  }

  /** Divides the time of a pool: first to waits, which are exact, then to samples. Where all waits are known, the thread ran for the rest. */
  divide(device, { phase, thread, own, unwatched, waits, samples, others }, add) {
    const sum = all => [...all.values()].reduce((sum, [ns]) => sum + ns, 0);
    const each = (all, ns, row) => {
      const whole = sum(all);
      for (const [key, [weight, count]] of all) add(row(key), ns * weight / whole, count);
    };
    const waited = Math.min(own, sum(waits));
    each(waits, waited, stack => this.row(device, phase, thread, CAUSE.waiting, stack));
    const watched = this.waits.size ? Math.max(0, own - waited - unwatched) : 0, sampled = sum(samples);
    const running = sampled ? Math.max(Math.min(own - waited, sampled), watched) : 0;
    each(samples, running, stack => this.row(device, phase, thread, CAUSE.running, stack));
    const meanwhile = Math.min(own - waited - running, sum(others));
    each(others, meanwhile, key => this.row(device, phase, Math.floor(key / 0x4000000), CAUSE.meanwhile, key % 0x4000000, thread));
    add(this.row(device, phase, thread, CAUSE.unknown, 0), own - waited - running - meanwhile, 1);
  }

  /** What time is charged to: what is not among the rows is unknown. */
  row(device, phase, thread, cause, stack, feeding = thread) {
    const key = (thread, cause, stack) => `${device} ${phase} ${thread} ${cause} ${stack}`;
    if (!this.known) this.known = new Map(this.rows.map(row => [`${row.device} ${row.phase} ${row.thread} ${row.cause} ${row.stack}`, row]));
    // The innermost frame of a sample may be what it waits for.
    const found = this.known.get(key(thread, cause, stack)) || (stack && this.known.get(key(thread, cause, this.recording.parent[stack])));
    if (found) return found;
    const none = key(feeding, CAUSE.unknown, 0);
    if (!this.known.has(none)) this.known.set(none, { device, phase, thread: feeding, cause: CAUSE.unknown, stack: 0, node: 0, place: 0, reason: 0 });
    return this.known.get(none);
  }

  /** Finds the gaps of each device, and where the evidence of each thread is. */
  prepare() {
    if (this.gaps) return;
    const { op, sample, cost, head, parent, family, frame, wall } = this.recording;
    const parts = (owners, shift) => {
      const found = new Map();
      runs(owners, (owner, from, to) => found.set(owner + shift, [from, to]));
      return found;
    };
    this.samples = [sample, cost].map(samples => ({ ...samples, parts: parts(samples.thread, 1) }));
    this.waits = parts(this.recording.switch.owner, 1);
    const launch = i => op.thread[i] ? op.start[i] - op.delay[i] : Infinity;
    this.first = new Map();
    for (let i = 0; i < op.thread.length; i++) if (launch(i) < (this.first.get(op.thread[i]) ?? Infinity)) this.first.set(op.thread[i], launch(i));
    const all = new Map();
    runs(op.track, (track, from, to) => {
      const { device } = head.tracks[track];
      if (!all.has(device)) all.set(device, []);
      for (let i = from; i < to; i++) all.get(device).push(i);
    });
    this.gaps = new Map();
    for (const [device, list] of all) {
      list.sort((a, b) => op.start[a] - op.start[b] || op.duration[a] - op.duration[b] || launch(a) - launch(b));
      const gaps = this.between(list), kernels = this.between(list.filter(i => family[frame[op.node[i]]] === FAMILY.kernel));
      const made = { start: [], end: [], phase: [], thread: [], launched: [], stack: [] };
      const add = (start, end, phase, thread, launched, stack) => {
        if (end <= start) return;
        Object.entries({ start, end, phase, thread, launched, stack }).forEach(([name, value]) => made[name].push(value));
      };
      gaps.start.forEach((start, at) => {
        const end = gaps.end[at];
        let by = gaps.by[at];
        // A copy that another thread makes meanwhile ends no gap: the GPU waits for the next kernel.
        const next = kernels.by[lowerBound(kernels.end, end, 0, kernels.end.length)];
        if (next !== undefined && launch(next) > start && launch(next) < Infinity && op.thread[next] !== op.thread[by]) by = next;
        add(start, end, at ? PHASE.between : PHASE.before, op.thread[by], launch(by), op.stack[by] || parent[op.node[by]]);
      });
      add(gaps.until, wall, PHASE.after, op.thread[gaps.by[gaps.by.length - 1]], Infinity, 0);
      this.gaps.set(device, made);
    }
  }

  /** The times before and between operations, given in order of their start, and the operation that ends each. */
  between(list) {
    const { op } = this.recording;
    const gaps = { start: [], end: [], by: [], until: 0 };
    for (const i of list) {
      if (op.start[i] > gaps.until || !gaps.end.length) {
        gaps.start.push(gaps.until);
        gaps.end.push(op.start[i]);
        gaps.by.push(i);
      }
      gaps.until = Math.max(gaps.until, op.start[i] + op.duration[i]);
    }
    return gaps;
  }
}
