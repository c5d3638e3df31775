// One hue for each family of frames, one shade for each name, in light and dark.

/** Families by number, as crates/analysis/src/family.rs orders them. */
const FAMILY = { process: 0, python: 1, native: 2, system: 3, graph: 4, kernel: 5, memory: 6, event: 7, wait: 8, range: 9, unknown: 10, stall: 11 };

// Hue, saturation, and the lightness in light and dark. Hues differ in lightness too, for colour-blind eyes; the text on each
// shade has a contrast of at least 4.5.
const SHADES = [
  [220, 12, 84, 30], [88, 50, 68, 27], [24, 72, 76, 31], [42, 82, 66, 24], [250, 40, 84, 38],
  [212, 78, 70, 42], [174, 46, 60, 27], [284, 52, 78, 42], [338, 42, 84, 38],
  [48, 46, 80, 27], [0, 0, 78, 34], [296, 48, 80, 40],
];

const theme = { dark: false, ink: '', faint: '', line: '', accent: '', back: '', panel: '' };

/** Reads the colours of the style sheet. */
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['ink', 'faint', 'line', 'accent', 'back', 'panel', 'match', 'gpu', 'memory', 'wait', 'cpu', 'communication', 'idle']) theme[name] = style.getPropertyValue(`--${name}`).trim();
  theme.dark = style.getPropertyValue('--dark').trim() === '1';
  shades.clear();
}

const shades = new Map();

/** The colour of a frame. */
function colour(family, name) {
  return shade(shadeKey(family, name));
}

/** The number of a frame's colour, in any theme. */
function shadeKey(family, name) {
  return family * 64 + hash(name) % 64;
}

function shade(key) {
  let text = shades.get(key);
  if (!text) {
    const [hue, saturation, light, dark] = SHADES[key >> 6] || SHADES[FAMILY.unknown];
    const part = key % 64 / 63 - 0.5;
    text = `hsl(${hue + part * 12} ${saturation * (theme.dark ? 0.78 : 1)}% ${(theme.dark ? dark : light) + part * 9}%)`;
    shades.set(key, text);
  }
  return text;
}

function middleColour(family) {
  const [hue, saturation, light, dark] = SHADES[family];
  return `hsl(${hue} ${saturation * (theme.dark ? 0.78 : 1)}% ${theme.dark ? dark : light}%)`;
}

function hash(name) {
  let value = 0x811c9dc5;
  for (let i = 0; i < name.length && i < 200; i++) value = Math.imul(value ^ name.charCodeAt(i), 0x01000193);
  return value >>> 0;
}

/** Sizes a canvas for the density of the screen and returns its context, in CSS pixels. */
function crisp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  canvas.style.setProperty('height', `${height}px`);
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

const FONT = '11.5px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';
const SMALL = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';

let characterWidth = 0;

/** Draws text cut to a width, in the fixed-width font: the first of several that fits, otherwise the last one, cut at its end or
 *  in its middle. */
function drawLabel(context, { texts, middle }, x, y, width) {
  if (!characterWidth) characterWidth = context.measureText('0123456789').width / 10;
  const room = Math.floor(width / characterWidth);
  if (room < 3) return;
  const last = texts[texts.length - 1];
  context.fillText(texts.find(text => text.length <= room) || (middle && room > 5 ? cutMiddle(last, room) : `${last.slice(0, room - 1)}…`), x, y);
}

function cutMiddle(text, room) {
  if (text.length <= room) return text;
  const begin = Math.floor((room - 1) / 4);
  return `${text.slice(0, begin)}…${text.slice(text.length - (room - 1 - begin))}`;
}
