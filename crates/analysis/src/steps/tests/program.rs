//! Programs that launch, loop and call, and know where their iterations begin.

use std::{cell::RefCell, collections::BTreeMap};

use model::event::{Launch, ProcessId, StackId};

use super::super::{Code, Cut, Cutter, Found, Sequence, Site};

/// The number of the loop that is the steps.
const STEPS: usize = 1;

/// One statement of a function.
#[derive(Clone, Debug)]
pub enum Statement {
    /// Launches, one call site each.
    Launch(usize),
    /// Calls a function.
    Call(usize),
    /// A loop by its number, with the fewest and the most iterations.
    Loop(usize, Vec<Statement>, u64, u64),
    /// With a probability in percent.
    Maybe(u64, Vec<Statement>),
    /// While a function is nested less deeply than this.
    When(usize, usize, Vec<Statement>),
    /// In these iterations of the loop around it.
    Iterations(u64, u64, Vec<Statement>),
}

pub fn launch(count: usize) -> Statement {
    Statement::Launch(count)
}

pub fn call(function: usize) -> Statement {
    Statement::Call(function)
}

pub fn repeat(number: usize, body: Vec<Statement>, times: u64) -> Statement {
    Statement::Loop(number, body, times, times)
}

pub fn steps(body: Vec<Statement>, times: u64) -> Statement {
    repeat(STEPS, body, times)
}

pub fn maybe(percent: u64, body: Vec<Statement>) -> Statement {
    Statement::Maybe(percent, body)
}

pub fn when(function: usize, depth: usize, body: Vec<Statement>) -> Statement {
    Statement::When(function, depth, body)
}

/// Functions, of which the first runs.
#[derive(Clone, Debug, Default)]
pub struct Program {
    functions: Vec<Vec<Statement>>,
    /// Stacks by their number, less one, as functions and places in them.
    stacks: RefCell<Vec<Vec<(usize, usize)>>>,
    numbers: RefCell<BTreeMap<Vec<(usize, usize)>, u64>>,
    /// Call sites are known by their lines, as in Python.
    has_lines: bool,
    /// The function that is an optimizer, and the one that is a compiler.
    names: (Option<usize>, Option<usize>),
}

/// What a program did.
#[derive(Clone, Debug)]
pub struct Run {
    program: Program,
    from_start: bool,
    /// The stack of each launch.
    launches: Vec<StackId>,
    /// The number of the first launch.
    first: u64,
    /// For each loop, the launches that begin its iterations.
    begins: BTreeMap<usize, Vec<u64>>,
}

struct Running<'a> {
    program: &'a Program,
    random: u64,
    calls: Vec<(usize, usize)>,
    launches: Vec<StackId>,
    begins: BTreeMap<usize, Vec<u64>>,
    iteration: u64,
}

impl Program {
    pub fn new<const N: usize>(functions: [Vec<Statement>; N]) -> Self {
        Self { functions: functions.to_vec(), ..Self::default() }
    }

    pub fn of(functions: Vec<Vec<Statement>>) -> Self {
        Self { functions, ..Self::default() }
    }

    /// The same in Python.
    pub fn with_lines(self) -> Self {
        Self { has_lines: true, ..self }
    }

    /// The same with functions whose names say that they are an optimizer, or a compiler.
    pub fn with_names(self, optimizer: Option<usize>, compiler: Option<usize>) -> Self {
        Self { names: (optimizer, compiler), ..self }
    }

    /// Runs it with random numbers from a seed.
    pub fn run(&self, seed: u64) -> Run {
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (calls, launches, begins) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut running = Running { program: self, random, calls, launches, begins, iteration: 0 };
        running.call(0);
        let Running { launches, begins, .. } = running;
        Run { program: self.clone(), from_start: true, launches, first: 0, begins }
    }

    fn stack(&self, sites: &[(usize, usize)]) -> StackId {
        let (mut numbers, mut stacks) = (self.numbers.borrow_mut(), self.stacks.borrow_mut());
        StackId(*numbers.entry(sites.to_vec()).or_insert_with(|| {
            stacks.push(sites.to_vec());
            stacks.len() as u64
        }))
    }
}

impl Code for Program {
    fn sites(&self, _: ProcessId, stack: StackId) -> Vec<Site> {
        let stacks = self.stacks.borrow();
        let stack = &stacks[stack.0 as usize - 1];
        if stack.iter().any(|(function, _)| Some(*function) == self.names.1) {
            return Vec::new();
        }
        let site = |(function, place): &(usize, usize)| Site {
            id: ((function + 1) << 16 | place) as u64,
            function: *function as u64 + 1,
            place: *place as u64,
            is_exact: !self.has_lines,
        };
        stack.iter().map(site).collect()
    }

    fn has_start(&self, _: ProcessId) -> bool {
        true
    }

    fn optimizer(&self, stack: StackId) -> Option<usize> {
        let stacks = self.stacks.borrow();
        stacks[stack.0 as usize - 1].iter().position(|(function, _)| Some(*function) == self.names.0)
    }
}

impl Code for Run {
    fn sites(&self, process: ProcessId, stack: StackId) -> Vec<Site> {
        self.program.sites(process, stack)
    }

    fn has_start(&self, _: ProcessId) -> bool {
        self.from_start
    }

    fn optimizer(&self, stack: StackId) -> Option<usize> {
        self.program.optimizer(stack)
    }
}

impl Running<'_> {
    fn next(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        (self.random >> 33) % below
    }

    fn call(&mut self, function: usize) {
        let program = self.program;
        self.statements(function, &program.functions[function], &mut 0);
    }

    /// Runs statements; `place` counts the call sites of the function.
    fn statements(&mut self, function: usize, statements: &[Statement], place: &mut usize) {
        for statement in statements {
            let begin = *place;
            *place += sites(statement);
            let mut inside = begin;
            match statement {
                Statement::Launch(count) => {
                    for site in begin..begin + count {
                        self.calls.push((function, site));
                        self.launches.push(self.program.stack(&self.calls));
                        self.calls.pop();
                    }
                }
                Statement::Call(other) => {
                    self.calls.push((function, begin));
                    self.call(*other);
                    self.calls.pop();
                }
                Statement::Loop(number, body, fewest, most) => {
                    let times = fewest + self.next(most - fewest + 1);
                    let around = self.iteration;
                    for iteration in 0..times {
                        self.iteration = iteration;
                        let first = self.launches.len() as u64;
                        self.statements(function, body, &mut begin.clone());
                        if self.launches.len() as u64 > first {
                            self.begins.entry(*number).or_default().push(first);
                        }
                    }
                    self.iteration = around;
                }
                Statement::Maybe(percent, body) => {
                    if self.next(100) < *percent {
                        self.statements(function, body, &mut inside);
                    }
                }
                Statement::When(counted, depth, body) => {
                    if self.calls.iter().filter(|(function, _)| function == counted).count() < *depth {
                        self.statements(function, body, &mut inside);
                    }
                }
                Statement::Iterations(from, to, body) => {
                    if (*from..*to).contains(&self.iteration) {
                        self.statements(function, body, &mut inside);
                    }
                }
            }
        }
    }
}

/// Returns the number of call sites of a statement.
fn sites(statement: &Statement) -> usize {
    match statement {
        Statement::Launch(count) => *count,
        Statement::Call(_) => 1,
        Statement::Loop(_, body, ..)
        | Statement::Maybe(_, body)
        | Statement::When(_, _, body)
        | Statement::Iterations(_, _, body) => body.iter().map(sites).sum(),
    }
}

impl Run {
    /// Returns the launches as those of a thread; launch N was at time N + 1.
    pub fn launches_of(&self, tid: u32) -> impl Iterator<Item = Launch> {
        let launch =
            move |(stack, number)| Launch { process: ProcessId(1), tid, time: number + 1, stack, ..Launch::default() };
        self.launches.iter().copied().zip(self.first..).map(launch)
    }

    /// Returns the launches from some on, without the last ones, as if it had been running already.
    pub fn part(&self, skip: usize, leave: usize) -> Self {
        let launches = self.launches[skip..self.launches.len() - leave].to_vec();
        let range = skip as u64..(self.launches.len() - leave) as u64;
        let begins = |(number, all): (&usize, &Vec<u64>)| {
            (*number, all.iter().copied().filter(|at| range.contains(at)).collect())
        };
        let begins = self.begins.iter().map(begins).collect();
        Self { launches, first: skip as u64, begins, from_start: false, program: self.program.clone() }
    }

    pub fn found(&self) -> Found {
        let mut sequence = Sequence::default();
        self.launches_of(1).for_each(|launch| sequence.push(&launch));
        Found::new(sequence, self)
    }

    /// Returns when the iterations of a loop began.
    pub fn truth(&self, number: usize) -> Vec<u64> {
        self.begins.get(&number).into_iter().flatten().map(|launch| launch + 1).collect()
    }

    /// Returns when the iterations of levels began.
    pub fn cut(&self, found: &Found, levels: &[usize]) -> Vec<u64> {
        cut(found, levels, self.launches_of(1)).iter().map(|step| step.start).collect()
    }

    /// Check that the steps are those of the program.
    pub fn check_steps(&self) -> Found {
        let found = self.found();
        assert_eq!(found.steps.len(), 1, "{:#?}", found.levels);
        let (cut, truth) = (self.cut(&found, &found.steps), self.truth(STEPS));
        let differ = cut.iter().zip(&truth).position(|(found, real)| found != real);
        assert!(cut == truth, "from step {differ:?} of {:?} on: {:?}", self.program.functions, found.levels);
        assert_eq!(found.levels[found.steps[0]].iterations as usize, self.truth(STEPS).len());
        found
    }

    /// Check that one of the levels is a loop of the program.
    pub fn check_level(&self, found: &Found, number: usize) {
        let truth = self.truth(number);
        let is = |level: usize| self.cut(found, &[level]) == truth;
        assert!((0..found.levels.len()).any(is), "loop {number} of {:?}: {:?}", self.program.functions, found.levels);
    }
}

/// Returns the steps of launches.
pub fn cut(found: &Found, levels: &[usize], launches: impl Iterator<Item = Launch>) -> Vec<Cut> {
    let levels: Vec<_> = levels.iter().map(|index| &found.levels[*index]).collect();
    let mut cutter = Cutter::new(found, &levels);
    launches.for_each(|launch| cutter.push(&launch));
    cutter.finish()
}

/// Finds loops in launches from sites of one function.
pub fn find(sites: &[Site], order: impl IntoIterator<Item = usize>, from_start: bool) -> Found {
    struct Flat<'a>(&'a [Site], bool);
    impl Code for Flat<'_> {
        fn sites(&self, _: ProcessId, stack: StackId) -> Vec<Site> {
            vec![self.0[stack.0 as usize - 1]]
        }
        fn has_start(&self, _: ProcessId) -> bool {
            self.1
        }
    }
    let mut sequence = Sequence::default();
    for site in order {
        sequence.push(&Launch { process: ProcessId(1), stack: StackId(site as u64 + 1), ..Launch::default() });
    }
    Found::new(sequence, &Flat(sites, from_start))
}
