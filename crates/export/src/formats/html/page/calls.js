// The recording: the call tree, sums by node, and the trees that flame graphs draw.

/** Frames that say nothing about the program: they are folded unless the user unfolds them. */
const PLUMBING = new RegExp([
  '^(_start|__libc_start_main.*|__libc_start_call_main|_dl_start_user|(__)?clone3?|start_thread|__libc_start_main_impl)$',
  '^__device_stub__', '^(cuda|cu)LaunchKernel', '^\\[lib(c|stdc\\+\\+|pthread|cuda|cudart|cupti)[.\\w-]*\\]$', '^cudaLaunchDevice',
  '^(ffi_call\\w*|_call_function_pointer|_ctypes_callproc|PyCFuncPtr_call)\\b', '^\\[(libffi|_ctypes)[.\\w-]*\\]$',
  '^(Py_BytesMain|Py_RunMain|pymain_\\w+|PyEval_EvalCode|run_mod|run_eval_code_obj|_PyRun_\\w+|PyRun_\\w+)\\b',
  '^(_PyObject_\\w+|PyObject_(Call|Vectorcall)\\w*|_PyEval_\\w+|PyVectorcall_\\w+|cfunction_\\w+|method_vectorcall\\w*)\\b',
  // Dispatch in PyTorch, and the import system.
  '^Module\\._(wrapped_)?call_impl\\b', '\\(<frozen importlib', '^_call_with_frames_removed\\b', 'c10::impl::(wrap_kernel|make_boxed|BoxedKernel)',
  '^c10::(Dispatcher|KernelFunction|OperatorHandle|TypedOperatorHandle|BoxedKernel)', '\\bat::_ops::\\w+::(call|redispatch)\\b',
  '\\b(VariableType|ADInplaceOrView)::', 'WrapFunctionIntoFunctor_|wrapper_(CUDA|CompositeImplicit|CompositeExplicit)\\w*',
  '^(entry_SYSCALL_64\\w*|do_syscall_64|asm_\\w+)_\\[k\\]$',
  // The starts of threads, and the threads of PyTorch's autograd.
  '^Thread\\.(start|run|_bootstrap\\w*) \\(threading\\.py', '^(thread_PyThread_start_\\w+|do_start_\\w*thread|ThreadHandle_start|PyThread_start_\\w+|thread_run|pythread_wrapper)$',
  '^(_*pthread_create\\b.*|create_thread|(__GI_+)?_*clone_?internal|execute_native_thread_routine|std::thread::\\w+.*)$',
  '^(torch::autograd::)(Engine|python::PythonEngine)::', '^torch::autograd::Node::operator\\(\\)',
].join('|'));

/** The name id of a row of folded frames. */
const FOLDED = -1;

/** Shorter runs of frames that lead to the same place are not folded. */
const SHORTEST_RUN = 3;

class Recording {
  constructor({ header, columns }) {
    this.head = header;
    this.names = header.names;
    this.wall = Math.max(1, header.summary.wall_ns);
    const whole = name => Uint32Array.from(columns[name]);
    this.family = Uint8Array.from(columns['frame.family']);
    this.function = whole('frame.function');
    this.label = whole('frame.label');
    this.parent = whole('node.parent');
    this.frame = whole('node.frame');
    this.nodes = this.parent.length;
    this.plumbing = Uint8Array.from(this.family, (_, frame) => PLUMBING.test(this.names[frame]) || PLUMBING.test(this.names[this.function[frame]]) ? 1 : 0);
    this.own = new Uint8Array(this.family.length);
    for (const frame of columns['frame.own']) this.own[frame] = 1;
    // Code of others. Frames in brackets say what happened, and are no code.
    this.foreign = Uint8Array.from(this.family, (family, frame) =>
      family >= FAMILY.python && family <= FAMILY.system && !this.own[frame] && !/^\[(?!lib)/.test(this.names[frame]) ? 1 : 0);
    // The first frame of the same work on any GPU.
    const first = new Map();
    this.alike = Uint32Array.from(this.family, (family, frame) => {
      if (family !== FAMILY.kernel && family !== FAMILY.memory) return frame;
      const name = anyGpu(this.names[frame]);
      if (!first.has(name)) first.set(name, frame);
      return first.get(name);
    });
    const kernels = [...this.family.keys()].filter(frame => this.family[frame] === FAMILY.kernel && this.alike[frame] === frame);
    this.distinct = distinguish(kernels.map(frame => [frame, this.names[frame]]));
    // Kernels whose label does not say which they are.
    const labels = new Map();
    for (const frame of kernels) labels.set(this.label[frame], (labels.get(this.label[frame]) || 0) + 1);
    this.ambiguous = new Set(kernels.filter(frame => labels.get(this.label[frame]) > 1 && this.distinct.has(frame)));
    this.gpu = { node: whole('gpu.node'), process: whole('gpu.process'), device: whole('gpu.device'),
      ns: columns['gpu.ns'], count: columns['gpu.count'], max: columns['gpu.max'], bytes: columns['gpu.bytes'],
      energy: columns['gpu.energy'] };
    this.cpu = { node: whole('cpu.node'), process: whole('cpu.process'), ns: columns['cpu.ns'], count: columns['cpu.count'] };
    this.idle = { node: whole('idle.node'), ns: columns['idle.ns'], count: columns['idle.count'] };
    this.charge = Object.fromEntries(['device', 'phase', 'thread', 'cause', 'stack', 'node', 'place', 'reason'].map(name => [name, whole(`charge.${name}`)]));
    this.memory = { node: whole('memory.node'), when: whole('memory.when'), bytes: columns['memory.bytes'], count: columns['memory.count'] };
    this.stall = { node: whole('stall.node'), ns: columns['stall.ns'], count: columns['stall.count'] };
    this.hits = { node: whole('hits.node'), process: whole('hits.process'), weight: columns['hits.weight'],
      count: columns['hits.count'] };
    this.op = { track: whole('op.track'), start: columns['op.start'], duration: columns['op.duration'],
      node: whole('op.node'), delay: columns['op.delay'], launch: columns['op.launch'], thread: whole('op.thread'), stack: whole('op.stack'), amount: columns['op.amount'] };
    const samples = kind => ({ thread: whole(`${kind}.thread`), time: columns[`${kind}.time`], node: whole(`${kind}.node`), weight: columns[`${kind}.weight`] });
    this.sample = samples('sample');
    this.cost = samples('cost');
    const waits = kind => ({ owner: whole(`${kind}.owner`), start: columns[`${kind}.start`],
      duration: columns[`${kind}.duration`], frame: whole(`${kind}.frame`), node: whole(`${kind}.node`) });
    this.wait = waits('wait');
    this.switch = waits('switch');
    this.range = waits('range');
    this.call = { thread: whole('call.thread'), start: columns['call.start'], duration: columns['call.duration'],
      depth: whole('call.depth'), frame: whole('call.frame'), node: whole('call.node') };
    // Most steps begin where the one before ends.
    const stepStart = Float64Array.from(columns['step.gap']);
    let ends = 0;
    for (const { count } of this.head.steps) {
      for (let at = ends, end = 0; at < ends + count; at++) end = (stepStart[at] += end) + columns['step.duration'][at];
      ends += count;
    }
    this.step = { start: stepStart, duration: columns['step.duration'], busy: columns['step.busy'],
      copy: columns['step.copy'], communication: columns['step.communication'], launching: columns['step.launching'], waiting: columns['step.waiting'], launches: columns['step.launches'] };
    this.overviewGpu = columns['overview.gpu'];
    this.overviewCpu = columns['overview.cpu'];
    this.communicates = new Uint8Array(this.family.length);
    for (const frame of columns['frame.communicates']) this.communicates[frame] = 1;
    this.collectives = new Collectives(this, columns);
    this.idleTime = new IdleTime(this);
    this.weights = this.findWeights();
    this.textOfNode = new Map();
  }

  /** The kinds of weight that the recording has. */
  findWeights() {
    const all = [];
    if (this.gpu.node.length) all.push({ id: 'gpu', label: 'GPU', measure: 'time', what: 'GPU time', term: ['GPU time', 'term'], unit: ['run', 'runs'] });
    if (this.stall.node.length) {
      all.push({ id: 'stall', label: 'GPU by line', measure: 'time', what: 'GPU time by line and stall reason', term: ['stall reasons', 'term'], unit: ['run', 'runs'] });
    }
    if (this.head.summary.energy) {
      all.push({ id: 'energy', label: 'GPU energy', measure: 'energy', what: 'GPU energy of kernels', term: ['energy', 'table'], unit: ['run', 'runs'] });
    }
    if (this.cpu.node.length) {
      all.push({ id: 'cpu', label: 'CPU', measure: 'time', what: 'CPU time', term: ['CPU time', 'term'], unit: ['sample', 'samples'] });
    }
    if (this.idle.node.length) {
      all.push({ id: 'idle', label: 'GPU idle', measure: 'time', what: 'GPU idle time', term: ['idle', 'term'], unit: ['sample', 'samples'] });
    }
    [['peak', 'Memory peak', 'GPU memory at its peak'], ['end', 'Memory at end', 'GPU memory at the end']].forEach(([name, label, what], when) => {
      if (this.memory.when.includes(when)) all.push({ id: `memory-${name}`, label, measure: 'bytes', what, when, term: ['memory', 'table'], unit: ['allocation', 'allocations'] });
    });
    let from = 0;
    this.head.counters.forEach((counter, index) => {
      const to = from + counter.rows;
      if (counter.rows) {
        all.push({ id: counter.waits ? 'wait' : `event${index}`, label: counter.waits ? 'Waiting' : counter.name, from, to,
          measure: counter.measure, what: counter.waits ? 'time off the CPU' : counter.name, term: counter.waits ? ['waiting', 'term'] : null,
          unit: counter.waits ? ['wait', 'waits'] : ['hit', 'hits'], counted: !counter.weight });
      }
      from = to;
    });
    return all;
  }

  /** Returns the sums by node for a weight, within a time range and a filter. Counted events have no times. */
  sums(id, range, filter) {
    const made = { id, self: new Float64Array(this.nodes), count: new Float64Array(this.nodes), exact: true, ranged: !!range };
    const weight = this.weights.find(weight => weight.id === id);
    if (!weight) return made;
    const takes = process => filter.process === null || filter.process === process;
    if (id === 'gpu') {
      made.max = new Float64Array(this.nodes);
      made.bytes = new Float64Array(this.nodes);
      const { op, gpu, head } = this;
      const add = (node, ns, count, max, bytes) => {
        made.self[node] += ns;
        made.count[node] += count;
        made.max[node] = Math.max(made.max[node], max);
        made.bytes[node] += bytes;
      };
      const onDevice = device => filter.device === null || filter.device === device;
      if (!range) {
        for (let i = 0; i < gpu.node.length; i++) {
          if (takes(gpu.process[i]) && onDevice(gpu.device[i])) add(gpu.node[i], gpu.ns[i], gpu.count[i], gpu.max[i], gpu.bytes[i]);
        }
        return made;
      }
      const stride = head.stride[0];
      made.exact = stride === 1;
      for (let i = 0; i < op.node.length; i++) {
        const start = op.start[i], end = start + op.duration[i];
        if (end < range[0] || start >= range[1]) continue;
        const track = head.tracks[op.track[i]];
        if (!takes(track.process) || !onDevice(track.device)) continue;
        const ns = Math.min(end, range[1]) - Math.max(start, range[0]);
        const bytes = this.family[this.frame[op.node[i]]] === FAMILY.memory ? op.amount[i] : 0;
        add(op.node[i], ns * stride, stride, op.duration[i], bytes * stride);
      }
    } else if (id === 'cpu') {
      const { cpu, sample, head } = this;
      if (!range) {
        for (let i = 0; i < cpu.node.length; i++) {
          if (!takes(cpu.process[i])) continue;
          made.self[cpu.node[i]] += cpu.ns[i];
          made.count[cpu.node[i]] += cpu.count[i];
        }
        return made;
      }
      const stride = head.stride[1];
      made.exact = stride === 1;
      for (let i = 0; i < sample.node.length; i++) {
        if (sample.time[i] < range[0] || sample.time[i] >= range[1]) continue;
        if (!takes(head.threads[sample.thread[i]].process)) continue;
        made.self[sample.node[i]] += sample.weight[i] * stride;
        made.count[sample.node[i]] += stride;
      }
    } else if (id === 'idle') {
      if ((range || filter.device !== null) && this.idleTime.isKnown) {
        for (const { device, node, ns, count } of this.idleTime.in(range)) {
          if (filter.device !== null && filter.device !== device) continue;
          made.self[node] += ns;
          made.count[node] += count;
        }
        return made;
      }
      made.ranged = false;
      for (let i = 0; i < this.idle.node.length; i++) {
        made.self[this.idle.node[i]] += this.idle.ns[i];
        made.count[this.idle.node[i]] += Math.max(1, this.idle.count[i]);
      }
    } else if (id === 'energy') {
      made.ranged = false;
      const { gpu } = this;
      for (let i = 0; i < gpu.node.length; i++) {
        if (!gpu.energy[i] || !takes(gpu.process[i]) || !(filter.device === null || filter.device === gpu.device[i])) continue;
        made.self[gpu.node[i]] += gpu.energy[i];
        made.count[gpu.node[i]] += gpu.count[i];
      }
    } else if (id === 'stall') {
      // Samples belong to kernels, not to their launches, so that they have no place in time.
      made.ranged = false;
      for (let i = 0; i < this.stall.node.length; i++) {
        made.self[this.stall.node[i]] += this.stall.ns[i];
        made.count[this.stall.node[i]] += this.stall.count[i];
      }
    } else if (id.startsWith('memory-')) {
      made.ranged = false;
      for (let i = 0; i < this.memory.node.length; i++) {
        if (this.memory.when[i] !== weight.when) continue;
        made.self[this.memory.node[i]] += this.memory.bytes[i];
        made.count[this.memory.node[i]] += this.memory.count[i];
      }
    } else {
      made.ranged = false;
      for (let i = weight.from; i < weight.to; i++) {
        if (!takes(this.hits.process[i])) continue;
        made.self[this.hits.node[i]] += weight.counted ? this.hits.count[i] : this.hits.weight[i];
        made.count[this.hits.node[i]] += this.hits.count[i];
      }
    }
    return made;
  }

  /** Adds the values of all children to their parents. */
  totals(self) {
    const totals = Float64Array.from(self);
    for (let node = this.nodes - 1; node > 0; node--) totals[this.parent[node]] += totals[node];
    return totals;
  }

  /** A short name of a frame: its label, if that says which kernel it is. */
  brief(frame) {
    return this.ambiguous.has(this.alike[frame]) ? this.distinct.get(this.alike[frame]) : workName(printable(anyGpu(this.names[this.label[frame]])));
  }

  /** The texts for a frame, longest first: its name, its label, and of a kernel what distinguishes it from others like it, whose
   *  end says more than its beginning, or its function without namespaces. */
  texts(frame, name, label) {
    const distinct = this.distinct.get(this.alike[frame]);
    if (this.ambiguous.has(this.alike[frame])) return { texts: [name, distinct], middle: true };
    // A label that leaves something out says what matters.
    if (distinct && label === name) return { texts: [name, distinct], middle: true };
    return { texts: [name, label, ...this.family[frame] === FAMILY.kernel ? [label.replace(/^([\w~]+::|\(anonymous namespace\)::)+/, '')] : []] };
  }

  /** The name id of a node's frame, by line or by function. */
  key(node, byFunction) {
    const frame = this.frame[node];
    return byFunction ? this.function[frame] : frame;
  }

  /** Whether a node's frame has this name: as a line, as a function, or as the same work on another GPU. */
  is(node, name) {
    const frame = this.frame[node];
    return frame === name || this.function[frame] === name || (name < this.alike.length && this.alike[frame] === this.alike[name]);
  }

  /** The nodes from below the root to this one. */
  path(node) {
    const nodes = [];
    for (; node; node = this.parent[node]) nodes.push(node);
    return nodes.reverse();
  }

  /** `main > step > kernel` without plumbing. */
  pathText(node) {
    let text = this.textOfNode.get(node);
    if (text === undefined) {
      const kept = this.path(node).filter(at => at === node || !this.plumbing[this.frame[at]]);
      text = kept.map(at => this.ambiguous.has(this.alike[this.frame[at]]) ? this.brief(this.frame[at]) : workName(printable(this.names[this.label[this.frame[at]]]))).join(' › ');
      this.textOfNode.set(node, text);
    }
    return text;
  }

  /** The nodes that a selection of anything but a name refers to: several if that is an operation of a communicator. */
  nodesOf({ kind, id }) {
    if (kind === 'f') return [];
    if (kind !== 'c') return [kind === 'o' ? this.op.node[id] : id];
    const { first, count } = this.collectives;
    const nodes = [];
    for (let m = id < count ? first[id] : 0, to = id < count ? first[id + 1] : 0; m < to; m++) {
      const op = this.collectives.opOf(m);
      if (op !== null) nodes.push(this.op.node[op]);
    }
    return nodes;
  }

  /** Marks the nodes whose path contains the selection. */
  marked(selection) {
    if (!selection) return null;
    const marks = new Uint8Array(this.nodes);
    const { kind, id } = selection;
    const targets = new Set(this.nodesOf(selection));
    for (let node = 1; node < this.nodes; node++) {
      const here = kind === 'f' ? this.is(node, id) : targets.has(node);
      if (here || marks[this.parent[node]]) marks[node] = 1;
    }
    return marks;
  }
}

/** The tree of a flame graph, made from sums: by line or function, top-down or bottom-up, with plumbing folded or not. */
class FlameTree {
  constructor(recording, sums, { byFunction, bottomUp, fold, open }) {
    this.recording = recording;
    this.bottomUp = bottomUp;
    this.root = this.node(null, 0, 0);
    this.size = 1;
    this.byNode = new Array(bottomUp ? 0 : recording.nodes);
    const keyed = new Map();
    const child = (parent, key, from) => {
      const id = parent.number * 0x2000000 + key + 1;
      let node = keyed.get(id);
      if (!node) {
        node = this.node(parent, key, from);
        node.number = this.size++;
        parent.children.push(node);
        keyed.set(id, node);
      }
      return node;
    };
    const foldable = { plumbing: recording.plumbing, mine: recording.foreign }[fold];
    const folds = node => foldable && foldable[recording.frame[node]];
    // A run of plumbing becomes one row. Opened rows are known by the path to them.
    const step = (parent, node) => {
      const made = next(parent, node);
      if (made.key === FOLDED) made.frames.add(recording.frame[node]);
      return made;
    };
    const next = (parent, node) => {
      if (!folds(node)) return child(parent, recording.key(node, byFunction), node);
      if (parent.opened) {
        const made = child(parent, recording.key(node, byFunction), node);
        made.opened = true;
        return made;
      }
      if (parent.key === FOLDED) return parent;
      if (opened(parent)) {
        const made = child(parent, recording.key(node, byFunction), node);
        made.opened = true;
        return made;
      }
      return child(parent, FOLDED, node);
    };
    const opened = node => open.size > 0 && open.has(pathKey(node));
    const { self, count } = sums;
    if (bottomUp) {
      for (let node = 1; node < recording.nodes; node++) {
        if (!self[node] && !count[node]) continue;
        let at = this.root;
        add(at, self[node], count[node]);
        for (let up = node, first = true; up; up = recording.parent[up], first = false) {
          const made = step(at, up);
          if (made !== at) {
            if (first) made.self += self[node];
            add(made, self[node], count[node]);
          }
          at = made;
        }
      }
    } else {
      const totals = recording.totals(self), counts = recording.totals(count);
      this.byNode[0] = this.root;
      for (let node = 1; node < recording.nodes; node++) {
        if (!totals[node] && !counts[node]) continue;
        const made = step(this.byNode[recording.parent[node]], node);
        this.byNode[node] = made;
        if (made !== this.byNode[recording.parent[node]]) add(made, totals[node], counts[node]);
        made.self += self[node];
      }
      add(this.root, totals[0], counts[0]);
      if (fold === 'plumbing') this.foldChains(opened);
    }
    this.sort(this.root);
    function add(node, total, count) {
      node.total += total;
      node.count += count;
    }
  }

  /** Folds runs of code of others that only lead to the same place: each frame has all of the time of the one above it. */
  foldChains(opened) {
    const { frame, foreign } = this.recording;
    const leads = node => node.children.length === 1 && node.children[0].total === node.total && node.children[0].count === node.count;
    const todo = [this.root];
    while (todo.length) {
      const top = todo.pop();
      for (const first of top.children) {
        const run = [];
        for (let node = first; leads(node) && (node.key === FOLDED || foreign[frame[node.from]]); node = node.children[0]) run.push(node);
        // The last one says what is called. A short run is no longer than the row that would replace it is useful.
        const last = run.length ? run[run.length - 1].children[0] : first;
        if (run.length < SHORTEST_RUN || opened(top)) {
          todo.push(last);
          continue;
        }
        first.key = FOLDED;
        first.frames = new Set(run.flatMap(node => [...node.frames || [frame[node.from]]]));
        first.children = [last];
        last.parent = first;
        for (const node of run) node.into = first;
        todo.push(last);
      }
    }
    for (let node = 1; node < this.byNode.length; node++) if (this.byNode[node] && this.byNode[node].into) this.byNode[node] = this.byNode[node].into;
  }

  node(parent, key, from) {
    return { parent, key, from, total: 0, self: 0, count: 0, number: 0, children: [], opened: false,
      frames: key === FOLDED ? new Set() : null };
  }

  sort(node) {
    const todo = [node];
    while (todo.length) {
      const next = todo.pop();
      next.children.sort((a, b) => b.total - a.total || a.key - b.key);
      todo.push(...next.children);
    }
  }

  family(node) {
    return node.key === FOLDED ? FAMILY.process : this.recording.family[this.recording.frame[node.from]];
  }

  name(node) {
    if (node === this.root) return 'all';
    if (node.key === FOLDED) return [...node.frames].map(frame => printable(this.recording.names[frame])).join(' › ') || 'folded frames';
    return printable(this.recording.names[node.key]);
  }

  /** The name as drawn: colours tell that it ran on the GPU. */
  text(node) {
    return workName(this.name(node));
  }

  /** The texts for a frame, longest first. */
  texts(node) {
    return node === this.root || node.key === FOLDED ? { texts: [this.text(node)] } : this.recording.texts(this.recording.frame[node.from], this.text(node), this.label(node));
  }

  /** The name without what is least important. */
  label(node) {
    if (node === this.root || node.key === FOLDED) return this.name(node);
    const { frame, label, names, function: functions } = this.recording;
    const own = frame[node.from];
    // By function the label of the line would show one of several lines.
    return workName(printable(node.key === functions[own] && node.key !== own ? names[node.key] : names[label[own]]));
  }
}

/** Identifies a node of a flame graph by its frames. */
function pathKey(node) {
  const keys = [];
  for (; node.parent; node = node.parent) keys.push(node.key);
  return keys.reverse().join('.');
}
