// The strip of utilisation over time. Dragging selects the time range of everything below.

const STRIP = 22;
const LOW_STRIP = 11;
/** More strips than these are low, so that they leave room for what is below. */
const MOST_HIGH = 4;
const STRIP_LABEL = 118;
const MOST_STRIPS = 8;

class Overview {
  constructor(app) {
    this.app = app;
    this.canvas = element('canvas', { tabindex: '0', role: 'img' });
    this.note = element('span', { class: 'range' });
    app.root.overview.replaceChildren(this.canvas, this.note);
    this.rows = this.makeRows();
    this.strip = this.rows.length > MOST_HIGH ? LOW_STRIP : STRIP;
    this.step = this.strip + (this.strip < STRIP ? 2 : 4);
    this.canvas.addEventListener('pointerdown', event => this.start(event));
    this.canvas.addEventListener('pointermove', event => this.move(event));
    this.canvas.addEventListener('pointerup', event => this.end(event));
    this.canvas.addEventListener('pointerleave', () => this.app.hideTip());
    this.canvas.addEventListener('keydown', event => this.key(event));
    this.canvas.addEventListener('dblclick', () => this.app.state.set({ range: null }));
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
  }

  makeRows() {
    const { head, overviewGpu, overviewCpu, cpu } = this.app.recording;
    const { interval_ns: interval, devices } = head.overview;
    const bins = overviewCpu.length;
    const label = device => (head.summary.devices.find(known => known.index === device) || {}).label ?? '?';
    // Without a time range, what is not selected may keep a GPU busy.
    const part = (head.summary.filters || []).some(filter => !/^--(from|to) /.test(filter));
    let rows = devices.map((device, index) => ({ label: `GPU ${label(device)}${part ? ', part' : ''}`, family: FAMILY.kernel, most: interval,
      values: overviewGpu.subarray(index * bins, (index + 1) * bins) }));
    if (rows.length > MOST_STRIPS) {
      const mean = new Float64Array(bins);
      for (const row of rows) row.values.forEach((value, bin) => { mean[bin] += value / rows.length; });
      rows = [{ label: `${rows.length} GPUs, mean`, family: FAMILY.kernel, most: interval, values: mean }];
    }
    if (cpu.node.length) {
      // The scale is a whole number of CPUs. A short burst on all CPUs must not hide the rest: it is cut off.
      const usual = Float64Array.from(overviewCpu).sort()[Math.floor(bins * 0.97)];
      const most = Math.max(1, Math.ceil(usual / interval - 0.25));
      rows.push({ label: 'CPU', cpus: most, family: FAMILY.native, most: most * interval, values: overviewCpu });
    }
    return rows;
  }

  /** The mean of a row in the selected time. */
  share({ values }) {
    const { interval_ns: interval } = this.app.recording.head.overview;
    const [from, to] = this.app.span();
    let sum = 0;
    for (let bin = Math.max(0, Math.floor(from / interval)); bin < values.length && bin * interval < to; bin++) {
      sum += values[bin] * Math.max(0, Math.min(to, (bin + 1) * interval) - Math.max(from, bin * interval)) / interval;
    }
    return sum / (to - from || 1);
  }

  width() {
    return Math.max(50, this.canvas.parentElement.clientWidth - STRIP_LABEL - 24);
  }

  time(x) {
    return Math.min(1, Math.max(0, (x - STRIP_LABEL) / this.width())) * this.app.recording.wall;
  }

  x(time) {
    return STRIP_LABEL + time / this.app.recording.wall * this.width();
  }

  draw() {
    const { wall, head } = this.app.recording;
    const full = this.canvas.parentElement.clientWidth - 24;
    const height = this.rows.length * this.step + 18;
    this.canvas.style.setProperty('width', `${full}px`);
    const context = crisp(this.canvas, full, height);
    context.font = SMALL;
    context.textBaseline = 'middle';
    const interval = head.overview.interval_ns;
    this.rows.forEach((row, index) => {
      const y = index * this.step + 2;
      context.fillStyle = theme.panel;
      context.fillRect(STRIP_LABEL, y, this.width(), this.strip);
      context.fillStyle = theme.ink;
      context.fillText(row.label, 0, y + this.strip / 2);
      const share = this.share(row);
      context.fillStyle = theme.faint;
      context.textAlign = 'right';
      context.fillText(row.cpus ? `${share.toFixed(1)} CPUs` : formatShare(share, 1), STRIP_LABEL - 8, y + this.strip / 2);
      context.textAlign = 'left';
      context.fillStyle = middleColour(row.family);
      // One column per pixel: the mean of its intervals.
      const columns = Math.floor(this.width());
      for (let column = 0; column < columns; column++) {
        const from = column / columns * wall / interval, to = (column + 1) / columns * wall / interval;
        const value = meanOf(row.values, from, to) / row.most;
        const h = Math.min(1, value) * this.strip;
        if (value > 0) context.fillRect(STRIP_LABEL + column, y + this.strip - Math.max(1, h), 1, Math.max(1, h));
      }
    });
    drawAxis(context, [0, wall], STRIP_LABEL, this.width(), height - 15, 0);
    const range = this.dragged || this.app.state.values.range;
    if (range) {
      const [a, b] = range.map(time => this.x(time));
      context.fillStyle = theme.back;
      context.globalAlpha = 0.65;
      context.fillRect(STRIP_LABEL, 0, a - STRIP_LABEL, height - 16);
      context.fillRect(b, 0, STRIP_LABEL + this.width() - b, height - 16);
      context.globalAlpha = 1;
      context.strokeStyle = theme.accent;
      context.lineWidth = 1.5;
      context.strokeRect(a, 1, Math.max(1, b - a), height - 18);
    }
    this.canvas.setAttribute('aria-label', `Utilisation: ${this.rows.map(row => `${row.label} ${row.cpus ? `${this.share(row).toFixed(1)} CPUs` : formatShare(this.share(row), 1)}`).join(', ')}. ` +
      'Drag to select a time range; the arrow keys move it, + and - change its length.');
    const parts = [];
    const shown = this.app.state.values.range;
    if (shown) {
      parts.push(`${formatTime(shown[0])} – ${formatTime(shown[1])} (${formatTime(shown[1] - shown[0])}) `,
        element('button', { onclick: () => this.app.state.set({ range: null }) }, 'show all'));
    }
    this.note.replaceChildren(...parts);
  }

  key(event) {
    const { wall } = this.app.recording;
    const { range } = this.app.state.values;
    const [from, to] = range || [0, wall], span = to - from;
    const [first, last] = { ArrowLeft: [from - span / 4, to - span / 4], ArrowRight: [from + span / 4, to + span / 4],
      '+': [from + span / 4, to - span / 4], '-': [from - span / 2, to + span / 2] }[event.key] || [];
    if (first === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const next = [Math.max(0, first), Math.min(wall, last)].map(Math.round);
    if (next[1] - next[0] >= wall) this.app.state.set({ range: null, window: null }, 'range');
    else if (next[0] < next[1]) this.app.state.set({ range: next, window: null }, 'range');
  }

  start(event) {
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.from = this.time(event.offsetX);
  }

  move(event) {
    const time = this.time(event.offsetX);
    if (this.from === undefined) {
      const row = this.rows[Math.floor(event.offsetY / this.step)];
      if (!row || event.offsetX < STRIP_LABEL) return this.app.hideTip();
      const value = row.values[Math.min(row.values.length - 1, Math.floor(time / this.app.recording.head.overview.interval_ns))];
      const share = value / this.app.recording.head.overview.interval_ns;
      return this.app.showTip(event, [`${row.label} at ${formatTime(time)}`, row.cpus ? `${share.toFixed(2)} CPUs busy` : `${formatShare(share, 1)} busy`], this.canvas);
    }
    this.dragged = [Math.min(this.from, time), Math.max(this.from, time)];
    this.draw();
  }

  end(event) {
    const dragged = this.dragged;
    this.from = this.dragged = undefined;
    if (dragged && this.x(dragged[1]) - this.x(dragged[0]) > 3) this.app.state.set({ range: dragged.map(Math.round), window: null });
    else this.draw();
  }
}

function meanOf(values, from, to) {
  const first = Math.floor(from), last = Math.min(values.length, Math.ceil(to));
  let sum = 0;
  for (let i = first; i < last; i++) sum += values[i];
  return last > first ? sum / (last - first) : 0;
}

/** Draws a time axis: ticks at round times. */
function drawAxis(context, [from, to], left, width, y, grid) {
  const span = to - from;
  if (!(span > 0)) return;
  const wanted = Math.max(2, width / 110);
  const power = 10 ** Math.floor(Math.log10(span / wanted));
  const step = [1, 2, 5, 10].map(times => times * power).find(step => span / step <= wanted) || power * 10;
  context.font = SMALL;
  context.textBaseline = 'middle';
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
    const x = Math.round(left + (time - from) / span * width) + 0.5;
    context.fillStyle = theme.line;
    context.fillRect(x, y, 1, grid || 4);
    context.fillStyle = theme.faint;
    const text = formatTick(time, step);
    const w = context.measureText(text).width;
    if (x + 4 + w < left + width + 20) context.fillText(text, x + 4, y + 8);
  }
}

/** A time with as many digits as the step needs. */
function formatTick(time, step) {
  const [unit, scale] = time >= 1e9 || step >= 1e8 ? ['s', 1e9] : time >= 1e6 || step >= 1e5 ? ['ms', 1e6] : time >= 1e3 || step >= 100 ? ['µs', 1e3] : ['ns', 1];
  const digits = Math.max(0, Math.ceil(Math.log10(scale / step) - 1e-9));
  return `${(time / scale).toFixed(digits)} ${unit}`;
}
