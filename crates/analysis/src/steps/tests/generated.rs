//! Random programs of nested loops and calls.

use super::program::{Program, Statement, call, launch, maybe, repeat, steps};

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(0x9e37);
        (self.0 >> 33) % most
    }
}

/// Writes functions; each calls only later ones.
struct Writer {
    random: Random,
    functions: Vec<Vec<Statement>>,
    /// The number of the next loop.
    loops: usize,
}

impl Writer {
    /// Writes the body of a loop: it begins with a launch, so that it is certain where its iterations begin.
    fn body(&mut self, depth: u64) -> Vec<Statement> {
        let mut body = vec![launch(1)];
        body.extend(self.block(depth));
        body
    }

    fn block(&mut self, depth: u64) -> Vec<Statement> {
        let mut block = Vec::new();
        for _ in 0..=self.random.below(3) {
            let count = 1 + self.random.below(3) as usize;
            block.push(match self.random.below(if depth == 0 { 2 } else { 5 }) {
                0 => launch(count),
                1 => maybe(20 + self.random.below(70), vec![launch(count)]),
                2 => {
                    let function = self.function(depth - 1);
                    call(function)
                }
                3 => {
                    let function = self.function(depth - 1);
                    maybe(20 + self.random.below(70), vec![call(function)])
                }
                _ => {
                    let number = self.loops;
                    self.loops += 1;
                    let times = 2 + self.random.below(6);
                    Statement::Loop(number, self.body(depth - 1), times, times + self.random.below(2) * 4)
                }
            });
        }
        block
    }

    fn function(&mut self, depth: u64) -> usize {
        let body = self.block(depth);
        self.functions.push(body);
        self.functions.len() - 1
    }
}

/// Check that every loop of random programs is a level, to the launch, whatever is around it, in it and before it.
#[test]
fn loops_of_random_programs_are_found() {
    for seed in 0..400 {
        let mut writer = Writer { random: Random(seed), functions: vec![Vec::new()], loops: 2 };
        let before = writer.block(1);
        let body = writer.body(3);
        let after = writer.block(0);
        let times = 20 + writer.random.below(60);
        writer.functions[0] = [before, vec![steps(body, times)], after].concat();
        let run = Program::of(writer.functions).run(seed);
        let found = run.found();
        run.check_level(&found, 1);
    }
}

/// Check that random straight programs have no loops.
#[test]
fn random_programs_without_loops_have_no_levels() {
    for seed in 0..400 {
        let mut writer = Writer { random: Random(seed), functions: vec![Vec::new()], loops: 2 };
        let mut block = writer.block(4);
        block.extend(writer.block(4));
        writer.functions[0] = block;
        for function in &mut writer.functions {
            function.retain(|statement| !matches!(statement, Statement::Loop(..)));
        }
        let run = Program::of(writer.functions).run(seed);
        assert!(run.found().levels.is_empty());
    }
}

/// Check that a loop keeps its steps if its body changes several times.
#[test]
fn bodies_may_change() {
    for seed in 0..50 {
        let mut random = Random(seed);
        let mut body = vec![launch(1)];
        for part in 0..4 {
            let (from, to) = (part * 25, part * 25 + 25);
            let count = 1 + random.below(4) as usize;
            body.push(Statement::Iterations(
                from,
                to,
                vec![launch(count), repeat(2 + part as usize, vec![launch(2)], 3)],
            ));
        }
        Program::new([vec![launch(1), steps(body, 100)]]).run(seed).check_steps();
    }
}
