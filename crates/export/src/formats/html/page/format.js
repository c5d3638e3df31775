// Numbers as people read them.

const WHOLE = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

/** 1,234,567 */
function formatCount(number) {
  return WHOLE.format(number);
}

/** Three significant digits: 1.23 ms */
function formatTime(ns) {
  const sign = ns < 0 ? '−' : '';
  let value = Math.abs(ns);
  if (value < 1000) return `${sign}${Math.round(value)} ns`;
  for (const unit of ['µs', 'ms', 's']) {
    value /= 1000;
    if (value < 999.5 || unit === 's') return `${sign}${formatDigits(value)} ${unit}`;
  }
}

/** 1.50 GiB */
function formatBytes(bytes) {
  if (bytes < 1024) return `${formatCount(bytes)} B`;
  let value = bytes;
  for (const unit of ['KiB', 'MiB', 'GiB', 'TiB', 'PiB']) {
    value /= 1024;
    if (value < 1000 || unit === 'PiB') return `${formatDigits(value)} ${unit}`;
  }
}

/** 12.3 J */
function formatEnergy(microjoules) {
  if (microjoules < 1000) return `${formatCount(microjoules)} µJ`;
  let value = microjoules;
  for (const unit of ['mJ', 'J', 'kJ', 'MJ']) {
    value /= 1000;
    if (value < 999.5 || unit === 'MJ') return `${formatDigits(value)} ${unit}`;
  }
}

function formatDigits(value) {
  if (value >= 99.95) return formatCount(value);
  return value.toFixed(value >= 9.995 ? 1 : 2);
}

/** 12.3 %; never 0 for something, never 100 for less than all. */
function formatShare(part, whole) {
  if (!whole || !part) return '0 %';
  const percent = 100 * part / whole;
  if (part < whole && percent > 99.9) return '99.9 %';
  if (percent < 0.1) return '<0.1 %';
  return `${percent.toFixed(1)} %`;
}

function formatCounted(number, one, many) {
  return `${formatCount(number)} ${number === 1 ? one : many}`;
}

/** An amount in the unit of a weight. */
function formatAmount(amount, measure) {
  if (measure === 'time') return formatTime(amount);
  if (measure === 'bytes') return formatBytes(amount);
  if (measure === 'energy') return formatEnergy(amount);
  return formatCount(amount);
}

/** Replaces what would break a line or is invisible. */
function printable(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]/g, '\ufffd');
}

function shorten(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

/** Replaces the children of an element. A button that had the focus has it again. */
function keepFocus(parent, ...children) {
  const active = parent.contains(document.activeElement) ? document.activeElement.dataset.value : undefined;
  parent.replaceChildren(...children.filter(Boolean));
  if (active !== undefined) [...parent.querySelectorAll('[data-value]')].find(child => child.dataset.value === active)?.focus();
}

/** Creates an element. Strings become text nodes, never markup. */
function element(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key === 'class') made.className = value;
    else if (key === 'style') for (const [name, text] of Object.entries(value)) made.style.setProperty(name, text);
    else if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (key in made && typeof value !== 'string') made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}
