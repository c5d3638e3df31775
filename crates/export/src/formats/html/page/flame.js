// The flame graph: root on top, one kind of weight at a time.

const ROW = 20;
const FOLDED_ROW = 6;
const MATCH_INK = '#1a1a1a';
const DIM = 0.35;

class FlameGraph {
  constructor(app) {
    this.app = app;
    this.canvas = element('canvas', { tabindex: '0', 'aria-label': 'Flame graph', class: 'graph' });
    this.crumbs = element('nav', { class: 'crumbs', 'aria-label': 'Path of the zoom' });
    this.scroll = element('div', { class: 'scroll' }, this.canvas);
    this.controls = element('div', { class: 'controls' });
    this.message = element('p', { class: 'message', hidden: true });
    this.legend = element('div', { class: 'legend' });
    this.root = element('div', { class: 'tab' }, this.controls, this.crumbs, this.message, this.scroll);
    this.canvas.addEventListener('mousemove', event => this.hover(event));
    this.canvas.addEventListener('mouseleave', () => this.app.hideTip());
    this.canvas.addEventListener('click', event => this.click(event));
    this.canvas.addEventListener('dblclick', () => this.zoomTo(this.tree.root));
    this.canvas.addEventListener('keydown', event => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.scroll);
  }

  /** Rebuilds the tree if anything changed that it depends on. */
  update() {
    const { recording, state } = this.app;
    const { by, view, fold } = state.values;
    const weight = this.app.weight();
    const sums = this.app.sums(weight.id);
    const open = state.values.open || [];
    const key = JSON.stringify([this.app.sumsKey(weight.id), by, view, fold, open]);
    if (key !== this.built) {
      this.tree = new FlameTree(recording, sums, { byFunction: by === 'function', bottomUp: view === 'up', fold, open: new Set(open) });
      this.built = key;
      this.matchKey = null;
    }
    this.weight = weight;
    this.zoomed = this.find(state.values.zoom) || this.tree.root;
    this.match();
    this.drawControls();
    this.draw();
    // Not where it was selected here: nothing moves under the pointer.
    const selection = JSON.stringify(state.values.sel);
    if (selection !== this.reached && this.boxes) this.reach();
    this.reached = selection;
  }

  /** Scrolls to the largest frame of the selection. */
  reach() {
    const selected = this.selected();
    if (!selected) return;
    const [box] = this.boxes.filter(box => selected.has(box.node)).sort((a, b) => b.w - a.w);
    const { scrollTop, clientHeight } = this.scroll;
    if (box && (box.y < scrollTop || box.y + box.h > scrollTop + clientHeight)) this.scroll.scrollTop = Math.max(0, box.y - clientHeight / 3);
  }

  /** The node of the graph that shows a node of the call tree. */
  find(node) {
    if (node === null) return null;
    if (!this.tree.bottomUp) return this.tree.byNode[node] || null;
    const key = this.app.recording.key(node, this.app.state.values.by === 'function');
    return this.tree.root.children.find(child => child.key === key) || null;
  }

  /** Finds the frames that match the search. A match within a match does not count again. */
  match() {
    const query = this.app.state.values.q;
    if (query === this.matchKey) return;
    this.matchKey = query;
    this.matches = null;
    this.searchError = '';
    if (!query) return;
    const test = matcher(query);
    this.searchError = test.error || '';
    const matching = new Map();
    this.matches = { nodes: new Set(), total: 0, count: 0 };
    const visit = (node, inside) => {
      let here = false;
      if (node.parent && node.key !== FOLDED) {
        here = matching.get(node.key);
        if (here === undefined) matching.set(node.key, here = test(this.app.recording.names[node.key]));
      }
      if (here) {
        this.matches.nodes.add(node);
        if (!inside) {
          this.matches.total += node.total;
          this.matches.count += node.count;
        }
      }
      for (const child of node.children) visit(child, inside || here);
    };
    visit(this.tree.root, false);
  }

  drawControls() {
    const { state, recording } = this.app;
    const { by, view, fold, weight } = state.values;
    const choice = (label, name, options) => element('span', { class: 'choice', role: 'group', 'aria-label': label }, element('span', { class: 'label' }, label),
      ...options.map(([value, text]) => element('button', { 'aria-pressed': String(value === name.current), 'data-value': value,
        onclick: () => state.set({ [name.key]: value, ...name.also }) }, text)));
    const weights = recording.weights.map(weight => [weight.id, weight.label]);
    keepFocus(this.controls, explainer(this.app, 'flame graph'),
      choice('weight', { key: 'weight', current: this.weight.id }, weights), explainer(this.app, ...(this.weight.term || [])),
      choice('by', { key: 'by', current: by }, [['line', 'line'], ['function', 'function']]),
      choice('view', { key: 'view', current: view, also: { zoom: null, open: null } }, [['down', 'top-down'], ['up', 'bottom-up']]),
      choice('fold', { key: 'fold', current: fold, also: { open: null } }, [['plumbing', 'plumbing'], ['mine', 'all but my code'], ['none', 'nothing']]),
      ...this.app.rangeNotes([this.weight.id]), element('span', { class: 'grow' }), this.found(), this.legend);
    const shown = new Set();
    const visit = node => {
      if (node.parent && node.key !== FOLDED) shown.add(this.tree.family(node));
      node.children.forEach(visit);
    };
    visit(this.tree.root);
    this.legend.replaceChildren(...[...shown].sort((a, b) => a - b).map(family => element('span', {},
      element('i', { style: { background: middleColour(family) } }), this.familyLabel(family))));
    const crumbs = [];
    for (let node = this.zoomed; node; node = node.parent) if (node.key !== FOLDED) crumbs.unshift(node);
    const crumb = node => element('button', { title: this.tree.name(node).slice(0, 400), 'aria-current': node === this.zoomed ? 'true' : 'false',
      onclick: () => this.zoomTo(node) }, node === this.tree.root ? `all ${this.weight.what}` : shorten(this.tree.label(node), 40));
    this.crumbs.replaceChildren(...crumbs.flatMap((node, index) => [index ? element('span', { class: 'faint', 'aria-hidden': 'true' }, '›') : null, crumb(node)].filter(Boolean)));
    // One line, with its end in sight.
    this.crumbs.scrollLeft = this.crumbs.scrollWidth;
  }

  /** Copies and allocations have one hue; which of the two is drawn depends on the weight. */
  familyLabel(family) {
    return family === FAMILY.memory && this.weight.measure === 'bytes' ? 'GPU memory' : this.app.recording.head.families[family].label;
  }

  found() {
    const { matches, weight, tree } = this;
    if (!matches) return element('span', { id: 'found', role: 'status' });
    const text = this.searchError ? this.searchError
      : matches.nodes.size === 0 ? `no frame matches`
      : `matched ${formatAmount(matches.total, weight.measure)} of ${weight.what}, ${formatShare(matches.total, tree.root.total)}`;
    return element('span', { id: 'found', class: this.searchError ? 'found warn' : 'found', role: 'status' }, text);
  }

  draw() {
    if (!this.tree || !this.root.isConnected) return;
    const width = this.scroll.clientWidth;
    const { zoomed, tree } = this;
    this.message.hidden = tree.root.total > 0;
    this.scroll.hidden = !this.message.hidden;
    if (!this.message.hidden) {
      this.message.replaceChildren(...this.app.whyEmpty(this.weight));
      return;
    }
    // The zoomed frame spans the width; its place among its siblings is in the path above.
    const boxes = [];
    const visit = (node, x, y, scale) => {
      const w = node.total * scale, h = node.key === FOLDED ? FOLDED_ROW : ROW;
      if (w < 0.4) return;
      boxes.push({ node, x, y, w, h });
      let at = x;
      for (const child of node.children) {
        visit(child, at, y + h, scale);
        at += child.total * scale;
      }
    };
    visit(zoomed, 0, 0, zoomed.total ? width / zoomed.total : 0);
    this.boxes = boxes;
    const height = boxes.reduce((most, box) => Math.max(most, box.y + box.h), ROW) + 1;
    const context = crisp(this.canvas, width, height);
    const selected = this.selected();
    context.font = FONT;
    context.textBaseline = 'middle';
    for (const box of boxes) this.drawBox(context, box, selected);
    if (selected) {
      context.strokeStyle = theme.ink;
      context.lineWidth = 2;
      for (const { node, x, y, w, h } of boxes) if (selected.has(node)) context.strokeRect(x + 1, y + 1, Math.max(1, w - 2), h - 2);
    }
    this.app.drawn('flame');
  }

  drawBox(context, { node, x, y, w, h }, selected) {
    const { tree, matches } = this;
    const matched = matches && matches.nodes.has(node);
    const dim = matches && !matched;
    const gap = w > 3 ? 1 : w > 1 ? 0.4 : 0;
    context.fillStyle = node === tree.root ? theme.panel : matched ? theme.match : colour(tree.family(node), tree.name(node));
    if (node.key === FOLDED) context.fillStyle = theme.line;
    context.globalAlpha = dim ? DIM : 1;
    context.fillRect(x, y, Math.max(0.5, w - gap), h - 1);
    if (node.key !== FOLDED && w > 24) {
      context.globalAlpha = 1;
      context.fillStyle = matched ? MATCH_INK : theme.ink;
      let room = w - 8;
      if (w > 330) {
        const amount = `${formatAmount(node.total, this.weight.measure)}  ${formatShare(node.total, tree.root.total)}`;
        context.textAlign = 'right';
        context.fillText(amount, x + w - 6, y + h / 2);
        context.textAlign = 'left';
        room -= amount.length * (characterWidth || 7) + 14;
      }
      drawLabel(context, node === tree.root ? { texts: [`all ${this.weight.what}`] } : tree.texts(node), x + 4, y + h / 2, room);
    }
    context.globalAlpha = 1;
  }

  /** The nodes of the graph that show the selection. */
  selected() {
    const selection = this.app.state.values.sel;
    if (!selection) return null;
    const { recording } = this.app;
    const nodes = new Set();
    if (selection.kind === 'f') {
      const visit = node => {
        const here = node.parent && node.key !== FOLDED && recording.is(node.from, selection.id);
        if (here) nodes.add(node);
        else node.children.forEach(visit);
      };
      visit(this.tree.root);
    } else {
      for (const at of recording.nodesOf(selection)) {
        const node = this.find(at);
        if (node) nodes.add(node);
      }
    }
    return nodes;
  }

  at(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    return (this.boxes || []).find(box => x >= box.x && x < box.x + box.w && y >= box.y && y < box.y + box.h);
  }

  hover(event) {
    const box = this.at(event);
    this.canvas.style.setProperty('cursor', box ? 'pointer' : 'default');
    if (!box) return this.app.hideTip();
    this.app.showTip(event, this.describe(box.node));
  }

  describe(node) {
    const { tree, weight, zoomed } = this;
    const amount = value => formatAmount(value, weight.measure);
    const lines = [node === tree.root ? `all ${weight.what}` : tree.name(node)];
    if (node.key === FOLDED) lines[0] = `${formatCounted(node.frames.size, 'folded frame', 'folded frames')}: ${lines[0]}`;
    lines.push(`${amount(node.total)} of ${weight.what}, ${formatShare(node.total, tree.root.total)} of the recording${
      this.app.state.values.range ? "'s selected time" : ''}${zoomed === tree.root ? '' : `, ${formatShare(node.total, zoomed.total)} of this view`}`);
    const parts = [`self ${amount(node.self)}`, formatCounted(node.count, ...weight.unit)];
    if (node.count && weight.id === 'gpu') parts.push(`mean ${amount(node.total / node.count)}`);
    lines.push(parts.join(' · '));
    if (node.key === FOLDED) lines.push('click to unfold');
    return lines;
  }

  click(event) {
    const box = this.at(event);
    if (!box) return;
    const { node } = box;
    this.app.hideTip();
    if (node.key === FOLDED) {
      this.app.state.set({ open: [...this.app.state.values.open || [], pathKey(node.parent)] });
    } else if (node === this.zoomed && node.parent) {
      this.zoomTo(node.parent);
    } else {
      this.zoomTo(node);
    }
  }

  /** Zooms to a node, and selects it. */
  zoomTo(node) {
    while (node.key === FOLDED) node = node.parent;
    const id = node === this.tree.root ? null : node.from;
    const sel = id === null ? this.app.state.values.sel
      : this.tree.bottomUp ? { kind: 'f', id: node.key } : { kind: 'n', id };
    // Bottom-up, only the outermost level can be found again from a node.
    this.reached = JSON.stringify(sel);
    if (this.tree.bottomUp && node.parent && node.parent !== this.tree.root) return this.app.state.set({ sel });
    this.scroll.scrollTop = 0;
    this.app.state.set({ zoom: id, sel });
  }

  key(event) {
    const selected = [...this.selected() || []][0] || this.zoomed;
    const siblings = selected.parent ? selected.parent.children : [selected];
    const index = siblings.indexOf(selected);
    const real = node => node && node.key === FOLDED ? node.children[0] : node;
    const next = { ArrowDown: real(selected.children[0]), ArrowUp: selected.parent && selected.parent.key === FOLDED ? selected.parent.parent : selected.parent,
      ArrowLeft: siblings[index - 1], ArrowRight: siblings[index + 1] }[event.key];
    if (event.key === 'Enter') this.zoomTo(selected);
    else if (next && next.parent && next.key !== FOLDED) {
      this.app.state.set({ sel: this.tree.bottomUp ? { kind: 'f', id: next.key } : { kind: 'n', id: next.from } }, 'keys');
    } else if (!event.key.startsWith('Arrow')) return;
    event.preventDefault();
  }
}

/** Tests names: for a part, without regard to case, or for a regular expression between slashes. */
function matcher(query) {
  const pattern = /^\/(.*?)\/?$/.exec(query);
  if (!pattern || query.length < 2) {
    const part = query.toLowerCase();
    return name => name.toLowerCase().includes(part);
  }
  try {
    const expression = new RegExp(pattern[1], 'i');
    return name => expression.test(name);
  } catch (error) {
    return Object.assign(() => false, { error: error.message.replace(/^Invalid regular expression/, 'invalid regular expression') });
  }
}
