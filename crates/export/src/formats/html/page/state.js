// What the page shows: one selection, one time range, one filter. All of it is in the URL's fragment, and each action is an
// entry of the browser's history.

const DEFAULTS = { tab: '', weight: '', by: 'line', view: 'down', fold: 'plumbing', q: '', range: null, process: null,
  device: null, sel: null, zoom: null, window: null, open: null, theme: '' };
const FOLDS = ['plumbing', 'mine', 'none'];

class State {
  constructor(listener) {
    this.listener = listener;
    this.values = { ...DEFAULTS, ...this.read() };
    // How many of the history's entries are this page's own. A fragment that was typed begins anew.
    this.depth = (history.state || {}).depth || 0;
    this.kind = '';
    addEventListener('popstate', event => {
      this.depth = (event.state || {}).depth || 0;
      this.kind = '';
      this.values = { ...DEFAULTS, ...this.read() };
      this.listener();
    });
  }

  /** Reads the fragment. Anyone may write one: what is not understood is ignored. */
  read() {
    const values = {};
    for (const [key, text] of new URLSearchParams(location.hash.slice(1))) {
      const numbers = text.split('-').map(Number);
      const pair = numbers.length === 2 && numbers.every(Number.isFinite) && numbers[0] < numbers[1] ? numbers : null;
      const whole = /^\d{1,9}$/.test(text) ? Number(text) : null;
      if (['tab', 'weight', 'q', 'by', 'view', 'theme'].includes(key)) values[key] = text;
      else if (key === 'fold' && FOLDS.includes(text)) values.fold = text;
      else if (key === 'open' && /^[\d.,-]{1,9999}$/.test(text)) values.open = text.split(',');
      else if ((key === 'range' || key === 'window') && pair) values[key] = pair;
      else if (['process', 'device', 'zoom'].includes(key) && whole !== null) values[key] = whole;
      else if (key === 'sel' && /^[nfoc]\d{1,9}$/.test(text)) values.sel = { kind: text[0], id: Number(text.slice(1)) };
    }
    return values;
  }

  text() {
    const out = new URLSearchParams();
    for (const [key, value] of Object.entries(this.values)) {
      if (value === DEFAULTS[key] || value === null) continue;
      if (key === 'sel') out.set(key, value.kind + value.id);
      else if (key === 'open') out.set(key, value.join(','));
      else if (Array.isArray(value)) out.set(key, value.map(Math.round).join('-'));
      else out.set(key, value);
    }
    return out.toString();
  }

  /** Changes what is shown. Changes of one `kind` that follow each other, such as typing, are one action. */
  set(changes, kind = '') {
    const follows = kind && kind === this.kind;
    clearTimeout(this.writing);
    if (!follows) this.write();
    Object.assign(this.values, changes);
    this.unwritten = this.text() !== location.hash.slice(1);
    // Browsers limit how often the fragment may change.
    if (follows) this.writing = setTimeout(() => this.write(), 150);
    else if (this.unwritten) history.pushState({ depth: ++this.depth }, '', `#${this.text()}`);
    if (!follows) this.unwritten = false;
    this.kind = kind;
    this.listener(changes);
  }

  /** Writes what has changed since the last entry was made into that entry. */
  write() {
    if (this.unwritten) history.replaceState({ depth: this.depth }, '', `#${this.text()}`);
    this.unwritten = false;
  }

  /** Changes what is shown without an action to undo. */
  clear(changes) {
    Object.assign(this.values, changes);
    this.unwritten = true;
    this.write();
    this.listener(changes);
  }

  /** Undoes the last action of this page. Returns whether there was one. */
  undo() {
    if (!this.depth) return false;
    clearTimeout(this.writing);
    this.unwritten = false;
    history.back();
    return true;
  }
}
