// Names of GPU work, as they are drawn.

/** A frame of GPU work without `[GPU_Kernel]`; of several GPUs, with the GPU's number. */
function workName(name) {
  return name.replace(/^\[GPU(\S*)_Kernel\] /, (_, gpu) => gpu ? `GPU ${gpu}: ` : '').replace(/^\[GPU(\S*)_(Memcpy|Memset)( \w+)?\]/, (_, gpu, what, way) => `${gpu ? `GPU ${gpu}: ` : ''}${what}${way || ''}`);
}

/** A frame of GPU work without the number of the GPU. */
function anyGpu(name) {
  return name.replace(/^\[GPU[^_\s\]]*_/, '[GPU_');
}

/** Of kernels, given as [key, name], whose names are alike, what distinguishes them, by key:
 *  `multi_tensor_apply_kernel…BinaryOpScalarFunctor…plus`. */
function distinguish(kernels) {
  const groups = new Map();
  for (const [key, text] of kernels) {
    const name = workName(anyGpu(text)).replaceAll('(anonymous namespace)', '').replace(/^void /, '');
    const at = name.search(/[<(]/);
    // Templates have a function and words in brackets; other names have words between underscores.
    const head = at > 0 ? name.slice(0, at).split('::').pop() : name.split('_').slice(0, 3).join('_');
    const words = (at > 0 ? name.slice(at) : name.slice(head.length)).split(at > 0 ? /[^\w]+/ : '_').filter(Boolean);
    const group = at > 0 ? name.slice(0, at) : head.slice(0, 10);
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push({ key, head, words });
  }
  const shown = new Map();
  for (const group of groups.values()) {
    if (group.length < 2) continue;
    const [first, ...others] = group.map(({ words }) => new Set(words));
    const common = new Set([...first].filter(word => others.every(words => words.has(word))));
    const label = ({ head, words }, isShown) => [head, ...new Set(words.filter(word => !common.has(word) && isShown(word)))].join('…');
    // Numbers only where words are not enough, and no namespaces.
    const byWords = group.map(kernel => label(kernel, word => /[a-z]/i.test(word) && !/^(std|at|native|c10)$/.test(word)));
    const times = new Map();
    for (const text of byWords) times.set(text, (times.get(text) || 0) + 1);
    group.forEach((kernel, index) => shown.set(kernel.key, times.get(byWords[index]) === 1 ? byWords[index] : label(kernel, () => true)));
  }
  return shown;
}
