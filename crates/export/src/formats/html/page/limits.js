// The Limits tab: kernels by what they use of the GPU, and what limits them at each line (record --limits).

const CHART_HEIGHT = 236, CHART_LEFT = 84, CHART_BOTTOM = 48, CHART_TOP = 20;
/** From this share of its peak on, in percent, a unit limits a kernel. */
const BOUND = 60;
/** The most kernels that are drawn, and of these that are named. */
const MOST_DOTS = 100, MOST_DOT_NAMES = 6;

/** What a limit is about, and its colour in the theme. */
const LIMIT_KINDS = [
  ['arithmetic', 'gpu', ['tensor', 'fp64', 'fp32', 'integer', 'special', 'issue']], ['memory', 'memory', ['dram']],
  ['caches', 'communication', ['l2', 'l1', 'bank-conflicts', 'load-store']], ['waiting', 'wait', ['latency', 'occupancy']],
  ['too few blocks', 'cpu', ['small-grid', 'tail']], ['not known', 'idle', ['undecided', 'not-measured']],
];

class LimitsView {
  constructor(app) {
    this.app = app;
    this.canvas = element('canvas', { role: 'img' });
    this.legend = element('p', { class: 'faint legend' });
    this.chart = element('div', { class: 'chart' }, this.canvas, this.legend);
    this.table = new Table(app, 'limits', () => limitTable(app));
    this.root = element('div', { class: 'tab' }, element('div', { class: 'limits', tabindex: '0', role: 'group', 'aria-label': 'Limits' }, this.chart, this.table.root));
    this.canvas.addEventListener('pointermove', event => this.move(event));
    this.canvas.addEventListener('pointerleave', () => app.hideTip());
    this.canvas.addEventListener('click', event => this.click(event));
    new ResizeObserver(() => this.draw()).observe(this.chart);
  }

  update() {
    this.table.update();
    this.table.scroll.style.setProperty('height', `${27 + TABLE_ROW * Math.min(16, this.table.rows.length)}px`);
    this.table.drawnFrom = -1;
    this.table.draw();
    this.draw();
  }

  /** Each kernel with values: where it is, and how large. The largest are drawn first. */
  dots(width) {
    const { x, y } = this.scale(width);
    const rows = limitRows(this.app).filter(row => row.dram !== null && row.used !== null).slice(0, MOST_DOTS);
    return rows.map(row => ({ row, x: x(row.dram), y: y(row.used), radius: 3.5 + 28 * Math.sqrt(row.share) }));
  }

  scale(width) {
    const right = width - 34, low = CHART_HEIGHT - CHART_BOTTOM;
    return { right, low, x: percent => CHART_LEFT + (right - CHART_LEFT) * Math.min(100, percent) / 100, y: percent => low - (low - CHART_TOP) * Math.min(100, percent) / 100 };
  }

  draw() {
    const width = this.chart.clientWidth;
    if (!width || !this.root.isConnected) return;
    const context = crisp(this.canvas, width, CHART_HEIGHT);
    const { x, y, right, low } = this.scale(width);
    context.font = SMALL;
    context.strokeStyle = theme.line;
    context.fillStyle = theme.faint;
    for (const percent of [0, 20, 40, 60, 80, 100]) {
      context.setLineDash(percent === BOUND ? [4, 3] : []);
      context.beginPath();
      context.moveTo(x(percent), CHART_TOP);
      context.lineTo(x(percent), low);
      context.moveTo(CHART_LEFT, y(percent));
      context.lineTo(right, y(percent));
      context.stroke();
      context.textAlign = 'center';
      context.fillText(`${percent} %`, x(percent), low + 28);
      context.textAlign = 'right';
      context.fillText(`${percent} %`, CHART_LEFT - 26, y(percent) + 4);
    }
    context.setLineDash([]);
    context.textAlign = 'right';
    context.fillText('memory (DRAM), of its peak', right, low + 43);
    context.save();
    context.translate(14, CHART_TOP);
    context.rotate(-Math.PI / 2);
    context.fillText('busiest unit of the SMs, of its peak', 0, 0);
    context.restore();
    const dots = this.dots(width), { sel } = this.app.state.values;
    for (const dot of dots) {
      const [, colour] = LIMIT_KINDS.find(([,, limits]) => limits.includes(dot.row.kind));
      context.beginPath();
      context.arc(dot.x, dot.y, dot.radius, 0, 2 * Math.PI);
      context.fillStyle = theme[colour];
      context.globalAlpha = 0.85;
      context.fill();
      context.globalAlpha = 1;
      const chosen = sel && dot.row.sel && sel.kind === dot.row.sel.kind && sel.id === dot.row.sel.id;
      context.strokeStyle = chosen ? theme.accent : theme.faint;
      context.lineWidth = chosen ? 2.5 : 1;
      context.stroke();
    }
    context.lineWidth = 1;
    context.fillStyle = theme.ink;
    const named = [];
    for (const { row, x: at, y: middle, radius } of dots.slice(0, MOST_DOT_NAMES)) {
      const text = shorten(row.brief, 34), length = context.measureText(text).width;
      const leftwards = at + radius + 4 + length > right;
      if (named.some(other => Math.abs(other.middle - middle) < 12 && Math.abs(other.at - at) < Math.max(length, other.length) + 20)) continue;
      context.textAlign = leftwards ? 'right' : 'left';
      context.fillText(text, leftwards ? at - radius - 4 : at + radius + 4, middle + 4);
      named.push({ at, middle, length });
    }
    this.canvas.setAttribute('aria-label', `Kernels by what they use: ${dots.slice(0, MOST_DOT_NAMES).map(({ row }) => `${row.brief}: ${row.limit}, DRAM ${Math.round(row.dram)} %, SMs ${Math.round(row.used)} %`).join('; ')}`);
    const seen = new Set(dots.map(({ row }) => LIMIT_KINDS.find(([,, limits]) => limits.includes(row.kind))[0]));
    keepFocus(this.legend, 'Each dot is a kernel at a line; its area is its GPU time. Limited by: ', ...LIMIT_KINDS.filter(([name]) => seen.has(name)).flatMap(([name, colour]) =>
      [element('i', { class: 'swatch', style: { background: `var(--${colour})` } }), `${name} `]), '· The dashed lines are at 60 %: from there on, a unit limits a kernel.');
  }

  /** The smallest dot below the pointer. */
  at(event) {
    const near = this.dots(this.chart.clientWidth).filter(({ x, y, radius }) => Math.hypot(x - event.offsetX, y - event.offsetY) <= radius + 2);
    return near.sort((a, b) => a.radius - b.radius)[0];
  }

  move(event) {
    const dot = this.at(event);
    if (!dot) return this.app.hideTip();
    const { row } = dot;
    this.app.showTip(event, [row.kernel, row.line, `${formatTime(row.ns)}, ${formatCounted(row.runs, 'run', 'runs')}, ${formatCounted(row.measured, 'launch', 'launches')} measured`,
      `limited by ${row.limit}: ${row.meaning}`]);
  }

  click(event) {
    const dot = this.at(event);
    if (dot && dot.row.sel) this.app.state.set({ sel: dot.row.sel });
  }
}

const LIMIT_NAMES = { tensor: 'tensor pipe', fp64: 'FP64 pipe', fp32: 'FP32 pipe', integer: 'integer pipe', special: 'special functions', dram: 'DRAM', l2: 'L2 cache', l1: 'L1 cache',
  'bank-conflicts': 'bank conflicts', 'load-store': 'loads and stores', 'small-grid': 'small grid', 'not-measured': 'not measured' };

function limitRows(app) {
  const { names, family, head } = app.recording;
  const frames = new Map();
  family.forEach((kind, frame) => {
    const name = kind === FAMILY.kernel ? workName(anyGpu(names[frame])) : null;
    if (name !== null && !frames.has(name)) frames.set(name, frame);
  });
  return head.summary.limits.kernels.map(row => {
    const frame = frames.get(row.kernel) ?? -1;
    const units = [row.tensor, row.fp32, row.fp64, row.issue].filter(value => value !== null);
    return { ...row, kind: row.limit, limit: LIMIT_NAMES[row.limit] || row.limit, used: units.length ? Math.max(...units) : null, brief: printable(row.kernel.replace(/^void /, '').replace(/[<(].*/, '')),
      sel: frame > 0 ? { kind: 'f', id: frame } : null };
  });
}

/** What limits kernels, by line. */
function limitTable(app) {
  const part = value => value === null ? null : value / 100;
  const rows = limitRows(app).map(row => ({ ...row, of_peak: part(row.of_peak), dram: part(row.dram), tensor: part(row.tensor), l2: part(row.l2), warps: part(row.warps), sm_active: part(row.sm_active) }));
  const share = (key, label) => ({ key, label, kind: 'share', width: 84 });
  const { judged_ns: judged, kernel_ns: whole } = app.recording.head.summary.limits;
  return { columns: [
    { key: 'ns', label: 'time', term: 'GPU time', kind: 'time', bar: 'gpu', width: 120 }, { key: 'runs', label: 'runs', kind: 'count', width: 84 }, { key: 'measured', label: 'measured', kind: 'count', width: 84 },
    { key: 'kernel', label: 'kernel', kind: 'text' }, { key: 'line', label: 'line', term: 'user code', kind: 'text' }, { key: 'limit', label: 'limited by', kind: 'text', width: 130 },
    share('of_peak', 'of peak'), share('dram', 'DRAM'), share('tensor', 'tensor'), share('l2', 'L2'), share('sm_active', 'SMs'), share('warps', 'warps'), { key: 'meaning', label: 'meaning', kind: 'text' },
  ], rows, note: `${formatShare(judged, whole)} of the kernels' time has a limit`, weights: ['whole'] };
}
