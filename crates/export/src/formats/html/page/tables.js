// Tables: sorted, filtered by the search, drawn only where visible. A row selects.

const TABLE_ROW = 25;

class Table {
  /** `make` returns { columns, rows, note }; a column has key, label, kind, bar if its share is drawn, and term if that is explained. `about` is what explains the table. */
  constructor(app, name, make, about = [name, 'table']) {
    Object.assign(this, { app, name, make, sort: null });
    this.head = element('div', { class: 'row heading', role: 'row', 'aria-rowindex': '1' });
    this.body = element('div', { class: 'rows', role: 'rowgroup' });
    this.scroll = element('div', { class: 'scroll table', role: 'grid', tabindex: '0', 'aria-label': name },
      element('div', { role: 'rowgroup', class: 'headings' }, this.head), this.body);
    this.note = element('span', { class: 'faint', role: 'status' });
    this.ranged = element('span', { class: 'ranged' });
    this.message = element('p', { class: 'message', hidden: true });
    this.copy = element('button', { onclick: () => this.copyCsv() }, 'copy as CSV');
    this.root = element('div', { class: 'tab' },
      element('div', { class: 'controls' }, this.note, explainer(app, ...about), this.ranged, element('span', { class: 'grow' }), this.copy), this.message, this.scroll);
    this.scroll.addEventListener('scroll', () => this.draw());
    this.scroll.addEventListener('keydown', event => this.key(event));
    new ResizeObserver(() => {
      this.drawnFrom = -1;
      this.draw();
    }).observe(this.scroll);
  }

  update() {
    const { columns, rows, note, weights } = this.make();
    this.columns = columns;
    const { q } = this.app.state.values;
    const test = q ? matcher(q) : null;
    this.ranged.replaceChildren(...this.app.rangeNotes(weights || []));
    this.all = rows.length;
    this.rows = test ? rows.filter(row => columns.some(column => column.kind === 'text' && test(String(row[column.search || column.key])))) : rows;
    this.sort = this.sort || { key: (columns.find(column => column.bar) || columns[0]).key, down: true };
    const { key, down } = this.sort;
    const order = (a, b, by) => a[by] < b[by] ? -1 : a[by] > b[by] ? 1 : 0;
    this.first = columns.findIndex(column => column.kind === 'text');
    const { key: name } = columns[this.first];
    this.rows.sort((a, b) => (down ? order(b, a, key) : order(a, b, key)) || order(a, b, name));
    this.most = Object.fromEntries(columns.filter(column => column.bar).map(column =>
      [column.key, rows.reduce((most, row) => Math.max(most, row[column.key]), 0)]));
    const shown = test ? `${formatCount(this.rows.length)} of ${formatCounted(this.all, 'row', 'rows')}` : formatCounted(this.all, 'row', 'rows');
    this.note.textContent = [shown, note].filter(Boolean).join(' · ');
    const width = column => column.kind === 'text' && !column.width ? 'minmax(120px, 1fr)' : `${columnWidth(column)}px`;
    this.scroll.style.setProperty('--columns', columns.map(width).join(' '));
    // On a narrow screen the name comes first, and stays.
    this.scroll.style.setProperty('--narrow', ['170px', ...columns.filter((_, index) => index !== this.first).map(column => column.kind === 'text' ? '200px' : width(column))].join(' '));
    this.scroll.setAttribute('aria-rowcount', String(this.rows.length + 1));
    keepFocus(this.head, ...columns.map((column, index) => element('span', { role: 'columnheader', class: `${column.kind === 'text' ? '' : 'number'}${index === this.first ? ' first' : ''}`,
      'aria-sort': column.key === key ? (down ? 'descending' : 'ascending') : 'none' },
      element('button', { class: column.kind === 'text' ? '' : 'number', 'data-value': column.key, onclick: () => {
        this.sort = { key: column.key, down: column.key === key ? !down : column.kind !== 'text' };
        this.update();
      } }, `${column.label}${column.key === key ? (down ? ' ↓' : ' ↑') : ''}`), column.term ? explainer(this.app, column.term, 'term') : null)));
    this.message.hidden = this.rows.length > 0;
    this.scroll.hidden = !this.message.hidden;
    this.message.textContent = test && test.error ? `${test.error}. ` : test && this.all ? `No row matches “${q}”. ` : 'Nothing in this time range or filter. ';
    if (test && this.all) this.message.append(element('button', { onclick: () => this.app.state.set({ q: '' }) }, 'clear the search'));
    this.body.style.setProperty('height', `${this.rows.length * TABLE_ROW}px`);
    this.drawnFrom = -1;
    this.draw();
    this.app.drawn(this.name);
  }

  /** Draws the visible rows. */
  draw() {
    if (!this.rows || !this.root.isConnected) return;
    const from = Math.max(0, Math.floor(this.scroll.scrollTop / TABLE_ROW) - 5);
    const to = Math.min(this.rows.length, from + Math.ceil((this.scroll.clientHeight || 600) / TABLE_ROW) + 12);
    if (from === this.drawnFrom && to === this.drawnTo) return;
    // The characters that fit into the name, which is cut in its middle: its end is what ran.
    const { clientWidth } = this.scroll;
    const others = this.columns.reduce((sum, column, index) => sum + (index === this.first ? 0 : columnWidth(column)), 0);
    this.room = clientWidth < 640 ? 21 : this.columns.some((column, index) => column.kind === 'text' && index !== this.first) ? Infinity : Math.floor((clientWidth - others - 20) / 7.25);
    [this.drawnFrom, this.drawnTo] = [from, to];
    this.body.replaceChildren(...this.rows.slice(from, to).map((row, index) => this.row(row, from + index)));
  }

  row(row, index) {
    const { sel } = this.app.state.values;
    const selected = sel && row.sel && sel.kind === row.sel.kind && sel.id === row.sel.id;
    const made = element('div', { class: `row${selected ? ' selected' : ''}`, role: 'row', 'aria-rowindex': String(index + 2), 'aria-selected': String(!!selected),
      style: { top: `${index * TABLE_ROW}px` } }, ...this.columns.map((column, at) => this.cell(row, column, at)));
    if (row.sel) made.addEventListener('click', () => this.app.state.set({ sel: selected ? null : row.sel }));
    if (row.sel) made.addEventListener('dblclick', () => this.app.showFlame(row.sel));
    return made;
  }

  cell(row, column, at) {
    const value = row[column.key];
    const cell = element('span', { role: 'gridcell', class: `${column.kind === 'text' ? 'text' : 'number'}${at === this.first ? ' first' : ''}` });
    if (column.bar && this.most[column.key]) {
      cell.append(element('i', { class: `bar ${column.bar}`, style: { width: `${100 * value / this.most[column.key]}%` } }));
    }
    let text = formatCell(value, column.kind, row);
    if (at === this.first && text.length > this.room && this.room > 8) text = cutMiddle(printable(String(row.brief ?? text)), this.room);
    cell.append(element('b', {}, shorten(text, 600)));
    if (column.kind === 'text') cell.title = printable(String(row[column.search || column.key])).slice(0, 2000);
    return cell;
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    // Enter on a button presses it.
    if (!step && (event.key !== 'Enter' || event.target !== this.scroll)) return;
    event.preventDefault();
    const { sel } = this.app.state.values;
    const at = this.rows.findIndex(row => sel && row.sel && row.sel.kind === sel.kind && row.sel.id === sel.id);
    if (!step) return sel && this.app.showFlame(sel);
    const row = this.rows[Math.min(this.rows.length - 1, Math.max(0, at + step))];
    if (!row || !row.sel) return;
    const index = this.rows.indexOf(row), top = index * TABLE_ROW;
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    if (top + 2 * TABLE_ROW > this.scroll.scrollTop + this.scroll.clientHeight) this.scroll.scrollTop = top + 2 * TABLE_ROW - this.scroll.clientHeight;
    this.app.state.set({ sel: row.sel }, 'keys');
  }

  csv() {
    const quote = value => /[",]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
    // Names come from programs: a spreadsheet must not take one for a formula.
    const cell = (value, kind) => {
      if (kind !== 'text') return String(value);
      const text = printable(String(value));
      return quote(/^\s*[=+\-@]/.test(text) ? `'${text}` : text);
    };
    const unit = { time: '_ns', at: '_ns', bytes: '_bytes', rate: '_bytes_per_s' };
    const lines = [this.columns.map(column => quote(column.label.replaceAll(' ', '_') + (unit[column.kind] || '')))];
    for (const row of this.rows) lines.push(this.columns.map(column => cell(row[column.search || column.key], column.kind)));
    return lines.map(line => line.join(',')).join('\n') + '\n';
  }

  async copyCsv() {
    const copied = await copyText(this.csv());
    this.copy.textContent = copied ? 'copied' : 'cannot copy';
    setTimeout(() => { this.copy.textContent = 'copy as CSV'; }, 1500);
  }
}

/** The width of a column of numbers, with room for its "?". */
function columnWidth(column) {
  return (column.width || 104) + (column.term ? 16 : 0);
}

function formatCell(value, kind) {
  if (kind === 'text') return printable(String(value));
  if (value === null || value === undefined || Number.isNaN(value)) return '';
  if (kind === 'time') return value ? formatTime(value) : '';
  if (kind === 'at') return formatTick(value, 1000);
  if (kind === 'bytes') return formatBytes(value);
  if (kind === 'rate') return value ? `${formatBytes(value)}/s` : '';
  if (kind === 'share') return formatShare(value, 1);
  if (kind === 'id') return String(value);
  return formatCount(value);
}

/** Copies text, also in a file that is opened without a server. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = element('textarea', { class: 'offscreen' });
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand('copy');
    area.remove();
    return copied;
  }
}

/** Groups the sums of nodes by the name of their own frame. */
function byFrame({ recording }, family, sums) {
  const rows = new Map();
  const whole = recording.totals(sums.self)[0];
  for (let node = 1; node < recording.nodes; node++) {
    const frame = recording.alike[recording.frame[node]];
    if (!sums.count[node] || recording.family[frame] !== family) continue;
    let row = rows.get(frame);
    if (!row) {
      const name = anyGpu(recording.names[frame]), brief = recording.brief(frame);
      rows.set(frame, row = { name, label: workName(name), shown: recording.ambiguous.has(frame) ? brief : workName(name), brief, total: 0, count: 0, max: 0, bytes: 0, sel: { kind: 'f', id: frame } });
    }
    row.total += sums.self[node];
    row.count += sums.count[node];
    row.max = Math.max(row.max, sums.max[node]);
    row.bytes += sums.bytes[node];
  }
  const all = [...rows.values()];
  for (const row of all) Object.assign(row, { share: whole ? row.total / whole : 0, mean: row.total / row.count, rate: row.total ? row.bytes * 1e9 / row.total : 0 });
  return all;
}

function kernelTable(app) {
  return { columns: [
    { key: 'total', label: 'time', term: 'GPU time', kind: 'time', bar: 'gpu', width: 130 }, { key: 'share', label: 'of GPU time', term: 'share', kind: 'share', width: 104 },
    { key: 'count', label: 'runs', kind: 'count', width: 90 }, { key: 'mean', label: 'mean', kind: 'time', width: 90 },
    { key: 'max', label: 'max', kind: 'time', width: 90 }, { key: 'shown', search: 'label', label: 'kernel', kind: 'text' },
  ], rows: byFrame(app, FAMILY.kernel, app.sums('gpu')), weights: ['gpu'] };
}

function copyTable(app) {
  return { columns: [
    { key: 'total', label: 'time', term: 'GPU time', kind: 'time', bar: 'memory', width: 130 }, { key: 'share', label: 'of GPU time', term: 'share', kind: 'share', width: 104 },
    { key: 'count', label: 'count', kind: 'count', width: 90 }, { key: 'bytes', label: 'bytes', kind: 'bytes', width: 100 },
    { key: 'rate', label: 'rate', term: 'rate', kind: 'rate', width: 120 }, { key: 'mean', label: 'mean', kind: 'time', width: 90 },
    { key: 'max', label: 'max', kind: 'time', width: 90 }, { key: 'label', label: 'copy or memset', kind: 'text' },
  ], rows: byFrame(app, FAMILY.memory, app.sums('gpu')), weights: ['gpu'] };
}

function pathTable(app) {
  const { recording } = app;
  const sums = app.sums('gpu');
  const rows = [];
  const whole = recording.totals(sums.self)[0];
  for (let node = 1; node < recording.nodes; node++) {
    if (!sums.count[node]) continue;
    rows.push({ path: recording.pathText(node), total: sums.self[node], share: whole ? sums.self[node] / whole : 0, count: sums.count[node],
      mean: sums.self[node] / sums.count[node], sel: { kind: 'n', id: node } });
  }
  return { columns: [
    { key: 'total', label: 'time', term: 'GPU time', kind: 'time', bar: 'gpu', width: 130 }, { key: 'share', label: 'of GPU time', term: 'share', kind: 'share', width: 104 },
    { key: 'count', label: 'count', kind: 'count', width: 90 }, { key: 'mean', label: 'mean', kind: 'time', width: 90 },
    { key: 'path', label: 'call path', term: 'path', kind: 'text' },
  ], rows, weights: ['gpu'] };
}

/** Lines or functions: time in them on the CPU, and GPU time that they caused. */
function codeTable(app, byFunction) {
  const { recording } = app;
  const rows = new Map();
  const of = (key, frame) => {
    let row = rows.get(key);
    if (!row) rows.set(key, row = { name: recording.names[key], gpu: 0, runs: 0, cpu: 0, self: 0, wait: 0, family: recording.family[frame], sel: { kind: 'f', id: key } });
    return row;
  };
  const folded = { plumbing: recording.plumbing, mine: recording.foreign }[app.state.values.fold];
  const is = node => {
    const frame = recording.frame[node], family = recording.family[frame];
    if (family < FAMILY.python || family > FAMILY.system) return false;
    if (folded && folded[frame]) return false;
    return byFunction || recording.function[frame] !== frame;
  };
  const nested = node => {
    const key = recording.key(node, byFunction);
    for (let up = recording.parent[node]; up; up = recording.parent[up]) if (recording.key(up, byFunction) === key) return true;
    return false;
  };
  const has = id => recording.weights.some(weight => weight.id === id);
  const all = ['gpu', 'cpu', 'wait'].filter(has).map(id => {
    const sums = app.sums(id);
    return { id, sums, totals: recording.totals(sums.self), counts: recording.totals(sums.count) };
  });
  for (let node = 1; node < recording.nodes; node++) {
    if (!is(node) || !all.some(({ counts }) => counts[node])) continue;
    const row = of(recording.key(node, byFunction), recording.frame[node]);
    const again = nested(node);
    for (const { id, sums, totals, counts } of all) {
      if (id === 'cpu') row.self += sums.self[node];
      if (again) continue;
      row[id] += totals[node];
      if (id === 'gpu') row.runs += counts[node];
    }
  }
  const columns = [];
  if (has('gpu')) columns.push({ key: 'gpu', label: 'GPU', term: 'GPU time', kind: 'time', bar: 'gpu', width: 120 }, { key: 'runs', label: 'GPU runs', kind: 'count', width: 90 });
  if (has('cpu')) columns.push({ key: 'self', label: 'CPU self', term: 'CPU self', kind: 'time', bar: 'cpu', width: 110 }, { key: 'cpu', label: 'CPU total', term: 'CPU total', kind: 'time', bar: 'cpu', width: 110 });
  if (has('wait')) columns.push({ key: 'wait', label: 'waiting', term: 'waiting', kind: 'time', bar: 'wait', width: 110 });
  columns.push({ key: 'name', label: byFunction ? 'function' : 'line', kind: 'text' });
  const without = folded && byFunction ? `without ${app.state.values.fold === 'mine' ? 'code of others' : 'plumbing'}` : '';
  return { columns, rows: [...rows.values()], note: without, weights: all.map(({ id }) => id) };
}

/** Waits for the GPU, off-CPU intervals, and waits by reason. */
function waitTable(app) {
  const { recording } = app;
  const { range, process } = app.state.values;
  const rows = new Map();
  const add = (kind, name, sel, ns, count, longest) => {
    const key = `${kind} ${name}`;
    let row = rows.get(key);
    if (!row) rows.set(key, row = { kind, name, total: 0, count: 0, max: 0, sel });
    row.total += ns;
    row.count += count;
    row.max = Math.max(row.max, longest);
  };
  const intervals = (waits, kind, stride, processOf) => {
    for (let i = 0; i < waits.start.length; i++) {
      const start = waits.start[i], end = start + waits.duration[i];
      if (range && (end < range[0] || start >= range[1])) continue;
      if (process !== null && processOf(waits.owner[i]) !== process) continue;
      const ns = range ? Math.min(end, range[1]) - Math.max(start, range[0]) : end - start;
      add(kind, recording.names[waits.frame[i]], null, ns * stride, stride, waits.duration[i]);
    }
  };
  intervals(recording.wait, 'CUDA call waits for the GPU', recording.head.stride[2], owner => owner);
  // In a recording, these are the waits of threads that launch; the sums are those of all threads, but have no times.
  const summed = recording.weights.some(weight => weight.id === 'wait');
  const ranged = range && recording.switch.start.length > 0;
  if (!summed || ranged) {
    intervals(recording.switch, summed ? 'launching thread off the CPU' : 'thread off the CPU', recording.head.stride[3], owner => recording.head.threads[owner].process);
  }
  if (summed && !ranged) {
    const sums = app.sums('wait');
    for (let node = 1; node < recording.nodes; node++) {
      if (sums.count[node]) add('off the CPU, by stack', recording.names[recording.frame[node]], { kind: 'f', id: recording.frame[node] }, sums.self[node], sums.count[node], 0);
    }
  }
  for (const row of rows.values()) row.mean = row.total / row.count;
  return { columns: [
    { key: 'total', label: 'time', term: 'waiting', kind: 'time', bar: 'wait', width: 130 }, { key: 'count', label: 'waits', kind: 'count', width: 90 },
    { key: 'mean', label: 'mean', kind: 'time', width: 90 }, { key: 'max', label: 'max', kind: 'time', width: 90 },
    { key: 'name', label: 'wait', kind: 'text' }, { key: 'kind', label: 'kind', kind: 'text' },
  ], rows: [...rows.values()], note: summed && ranged ? 'of threads that launch: the waits of others have no times' : '', weights: summed && ranged ? [] : ['wait'] };
}

/** Traced calls by function. */
function callTable(app) {
  const { recording } = app;
  const { range, process } = app.state.values;
  const rows = new Map();
  const { call, head } = recording;
  for (let i = 0; i < call.start.length; i++) {
    if (range && (call.start[i] + call.duration[i] < range[0] || call.start[i] >= range[1])) continue;
    if (process !== null && head.threads[call.thread[i]].process !== process) continue;
    let row = rows.get(call.frame[i]);
    if (!row) rows.set(call.frame[i], row = { name: recording.names[call.frame[i]], total: 0, count: 0, max: 0, sel: { kind: 'f', id: call.frame[i] } });
    row.total += call.duration[i] * head.stride[4];
    row.count += head.stride[4];
    row.max = Math.max(row.max, call.duration[i]);
  }
  for (const row of rows.values()) row.mean = row.total / row.count;
  return { columns: [
    { key: 'total', label: 'time', kind: 'time', bar: 'cpu', width: 130 }, { key: 'count', label: 'calls', kind: 'count', width: 90 },
    { key: 'mean', label: 'mean', kind: 'time', width: 90 }, { key: 'max', label: 'max', kind: 'time', width: 90 },
    { key: 'name', label: 'function', kind: 'text' },
  ], rows: [...rows.values()] };
}

function processTable(app) {
  const { recording } = app;
  const { head, gpu, cpu } = recording;
  const rows = new Map(head.processes.map(process => [process.id, { name: process.name, pid: process.pid, start: process.start,
    end: process.end || recording.wall, gpu: 0, runs: 0, cpu: 0 }]));
  for (let i = 0; i < gpu.node.length; i++) {
    const row = rows.get(gpu.process[i]);
    if (row) [row.gpu, row.runs] = [row.gpu + gpu.ns[i], row.runs + gpu.count[i]];
  }
  for (let i = 0; i < cpu.node.length; i++) {
    const row = rows.get(cpu.process[i]);
    if (row) row.cpu += cpu.ns[i];
  }
  return { columns: [
    { key: 'gpu', label: 'GPU', term: 'GPU time', kind: 'time', bar: 'gpu', width: 120 }, { key: 'runs', label: 'GPU runs', kind: 'count', width: 90 },
    { key: 'cpu', label: 'CPU', term: 'CPU time', kind: 'time', bar: 'cpu', width: 120 }, { key: 'pid', label: 'pid', kind: 'id', width: 90 },
    { key: 'start', label: 'from', kind: 'time', width: 90 }, { key: 'end', label: 'to', kind: 'time', width: 90 },
    { key: 'name', label: 'process', kind: 'text' },
  ], rows: [...rows.values()], weights: ['whole'] };
}

function deviceTable(app) {
  const rows = app.recording.head.summary.devices.map(device => ({ ...device, name: [`GPU ${device.label}`, device.name].filter(Boolean).join(': '), uuid: device.uuid || '' }));
  return { columns: [
    { key: 'busy_ns', label: 'busy', term: 'busy', kind: 'time', bar: 'gpu', width: 120 }, { key: 'busy_share', label: 'of recording', term: 'share', kind: 'share', width: 104 },
    { key: 'time_ns', label: 'work', term: 'GPU time', kind: 'time', width: 100 }, { key: 'streams', label: 'streams', kind: 'count', width: 90 },
    { key: 'kernels', label: 'kernels', kind: 'count', width: 90 }, { key: 'copies', label: 'copies', kind: 'count', width: 90 },
    { key: 'memsets', label: 'memsets', kind: 'count', width: 90 }, { key: 'name', label: 'device', kind: 'text' }, { key: 'uuid', label: 'UUID', kind: 'text' },
  ], rows, note: 'work adds up concurrent operations', weights: ['whole'] };
}

/** Who holds GPU memory, at its peak and at the end. */
function memoryTable(app) {
  const rows = [];
  const uses = { tensor: 'tensors', cached: 'cached by PyTorch, free', other: 'other allocations' };
  for (const memory of app.recording.head.summary.memory) {
    for (const [when, moment] of [['at the peak', memory.peak], ['at the end', memory.end]]) {
      const held = moment.in_use_bytes + moment.cached_bytes;
      for (const { use, place, bytes, count } of moment.lines) {
        const frame = place ? app.recording.names.indexOf(place.frame) : -1;
        rows.push({ bytes, share: held ? bytes / held : 0, count, place: place ? place.frame : 'other lines', use: uses[use] || use, when,
          gpu: `GPU ${memory.label}, ${memory.process}`, sel: frame > 0 ? { kind: 'f', id: frame } : null });
      }
    }
  }
  return { columns: [
    { key: 'bytes', label: 'bytes', kind: 'bytes', bar: 'gpu', width: 120 }, { key: 'share', label: 'of held', term: 'share', kind: 'share', width: 84 },
    { key: 'count', label: 'count', kind: 'count', width: 90 }, { key: 'place', label: 'allocated by', term: 'user code', kind: 'text' },
    { key: 'use', label: 'use', kind: 'text' }, { key: 'when', label: 'when', kind: 'text' }, { key: 'gpu', label: 'device', kind: 'text' },
  ], rows, note: 'bytes held at one time', weights: ['whole'] };
}

/** How kernels fill the device, and what limits them. */
function occupancyTable(app) {
  const rows = app.recording.head.summary.occupancy.map(row => ({ ...row, used: row.multiprocessors_used / row.multiprocessors, full: row.waves / Math.ceil(row.waves),
    waves: row.waves < 0.1 ? row.waves.toPrecision(2) : row.waves.toFixed(2), needs: `${formatCount(row.blocks)} × ${row.threads} threads, ${row.registers} registers, ${formatBytes(row.shared_memory)} shared` }));
  return { columns: [
    { key: 'ns', label: 'time', term: 'GPU time', kind: 'time', bar: 'gpu', width: 120 }, { key: 'count', label: 'runs', kind: 'count', width: 90 },
    { key: 'kernel', label: 'kernel', kind: 'text' }, { key: 'occupancy', label: 'occupancy', term: 'occupancy', kind: 'share', width: 96 },
    { key: 'limiter', label: 'limited by', term: 'limited by', kind: 'text' }, { key: 'used', label: 'SMs used', term: 'SMs used', kind: 'share', width: 96 },
    { key: 'waves', label: 'waves', term: 'waves', kind: 'id', width: 90 }, { key: 'full', label: 'waves full', term: 'waves', kind: 'share', width: 96 },
    { key: 'needs', label: 'grid and block', kind: 'text' }, { key: 'device', label: 'GPU', kind: 'id', width: 70 },
  ], rows, note: 'the warps that a multiprocessor can hold, by registers, shared memory and block size', weights: ['whole'] };
}

/** The lines of kernels, and why their warps waited there. */
function stallTable(app) {
  const { names, head } = app.recording;
  const rows = head.summary.stalls.lines.map(line => {
    const frame = names.indexOf(line.line.split(' > ').pop());
    return { ...line, line: line.line || '[no line information]', sel: frame > 0 ? { kind: 'f', id: frame } : null };
  });
  return { columns: [
    { key: 'ns', label: 'time', term: 'GPU time', kind: 'time', bar: 'gpu', width: 120 }, { key: 'share', label: 'of kernel', term: 'share', kind: 'share', width: 90 },
    { key: 'samples', label: 'samples', term: 'stall reasons', kind: 'count', width: 90 }, { key: 'line', label: 'line', kind: 'text' },
    { key: 'stall', label: 'stall', term: 'stall reasons', kind: 'text' }, { key: 'stall_share', label: 'of line', term: 'share', kind: 'share', width: 76 },
    { key: 'meaning', label: 'meaning', kind: 'text' }, { key: 'kernel', label: 'kernel', kind: 'text' },
  ], rows, note: "each kernel's exact time, divided among its lines by samples", weights: ['whole'] };
}

/** What each GPU waited for while it was idle. */
function idleTable(app) {
  const { names, idleTime, head, wall } = app.recording;
  const { summary } = head;
  const { device, range } = app.state.values;
  const rows = [];
  const doing = { launching: 'launched the next work', waiting: 'waited', running: 'ran on the CPU', meanwhile: 'unknown; another thread ran', unknown: 'unknown', other: 'several causes' };
  const phases = ['before the first operation', 'between operations', 'after the last operation'];
  for (const gpu of summary.idle.filter(gpu => device === null || gpu.device === device)) {
    const alike = new Map();
    for (const row of range && idleTime.isKnown ? idleTime.in(range).filter(row => row.device === gpu.device) : []) {
      const { cause, reason, place, phase, ns } = row;
      const key = [cause, reason, place, phase].join();
      if (!alike.has(key)) alike.set(key, { ns: 0, phase: phases[phase], gpu: `GPU ${gpu.label}`, cause: [Object.values(doing)[cause], reason ? names[reason - 1] : ''].filter(Boolean).join(' '),
        place: place ? names[place - 1] : '', sel: place ? { kind: 'f', id: place - 1 } : null });
      alike.get(key).ns += ns;
    }
    for (const row of alike.values()) rows.push({ ...row, share: row.ns / (Math.min(wall, range[1]) - range[0]) });
    for (const [phase, causes] of range && idleTime.isKnown ? [] : [[phases[1], gpu.causes], [phases[0], gpu.before]]) {
      for (const { cause, reason, place, ns, share } of causes) {
        const frame = place ? names.indexOf(place.frame) : -1;
        rows.push({ ns, share, phase, gpu: `GPU ${gpu.label}`, cause: [doing[cause] || cause, reason].filter(Boolean).join(' '), place: place ? place.frame : '',
          sel: frame > 0 ? { kind: 'f', id: frame } : null });
      }
    }
  }
  return { columns: [
    { key: 'ns', label: 'idle', term: 'idle', kind: 'time', bar: 'wait', width: 120 }, { key: 'share', label: range && idleTime.isKnown ? 'of selected' : 'of recording', term: 'share', kind: 'share', width: 104 },
    { key: 'place', label: 'code', term: 'user code', kind: 'text' }, { key: 'cause', label: 'what the feeding thread did', term: 'feeding thread', kind: 'text' },
    { key: 'phase', label: 'when', kind: 'text' }, { key: 'gpu', label: 'device', kind: 'text' },
  ], rows, weights: ['idle'] };
}
