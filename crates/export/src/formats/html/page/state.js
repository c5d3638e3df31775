// What the page shows: one selection, one time range, one filter. All of it is in the URL's fragment.

const DEFAULTS = { tab: '', weight: '', by: 'line', view: 'down', fold: true, q: '', range: null, process: null,
  device: null, sel: null, zoom: null, window: null, theme: '' };

class State {
  constructor(listener) {
    this.listener = listener;
    this.values = { ...DEFAULTS, ...this.read() };
    addEventListener('hashchange', () => {
      if (location.hash.slice(1) === this.text()) return;
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
      else if (key === 'fold') values.fold = text !== '0';
      else if ((key === 'range' || key === 'window') && pair) values[key] = pair;
      else if (['process', 'device', 'zoom'].includes(key) && whole !== null) values[key] = whole;
      else if (key === 'sel' && /^[nfo]\d{1,9}$/.test(text)) values.sel = { kind: text[0], id: Number(text.slice(1)) };
    }
    return values;
  }

  text() {
    const out = new URLSearchParams();
    for (const [key, value] of Object.entries(this.values)) {
      if (value === DEFAULTS[key] || value === null) continue;
      if (key === 'sel') out.set(key, value.kind + value.id);
      else if (Array.isArray(value)) out.set(key, value.map(Math.round).join('-'));
      else if (key === 'fold') out.set(key, '0');
      else out.set(key, value);
    }
    return out.toString();
  }

  set(changes) {
    Object.assign(this.values, changes);
    clearTimeout(this.writing);
    // Browsers limit how often the fragment may change.
    this.writing = setTimeout(() => history.replaceState(null, '', `#${this.text()}`), 150);
    this.listener(changes);
  }
}
