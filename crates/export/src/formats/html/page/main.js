// Puts the page together.

class App {
  constructor(recording) {
    this.recording = recording;
    this.cache = new Map();
    this.root = Object.fromEntries(['head', 'findings', 'overview', 'steps', 'tabs', 'view', 'details', 'tip'].map(id => [id, document.getElementById(id)]));
    this.state = new State(changes => this.changed(changes));
    this.applyTheme();
    this.overview = new Overview(this);
    this.steps = new Steps(this);
    this.tabs = this.makeTabs();
    this.showTabs();
    this.makeHead();
    this.findings = new Findings(this);
    document.addEventListener('keydown', event => this.key(event));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.changed({ theme: '' }));
    this.changed({});
  }

  makeTabs() {
    const { recording } = this;
    const table = (name, make, about) => new Table(this, name, () => make(this), about);
    const has = (family, array) => array.some(node => recording.family[recording.frame[node]] === family);
    const { head } = recording;
    return [
      ['flame', 'Flame graph', new FlameGraph(this)],
      ['time', 'Timeline', new TimeLine(this), recording.op.start.length + recording.sample.time.length + recording.call.start.length > 0],
      ['kernels', 'Kernels', table('kernels', kernelTable), has(FAMILY.kernel, recording.gpu.node)],
      ['paths', 'Call paths', table('paths', pathTable), recording.gpu.node.length],
      ['lines', 'Lines', table('lines', app => codeTable(app, false)), recording.function.some((name, frame) => name !== frame && recording.family[frame] <= FAMILY.system)],
      ['functions', 'Functions', table('functions', app => codeTable(app, true)), recording.gpu.node.length + recording.cpu.node.length],
      ['copies', 'Copies', table('copies', copyTable), has(FAMILY.memory, recording.gpu.node)],
      ['waits', 'Waits', table('waits', waitTable), recording.wait.start.length + recording.switch.start.length + recording.weights.filter(weight => weight.id === 'wait').length],
      ['idle', 'Idle', table('idle', idleTable), (head.summary.idle || []).length],
      ['memory', 'Memory', table('memory', memoryTable), (head.summary.memory || []).length],
      ['occupancy', 'Occupancy', table('occupancy', occupancyTable), (head.summary.occupancy || []).length],
      ['limits', 'Limits', head.summary.limits ? new LimitsView(this) : null, head.summary.limits ? head.summary.limits.kernels.length : 0],
      ['stalls', 'Stalls', table('stalls', stallTable), head.summary.stalls ? head.summary.stalls.lines.length : 0],
      ['source', 'Source', head.sources.length ? new Source(this) : null, head.sources.length],
      ['ranks', 'Ranks', new Ranks(this), recording.collectives.count + ((head.summary.communication || {}).collectives || 0)],
      ['calls', 'Calls', table('calls', callTable), recording.call.start.length],
      ['processes', 'Processes', table('processes', processTable, ['process', 'term']), head.processes.length],
      ['devices', 'Devices', table('devices', deviceTable), head.summary.devices.length],
      ['ledger', 'Ledger', new Ledger(this)],
    ].filter(([,,, shown]) => shown !== 0 && shown !== false).map(([id, label, view]) => ({ id, label, view }));
  }

  showTabs() {
    const { tabs } = this;
    const move = (event, index) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const next = tabs[(index + step + tabs.length) % tabs.length];
      this.state.set({ tab: next.id }, 'keys');
      next.button.focus();
    };
    tabs.forEach((tab, index) => {
      tab.button = element('button', { role: 'tab', id: `tab-${tab.id}`, 'aria-controls': 'view', onclick: () => this.state.set({ tab: tab.id }), onkeydown: event => move(event, index) }, tab.label);
    });
    this.root.tabs.replaceChildren(...tabs.map(tab => tab.button));
  }

  makeHead() {
    const { head, wall } = this.recording;
    const { summary } = head;
    const command = printable(summary.command.join(' ')) || 'running processes';
    const started = head.unix_ns ? new Date(head.unix_ns / 1e6).toISOString().slice(0, 19).replace('T', ' ') : '';
    const matched = summary.ledger.find(sentence => sentence.startsWith('matched'));
    this.search = element('input', { type: 'search', placeholder: 'search: text or /regex/', 'aria-label': 'Search', title: 'Search frames and rows: text, or a regular expression between slashes (press /)',
      oninput: event => this.state.set({ q: event.target.value }, 'q') });
    this.searchError = element('span', { class: 'warn', role: 'alert', hidden: true });
    const filter = (key, label, options) => options.length < 2 ? null : element('select', { id: `filter-${key}`, 'aria-label': label,
      onchange: event => this.state.set({ [key]: event.target.value === '' ? null : Number(event.target.value) }) },
      element('option', { value: '' }, `all ${label}`), ...options.map(([value, text]) => element('option', { value: String(value) }, shorten(printable(text), 60))));
    const working = new Set([...this.recording.gpu.process, ...this.recording.cpu.process]);
    this.filters = { process: filter('process', 'processes', head.processes.filter(process => working.has(process.id)).map(process => [process.id, `${process.name} ${process.pid}`])),
      device: filter('device', 'GPUs', summary.devices.filter(device => device.streams).map(device => [device.index, `GPU ${device.label}`])) };
    this.root.head.replaceChildren(...[
      element('h1', { class: 'brand' }, 'warpscope'),
      element('span', { class: 'command', title: command.slice(0, 2000) }, shorten(command, 400)),
      element('span', { class: 'faint', title: `${started} UTC, warpscope ${head.version}` }, [printable(head.host), formatTime(wall)].filter(Boolean).join('  ·  ')),
      matched ? element('span', { class: summary.unmatched_activities ? 'matched bad' : 'matched', title: printable(matched) }, printable(matched.split('  (')[0])) : null,
      element('span', { class: 'grow' }), this.filters.process, this.filters.device, this.searchError, this.search,
      element('button', { title: 'Help: keys (press ?)', id: 'help', 'aria-label': 'Help', onclick: () => this.help() }, '?'),
      element('button', { title: 'Light or dark', id: 'theme', 'aria-label': 'Light or dark', onclick: () => this.state.set({ theme: theme.dark ? 'light' : 'dark' }) }, '◐'),
    ].filter(Boolean));
  }

  applyTheme() {
    const chosen = this.state.values.theme;
    if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
    else delete document.documentElement.dataset.theme;
    readTheme();
  }

  /** Draws what depends on the state. */
  changed(changes) {
    const { values } = this.state;
    if (!changes || 'theme' in changes) this.applyTheme();
    if (this.search && this.search.value !== values.q) this.search.value = values.q;
    for (const [key, select] of Object.entries(this.filters || {})) if (select) select.value = values[key] === null ? '' : String(values[key]);
    // A trace has calls, and often no stacks.
    const usual = this.recording.head.summary.mode.startsWith('trace') ? 'time' : 'flame';
    const current = this.tabs.find(tab => tab.id === (values.tab || usual)) || this.tabs[0];
    for (const tab of this.tabs) {
      tab.button.setAttribute('aria-selected', String(tab === current));
      tab.button.tabIndex = tab === current ? 0 : -1;
    }
    this.root.view.setAttribute('aria-labelledby', `tab-${current.id}`);
    const { error } = values.q ? matcher(values.q) : {};
    this.searchError.textContent = error || '';
    this.searchError.hidden = !error;
    this.search.setAttribute('aria-invalid', String(!!error));
    if (this.root.view.firstChild !== current.view.root || this.root.view.children.length !== 1) this.root.view.replaceChildren(current.view.root);
    if (!changes || !this.current || 'range' in changes || 'theme' in changes) {
      this.overview.draw();
      this.steps.draw();
    }
    this.findings.update();
    current.view.update();
    this.current = current;
    this.drawDetails();
  }

  weight() {
    const { weights } = this.recording;
    return weights.find(weight => weight.id === this.state.values.weight) || weights[0]
      || { id: 'none', label: 'GPU', measure: 'time', what: 'GPU time', unit: ['run', 'runs'] };
  }

  filter() {
    const { process, device } = this.state.values;
    return { process, device };
  }

  sumsKey(id, range = this.state.values.range, filter = this.filter()) {
    return JSON.stringify([id, range, filter]);
  }

  /** The sums of a weight in a time range and filter: the chosen ones. */
  sums(id, range = this.state.values.range, filter = this.filter()) {
    const key = this.sumsKey(id, range, filter);
    let sums = this.cache.get(key);
    if (!sums) {
      if (this.cache.size > 12) this.cache.clear();
      this.cache.set(key, sums = this.recording.sums(id, range, filter));
    }
    return sums;
  }

  /** Says which numbers the time range and the filter apply to. `whole` is for numbers of the whole recording. */
  rangeNotes(ids) {
    const { range, process, device } = this.state.values;
    const { weights, head } = this.recording;
    const notes = [];
    const not = text => notes.push(element('span', { class: 'warn' }, text));
    for (const id of new Set(ids)) {
      const weight = weights.find(weight => weight.id === id);
      if (id === 'gpu' || id === 'cpu') {
        const stride = head.stride[id === 'cpu' ? 1 : 0];
        if (range && stride > 1) notes.push(element('span', { class: 'faint' }, `estimated from 1 of ${formatCount(stride)} ${id === 'cpu' ? 'samples' : 'operations'}`));
      } else if (weight || id === 'whole') {
        const what = ids.length > 1 && weight ? `${weight.label}: ` : '';
        const follows = id === 'idle' && this.recording.idleTime.isKnown;
        if (range && !follows) not(`${what}of the whole recording, not of the selected time`);
        if (id !== 'whole' && ((device !== null && !follows) || (process !== null && /^(idle|stall|memory)/.test(id)))) not(`${what}of all processes${follows ? '' : ' and GPUs'}`);
      }
    }
    return notes;
  }

  /** The share of the strip's time in which a GPU was busy, in the selected time. */
  span() {
    return this.state.values.range || [0, this.recording.wall];
  }

  /** Why a flame graph is empty, and what to do. */
  whyEmpty(weight) {
    const { range, process, device } = this.state.values;
    const { summary } = this.recording.head;
    if (range || process !== null || device !== null) {
      return [element('p', {}, `No ${weight.what} in the selected time and filter.`),
        element('button', { onclick: () => this.state.set({ range: null, process: null, device: null }) }, 'show everything')];
    }
    const why = summary.no_gpu_work ? `No GPU work was recorded: ${summary.no_gpu_work}.` : 'Nothing was recorded: no CPU sample and no finished GPU work.';
    return [element('p', {}, why), element('p', {}, 'Run warpscope doctor to check this machine. The Ledger tab lists everything that was lost.'),
      ...summary.notes.map(note => element('p', { class: 'warn' }, printable(note)))];
  }

  showFlame(sel) {
    this.state.set({ tab: 'flame', sel, zoom: sel.kind === 'n' ? sel.id : sel.kind === 'o' ? this.recording.op.node[sel.id] : null });
  }

  drawDetails() {
    const { sel } = this.state.values;
    const lines = sel ? describeSelection(this, sel) : null;
    if (!lines) {
      const hint = this.current.id === 'time' ? 'Click an operation to see its call path. W/S zoom, A/D pan, wheel zooms, drag pans.'
        : this.current.id === 'ranks' ? 'Click an operation to see its members, a cell to see its longest wait. W/S zoom, A/D pan, Ctrl + wheel zooms, drag pans.'
        : this.current.id === 'flame' ? 'Click a frame to zoom and select it, Esc goes back, / searches. Drag over the strip above to select a time range.'
        : 'Click a row to select it, double-click to show it in the flame graph.';
      this.root.details.replaceChildren(element('div', { class: 'line faint hint' }, hint));
      return;
    }
    this.root.details.replaceChildren(...lines);
  }

  /** Shows a box beside the pointer, or above an element that it must not cover. */
  showTip(event, lines, above) {
    const { tip } = this.root;
    tip.replaceChildren(...lines.map(line => element('div', {}, shorten(line, 900))));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.setProperty('left', `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`);
    const top = above && above.getBoundingClientRect().top - height - 6;
    if (above && top > 0) tip.style.setProperty('top', `${top}px`);
    else tip.style.setProperty('top', `${event.clientY + 18 + height > innerHeight ? Math.max(4, event.clientY - height - 12) : event.clientY + 18}px`);
  }

  hideTip() {
    this.root.tip.hidden = true;
  }

  /** For tests: which view is on the screen. */
  drawn(view) {
    document.body.dataset.drawn = view;
  }

  key(event) {
    const typing = event.target === this.search;
    if (document.querySelector('dialog')) return;
    if (event.key === 'Escape') return this.escape(typing);
    if (typing || event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === 'SELECT') return;
    if (event.key === '/') {
      event.preventDefault();
      this.search.focus();
      this.search.select();
    } else if (event.key === '?') {
      this.help();
    } else if (/^[1-9]$/.test(event.key) && this.tabs[event.key - 1]) {
      this.state.set({ tab: this.tabs[event.key - 1].id });
    } else if (this.current.view.shortcut && this.current.view.shortcut(event)) {
      event.preventDefault();
    }
  }

  /** Esc undoes one action, as the browser's Back does. In a page that was opened with a view, it then clears that. */
  escape(typing) {
    const { q, sel, zoom, range } = this.state.values;
    this.hideTip();
    if (typing && !q) this.search.blur();
    else if (this.state.undo()) return;
    else if (q) this.state.clear({ q: '' });
    else if (zoom !== null) this.state.clear({ zoom: null });
    else if (sel) this.state.clear({ sel: null });
    else if (range) this.state.clear({ range: null });
  }

  help() {
    const rows = [['/', 'search: text, or /regular expression/'], ['Esc', "undo the last action; the browser's Back does the same"], ['1 … 9', 'tabs'],
      ['arrows, Enter', 'move among tabs, steps, rows and frames; zoom'], ['W S A D', 'zoom and pan the timeline; the wheel zooms, dragging pans'],
      ['drag over the strips', 'select a time range for all tabs; double-click clears it. A click on a step selects its time'], ['Shift + drag', 'the same in the timeline'], ['?', 'this help']];
    showDialog('help', 'Help',
      element('table', {}, ...rows.map(([key, text]) => element('tr', {}, element('td', {}, element('kbd', {}, key)), element('td', {}, text)))),
      element('p', { class: 'faint' }, 'The address of this page contains the view: copy it to share what you see.'));
  }
}

/** The lines about the selection at the bottom. */
function describeSelection(app, sel) {
  const { recording } = app;
  const bounds = { n: recording.nodes, f: recording.names.length, o: recording.op.start.length, c: recording.collectives.count };
  if (sel.id >= bounds[sel.kind]) return null;
  if (sel.kind === 'c') return describeCollective(app, sel.id);
  const collective = recording.collectives.of(sel);
  const marks = recording.marked(sel);
  const node = sel.kind === 'n' ? sel.id : sel.kind === 'o' ? recording.op.node[sel.id] : 0;
  const name = printable(sel.kind === 'f' ? anyGpu(recording.names[sel.id]) : recording.names[recording.frame[node]]);
  const facts = [];
  const kernels = new Map();
  for (const weight of recording.weights) {
    const sums = app.sums(weight.id);
    let total = 0, whole = 0, count = 0, own = 0;
    for (let at = 1; at < recording.nodes; at++) {
      whole += sums.self[at];
      if (!marks[at] || !sums.count[at]) continue;
      total += sums.self[at];
      count += sums.count[at];
      if (at === node || (sel.kind === 'f' && recording.is(at, sel.id))) own += sums.self[at];
      const frame = recording.alike[recording.frame[at]];
      if (weight.id === 'gpu') kernels.set(frame, (kernels.get(frame) || 0) + sums.self[at]);
    }
    if (!count) continue;
    let text = `${weight.label} ${formatAmount(total, weight.measure)} (${formatShare(total, whole)})`;
    if (weight.id === 'cpu' && own) text += ` self ${formatAmount(own, weight.measure)}`;
    if (weight.id === 'gpu') text += ` in ${formatCounted(count, 'run', 'runs')}, mean ${formatTime(total / count)}`;
    facts.push(text);
  }
  const lines = [];
  const buttons = [
    app.current.id === 'flame' ? null : element('button', { onclick: () => app.showFlame(sel) }, 'flame graph'),
    app.current.id === 'time' || !recording.op.start.length ? null : element('button', { onclick: () => app.state.set({ tab: 'time' }) }, 'timeline'),
    collective === null ? null : element('button', { onclick: () => app.state.set({ sel: { kind: 'c', id: collective } }) }, 'all members'),
    node ? element('button', { onclick: event => copyText(recording.path(node).map(at => recording.names[recording.frame[at]]).join(';')).then(copied => {
      event.target.textContent = copied ? 'copied' : 'cannot copy';
    }) }, 'copy path') : null,
    element('button', { onclick: () => app.state.set({ sel: null }), title: 'Esc' }, 'clear'),
  ].filter(Boolean);
  lines.push(element('div', { class: 'line' }, element('span', { class: 'name', title: name.slice(0, 2000) }, shorten(name, 500)),
    element('span', { class: 'rest' }, facts.join('  ·  ')), ...buttons));
  const rest = [];
  if (sel.kind === 'o') rest.push(describeOperation(recording, sel.id));
  const stall = name === '[issuing]' ? 'selected' : (name.match(/^\[stall: (.*)\]$/) || [])[1];
  const { stalls } = recording.head.summary;
  if (stall && stalls && stalls.reasons[stall]) rest.push(`a warp that ${stalls.reasons[stall]}`.replace('a warp that the', 'the'));
  if (node) rest.push(recording.pathText(node));
  else {
    const places = new Set();
    for (let at = 1; at < recording.nodes; at++) {
      if (!recording.is(at, sel.id)) continue;
      let caller = recording.parent[at];
      while (caller && recording.plumbing[recording.frame[caller]]) caller = recording.parent[caller];
      if (caller) places.add(recording.frame[caller]);
    }
    if (places.size) rest.push(`called from ${formatCounted(places.size, 'place', 'places')}: ${[...places].slice(0, 3).map(place => shorten(printable(recording.names[place]), 60)).join(', ')}`);
  }
  if (kernels.size > 1) {
    const top = [...kernels].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([frame, ns]) => `${shorten(workName(printable(recording.names[recording.label[frame]])), 48)} ${formatTime(ns)}`);
    rest.push(`GPU work: ${top.join(', ')}${kernels.size > 3 ? ` and ${kernels.size - 3} more` : ''}`);
  }
  lines.push(element('div', { class: 'line faint' }, element('span', { class: 'rest', title: rest.join('\n').slice(0, 3000) }, shorten(rest.join('  ·  '), 900))));
  return lines;
}

/** `at 1.20 s for 3.4 µs on GPU 0, stream 7, 5.1 µs after its launch` */
function describeOperation(recording, index) {
  const { op, head } = recording;
  const track = head.tracks[op.track[index]];
  const device = head.summary.devices.find(device => device.index === track.device);
  const parts = [`at ${formatTick(op.start[index], 1000)} for ${formatTime(op.duration[index])} on GPU ${device ? device.label : '?'}, stream ${track.stream}`];
  if (op.thread[index]) parts.push(`${formatTime(op.delay[index])} after its launch${op.launch[index] ? `, which took ${formatTime(op.launch[index])}` : ''}`);
  const family = recording.family[recording.frame[op.node[index]]];
  if (family === FAMILY.memory) {
    parts.push(`${formatBytes(op.amount[index])}${op.duration[index] ? `, ${formatBytes(op.amount[index] * 1e9 / op.duration[index])}/s` : ''}`);
  } else {
    const shape = head.shapes[op.amount[index] - 1];
    if (shape) parts.push(`grid ${shape.slice(0, 3).join('×')}, block ${shape.slice(3, 6).join('×')}, ${shape[6]} registers, ${formatBytes(shape[7])} shared`);
  }
  return parts.join(', ');
}

/** What was seen, matched and lost, and what warpscope cost. */
class Ledger {
  constructor(app) {
    this.app = app;
    this.root = element('div', { class: 'ledger', tabindex: '0', role: 'group', 'aria-label': 'Ledger' });
  }

  update() {
    const { summary, frequency, version, host } = this.app.recording.head;
    const terms = { launches: 'launch', matched: 'matched', unmatched_activities: 'matched', pending_launches: 'pending', cpu_samples: 'CPU time' };
    const table = rows => element('table', {}, ...rows.map(([name, value, term]) => element('tr', {}, element('td', {}, name, explainer(this.app, term, 'term')), element('td', { class: 'number' }, value))));
    const section = (title, term, ...children) => element('section', {}, element('h2', {}, title, ' ', explainer(this.app, term, 'term')), ...children);
    const counts = ['launches', 'kernels', 'copies', 'memsets', 'matched', 'unmatched_activities', 'pending_launches', 'failed_launches',
      'captured_launches', 'empty_launches', 'cpu_samples', 'own_samples', 'processes', 'threads', 'stacks'];
    const words = key => key.replaceAll('_', ' ');
    const children = [section('Ledger', 'ledger', ...summary.ledger.map((sentence, index) => element('p', { class: index === 0 && !summary.unmatched_activities ? 'good' : '' }, printable(sentence))),
      ...(summary.ledger.length ? [] : [element('p', {}, 'Nothing was matched and nothing was lost.')]),
      ...summary.notes.map(note => element('p', { class: 'warn' }, printable(note))))];
    if (summary.cost) {
      const { cost } = summary;
      children.push(section('What warpscope cost', 'overhead', element('p', {}, `${formatTime(cost.total_ns)} in the program${cost.program_cpu_ns ? `, ${formatShare(cost.total_ns, cost.program_cpu_ns)} of its CPU time` : ''}; ${formatTime(cost.delay_ns)} of it delayed the program's threads.`),
        table([...cost.parts.map(part => [part.name, formatTime(part.ns)]), [`per ${cost.unit}`, formatTime(cost.each_ns)], ["warpscope's own process, beside the program", formatTime(cost.collector_cpu_ns)]]),
        ...cost.not_measured.map(what => element('p', { class: 'faint' }, `not measured: ${what}`))));
    }
    children.push(section('Counts', '', table(counts.filter(key => summary[key] !== undefined).map(key => [words(key), formatCount(summary[key]), terms[key]]))));
    children.push(section('Losses by cause', '', table(Object.entries(summary.lost).map(([key, value]) => [words(key), formatCount(value)]))));
    children.push(section('Recording', '', table([['mode', summary.mode], ['CPU samples per second', frequency ? String(frequency) : 'none'], ['host', printable(host)], ['warpscope', printable(version)],
      ['command', shorten(printable(summary.command.join(' ')), 200)], ['wait status', summary.status === null ? 'unknown' : String(summary.status)]])));
    this.root.replaceChildren(...children);
    this.app.drawn('ledger');
  }
}

/** Resolves when the page is ready. */
const ready = (async () => {
  const data = document.getElementById('data');
  try {
    const decoded = await decode(data.textContent);
    data.textContent = '';
    window.app = new App(new Recording(decoded));
    document.body.dataset.ready = 'yes';
  } catch (error) {
    document.getElementById('view').replaceChildren(element('p', { class: 'message' }, `This report cannot be shown: ${error.message}. It needs a browser of 2023 or later (DecompressionStream).`));
    document.body.dataset.ready = 'failed';
    throw error;
  }
})();
