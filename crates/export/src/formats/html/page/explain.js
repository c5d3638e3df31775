// The "?" of tabs, tables and terms: what `warpscope explain` says about them.

/** A button that explains a term; nothing for a term without a text. */
function explainer(app, term, kind) {
  const entries = app.recording.head.explained.filter(entry => entry.name === term && (!kind || entry.kind === kind));
  if (!entries.length) return null;
  return element('button', { class: 'explain', 'data-value': `explain ${term}`, 'aria-label': `Explain ${term}`, 'aria-haspopup': 'dialog', title: `What is ${term}?`,
    onclick: () => showExplanations(entries) }, '?');
}

function showExplanations(entries) {
  const parts = [['measured', 'measured'], ['exact', 'exactness'], ['act', 'what to do']];
  const explanation = entry => element('section', {}, element('h2', {}, entry.name, ' ', element('span', { class: 'faint' }, `(${entry.kind})`)),
    element('p', {}, entry.means), element('dl', {}, ...parts.flatMap(([key, label]) => [element('dt', {}, label), element('dd', {}, entry[key])])));
  showDialog('explanation', `Explanation of ${entries[0].name}`, ...entries.map(explanation),
    element('p', { class: 'faint' }, 'The same text: ', element('code', {}, `warpscope explain "${entries[0].name}"`)));
}

/** Shows a dialog until it is closed, with Esc or its button. Then the focus is where it was. */
function showDialog(kind, label, ...children) {
  const dialog = element('dialog', { class: kind, 'aria-label': label, onclose: () => dialog.remove() }, ...children,
    element('form', { method: 'dialog' }, element('button', {}, 'close')));
  document.body.append(dialog);
  dialog.showModal();
}
