// The Ranks tab: who waited for whom, the ranks over time, what was called, and why the late ones were late.

/** The most ranks whose waits are written into their cells. */
const MOST_NAMED = 16;
/** Of the late ranks, those are listed that had this part of all waits. */
const LEAST_LATE = 0.02, MOST_LATE = 8;

class Ranks {
  constructor(app) {
    this.app = app;
    this.note = element('span', { class: 'faint', role: 'status' });
    this.ranged = element('span', { class: 'ranged' });
    this.matrix = element('section', { class: 'matrix', 'aria-label': 'Ranks, and who waited for whom' });
    this.late = element('section', { class: 'late', 'aria-label': 'Late ranks' });
    this.lanes = new RankLanes(app);
    this.calls = new Table(app, 'collectives', () => collectiveTable(app));
    this.members = new Table(app, 'members', () => memberTable(app, this.chosen), ['rank imbalance', 'term']);
    this.membersTitle = element('h2', {});
    this.membersPart = element('section', { class: 'wide' }, this.membersTitle, this.members.root);
    this.lanesPart = element('section', { class: 'wide lanes', 'aria-label': 'Ranks over time' }, this.lanes.root);
    this.root = element('div', { class: 'tab' }, element('div', { class: 'controls' }, this.note, explainer(app, 'ranks', 'table'), this.ranged),
      element('div', { class: 'ranks', tabindex: '0', role: 'group', 'aria-label': 'Ranks' }, this.matrix, this.late, this.lanesPart, this.membersPart,
        element('section', { class: 'wide' }, element('h2', {}, 'Operations'), this.calls.root)));
  }

  update() {
    const { recording, state } = this.app;
    const { collectives, head } = recording;
    const { communication } = head.summary;
    const { range, sel } = state.values;
    const stride = head.stride[7];
    const [from, to] = collectives.in(range);
    const shown = collectives.count ? (range ? (to - from) * stride : head.seen[7]) : communication.collectives;
    this.note.textContent = [`${formatCounted(shown, 'operation', 'operations')} of ${formatCounted(collectives.lanes.length, 'rank', 'ranks')}${range && collectives.count ? ', by the start of the last member' : ''}`,
      communication && communication.unassigned ? `${formatCounted(communication.unassigned, 'kernel', 'kernels')} not assigned` : '',
      communication && communication.mismatches ? `${formatCounted(communication.mismatches, 'mismatch', 'mismatches')}: members called different operations` : ''].filter(Boolean).join(' · ');
    this.ranged.replaceChildren(...collectives.count ? range && stride > 1 ? [element('span', { class: 'faint' }, `estimated from 1 of ${formatCount(stride)} operations`)] : [] : [
      ...communication.assumed ? [element('span', { class: 'warn' }, 'No communicators are known: the k-th run of a kernel on each rank is taken for one operation')] : [], ...this.app.rangeNotes(['whole'])]);
    this.chosen = collectives.of(sel);
    this.showMatrix(range);
    this.showLate(range);
    this.lanesPart.hidden = !collectives.count;
    if (collectives.count) this.lanes.update();
    this.showTable(this.calls);
    this.membersPart.hidden = this.chosen === null;
    if (this.chosen !== null) {
      this.membersTitle.textContent = `${collectives.name(this.chosen)}, ${formatBytes(collectives.bytes[this.chosen])}, call ${formatCount(collectives.number[this.chosen])}: its members`;
      this.showTable(this.members);
    }
    this.app.drawn('ranks');
  }

  showTable(table) {
    table.update();
    table.scroll.style.setProperty('height', `${27 + TABLE_ROW * Math.min(16, table.rows.length)}px`);
    table.drawnFrom = -1;
    table.draw();
  }

  /** The ranks with their work, and at the right who waited for whom. */
  showMatrix(range) {
    const { collectives, head } = this.app.recording;
    const { lanes } = collectives;
    const ranks = new Map((head.summary.ranks || []).map(rank => [rank.rank, rank]));
    const span = this.app.span(), known = collectives.count > 0;
    const { cells, late } = known && (range || head.stride[7] === 1) ? collectives.waits(range) : this.summed(ranks);
    const work = range ? collectives.work(range) : null, steps = collectives.steps(range);
    const most = Math.max(1, ...cells.flat().map(cell => cell.ns));
    const named = lanes.length <= MOST_NAMED;
    const help = (text, term) => element('span', {}, text, explainer(this.app, term, 'term'));
    const heading = (text, term, more) => element('th', { scope: 'col', ...more }, help(text, term));
    const waitedFor = lanes.some(({ rank }) => rank === null) ? 'waited for' : 'waited for rank';
    const head1 = element('tr', {}, element('th', { scope: 'col', rowspan: '2', class: 'rank' }, 'rank'), heading('busy', 'busy', { rowspan: '2' }), heading('communication', '', { rowspan: '2' }),
      heading('only that', 'only communication', { rowspan: '2' }), heading('steps', 'step', { rowspan: '2' }), element('th', { scope: 'col', rowspan: '2' }, 'median step'),
      heading('waited', 'rank imbalance', { rowspan: '2' }), element('th', { scope: 'colgroup', colspan: String(lanes.length), class: 'group' }, waitedFor));
    const head2 = element('tr', {}, ...lanes.map(({ rank, label }) => element('th', { scope: 'col', class: 'cell' }, rank === null ? shorten(printable(label), 12) : String(rank))));
    const number = text => element('td', { class: 'number' }, text);
    const time = ns => ns === null || ns === undefined ? '' : ns ? formatTime(ns) : '0';
    const rows = lanes.map(({ rank, label }, own) => {
      const whole = range ? null : ranks.get(rank);
      const did = whole ? { busy: whole.busy_ns, communication: whole.communication_ns, exposed: whole.exposed_ns } : work ? work[own] : {};
      const waited = cells[own].reduce((sum, cell) => sum + cell.ns, 0);
      return element('tr', {}, element('th', { scope: 'row', class: 'rank' }, printable(label)), number(did.busy === undefined ? '' : formatShare(did.busy, span[1] - span[0])), number(time(did.communication)), number(time(did.exposed)),
        number(steps[own].count ? formatCount(steps[own].count) : ''), number(steps[own].count ? time(steps[own].median) : ''), number(time(waited)),
        ...cells[own].map((cell, other) => this.cell(cell, own, other, most, named)));
    });
    const caused = element('tr', { class: 'sum' }, element('th', { scope: 'row', colspan: '7', class: 'rank' }, 'others waited for it'), ...late.map(({ ns }) => element('td', { class: 'number' }, named ? time(ns) : '')));
    keepFocus(this.matrix, element('table', { class: named ? '' : 'many' }, element('thead', {}, head1, head2), element('tbody', {}, ...rows, caused)));
  }

  cell(cell, own, other, most, named) {
    const { lanes } = this.app.recording.collectives;
    if (own === other) return element('td', { class: 'cell self' });
    const title = `${lanes[own].label} waited ${formatTime(cell.ns)} for ${lanes[other].label}`;
    const strength = cell.ns ? 12 + 88 * cell.ns / most : 0;
    const style = { background: `color-mix(in srgb, var(--wait) ${strength.toFixed(0)}%, transparent)` };
    const text = cell.ns && named ? formatTime(cell.ns) : '';
    if (cell.worst === null) return element('td', { class: 'cell number', style, title }, text);
    return element('td', { class: 'cell', style }, element('button', { class: 'number', title, 'aria-label': `${title}: show the longest`, 'data-value': `${own} ${other}`,
      onclick: () => this.app.state.set({ sel: { kind: 'c', id: cell.worst } }) }, text));
  }

  /** The waits of the whole recording as the summary has them. */
  summed(ranks) {
    const { lanes } = this.app.recording.collectives;
    const late = lanes.map(() => ({ ns: 0, count: 0, of: 0 }));
    const cells = lanes.map(({ rank }) => {
      const waited = new Map(((ranks.get(rank) || {}).waited_for || []).map(({ rank, ns }) => [rank, ns]));
      return lanes.map(({ rank: other }) => ({ ns: other === null ? 0 : waited.get(other) || 0, worst: null }));
    });
    cells.forEach(row => row.forEach(({ ns }, other) => { late[other].ns += ns; }));
    return { cells, late };
  }

  /** Those that others waited for, and what they did instead. */
  showLate(range) {
    const { app } = this;
    const { collectives, head: { summary, processes }, names } = app.recording;
    const { lanes } = collectives;
    const of = ({ rank, pid }) => lanes.findIndex(lane => rank === undefined ? lane.processes.some(process => process.pid === pid) : lane.rank === rank);
    const whole = (summary.waits || []).map(wait => ({ ...wait, lane: of(wait) })).filter(({ lane }) => lane >= 0);
    const ranged = range && collectives.count ? collectives.waits(range).late : null;
    const all = whole.map(wait => ranged ? { ...wait, waited_ns: ranged[wait.lane].ns, count: ranged[wait.lane].count, of: ranged[wait.lane].of } : wait)
      .filter(({ waited_ns: ns }) => ns > 0).sort((a, b) => b.waited_ns - a.waited_ns);
    const sum = rows => rows.reduce((sum, { waited_ns: ns }) => sum + ns, 0);
    const rows = all.filter(({ waited_ns: ns }) => ns >= LEAST_LATE * sum(all)).slice(0, MOST_LATE), others = all.slice(rows.length);
    const instead = ({ place, reason, ns, samples }) => {
      const frame = names.indexOf(place.frame);
      const text = `${formatTime(ns)} ${printable(place.frame)}${reason ? ` ${reason}` : samples ? ` (${formatCounted(samples, 'sample', 'samples')})` : ''}`;
      return element('li', {}, frame < 0 ? text : element('button', { onclick: () => app.state.set({ sel: { kind: 'f', id: frame } }) }, text));
    };
    const items = rows.map(row => element('li', {},
      element('p', {}, element('b', {}, printable(lanes[row.lane].label)), `: others waited ${formatTime(row.waited_ns)} for it, in ${formatCount(row.count)} of ${formatCounted(row.of, 'operation', 'operations')}`),
      row.host_ns + row.gpu_ns ? element('p', { class: 'faint' }, `${ranged ? 'In the whole recording ' : ''}late by ${formatTime(row.host_ns)} before its launch and ${formatTime(row.gpu_ns)} after it`) : null,
      (row.instead || []).length ? element('ul', {}, ...row.instead.map(instead)) : null));
    if (others.length) items.push(element('li', { class: 'faint' }, `${formatCounted(others.length, 'other', 'others')}: ${formatTime(sum(others))}`));
    this.late.replaceChildren(element('h2', {}, 'Late ranks ', explainer(app, 'rank imbalance', 'term')), items.length ? element('ol', {}, ...items)
      : element('p', { class: 'faint' }, `Nobody waited for another rank${range ? ' in the selected time' : ''}.`));
  }

  shortcut(event) {
    return this.app.recording.collectives.count > 0 && this.lanes.shortcut(event);
  }
}

/** Operations by communicator and call. */
function collectiveTable(app) {
  const { collectives, head } = app.recording;
  const { range } = app.state.values;
  const rows = (range && collectives.count ? collectives.sums(range) : head.summary.collectives || []).map(row => ({ ...row, communicator: row.communicator.slice(-8) }));
  return { columns: [
    { key: 'waited_ns', label: 'waited', term: 'rank imbalance', kind: 'time', bar: 'wait', width: 120 }, { key: 'transfer_ns', label: 'transfer', term: 'transfer', kind: 'time', width: 96 },
    { key: 'count', label: 'count', kind: 'count', width: 80 }, { key: 'bytes', label: 'bytes', kind: 'bytes', width: 90 },
    { key: 'bus_bytes_per_second', label: 'bus', term: 'bus bandwidth', kind: 'rate', width: 104 }, { key: 'operation', label: 'operation', kind: 'text', width: 180 },
    { key: 'members', label: 'members', kind: 'count', width: 84 }, { key: 'communicator', label: 'communicator', kind: 'text' },
  ], rows };
}

/** The members of an operation. */
function memberTable(app, id) {
  const { recording } = app;
  const { collectives } = recording;
  const { member, first, lanes, laneOf } = collectives;
  const rows = [];
  for (let m = first[id]; m < first[id + 1]; m++) {
    const op = collectives.opOf(m), last = first[id] + member.for[m];
    rows.push({ rank: lanes[laneOf.get(member.process[m])].label, start: member.start[m], launched: member.start[m] - member.delay[m], ns: member.duration[m], waited: member.waited[m],
      last: member.waited[m] ? lanes[laneOf.get(member.process[last])].label : '', kernel: op === null ? '' : workName(anyGpu(recording.names[recording.frame[recording.op.node[op]]])),
      path: member.node[m] ? recording.pathText(member.node[m]) : '', sel: op === null ? null : { kind: 'o', id: op } });
  }
  return { columns: [
    { key: 'rank', label: 'rank', kind: 'text', width: 110 }, { key: 'launched', label: 'launched', kind: 'at', width: 104 }, { key: 'start', label: 'began', kind: 'at', width: 104 },
    { key: 'ns', label: 'ran', kind: 'time', width: 90 }, { key: 'waited', label: 'waited', term: 'rank imbalance', kind: 'time', bar: 'wait', width: 110 }, { key: 'last', label: 'for', kind: 'text', width: 110 },
    { key: 'kernel', label: 'kernel', kind: 'text' }, { key: 'path', label: 'launched by', term: 'path', kind: 'text' },
  ], rows };
}
