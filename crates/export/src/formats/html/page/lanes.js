// The ranks over time: for each a lane with its communication and its other GPU work, and lines that join those who waited with the one that they
// waited for.

const LANE = 17;
const JOIN = 7;

class RankLanes extends TimeLine {
  constructor(app) {
    super(app);
    this.name = 'ranks';
    this.canvas.setAttribute('aria-label', 'Ranks over time');
    const legend = [['communication', 'all take part'], ['wait', 'waits for others'], ['gpu', 'other GPU work']];
    this.legend = element('span', { class: 'legend' });
    this.colourLegend = () => this.legend.replaceChildren(...legend.map(([name, text]) => element('span', {}, element('i', { style: { background: theme[name] } }), text)));
    this.root.firstChild.insertBefore(this.legend, this.root.firstChild.querySelector('.grow'));
  }

  makeRows() {
    const { recording } = this.app;
    const { collectives, op, frame, communicates } = recording;
    const { member, first } = collectives;
    const own = collectives.lanes.map(() => []);
    const collective = new Uint32Array(member.start.length);
    for (let id = 0; id < collectives.count; id++) {
      for (let m = first[id]; m < first[id + 1]; m++) {
        collective[m] = id;
        own[collectives.laneOf.get(member.process[m])].push(m);
      }
    }
    collectives.work(null);
    const rows = [];
    this.laneRows = collectives.lanes.map(({ label }, lane) => {
      const list = own[lane].sort((a, b) => member.start[a] - member.start[b]);
      const start = Float64Array.from(list, m => member.start[m]), duration = Float64Array.from(list, m => member.duration[m]);
      const parts = list.length ? lanes(start, duration, 0, list.length) : [new Slices([], [], i => i)];
      const made = parts.map((slices, part) => {
        const of = i => list[slices.id(i)];
        return { kind: 'lane', label: part ? '' : label, slices, height: LANE, lane, memberOf: of, fill: i => member.waited[of(i)] * 2 > duration[slices.id(i)] ? theme.wait : theme.communication,
          inside: (context, i, x, y, h) => {
            const [a, b] = [member.start[of(i)], Math.min(member.start[of(i)] + member.waited[of(i)], slices.start[i] + slices.duration[i])].map(x);
            context.fillStyle = theme.communication;
            context.fillRect(b, y, Math.max(0, x(slices.start[i] + slices.duration[i]) - b), h);
            context.fillStyle = theme.wait;
            context.fillRect(a, y, b - a, h);
          },
          frameOf: () => 0, nodeOf: i => member.node[of(i)], textOf: i => `${collectives.name(collective[of(i)])} ${formatBytes(collectives.bytes[collective[of(i)]])}`,
          selectionOf: i => ({ kind: 'c', id: collective[of(i)] }) };
      });
      rows.push(...made, this.workRow((collectives.ops || [])[lane] || [], i => !communicates[frame[op.node[i]]]), { kind: 'space', height: 5 });
      return made;
    });
    this.longest = new Slices(collectives.there, collectives.waited, i => i);
    let y = AXIS;
    for (const row of rows) {
      row.y = y;
      y += row.height;
    }
    this.height = y + 4;
    return rows;
  }

  /** At first, the time in which there are operations. */
  window() {
    const { window: shown, range } = this.app.state.values;
    const { collectives: { member }, wall } = this.app.recording;
    if (shown || range) return shown || range;
    if (!this.extent) {
      const from = member.start.reduce((least, start) => Math.min(least, start), wall), to = member.start.reduce((most, start, m) => Math.max(most, start + member.duration[m]), 0);
      const margin = (to - from) / 50;
      this.extent = [Math.max(0, from - margin), Math.min(wall, to + margin)];
    }
    return this.extent;
  }

  /** The other work of a rank, on all streams as one. */
  workRow(list, isWanted) {
    const { op, frame } = this.app.recording;
    const start = [], end = [], id = [];
    for (const i of list) {
      if (!isWanted(i)) continue;
      const last = start.length - 1, until = op.start[i] + op.duration[i];
      if (last >= 0 && op.start[i] <= end[last]) end[last] = Math.max(end[last], until);
      else [start[last + 1], end[last + 1], id[last + 1]] = [op.start[i], until, i];
    }
    const slices = new Slices(Float64Array.from(start), Float64Array.from(end, (end, i) => end - start[i]), i => id[i]);
    return { kind: 'work', label: '', slices, height: 9, fill: () => theme.gpu, frameOf: i => frame[op.node[id[i]]], nodeOf: i => op.node[id[i]], selectionOf: i => ({ kind: 'o', id: id[i] }) };
  }

  update() {
    this.colourLegend();
    super.update();
    // Members are of many paths: a selected operation is outlined instead.
    if ((this.app.state.values.sel || {}).kind === 'c') this.marks = null;
    this.draw();
  }

  /** What is at a place of a lane. */
  describe({ row, index }) {
    if (row.kind !== 'lane') return null;
    const { collectives } = this.app.recording;
    const { member, first } = collectives;
    const m = row.memberOf(index), { id } = row.selectionOf(index);
    const last = collectives.lanes[collectives.laneOf.get(member.process[first[id] + member.for[m]])];
    return [`${collectives.name(id)}, ${formatBytes(collectives.bytes[id])}, call ${formatCount(collectives.number[id])}`,
      `${collectives.lanes[row.lane].label} began at ${formatTick(member.start[m], 1000)}, ${formatTime(member.delay[m])} after its launch, and ran ${formatTime(member.duration[m])}`,
      member.waited[m] ? `waited ${formatTime(member.waited[m])} for ${last.label}` : 'waited for nobody'];
  }

  /** Of operations that are close to each other, the one with the longest waits is joined. */
  drawJoins(context) {
    const { collectives } = this.app.recording;
    const [from, to] = this.window();
    const apart = JOIN * (to - from) / this.width();
    const { there, count } = collectives;
    for (let i = lowerBound(there, from, 0, count); i < count && there[i] < to;) {
      const next = Math.max(i + 1, lowerBound(there, there[i] + apart, i + 1, count));
      this.join(context, this.longest.longestIn(i, next), false);
      i = next;
    }
    const chosen = collectives.of(this.app.state.values.sel);
    if (chosen !== null) this.join(context, chosen, true);
  }

  /** Joins the members that waited with the one that they waited for, when it began. */
  join(context, id, isChosen) {
    const { collectives } = this.app.recording;
    const { member, first } = collectives;
    const right = this.left + this.width();
    context.strokeStyle = context.fillStyle = isChosen ? theme.accent : theme.ink;
    context.globalAlpha = isChosen ? 1 : 0.4;
    context.lineWidth = isChosen ? 2 : 1;
    const middle = m => {
      const [row] = this.laneRows[collectives.laneOf.get(member.process[m])];
      return row.y + LANE / 2;
    };
    for (let m = first[id]; m < first[id + 1]; m++) {
      if (isChosen) {
        const [row] = this.laneRows[collectives.laneOf.get(member.process[m])];
        const a = Math.max(this.left, this.x(member.start[m])), b = Math.min(right, this.x(member.start[m] + member.duration[m]));
        if (b >= this.left && a <= right) context.strokeRect(a, row.y + 1, Math.max(2, b - a), LANE - 2);
      }
      const x = Math.round(this.x(member.start[m] + member.waited[m])) + 0.5;
      if (!member.waited[m] || x < this.left || x > right) continue;
      const [own, last] = [m, first[id] + member.for[m]].map(middle);
      // A kernel that waits runs until the last one has begun; a simulated one may have ended.
      const end = Math.max(this.left, Math.min(x, this.x(member.start[m] + member.duration[m])));
      context.beginPath();
      context.moveTo(end, own);
      context.quadraticCurveTo(x, own, x, last);
      context.stroke();
      context.beginPath();
      context.arc(x, last, isChosen ? 4 : 2.5, 0, 7);
      context.fill();
    }
    context.globalAlpha = 1;
  }

  /** The wheel scrolls the tab; with Ctrl it zooms. */
  wheel(event) {
    if (event.ctrlKey) super.wheel(event);
  }
}
