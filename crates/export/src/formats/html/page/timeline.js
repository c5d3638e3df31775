// The timeline: streams of every device, then threads. It draws one thing per pixel, found by search, so that the
// cost depends on the width of the screen, not on the number of events.

const TIME_LABEL = 190;
const NARROW_LABEL = 84;
const AXIS = 20;
const MOST_LANES = 8;
const NARROWEST = 50;

/** The first index in [from, to) whose value is at least `value`. */
function lowerBound(values, value, from, to) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (values[middle] < value) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** The same for an index that is likely near `from`. */
function nextBound(values, value, from, to) {
  let step = 1;
  while (from + step < to && values[from + step] < value) {
    from += step;
    step *= 2;
  }
  return lowerBound(values, value, from, Math.min(to, from + step + 1));
}

/** Intervals that do not overlap, in order of time, with what is needed to draw many of them as one. */
class Slices {
  constructor(start, duration, id) {
    Object.assign(this, { start, duration, id, count: start.length });
    this.busy = new Float64Array(this.count + 1);
    for (let i = 0; i < this.count; i++) this.busy[i + 1] = this.busy[i] + duration[i];
    // The longest of 8 intervals, of 64, and so on: how long, and which.
    this.levels = [{ longest: duration, at: null }];
    for (let below = this.levels[0]; below.longest.length > 8; below = this.levels[this.levels.length - 1]) {
      const size = Math.ceil(below.longest.length / 8);
      const longest = new Float64Array(size).fill(-1), at = new Uint32Array(size);
      below.longest.forEach((length, i) => {
        if (length > longest[i >> 3]) [longest[i >> 3], at[i >> 3]] = [length, below.at ? below.at[i] : i];
      });
      this.levels.push({ longest, at });
    }
  }

  /** The longest interval in [from, to). */
  longestIn(from, to) {
    let best = from, most = this.duration[from];
    for (const { longest, at } of this.levels) {
      const take = i => {
        if (longest[i] > most) [most, best] = [longest[i], at ? at[i] : i];
      };
      for (; from < to && from & 7; from++) take(from);
      for (; from < to && to & 7; to--) take(to - 1);
      if (from === to) break;
      // The last level has no other above it.
      if (longest.length <= 8) for (; from < to; from++) take(from);
      [from, to] = [from >> 3, to >> 3];
    }
    return best;
  }
}

/** Divides the intervals [from, to) of columns into lanes without overlap. */
function lanes(start, duration, from, to) {
  const free = [], indices = [];
  for (let i = from; i < to; i++) {
    let lane = free.findIndex(end => end <= start[i]);
    if (lane < 0) lane = free.length < MOST_LANES ? free.length : MOST_LANES - 1;
    if (!indices[lane]) indices[lane] = [];
    free[lane] = Math.max(free[lane] || 0, start[i] + duration[i]);
    indices[lane].push(i);
  }
  if (indices.length === 1) return [new Slices(start.subarray(from, to), duration.subarray(from, to), i => from + i)];
  return indices.map(list => gathered(start, duration, list));
}

function gathered(start, duration, list) {
  return new Slices(Float64Array.from(list, i => start[i]), Float64Array.from(list, i => duration[i]), i => list[i]);
}

/** Calls `each(key, from, to)` for every run of equal keys. */
function runs(keys, each) {
  for (let from = 0; from < keys.length;) {
    const to = lowerBound(keys, keys[from] + 1, from, keys.length);
    each(keys[from], from, to);
    from = to;
  }
}

class TimeLine {
  constructor(app) {
    this.app = app;
    this.name = 'time';
    this.left = TIME_LABEL;
    this.canvas = element('canvas', { tabindex: '0', 'aria-label': 'Timeline', class: 'graph' });
    this.scroll = element('div', { class: 'scroll' }, this.canvas);
    this.note = element('span', { class: 'faint' });
    this.root = element('div', { class: 'tab' }, element('div', { class: 'controls' }, this.note, explainer(app, 'timeline'), element('span', { class: 'grow' }),
      element('button', { onclick: () => this.zoom(0.5) }, 'zoom in'), element('button', { onclick: () => this.zoom(2) }, 'zoom out'),
      element('button', { onclick: () => this.app.state.set({ window: null, range: null }) }, 'all'),
      element('button', { onclick: () => this.app.state.set({ range: this.window().map(Math.round) }) }, 'select this range')), this.scroll);
    this.canvas.addEventListener('wheel', event => this.wheel(event), { passive: false });
    this.canvas.addEventListener('pointerdown', event => this.down(event));
    this.canvas.addEventListener('pointermove', event => this.move(event));
    this.canvas.addEventListener('pointerup', event => this.up(event));
    this.canvas.addEventListener('pointerleave', () => this.app.hideTip());
    new ResizeObserver(() => this.draw()).observe(this.scroll);
  }

  /** The rows, from top to bottom. They are made when the timeline is first shown. */
  makeRows() {
    const { recording } = this.app;
    const { op, sample, call, wait, head } = recording;
    const rows = [];
    const opRow = (slices, label, height) => ({ kind: 'op', label, slices, height, frameOf: i => recording.frame[op.node[slices.id(i)]], nodeOf: i => op.node[slices.id(i)],
      selectionOf: i => ({ kind: 'o', id: slices.id(i) }) });
    const tracks = [];
    runs(op.track, (track, from, to) => tracks.push({ ...head.tracks[track], from, to }));
    tracks.sort((a, b) => a.device - b.device || a.process - b.process || a.context - b.context || a.stream - b.stream);
    const process = id => head.processes.find(process => process.id === id);
    const several = new Set(tracks.map(track => track.process)).size > 1;
    let device = null;
    for (const track of tracks) {
      if (track.device !== device) {
        device = track.device;
        const info = head.summary.devices.find(known => known.index === device);
        rows.push({ kind: 'heading', height: 22, label: `GPU ${info ? info.label : '?'}${info && info.name ? `: ${info.name}` : ''}` });
      }
      const owner = several && process(track.process) ? ` (${process(track.process).name} ${process(track.process).pid})` : '';
      lanes(op.start, op.duration, track.from, track.to).forEach((slices, lane) => {
        rows.push({ ...opRow(slices, lane ? '' : `stream ${track.stream}${owner}`, 20), track, device });
      });
    }
    const threads = head.threads.map((thread, index) => ({ ...thread, index, rows: [] }));
    this.launchRows = new Map();
    const launches = new Map();
    for (let i = 0; i < op.thread.length; i++) {
      if (!op.thread[i]) continue;
      if (!launches.has(op.thread[i] - 1)) launches.set(op.thread[i] - 1, []);
      launches.get(op.thread[i] - 1).push(i);
    }
    const waitRows = (waits, label, add) => runs(waits.owner, (owner, from, to) => {
      lanes(waits.start, waits.duration, from, to).forEach((slices, lane) => add(owner, { kind: 'wait', label: lane ? '' : label, slices, height: 14,
        frameOf: i => waits.frame[slices.id(i)], nodeOf: i => waits.node[slices.id(i)],
        selectionOf: i => waits.node[slices.id(i)] ? { kind: 'n', id: waits.node[slices.id(i)] } : null }));
    });
    waitRows(recording.range, 'NVTX', (thread, row) => threads[thread].rows.push(row));
    runs(call.thread, (thread, from, to) => {
      const depths = [];
      for (let i = from; i < to; i++) (depths[Math.min(call.depth[i], MOST_LANES - 1)] ||= []).push(i);
      depths.filter(Boolean).forEach((list, depth) => {
        const slices = gathered(call.start, call.duration, list);
        threads[thread].rows.push({ kind: 'call', label: depth ? '' : 'calls', slices, height: 17, frameOf: i => call.frame[slices.id(i)], nodeOf: i => call.node[slices.id(i)],
          selectionOf: i => call.node[slices.id(i)] ? { kind: 'n', id: call.node[slices.id(i)] } : { kind: 'f', id: call.frame[slices.id(i)] } });
      });
    });
    for (const [thread, list] of launches) {
      const launch = i => op.start[i] - op.delay[i];
      list.sort((a, b) => launch(a) - launch(b));
      const slices = new Slices(Float64Array.from(list, launch), Float64Array.from(list, i => op.launch[i]), i => list[i]);
      const row = { ...opRow(slices, 'launches', 14), kind: 'launch' };
      this.launchRows.set(thread, row);
      threads[thread].rows.push(row);
    }
    runs(sample.thread, (thread, from, to) => {
      // A sample stands for the time before it.
      const list = [];
      for (let i = from; i < to; i++) list.push(i);
      const slices = new Slices(Float64Array.from(list, i => Math.max(0, sample.time[i] - sample.weight[i])), Float64Array.from(list, i => sample.weight[i]), i => list[i]);
      threads[thread].rows.push({ kind: 'sample', label: 'on the CPU', slices, height: 14, frameOf: i => recording.frame[sample.node[slices.id(i)]],
        nodeOf: i => sample.node[slices.id(i)], selectionOf: i => ({ kind: 'n', id: sample.node[slices.id(i)] }) });
    });
    waitRows(recording.switch, 'off the CPU', (thread, row) => threads[thread].rows.push(row));
    const waiting = new Map();
    waitRows(wait, 'waits for the GPU', (owner, row) => waiting.set(owner, [...waiting.get(owner) || [], row]));
    const busy = thread => thread.rows.reduce((sum, row) => sum + row.slices.count, 0);
    // First those that launch: a shell may have started many others.
    const launching = new Set([...launches.keys()].map(thread => threads[thread].process));
    for (const { id, pid, name } of [...head.processes].sort((a, b) => launching.has(b.id) - launching.has(a.id))) {
      const own = threads.filter(thread => thread.process === id && thread.rows.length).sort((a, b) => b.rows.some(row => row.kind === 'launch') - a.rows.some(row => row.kind === 'launch') || busy(b) - busy(a));
      if (!own.length && !waiting.has(id)) continue;
      rows.push({ kind: 'heading', height: 22, label: `${name} ${pid}` });
      for (const row of waiting.get(id) || []) rows.push(row);
      for (const thread of own) {
        const [first] = thread.rows;
        Object.assign(first, { note: first.label, label: `${thread.name} ${thread.tid}`, height: first.height + 2, leads: true });
        for (const row of thread.rows) rows.push(Object.assign(row, { thread: true }));
      }
    }
    let y = AXIS;
    for (const row of rows) {
      row.y = y;
      y += row.height;
    }
    this.height = y + 6;
    return rows;
  }

  update() {
    const { recording, state } = this.app;
    this.rows ||= this.makeRows();
    const { sel, q } = state.values;
    this.marks = sel && sel.kind !== 'o' ? recording.marked(sel) : null;
    const test = q ? matcher(q) : null;
    this.matching = test ? Uint8Array.from(recording.family, (_, frame) => test(recording.names[frame]) ? 1 : 0) : null;
    this.draw();
  }

  window() {
    const { window: shown, range } = this.app.state.values;
    return shown || range || [0, this.app.recording.wall];
  }

  /** The width of what is right of the labels. */
  width() {
    if (!this.plot) this.measure();
    return this.plot;
  }

  /** Notes the widths: to ask for them takes longer than to draw an operation. */
  measure() {
    const full = this.scroll.clientWidth;
    this.left = full < 640 ? NARROW_LABEL : TIME_LABEL;
    this.plot = Math.max(50, full - this.left);
    return full;
  }

  x(time) {
    const [from, to] = this.window();
    return this.left + (time - from) / (to - from) * this.width();
  }

  time(x) {
    const [from, to] = this.window();
    return from + (x - this.left) / this.width() * (to - from);
  }

  /** Shows another part, within the recording. */
  show(from, to) {
    const { wall } = this.app.recording;
    const span = Math.min(wall * 1.02, Math.max(NARROWEST, to - from));
    from = Math.max(-0.01 * wall, Math.min(from, 1.01 * wall - span));
    this.app.state.values.window = [from, from + span];
    this.requestDraw();
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.app.state.set({}, 'window'), 200);
  }

  requestDraw() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  zoom(factor, x = this.left + this.width() / 2) {
    const [from, to] = this.window();
    const at = this.time(x);
    this.show(at - (at - from) * factor, at + (to - at) * factor);
  }

  pan(share) {
    const [from, to] = this.window();
    this.show(from + (to - from) * share, to + (to - from) * share);
  }

  draw() {
    if (!this.rows || !this.root.isConnected) return;
    const full = this.measure();
    const [from, to] = this.window();
    const context = crisp(this.canvas, full, this.height);
    context.textBaseline = 'middle';
    drawAxis(context, [from, to], this.left, this.width(), 0, this.height);
    const { device, process } = this.app.state.values;
    this.drawnSlices = 0;
    const narrow = this.left < TIME_LABEL;
    for (const row of this.rows) {
      if (row.kind === 'space') continue;
      const out = (row.track && ((device !== null && row.device !== device) || (process !== null && row.track.process !== process)));
      context.globalAlpha = 1;
      if (row.kind === 'heading') {
        context.fillStyle = theme.panel;
        context.fillRect(0, row.y + 2, full, row.height - 4);
        context.font = `600 ${SMALL}`;
        context.fillStyle = theme.ink;
        context.fillText(shorten(printable(row.label), 60), 6, row.y + row.height / 2);
        continue;
      }
      context.font = SMALL;
      const middle = row.y + row.height / 2;
      const kind = row.leads ? row.note : row.thread ? row.label : '';
      if (kind && !narrow) {
        context.fillStyle = theme.faint;
        context.textAlign = 'right';
        context.fillText(kind, this.left - 10, middle);
        context.textAlign = 'left';
      }
      if (row.leads || !row.thread) {
        context.fillStyle = row.leads || row.kind === 'lane' ? theme.ink : theme.faint;
        context.fillText(shorten(printable(row.label), narrow ? 12 : row.leads ? 18 : 30), narrow ? 4 : 12, middle);
      }
      this.drawSlices(context, row, from, to, out ? 0.15 : 1);
    }
    this.drawJoins(context);
    this.drawDump(context);
    const { sel, range } = this.app.state.values;
    if (range) {
      const [a, b] = range.map(time => this.x(time));
      context.globalAlpha = 0.6;
      context.fillStyle = theme.back;
      if (a > this.left) context.fillRect(this.left, AXIS, Math.min(this.width(), a - this.left), this.height);
      if (b < full) context.fillRect(Math.max(this.left, b), AXIS, full, this.height);
      context.globalAlpha = 1;
    }
    if (this.dragged) {
      const [a, b] = this.dragged.map(time => this.x(time));
      context.strokeStyle = theme.accent;
      context.strokeRect(a, AXIS, b - a, this.height - AXIS - 2);
    }
    if (sel && sel.kind === 'o') this.drawArrow(context, sel.id);
    this.note.textContent = `${formatTime(to - from)} from ${formatTick(Math.max(0, from), (to - from) / 100)}`;
    this.app.drawn(this.name);
  }

  /** Joins the members of a selected operation of a communicator. */
  drawJoins(context) {
    const { collectives, op } = this.app.recording;
    const id = collectives.of(this.app.state.values.sel);
    if (id === null) return;
    const ys = [];
    context.strokeStyle = theme.accent;
    context.lineWidth = 2;
    for (let m = collectives.first[id]; m < collectives.first[id + 1]; m++) {
      const index = collectives.opOf(m), row = index === null ? null : this.place(index);
      if (!row) continue;
      const [a, b] = [op.start[index], op.start[index] + op.duration[index]].map(time => Math.max(this.left, Math.min(this.left + this.width(), this.x(time))));
      if (b > this.left && a < this.left + this.width()) context.strokeRect(a, row.y + 1, Math.max(2, b - a), row.height - 2);
      ys.push(row.y + row.height / 2);
    }
    const x = Math.round(this.x(collectives.there[id])) + 0.5;
    if (ys.length < 2 || x < this.left || x > this.left + this.width()) return;
    context.beginPath();
    context.moveTo(x, Math.min(...ys));
    context.lineTo(x, Math.max(...ys));
    context.stroke();
    context.fillStyle = theme.accent;
    for (const y of ys) {
      context.beginPath();
      context.arc(x, y, 3, 0, 7);
      context.fill();
    }
  }

  /** Marks when the reason for a dump occurred. */
  drawDump(context) {
    const { dump } = this.app.recording.head.summary;
    const x = dump ? this.x(dump.at_ns) : -1;
    if (x < this.left || x > this.left + this.width() + 1) return;
    context.globalAlpha = 1;
    context.fillStyle = theme.accent;
    context.fillRect(x - 1, 0, 2, this.height);
    context.font = SMALL;
    context.textAlign = 'right';
    context.fillText(shorten(printable(dump.text), 90), x - 5, AXIS / 2);
    context.textAlign = 'left';
  }

  drawSlices(context, row, from, to, strength) {
    const { slices } = row;
    const { start, duration, busy, count } = slices;
    const { left } = this, width = this.width(), right = left + width, scale = width / (to - from);
    const h = row.height - (row.kind === 'op' || row.kind === 'call' ? 2 : 4);
    context.font = FONT;
    const { names, family, label } = this.app.recording;
    this.keys ||= Uint16Array.from(family, (family, frame) => shadeKey(family, names[frame]));
    // Adjacent pixels of the same colour and strength are drawn as one.
    let colour = null, alpha = null, first = 0, last = 0;
    const paint = (next, strong, from, to) => {
      if (next === colour && strong === alpha && from === last) {
        last = to;
        return;
      }
      if (last > first) context.fillRect(first, row.y + 1, last - first, h);
      if (next !== colour && next) context.fillStyle = next;
      if (strong !== alpha && next) context.globalAlpha = strong;
      [colour, alpha] = [next, strong];
      [first, last] = [from, to];
    };
    for (let i = Math.max(0, lowerBound(start, from, 0, count) - 1); i < count && start[i] < to;) {
      const x0 = left + (start[i] - from) * scale, x1 = x0 + duration[i] * scale;
      if (x1 < left) {
        i++;
        continue;
      }
      this.drawnSlices++;
      if (x1 - x0 >= 1.5) {
        const a = Math.max(left, x0), b = Math.min(right, x1);
        const frame = row.frameOf(i);
        paint(row.fill ? row.fill(i) : shade(this.keys[frame]), strength * (this.isStrong(row, i, frame) ? 1 : 0.22), a, a + Math.max(1, b - a - (x1 - x0 > 4 ? 1 : 0)));
        if (row.inside || b - a > 40) paint(null, null, 0, 0);
        if (row.inside) row.inside(context, i, time => Math.max(a, Math.min(b, this.x(time))), row.y + 1, h);
        if (b - a > 40 && row.kind !== 'sample' && row.kind !== 'work') {
          const text = row.textOf ? row.textOf(i) : workName(printable(names[label[frame]])).replace(/^GPU \S+: /, '');
          context.fillStyle = theme.ink;
          drawLabel(context, row.textOf ? { texts: [text] } : this.app.recording.texts(frame, text, text), a + 3, row.y + 1 + h / 2, b - a - 6);
        }
        i++;
        continue;
      }
      // Everything that starts in this pixel becomes one line; how strong it is says how busy the pixel is.
      const pixel = Math.max(left, Math.floor(x0));
      let next = Math.max(i + 1, nextBound(start, from + (pixel + 1 - left) / scale, i, count));
      if (next - 1 > i && duration[next - 1] * scale >= 1.5) next--;
      const longest = slices.longestIn(i, next);
      const frame = row.frameOf(longest);
      const covered = row.kind === 'launch' ? 1 : Math.ceil(Math.min(1, (busy[next] - busy[i]) * scale) * 16) / 16;
      paint(row.fill ? row.fill(longest) : shade(this.keys[frame]), strength * (this.isStrong(row, longest, frame) ? 0.35 + 0.65 * covered : 0.15), pixel, pixel + 1);
      i = next;
    }
    paint(null, null, 0, 0);
    context.globalAlpha = 1;
  }

  isStrong(row, index, frame) {
    if (this.matching && !row.fill && !this.matching[frame]) return false;
    return !this.marks || this.marks[row.nodeOf(index)] === 1;
  }

  /** The row, and the place in it, of an operation. */
  place(id) {
    const { op } = this.app.recording;
    for (const row of this.rows) {
      if (row.kind !== 'op' || row.slices.count === 0) continue;
      const { start, count } = row.slices;
      for (let i = lowerBound(start, op.start[id], 0, count); i < count && start[i] === op.start[id]; i++) if (row.slices.id(i) === id) return row;
    }
    return null;
  }

  drawArrow(context, id) {
    const { op } = this.app.recording;
    const row = this.place(id);
    if (!row) return;
    const x = this.x(op.start[id]);
    context.strokeStyle = theme.ink;
    context.lineWidth = 2;
    context.strokeRect(x, row.y + 1, Math.max(2, this.x(op.start[id] + op.duration[id]) - x), row.height - 2);
    const launch = op.thread[id] && this.launchRows.get(op.thread[id] - 1);
    if (!launch) return;
    const from = [this.x(op.start[id] - op.delay[id]), launch.y + 2], to = [x, row.y + row.height];
    context.strokeStyle = theme.accent;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(...from);
    context.bezierCurveTo(from[0], (from[1] + to[1]) / 2, to[0], (from[1] + to[1]) / 2, ...to);
    context.stroke();
    context.beginPath();
    context.moveTo(to[0], to[1]);
    context.lineTo(to[0] - 4, to[1] + 7);
    context.lineTo(to[0] + 4, to[1] + 7);
    context.fillStyle = theme.accent;
    context.fill();
    context.fillRect(from[0] - 1.5, launch.y, 3, launch.height - 2);
  }

  /** What is at a point, within a few pixels. */
  at(x, y) {
    const row = this.rows.find(row => y >= row.y && y < row.y + row.height);
    if (!row || !row.slices || x < this.left) return null;
    const { start, duration, count } = row.slices;
    const time = this.time(x), reach = this.time(x + 3) - time;
    const first = lowerBound(start, time - reach, 0, count);
    let best = null, least = Infinity;
    for (let i = Math.max(0, first - 1); i < count && start[i] <= time + reach && i < first + 200; i++) {
      const distance = time < start[i] ? start[i] - time : time > start[i] + duration[i] ? time - start[i] - duration[i] : 0;
      if (distance <= reach && distance < least) [best, least] = [i, distance];
    }
    return best === null ? null : { row, index: best };
  }

  hover(event) {
    const found = this.at(event.offsetX, event.offsetY);
    if (!found) return this.app.hideTip();
    const { row, index } = found;
    const { recording } = this.app;
    const { start, duration } = row.slices;
    const described = this.describe(found);
    if (described) return this.app.showTip(event, described);
    const lines = [printable(recording.names[row.frameOf(index)])];
    const step = (this.window()[1] - this.window()[0]) / 1000;
    if (row.kind === 'op') lines.push(describeOperation(recording, row.slices.id(index)));
    else if (row.kind === 'launch') lines.push(`launched at ${formatTick(start[index], step)}`, describeOperation(recording, row.slices.id(index)));
    else lines.push(`${row.kind === 'sample' ? 'sampled' : 'from'} at ${formatTick(start[index], step)} ${row.kind === 'sample' ? 'standing for' : 'for'} ${formatTime(duration[index])}`);
    const node = row.nodeOf(index);
    if (node) lines.push(recording.pathText(node));
    this.app.showTip(event, lines);
  }

  /** What a subclass says about something; null for the usual. */
  describe() {
    return null;
  }

  wheel(event) {
    if (event.offsetX < this.left) return;
    event.preventDefault();
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) this.pan(sideways / this.width());
    else this.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY * 0.0025))), event.offsetX);
  }

  down(event) {
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.held = { x: event.offsetX, y: event.offsetY, window: this.window(), moved: false, range: event.shiftKey };
  }

  move(event) {
    const { held } = this;
    if (!held) return this.hover(event);
    if (!held.moved && Math.abs(event.offsetX - held.x) < 4) return;
    held.moved = true;
    this.app.hideTip();
    if (held.range) {
      this.dragged = [this.time(held.x), this.time(event.offsetX)].sort((a, b) => a - b);
      this.requestDraw();
    } else {
      const shift = (held.x - event.offsetX) / this.width() * (held.window[1] - held.window[0]);
      this.show(held.window[0] + shift, held.window[1] + shift);
    }
  }

  up(event) {
    const { held, dragged } = this;
    this.held = this.dragged = null;
    if (dragged) return this.app.state.set({ range: dragged.map(time => Math.max(0, Math.round(time))) });
    if (!held || held.moved) return;
    const found = this.at(event.offsetX, event.offsetY);
    const sel = found ? found.row.selectionOf(found.index) : null;
    this.app.state.set({ sel });
  }

  shortcut(event) {
    const action = { w: () => this.zoom(0.7), s: () => this.zoom(1 / 0.7), a: () => this.pan(-0.2), d: () => this.pan(0.2),
      ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2) }[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (action) action();
    return !!action;
  }

}
