// What ranks communicated: the operations of communicators with their members, and what each rank did beside.

class Collectives {
  constructor(recording, columns) {
    this.recording = recording;
    const part = (name, fields) => Object.fromEntries(fields.map(field => [field, columns[`${name}.${field}`]]));
    Object.assign(this, part('collective', ['communicator', 'call', 'number', 'bytes', 'bus', 'members']));
    this.member = part('member', ['process', 'start', 'duration', 'delay', 'waited', 'for', 'node']);
    this.count = this.call.length;
    this.first = new Uint32Array(this.count + 1);
    // When the last one began, how long all took part, and how long the others had waited.
    [this.there, this.transfer, this.waited] = [0, 1, 2].map(() => new Float64Array(this.count));
    const { start, duration, waited } = this.member;
    for (let id = 0; id < this.count; id++) {
      this.first[id + 1] = this.first[id] + this.members[id];
      let end = Infinity;
      for (let m = this.first[id]; m < this.first[id + 1]; m++) {
        this.there[id] = Math.max(this.there[id], start[m]);
        end = Math.min(end, start[m] + duration[m]);
        this.waited[id] += waited[m];
      }
      this.transfer[id] = Math.max(0, end - this.there[id]);
    }
    const { processes, summary } = recording.head;
    const taking = new Set(this.member.process);
    // Ranks, and processes without one that take part.
    const ranks = (summary.ranks || []).map(({ rank }) => ({ rank, label: `rank ${rank}`, processes: processes.filter(process => process.rank === rank) }));
    const others = processes.filter(process => taking.has(process.id) && !ranks.some(({ rank }) => rank === process.rank));
    this.lanes = [...ranks, ...others.map(process => ({ rank: null, label: `${process.name} ${process.pid}`, processes: [process] }))];
    this.laneOf = new Map(this.lanes.flatMap((lane, index) => lane.processes.map(process => [process.id, index])));
  }

  /** `all_reduce` */
  name(id) {
    return this.recording.head.calls[this.call[id]];
  }

  /** The operations whose last member began in a range, or all. */
  in(range) {
    return range ? [lowerBound(this.there, range[0], 0, this.count), lowerBound(this.there, range[1], 0, this.count)] : [0, this.count];
  }

  /** Who waited for whom, by lane: the times, and the operation with the longest wait; and for each lane, in how many operations others waited for it. */
  waits(range) {
    const { member, lanes, laneOf, first, recording: { head } } = this;
    const stride = head.stride[7];
    const cells = lanes.map(() => lanes.map(() => ({ ns: 0, most: 0, worst: null }))), late = lanes.map(() => ({ ns: 0, count: 0, of: 0 }));
    for (let [id, to] = this.in(range); id < to; id++) {
      const caused = new Set();
      for (let m = first[id]; m < first[id + 1]; m++) {
        const own = laneOf.get(member.process[m]), other = laneOf.get(member.process[first[id] + member.for[m]]);
        late[own].of += stride;
        if (!member.waited[m]) continue;
        const cell = cells[own][other];
        cell.ns += member.waited[m] * stride;
        late[other].ns += member.waited[m] * stride;
        if (member.waited[m] > cell.most) [cell.most, cell.worst] = [member.waited[m], id];
        caused.add(other);
      }
      for (const lane of caused) late[lane].count += stride;
    }
    return { cells, late };
  }

  /** The operations of a range by communicator and call. */
  sums(range) {
    const { head } = this.recording;
    const rows = new Map();
    for (let [id, to] = this.in(range); id < to; id++) {
      const key = this.communicator[id] * 0x100 + this.call[id];
      if (!rows.has(key)) {
        const { id: communicator, size } = head.communicators[this.communicator[id]];
        rows.set(key, { operation: this.name(id), communicator, members: size, count: 0, bytes: 0, waited_ns: 0, transfer_ns: 0, bus: 0 });
      }
      const row = rows.get(key), stride = head.stride[7];
      row.count += stride;
      for (const [name, column] of [['bytes', 'bytes'], ['waited_ns', 'waited'], ['transfer_ns', 'transfer'], ['bus', 'bus']]) row[name] += this[column][id] * stride;
    }
    for (const row of rows.values()) row.bus_bytes_per_second = row.transfer_ns && row.bus ? row.bus * 1e9 / row.transfer_ns : null;
    return [...rows.values()];
  }

  /** The GPU work of a member: the operation that began when it did; null if that is not in the page. */
  opOf(m) {
    const { op } = this.recording;
    if (!this.tracks) {
      this.tracks = new Map();
      runs(op.track, (track, from, to) => {
        const { process } = this.recording.head.tracks[track];
        this.tracks.set(process, [...this.tracks.get(process) || [], [from, to]]);
      });
    }
    for (const [from, to] of this.tracks.get(this.member.process[m]) || []) {
      for (let i = lowerBound(op.start, this.member.start[m], from, to); i < to && op.start[i] === this.member.start[m]; i++) {
        if (this.recording.communicates[this.recording.frame[op.node[i]]]) return i;
      }
    }
    return null;
  }

  /** The operation that a selection belongs to: chosen itself, or by the work of a member. */
  of(sel) {
    if (sel && sel.kind === 'c') return sel.id < this.count ? sel.id : null;
    if (!sel || sel.kind !== 'o' || !this.count) return null;
    const { op, frame, communicates, head } = this.recording;
    if (!communicates[frame[op.node[sel.id]]]) return null;
    const { process } = head.tracks[op.track[sel.id]], { start } = this.member;
    for (let m = 0; m < start.length; m++) if (start[m] === op.start[sel.id] && this.member.process[m] === process) return lowerBound(this.first, m + 1, 0, this.first.length) - 1;
    return null;
  }

  /** How long each lane had GPU work, communication kernels, and nothing else than these, in a range. Null where not all operations are known. */
  work(range) {
    const { op, frame, communicates, head } = this.recording;
    if (head.stride[0] > 1) return null;
    this.ops ||= this.lanes.map((_, lane) => {
      const list = [];
      runs(op.track, (track, from, to) => { if (this.laneOf.get(head.tracks[track].process) === lane) for (let i = from; i < to; i++) list.push(i); });
      return Uint32Array.from(list).sort((a, b) => op.start[a] - op.start[b]);
    });
    const [from, to] = range || [0, Infinity];
    return this.ops.map(list => {
      let busy = 0, other = 0, communication = 0, busyEnd = from, otherEnd = from;
      for (const i of list) {
        const start = Math.max(from, op.start[i]), end = Math.min(to, op.start[i] + op.duration[i]);
        if (op.start[i] >= to) break;
        if (end <= start) continue;
        busy += Math.max(0, end - Math.max(start, busyEnd));
        busyEnd = Math.max(busyEnd, end);
        if (communicates[frame[op.node[i]]]) communication += end - start;
        else {
          other += Math.max(0, end - Math.max(start, otherEnd));
          otherEnd = Math.max(otherEnd, end);
        }
      }
      return { busy, communication, exposed: busy - other };
    });
  }

  /** The steps of each lane that begin in a range: their number and the median, of the thread that has most. */
  steps(range) {
    const { head: { steps }, step } = this.recording;
    let from = 0;
    const best = this.lanes.map(() => ({ count: 0, median: 0 }));
    for (const { process, count, warm_up: warmUp, median_ns: median } of steps) {
      const lane = this.laneOf.get(process), first = from;
      from += count;
      if (lane === undefined) continue;
      const [a, b] = range ? range.map(time => lowerBound(step.start, time, first, from)) : [first, from];
      const times = step.duration.slice(Math.max(a, first + warmUp), b).sort();
      if (b - a > best[lane].count) best[lane] = { count: b - a, median: range ? times[times.length >> 1] || 0 : median };
    }
    return best;
  }
}

/** The lines about an operation of a communicator at the bottom. */
function describeCollective(app, id) {
  const { collectives, head } = app.recording;
  const { member, first } = collectives;
  const { id: communicator, size } = head.communicators[collectives.communicator[id]];
  const lanes = [], waits = [];
  for (let m = first[id]; m < first[id + 1]; m++) {
    const lane = collectives.lanes[collectives.laneOf.get(member.process[m])];
    lanes.push(`${lane.label} at ${formatTick(member.start[m], 1000)}`);
    if (member.waited[m]) waits.push(m);
  }
  const longest = waits.sort((a, b) => member.waited[b] - member.waited[a])[0];
  const last = longest === undefined ? null : collectives.lanes[collectives.laneOf.get(member.process[first[id] + member.for[longest]])];
  const facts = [`${formatBytes(collectives.bytes[id])}`, `call ${formatCount(collectives.number[id])}`, `all took part for ${formatTime(collectives.transfer[id])}`,
    last ? `${formatCounted(waits.length, 'member', 'members')} waited ${formatTime(collectives.waited[id])}, longest ${formatTime(member.waited[longest])} for ${last.label}` : 'nobody waited'];
  const span = () => {
    const starts = [...member.start.subarray(first[id], first[id + 1])];
    const from = Math.min(...starts), to = Math.max(...starts.map((start, at) => start + member.duration[first[id] + at])), margin = (to - from) / 2 + 1000;
    return [Math.max(0, from - margin), Math.min(app.recording.wall, to + margin)].map(Math.round);
  };
  return [element('div', { class: 'line' }, element('span', { class: 'name' }, `${collectives.name(id)} of ${formatCounted(size, 'member', 'members')}, communicator ${communicator.slice(-8)}`),
    element('span', { class: 'rest' }, facts.join('  ·  ')),
    app.current.id === 'ranks' ? null : element('button', { onclick: () => app.state.set({ tab: 'ranks' }) }, 'ranks'),
    app.current.id === 'time' ? null : element('button', { onclick: () => app.state.set({ tab: 'time', window: span() }) }, 'timeline'),
    element('button', { onclick: () => app.state.set({ window: span() }) }, 'zoom'),
    element('button', { onclick: () => app.state.set({ sel: null }), title: 'Esc' }, 'clear')),
  element('div', { class: 'line faint' }, element('span', { class: 'rest', title: lanes.join('\n').slice(0, 3000) }, `began: ${lanes.join(', ')}`))];
}
