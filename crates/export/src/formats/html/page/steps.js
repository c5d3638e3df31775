// The strip of steps: a bar for each, as high as it took long, divided by what the GPU did. A click selects the step's time.

const STEP_HEIGHT = 40;

/** What a step is made of: colour, name, and time at an index. Work that overlaps other work counts once. */
const STEP_PARTS = [
  ['gpu', 'GPU busy', (step, at) => step.busy[at] - busyPart(step.copy, step, at) - busyPart(step.communication, step, at)],
  ['communication', 'communication', (step, at) => busyPart(step.communication, step, at)],
  ['memory', 'copies', (step, at) => busyPart(step.copy, step, at)],
  ['cpu', 'idle: launching', (step, at) => step.launching[at]],
  ['wait', 'idle: waiting', (step, at) => step.waiting[at]],
  ['idle', 'idle: other', (step, at) => Math.max(0, step.duration[at] - step.busy[at] - step.launching[at] - step.waiting[at])],
];

/** The part of a step's busy time that some work can have had. */
function busyPart(work, { busy, copy, communication }, at) {
  return work[at] && work[at] * Math.min(1, busy[at] / (copy[at] + communication[at]));
}

class Steps {
  constructor(app) {
    this.app = app;
    this.chosen = 0;
    this.root = app.root.steps;
    const { steps } = app.recording.head;
    this.root.hidden = !steps.some(series => series.count > 1);
    if (this.root.hidden) return;
    this.canvas = element('canvas', { tabindex: '0', role: 'img' });
    const choice = steps.length < 2 ? null : element('select', { 'aria-label': 'Thread of the steps', onchange: event => {
      this.chosen = Number(event.target.value);
      this.read();
    } }, ...steps.map((series, index) => element('option', { value: String(index) }, shorten(`thread ${series.tid}: ${printable(series.place)}`, 80))));
    this.note = element('span', { class: 'faint' });
    this.legend = element('span', { class: 'legend' });
    this.root.replaceChildren(element('div', { class: 'about' }, element('span', {}, this.note, explainer(app, 'step')), choice, this.legend), this.canvas);
    this.canvas.addEventListener('pointerdown', event => this.start(event));
    this.canvas.addEventListener('pointermove', event => this.move(event));
    this.canvas.addEventListener('pointerup', event => this.end(event));
    this.canvas.addEventListener('pointerleave', () => this.app.hideTip());
    this.canvas.addEventListener('keydown', event => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.root);
    this.read();
  }

  /** Reads the steps of the chosen thread. */
  read() {
    const { head, step } = this.app.recording;
    const { steps } = head;
    const from = steps.slice(0, this.chosen).reduce((sum, series) => sum + series.count, 0);
    this.series = steps[this.chosen];
    this.longestOf = null;
    const { count, warm_up: warmUp, whole, median_ns: median, p99_ns: p99 } = this.series;
    const part = column => column.subarray(from, from + count);
    this.step = Object.fromEntries(Object.entries(step).map(([name, column]) => [name, part(column)]));
    // Neither the warm-up nor a step whose end is unknown is a usual one.
    const usual = column => Float64Array.from(column.subarray(warmUp, count - (whole ? 0 : 1))).sort();
    const middle = column => { const sorted = usual(column); return sorted[sorted.length >> 1] || 0; };
    this.median = Object.fromEntries(Object.entries(this.step).map(([name, column]) => [name, middle(column)]));
    this.median.duration = median;
    this.parts = STEP_PARTS.map(([, name, of]) => {
      const values = Float64Array.from(this.step.duration, (_, at) => of(this.step, at));
      return { name, values, median: middle(values) };
    });
    this.legend.replaceChildren(...this.parts.flatMap(({ name, values }, part) => values.some(ns => ns > 0)
      ? [element('span', {}, element('i', { style: { background: `var(--${STEP_PARTS[part][0]})` } }), name)] : []));
    // The bars of few very long steps are cut off, so that the others can be compared.
    this.most = Math.min(this.step.duration.reduce((most, ns) => Math.max(most, ns), 1), 5 * this.median.duration || Infinity);
    const text = `${formatCounted(count, 'step', 'steps')} of ${printable(this.series.place)}: median ${formatTime(median)}, p99 ${
      formatTime(p99)}${warmUp ? `; ${warmUp} of warm-up left out` : ''}`;
    this.note.textContent = text;
    this.canvas.setAttribute('aria-label', `${text}. Arrow keys move, Enter selects the time of a step.`);
    this.draw();
  }

  /** The step at a place. */
  at(x, width = this.canvas.clientWidth) {
    return Math.max(0, Math.min(this.series.count - 1, Math.floor(x / width * this.series.count)));
  }

  draw() {
    if (this.root.hidden) return;
    const width = this.root.clientWidth - 24;
    if (width <= 0) return;
    this.canvas.style.setProperty('width', `${width}px`);
    const context = crisp(this.canvas, width, STEP_HEIGHT);
    const { start, duration } = this.step;
    const { count } = this.series;
    const bar = width / count;
    const { range } = this.app.state.values;
    const inRange = index => !range || (start[index] < range[1] && start[index] + duration[index] > range[0]);
    const longest = bar < 1 ? this.longest(Math.ceil(width)) : null;
    context.fillStyle = theme.panel;
    context.fillRect(0, 0, width, STEP_HEIGHT);
    for (let x = 0; x < (bar < 1 ? Math.ceil(width) : count); x++) {
      const index = bar < 1 ? longest[x] : x;
      const left = bar < 1 ? x : x * bar, w = bar < 1 ? 1 : Math.max(1, bar - (bar > 3 ? 1 : 0));
      const h = Math.min(1, duration[index] / this.most) * (STEP_HEIGHT - 2), scale = h / (duration[index] || 1);
      context.globalAlpha = inRange(index) ? 1 : 0.3;
      let y = STEP_HEIGHT;
      this.parts.forEach(({ values }, part) => {
        context.fillStyle = theme[STEP_PARTS[part][0]];
        context.fillRect(left, y - values[index] * scale, w, values[index] * scale);
        y -= values[index] * scale;
      });
      if (duration[index] > this.most) {
        context.fillStyle = theme.ink;
        context.fillRect(left, 0, w, 2);
      }
    }
    context.globalAlpha = 1;
    const y = STEP_HEIGHT - this.median.duration / this.most * (STEP_HEIGHT - 2);
    context.fillStyle = theme.ink;
    for (let x = 0; x < width; x += 8) context.fillRect(x, y, 4, 1);
    if (this.focused !== undefined) {
      context.strokeStyle = theme.ink;
      context.strokeRect(this.focused * bar + 0.5, 0.5, Math.max(2, bar - 1), STEP_HEIGHT - 1);
    }
  }

  /** Of several steps in a pixel, the longest. */
  longest(width) {
    if (this.longestOf && this.longestOf.length === width) return this.longestOf;
    const { duration } = this.step;
    this.longestOf = new Uint32Array(width);
    for (let x = 0; x < width; x++) {
      let index = this.at(x, width);
      for (let other = index, last = this.at(x + 1, width); other <= last; other++) if (duration[other] > duration[index]) index = other;
      this.longestOf[x] = index;
    }
    return this.longestOf;
  }

  describe(index) {
    const { start, duration, launches } = this.step;
    const { median } = this;
    const { processes, slow_steps: slow } = this.app.recording.head;
    const { process, tid } = this.series;
    const pid = (processes.find(known => known.id === process) || {}).pid;
    const reason = slow.find(other => other.pid === pid && other.tid === tid && other.step === index + 1);
    const times = median.duration ? `, ${(duration[index] / median.duration).toFixed(2)} times the median` : '';
    const note = index < this.series.warm_up ? ' (warm-up)' : index === this.series.count - 1 && !this.series.whole ? ' (last: ends with its GPU work)' : '';
    return [`step ${index + 1}${note}: ${formatTime(duration[index])}${times}`,
      ...reason ? [reason.why] : [],
      this.parts.filter(({ values, median }) => values[index] || median).map(({ name, values, median }) => `${name} ${formatTime(values[index])} (median ${formatTime(median)})`).join(' · '),
      `${formatCounted(launches[index], 'launch', 'launches')} (median ${formatCount(median.launches)}) · from ${formatTick(start[index], duration[index] / 10)}`];
  }

  select(first, last) {
    const { start, duration } = this.step;
    const [a, b] = [Math.min(first, last), Math.max(first, last)];
    this.app.state.set({ range: [start[a], Math.max(start[a] + 1, start[b] + duration[b])], window: null });
  }

  start(event) {
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.from = this.at(event.offsetX);
  }

  move(event) {
    const lines = this.describe(this.at(event.offsetX));
    this.app.showTip(event, this.from === undefined ? [...lines, 'click: select its time'] : lines, this.canvas);
  }

  end(event) {
    if (this.from !== undefined) this.select(this.from, this.at(event.offsetX));
    this.from = undefined;
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === 'Enter' && this.focused !== undefined) return this.select(this.focused, this.focused);
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    this.focused = this.focused === undefined ? 0 : Math.max(0, Math.min(this.series.count - 1, this.focused + step));
    this.canvas.setAttribute('aria-label', this.describe(this.focused).join('. '));
    this.draw();
  }
}
