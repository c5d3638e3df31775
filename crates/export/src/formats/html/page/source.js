// The source of kernels: each line with its GPU time, its samples and what the warps waited for.

class Source {
  constructor(app) {
    this.app = app;
    this.file = element('select', { 'aria-label': 'File', onchange: () => { this.chosen = Number(this.file.value); this.update(); } });
    this.note = element('span', { class: 'faint' });
    this.body = element('div', { class: 'source', role: 'table' });
    this.root = element('div', { class: 'tab' }, element('div', { class: 'controls' }, this.file, this.note, explainer(app, 'source')),
      element('div', { class: 'scroll' }, this.body));
    this.chosen = 0;
    this.file.replaceChildren(...this.files().map((file, index) =>
      element('option', { value: String(index) }, shorten(printable(file.file), 120))));
  }

  files() {
    return this.app.recording.head.sources;
  }

  update() {
    const file = this.files()[this.chosen];
    const most = Math.max(1, ...file.lines.map(line => line.ns));
    const test = this.app.state.values.q ? matcher(this.app.state.values.q) : null;
    const text = file.lines.some(line => line.text !== null);
    this.note.textContent = [`${formatTime(file.ns)} of GPU time, ${formatCounted(file.samples, 'sample', 'samples')}`,
      text ? '' : 'the file could not be read when it was recorded'].filter(Boolean).join(' · ');
    let last = 0;
    const rows = [];
    for (const line of file.lines) {
      if (last && line.line !== last + 1) rows.push(element('div', { class: 'gap', role: 'row' }, element('span', { role: 'cell' }, '⋯')));
      last = line.line;
      rows.push(this.row(line, most, test && test(line.text || '')));
    }
    this.body.replaceChildren(...rows);
    this.app.drawn('source');
  }

  row(line, most, found) {
    const stalls = line.stalls.map(([name, samples]) => `${name} ${formatShare(samples, line.samples)}`);
    const cell = (kind, text, title) => element('span', { role: 'cell', class: kind, title: title || '' }, text);
    const time = cell('number', element('b', {}, line.ns ? formatTime(line.ns) : ''));
    if (line.ns) time.prepend(element('i', { class: 'bar gpu', style: { width: `${100 * line.ns / most}%` } }));
    return element('div', { class: `line${line.samples ? ' hot' : ''}${found ? ' selected' : ''}`, role: 'row' },
      time, cell('number', line.samples ? formatCount(line.samples) : ''),
      cell('stall', stalls[0] || '', stalls.join('\n')), cell('number faint', String(line.line)),
      cell('code', line.text === null ? '' : printable(line.text.replaceAll('\t', '    '))));
  }
}
