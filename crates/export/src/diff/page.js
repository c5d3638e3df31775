// Strings of the recordings become text nodes, never markup.
const data = JSON.parse(document.getElementById('data').textContent);
const byId = id => document.getElementById(id);
const amount = (row, value) => row.unit === 'bytes' ? formatBytes(Math.abs(value)) : formatTime(Math.abs(value));
const difference = row => row.after - row.before;
const signed = row => `${difference(row) < 0 ? '−' : difference(row) > 0 ? '+' : ''}${amount(row, difference(row))}`;
const percent = change => `${change < 0 ? '−' : change > 0 ? '+' : ''}${Math.abs(change * 100).toFixed(1)} %`;
const changed = row => row.change === null ? (row.after > 0 ? 'new' : '') : percent(row.change);
// One recording on each side has no significance: then any change counts.
const direction = row => row.significant === false || difference(row) === 0 ? '' : difference(row) > 0 ? 'slower' : 'faster';

// The verdict: what the wall time did, and why; then all totals.
const [wall] = data.diff.totals;
const name = files => files.map(file => printable(file)).join(', ');
byId('files').textContent = `${name(data.files[0])} → ${name(data.files[1])}`;
byId('files').title = `before: ${name(data.files[0])}\nafter: ${name(data.files[1])}`;
const several = data.diff.recordings.some(count => count > 1);
byId('findings').append(...[
  data.diff.filters ? element('p', { class: 'warning' }, `only a part of each is compared: ${data.diff.filters.join(' ')}`) : null,
  element('ol', { class: 'cards' }, element('li', { class: `card ${wall && direction(wall) === 'slower' ? 'high' : ''}` },
    element('div', { class: 'gain' }, ...wall ? [element('b', { class: direction(wall) }, changed(wall) || 'unchanged'), element('span', {}, signed(wall))] : []),
    element('div', { class: 'what' }, element('b', {}, printable(data.explanation ?? (wall ? `the wall time is about the same: ${amount(wall, wall.before)} before, ${amount(wall, wall.after)} after` : 'nothing to compare'))),
      several ? element('p', { class: 'faint' }, 'Times are means. Coloured changes are significant (Welch\'s t-test, 95 %).') : null))),
  element('div', { class: 'facts', id: 'totals' }, ...data.diff.totals.map(row => element('span', {}, `${row.name} ${amount(row, row.before)} → ${amount(row, row.after)} `,
    element('b', { class: direction(row) }, changed(row))))),
].filter(Boolean));

// The steps side by side: what a step is made of on average, and each step as a bar, in one scale.
const { steps } = data.diff;
const STEP_COLOURS = ['var(--idle)', 'var(--wait)', 'var(--cpu)', 'var(--memory)', 'var(--communication)'];
if (steps) {
  const made = steps.made_of ?? [];
  const idle = made.filter(({ name }) => name !== '[GPU busy]');
  const colour = part => part.name === '[GPU busy]' ? 'var(--gpu)' : STEP_COLOURS[idle.indexOf(part) % STEP_COLOURS.length];
  const sides = ['before', 'after'].map((side, at) => ({ side, times: steps.times[at], count: steps[`${side}_count`], median: steps[side] }));
  const longest = Math.max(...made.length ? sides.map(({ side }) => made.reduce((sum, part) => sum + part[side], 0)) : [1], 1);
  const highest = Math.min(Math.max(...sides.flatMap(({ times }) => times), 1), 5 * Math.max(...sides.map(({ median }) => median), 1));
  const bar = (part, ns) => element('i', { title: `${printable(part.name)}: ${formatTime(ns)} of each step`, style: { width: `${100 * ns / longest}%`, background: colour(part) } });
  byId('findings').append(element('div', { id: 'steps' },
    element('p', { class: 'faint' }, `Steps of ${printable(steps.place)}. Left: the average step, by what the GPU did. Right: the length of each step.`),
    ...sides.map(({ side, times, count, median }) => element('div', { class: 'side' },
      element('span', {}, side), element('b', {}, formatTime(median)), element('span', { class: 'faint' }, formatCounted(count, 'step', 'steps')),
      element('div', { class: 'made' }, ...made.map(part => bar(part, part[side]))),
      element('div', { class: 'strip', role: 'img', 'aria-label': `${formatCounted(count, 'step', 'steps')} ${side}, median ${formatTime(median)}` },
        ...times.map(ns => element('i', { title: formatTime(ns), style: { height: `${100 * Math.min(1, ns / highest)}%` } }))))),
    element('div', { class: 'legend' }, ...made.map(part => element('span', {}, element('i', { style: { background: colour(part) } }),
      `${shorten(printable(part.name), 60)} ${formatTime(part.before)} → ${formatTime(part.after)}`)))));
}

// The tables, each with what it counts. Those without a row are left out.
const subjects = [
  ['idle', 'GPU idle by cause', 'samples'], ['kernels', 'Kernels', 'runs'], ['paths', 'Paths', 'runs'], ['copies', 'Copies', 'copies'],
  ['functions', 'CPU functions', 'samples'], ['lines', 'CPU lines', 'samples'], ['waits', 'Off the CPU', 'waits'],
  ['communication', 'Communication', 'operations'], ['memory', 'GPU memory', 'allocations'],
].filter(([id]) => data.diff[id].length > 0);
const distinct = distinguish(data.diff.kernels.map(row => [row.name, row.name]));

/** A name in a row: of a kernel, what distinguishes it, or its function. */
function shortened(name) {
  const work = workName(name);
  const own = work.length > 40 && distinct.get(work) || (work.length < 60 ? work : work.replace(/^void /, '').replaceAll('(anonymous namespace)::', '').replace(/[<(].*$/, '<…>'));
  return printable(own);
}

/** What runs comes first, then who called it: paths are longer than a line. */
function named(row) {
  const [last, ...callers] = row.name.split(';').reverse();
  return [element('span', {}, shortened(last)), callers.length ? element('span', { class: 'path' }, `  ←  ${callers.map(printable).join(' ← ')}`) : null].filter(Boolean);
}

const columns = [
  ['name', row => row.name, named], ['before', row => row.before, row => amount(row, row.before)], ['after', row => row.after, row => amount(row, row.after)],
  ['difference', row => Math.abs(difference(row)), signed], ['change', row => row.change ?? Infinity, changed],
  ['runs', row => row.after_count, row => row.before_count === row.after_count ? `${row.after_count || ''}` : `${row.before_count} → ${row.after_count}`],
];
function table(id, counted, state) {
  const words = byId('filter').value.toLowerCase();
  const rows = data.diff[id].filter(row => row.name.toLowerCase().includes(words));
  const [, key] = columns[state.column];
  rows.sort((a, b) => state.sign * (typeof key(a) === 'string' ? key(a).localeCompare(key(b)) : key(b) - key(a)));
  const head = columns.map(([title], at) => element('th', { scope: 'col', 'aria-sort': at !== state.column ? 'none' : (state.sign > 0) === (at > 0) ? 'descending' : 'ascending' },
    element('button', { 'data-value': title, onclick: () => table(id, counted, { column: at, sign: at === state.column ? -state.sign : 1 }) },
      `${title === 'runs' ? counted : title}${at === state.column ? ((state.sign > 0) === (at > 0) ? ' ↓' : ' ↑') : ''}`)));
  const body = rows.map(row => element('tr', {}, ...columns.map(([title, , text]) => {
    const cell = element('td', { class: title === 'change' || title === 'difference' ? direction(row) : '' }, ...[text(row)].flat());
    if (title === 'name') cell.title = printable(row.name.split(';').join(' › '));
    return cell;
  })));
  const left = data.left_out[id] > 0 ? element('p', { class: 'faint' }, `${data.left_out[id]} smaller changes are not in this page: use diff --json.`) : null;
  keepFocus(byId(id), ...[left, element('div', { class: 'scroll', tabindex: '0' }, element('table', {}, element('thead', {}, element('tr', {}, ...head)), element('tbody', {}, ...body)))].filter(Boolean));
}

// The views.
const panel = (id, ...children) => element('div', { class: 'panel', id, role: 'tabpanel', 'aria-labelledby': `tab-${id}` }, ...children);
const key = (colour, text) => element('span', {}, element('i', { style: { background: colour } }), text);
const views = [['graph', 'Flame graph of differences', panel('graph', element('div', { class: 'legend' },
  key('hsl(var(--slower))', 'slower'), key('hsl(var(--faster))', 'faster'), key('var(--same)', 'unchanged'),
  element('span', {}, 'GPU time by path of user code. The width is the larger of the times before and after. Click: zoom; Esc: back.')),
  element('div', { class: 'scroll', tabindex: '0' }, element('div', { id: 'flame', role: 'group', 'aria-label': 'Flame graph of differences' })), element('div', { id: 'details' }))],
...subjects.map(([id, title]) => [id, title, panel(id)])];
const tabs = views.map(([id, title], index) => element('button', { role: 'tab', id: `tab-${id}`, 'aria-controls': id, onclick: () => show(index), onkeydown: event => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  show((index + step + tabs.length) % tabs.length);
  tabs[(index + step + tabs.length) % tabs.length].focus();
} }, title));
function show(chosen) {
  views.forEach(([, , root], index) => { root.hidden = index !== chosen; });
  tabs.forEach((tab, index) => {
    tab.setAttribute('aria-selected', String(index === chosen));
    tab.tabIndex = index === chosen ? 0 : -1;
  });
}
byId('tabs').append(...tabs);
byId('view').append(...views.map(([, , root]) => root));
const fill = () => subjects.forEach(([id, , counted]) => table(id, counted, { column: 3, sign: 1 }));
byId('filter').addEventListener('input', fill);
fill();

// The tree of paths: a node's width is the sum of the larger times of the paths below it.
const root = { name: 'all', before: 0, after: 0, width: 0, children: new Map(), above: null };
for (const path of data.diff.paths) {
  let node = root;
  for (const name of [null, ...path.name.split(';')]) {
    if (name !== null) {
      if (!node.children.has(name)) node.children.set(name, { name, before: 0, after: 0, width: 0, children: new Map(), above: node });
      node = node.children.get(name);
    }
    node.before += path.before;
    node.after += path.after;
    node.width += Math.max(path.before, path.after);
  }
}
const colourOf = node => {
  const most = Math.max(node.before, node.after);
  const share = most > 0 ? (node.after - node.before) / most : 0;
  if (Math.abs(share) < 0.005) return 'var(--same)';
  // A change of a half has the full colour.
  return `color-mix(in srgb, hsl(var(${share > 0 ? '--slower' : '--faster'})) ${Math.round(25 + 75 * Math.min(1, Math.abs(share) * 2))}%, var(--same))`;
};
const describe = node => `${workName(printable(node.name))}: ${formatTime(node.before)} before, ${formatTime(node.after)} after, ${node.before > 0 ? percent(node.after / node.before - 1) : 'new'}`;
let zoomed = root;
function draw() {
  const above = [];
  for (let node = zoomed; node; node = node.above) above.unshift(node);
  const frames = [];
  let deepest = 0;
  const add = (node, level, left, width) => {
    if (width < 0.0008) return;
    deepest = Math.max(deepest, level);
    frames.push(element('button', { class: 'frame', title: describe(node), ...width < 0.015 ? { 'aria-label': describe(node) } : {}, style: { left: `${left * 100}%`, width: `${width * 100}%`, top: `${level * 20}px`, background: colourOf(node), padding: width < 0.015 ? '0' : '' },
      onclick: () => { zoomed = node; draw(); }, onfocus: () => { byId('details').textContent = describe(node); }, onmouseenter: () => { byId('details').textContent = describe(node); } }, width < 0.015 ? '' : shortened(node.name)));
    if (level < above.length - 1) return;
    let at = left;
    for (const child of [...node.children.values()].sort((a, b) => b.width - a.width)) {
      const share = node.width > 0 ? width * child.width / node.width : 0;
      add(child, level + 1, at, share);
      at += share;
    }
  };
  above.forEach((node, level) => { add(node, level, 0, 1); });
  byId('flame').style.setProperty('height', `${(deepest + 1) * 20}px`);
  byId('flame').replaceChildren(...frames);
  byId('details').textContent = describe(zoomed);
}
addEventListener('keydown', event => {
  if (event.key === 'Escape' && zoomed.above) {
    zoomed = zoomed.above;
    draw();
  }
});
draw();
show(0);
const ready = true;
