// The texts of the page whose contrast is below WCAG's AA, 4.5 to 1: what is in the document, and what is drawn.
(() => {
  const LEAST = 4.5;
  const context = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  // The browser's own reading of a colour, over what is below it.
  const over = (text, [r, g, b], alpha = 1) => {
    context.globalAlpha = 1;
    context.fillStyle = `rgb(${r}, ${g}, ${b})`;
    context.fillRect(0, 0, 1, 1);
    context.globalAlpha = alpha;
    context.fillStyle = text;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  };
  const luminance = colour => {
    const [r, g, b] = colour.map(value => value / 255).map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [dark, light] = [luminance(a), luminance(b)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const low = new Set();
  const check = (what, text, below) => {
    const found = contrast(over(text, below), below);
    if (found < LEAST) low.add(`${what}: ${found.toFixed(2)}`);
  };
  const back = over(theme.back, [255, 255, 255]);
  const behind = node => {
    const colours = [];
    for (let at = node; at; at = at.parentElement) colours.unshift(getComputedStyle(at).backgroundColor);
    return colours.reduce((below, colour) => over(colour, below), [255, 255, 255]);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !parent.checkVisibility() || /^(SCRIPT|STYLE|OPTION)$/.test(parent.tagName)) continue;
    const below = behind(parent);
    check(`${parent.tagName} ${parent.className} “${walker.currentNode.textContent.slice(0, 30)}”`, getComputedStyle(parent).color, below);
    const bar = parent.parentElement.querySelector(':scope > .bar');
    if (bar) check(`over ${bar.className}`, getComputedStyle(parent).color, over(getComputedStyle(bar).backgroundColor, below));
  }
  const search = document.querySelector('input[type=search]');
  check('placeholder', getComputedStyle(search, '::placeholder').color, behind(search));
  for (const name of ['back', 'panel']) for (const ink of ['ink', 'faint', 'accent']) check(`${ink} on ${name}`, theme[ink], over(theme[name], back));
  check('a match', MATCH_INK, over(theme.match, back));
  SHADES.forEach((_, family) => {
    for (let name = 0; name < 400; name++) {
      const shade = colour(family, `name ${name}`);
      check(`frames of family ${family}`, theme.ink, over(shade, back));
      check(`frames of family ${family} that a search does not match`, theme.ink, over(shade, back, DIM));
    }
  });
  return [...low];
})()
