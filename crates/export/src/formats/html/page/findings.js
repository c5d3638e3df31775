// The first screen: what the GPUs did, and the findings as cards, the one that could gain most first.

class Findings {
  constructor(app) {
    this.app = app;
    const { summary } = app.recording.head;
    this.facts = element('div', { class: 'facts' });
    this.about = element('p', { class: 'about' });
    this.cards = (summary.findings || []).map(finding => this.card(finding));
    app.root.findings.replaceChildren(this.facts, ...this.warnings(), this.about, element('ol', { class: 'cards', hidden: !this.cards.length }, ...this.cards.map(({ root }) => root)));
  }

  /** What depends on the selected time. */
  update() {
    const { app } = this;
    const key = app.sumsKey('');
    if (key === this.shown) return;
    this.shown = key;
    const { summary } = app.recording.head;
    const { range } = app.state.values;
    const [from, to] = app.span();
    const facts = [];
    const fact = (...parts) => facts.push(element('p', {}, ...parts.filter(Boolean).map(part => Array.isArray(part) ? element('b', {}, printable(part[0])) : part instanceof Node ? part : printable(part))));
    const show = (label, view) => element('button', { onclick: () => this.show(view), 'aria-label': `show ${label}` }, 'show');
    if (summary.dump) fact(`dump of the last ${formatTime(summary.dump.at_ns)}: `, [summary.dump.text], show('the timeline', { tab: 'time' }));
    const working = summary.devices.filter(device => device.streams);
    const rows = app.overview.rows.filter(row => !row.cpus);
    working.slice(0, 4).forEach((device, index) => {
      const share = range && rows.length === working.length ? app.overview.share(rows[index]) : device.busy_ns / summary.wall_ns;
      fact([`GPU ${device.label}`], device.name ? ` (${device.name})` : '', ' busy ', [formatShare(share, 1)], range ? ` of the selected ${formatTime(to - from)}` : ` of ${formatTime(summary.wall_ns)}`, index ? '' : explainer(app, 'busy'),
        index || range || !summary.launches ? '' : `  ·  ${formatCounted(summary.launches, 'launch', 'launches')}${summary.launch_each_ns ? `, ${formatTime(summary.launch_each_ns)} each` : ''}`,
        index || range || !summary.host_waits ? '' : `  ·  host threads waited ${formatTime(summary.host_wait_ns)} for the GPU`);
    });
    if (working.length > 4) fact(`and ${working.length - 4} more GPUs`, show('all GPUs', { tab: 'devices' }));
    const gpu = app.sums('gpu'), cpu = app.sums('cpu');
    const [top] = app.recording.gpu.node.length ? byFrame(app, FAMILY.kernel, gpu).sort((a, b) => b.total - a.total) : [];
    if (top) {
      fact('top kernel ', [shorten(top.brief, 90)], `: ${formatShare(top.share, 1)} of GPU time, ${formatTime(top.total)} in ${formatCounted(top.count, 'run', 'runs')}`,
        show('the top kernel', { tab: 'flame', weight: 'gpu', view: 'down', sel: top.sel, zoom: null }));
    }
    const busiest = this.busiest(cpu);
    if (busiest) {
      fact('top function on the CPU ', [shorten(busiest.name, 90)], `: ${formatTime(busiest.ns)} of ${formatTime(busiest.whole)}`,
        show('the top function', { tab: 'flame', weight: 'cpu', view: 'down', sel: { kind: 'f', id: busiest.frame }, zoom: null }));
    }
    // Less is known of a selected time. What is below must not move under the pointer that selects it.
    this.facts.style.setProperty('min-height', range && this.height ? `${this.height}px` : '');
    this.facts.replaceChildren(...facts);
    if (!range) this.height = this.facts.offsetHeight;
    for (const card of this.cards) this.locate(card, range);
    this.about.hidden = !working.length || summary.mode.startsWith('trace');
    this.about.replaceChildren(...((summary.findings || []).length
      ? [element('span', { class: 'faint' }, `Findings, by the most that each could gain of ${formatTime(summary.wall_ns)}. Gains overlap: they do not add up.`),
        range ? element('span', { class: 'warn' }, 'Of the whole recording; each card says what of it is in the selected time.') : '']
      : [element('b', { class: 'good' }, 'Nothing stands out: '), 'no GPU waits for long, and no rule about copies, launches and kernels found anything worth a change.', ...app.rangeNotes(['whole'])]));
  }

  /** The function with the most CPU time of its own. */
  busiest(sums) {
    const { recording } = this.app;
    const functions = new Map();
    let whole = 0;
    for (let node = 1; node < recording.nodes; node++) {
      if (!sums.self[node]) continue;
      whole += sums.self[node];
      // What was waited for on the CPU is below the function.
      let at = node;
      while (recording.family[recording.frame[at]] === FAMILY.wait && recording.parent[at]) at = recording.parent[at];
      const key = recording.function[recording.frame[at]];
      functions.set(key, (functions.get(key) || 0) + sums.self[node]);
    }
    const [most] = [...functions].sort((a, b) => b[1] - a[1]);
    return most && { frame: most[0], name: recording.names[most[0]], ns: most[1], whole };
  }

  /** Shows a view. On a phone it is below. */
  show(view) {
    const { state, root } = this.app;
    state.set(view);
    if (document.documentElement.scrollHeight > innerHeight) root.tabs.scrollIntoView();
  }

  /** Says how much of a finding is in the selected time. What has nothing in it steps back. */
  locate({ finding, root, located }, range) {
    const part = range && evidenceIn(this.app, finding, range);
    const whole = part && evidenceIn(this.app, finding, null);
    located.hidden = !range;
    located.textContent = !part || !whole.ns ? 'of the whole recording: not known for the selected time'
      : part.ns > 0 ? `in the selected time: ${formatTime(part.ns)} of ${formatTime(whole.ns)} ${part.what}` : `nothing of it in the selected time (${part.what})`;
    root.classList.toggle('outside', !!part && whole.ns > 0 && !part.ns);
  }

  card(finding) {
    const { app } = this;
    const { recording } = app;
    const { wall_ns: wall, steps } = recording.head.summary;
    const { gain } = finding;
    const evidence = (finding.evidence || []).map(({ name, value, unit }) => `${name} ${unit === 'ns' ? formatTime(value) : unit === 'bytes' ? formatBytes(value) : formatCount(value)}`);
    const each = gain && steps && steps.count > 1 && steps.median_ns && !['start', 'imbalance'].includes(finding.kind) ? gain.ns / steps.count : 0;
    const buttons = evidenceOf(recording, finding).map(({ label, view }) => element('button', { onclick: () => this.show(typeof view === 'function' ? view() : view),
      'aria-label': `${label}: ${finding.title.slice(0, 100)}` }, label));
    const located = element('p', { class: 'warn', hidden: true });
    const root = element('li', { class: `card ${gain ? gain.severity : 'none'}` },
      element('div', { class: 'gain' }, gain ? element('b', {}, `≤ ${formatShare(gain.ns, wall)}`) : element('b', {}, finding.kind === 'memory-peak' ? 'memory' : 'ranks'),
        gain ? element('span', {}, each ? `${formatTime(each)} per step` : formatTime(gain.ns)) : null,
        gain ? element('span', { class: 'severity' }, gain.severity) : null),
      element('div', { class: 'what' }, element('b', {}, printable(finding.title)), element('p', {}, `Try: ${printable(finding.advice)}`),
        evidence.length ? element('p', { class: 'faint' }, evidence.join('  ·  ')) : null, located),
      element('div', { class: 'actions' }, ...buttons, explainer(app, finding.kind, 'finding')));
    return { finding, root, located };
  }

  /** What is wrong with the recording itself. */
  warnings() {
    const { summary, stride, seen } = this.app.recording.head;
    const texts = [];
    if (summary.no_gpu_work) texts.push(`No GPU work was recorded: ${summary.no_gpu_work}`);
    if (summary.dump && summary.dump.full) texts.push('The window is shorter than requested: the buffer was full (--last-size).');
    if (summary.cut_off) texts.push('The recording is incomplete: it ends before the program did.');
    if (summary.unmatched_activities) texts.push(summary.ledger[0]);
    texts.push(...summary.notes.slice(0, 3));
    ['GPU operations', 'CPU samples', 'waits', 'off-CPU intervals', 'calls', 'NVTX ranges', "samples in warpscope's own code", 'operations of communicators'].forEach((what, index) => {
      if (stride[index] > 1) texts.push(`The timeline and time ranges show 1 of ${formatCount(stride[index])} of the ${formatCount(seen[index])} ${what}. Sums over the whole recording are exact.`);
    });
    return texts.map(text => element('p', { class: 'warning' }, printable(text)));
  }
}

/** How much of the time that a finding is about is in a range, or in all; null if that is not known. */
function evidenceIn(app, { kind, place, evidence }, range) {
  const { recording } = app;
  const frame = place ? recording.names.indexOf(place.frame) : -1;
  const add = rows => rows.reduce((sum, { ns }) => sum + ns, 0);
  if (['gpu-idle', 'launch-bound', 'start'].includes(kind)) {
    if (!recording.idleTime.isKnown) return null;
    const rows = recording.idleTime.in(range).filter(row => row.phase === (kind === 'start' ? PHASE.before : PHASE.between));
    const gpu = recording.head.summary.idle.find(gpu => evidence.some(({ name, value }) => name === 'idle' && value === gpu.idle_ns));
    if (kind === 'start') return { ns: add(rows), what: 'before the first work' };
    if (kind === 'launch-bound') return { ns: add(rows.filter(row => row.cause === CAUSE.launching)), what: 'idle while launching' };
    return { ns: add(gpu ? rows.filter(row => row.device === gpu.device) : rows), what: 'idle' };
  }
  if (frame < 0 || ['imbalance', 'memory-peak', 'synchronization'].includes(kind)) return null;
  const sums = app.sums('gpu', range, { process: null, device: null }), marks = recording.marked({ kind: 'f', id: frame });
  return { ns: sums.self.reduce((sum, ns, node) => sum + (marks[node] ? ns : 0), 0), what: 'GPU time there' };
}

/** The views that show the evidence of a finding. */
function evidenceOf(recording, { kind, place, evidence }) {
  const frame = place ? recording.names.indexOf(place.frame) : -1;
  const sel = frame > 0 ? { kind: 'f', id: frame } : null;
  const flame = weight => ({ tab: 'flame', weight, view: 'down', zoom: null, range: null, sel });
  const views = [];
  if (kind === 'gpu-idle' || kind === 'start') {
    if (recording.idle.node.length) views.push({ label: 'who kept it idle', view: flame('idle') });
  } else if (kind === 'memory-peak') {
    views.push({ label: 'who holds it', view: flame('memory-peak') });
  } else if (kind === 'kernel-limit') {
    views.push({ label: 'all limits', view: { tab: 'limits', sel } });
  } else if (kind === 'imbalance') {
    views.push({ label: 'compare', view: { tab: 'devices' } });
  } else if (recording.stall.node.length && ['memory-latency', 'memory-queue', 'bank-conflicts', 'barrier'].includes(kind)) {
    views.push({ label: 'the lines', view: { ...flame('stall'), tab: 'stalls' } });
  } else if (sel) {
    views.push({ label: 'the path', view: flame('gpu') });
  }
  if (kind === 'start' && evidence.length) {
    const range = [0, evidence[0].value];
    views.push({ label: 'the time', view: { tab: 'time', range, window: null } });
  } else if (['gpu-idle', 'launch-bound', 'synchronization'].includes(kind) && recording.op.start.length > 1) {
    views.push({ label: 'the longest gap', view: () => ({ tab: 'time', window: null, range: longestGap(recording), sel }) });
  }
  return views;
}

/** The longest time in which no GPU did anything, with a little of what is around it. */
function longestGap({ op, wall }) {
  const order = Uint32Array.from(op.start.keys()).sort((a, b) => op.start[a] - op.start[b]);
  let until = op.start[order[0]] + op.duration[order[0]], gap = [0, wall], longest = 0;
  for (const index of order) {
    if (op.start[index] - until > longest) {
      longest = op.start[index] - until;
      gap = [until, op.start[index]];
    }
    until = Math.max(until, op.start[index] + op.duration[index]);
  }
  const margin = (gap[1] - gap[0]) / 20;
  return [Math.max(0, gap[0] - margin), Math.min(wall, gap[1] + margin)].map(Math.round);
}
