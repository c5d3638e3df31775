//! `programs/scripted`: a program that calls CUDA functions by a script, with libraries whose results the script gives.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use cuda::memory::vectors::Step;

use super::{
    Scene,
    programs::{run, sources},
};

/// The program and its libraries, built for some functions.
pub struct Scripted(PathBuf);

impl Scripted {
    /// Builds them in the scene's directory.
    pub fn build(scene: &Scene, functions: &BTreeSet<&str>) -> Self {
        let directory = scene.path("scripted");
        fs::create_dir(&directory).expect("a directory");
        let (runtime, driver): (Vec<&str>, Vec<&str>) = functions.iter().partition(|name| name.starts_with("cuda"));
        for (source_name, name, functions) in
            [("runtime.c", "libcudart.so.12", runtime), ("driver.c", "libcuda.so.1", driver)]
        {
            let mut source = "unsigned scripted(void);\n".to_owned();
            for function in functions {
                let _ = writeln!(source, "unsigned {function}(void) {{ return scripted(); }}");
            }
            let file = directory.join(source_name);
            fs::write(&file, source).expect("a file");
            run(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(directory.join(name)).arg(&file));
        }
        let source = sources().join("programs/scripted/runner.c");
        run(Command::new("cc")
            .args(["-g", "-Wall", "-rdynamic", "-pthread", "-o"])
            .arg(directory.join("runner"))
            .arg(source));
        Self(directory)
    }

    /// The path of the program.
    pub fn program(&self) -> PathBuf {
        self.0.join("runner")
    }

    /// The directory of its libraries.
    pub fn libraries(&self) -> &Path {
        &self.0
    }

    /// A command that runs the program without warpscope.
    pub fn command(&self, scene: &Scene) -> Command {
        let mut command = scene.bare(self.program());
        command.env("LD_LIBRARY_PATH", self.libraries());
        scene.grouped(command)
    }
}

/// A step of a test vector as a command of the program.
pub fn line(step: &Step) -> String {
    match step {
        Step::Enter { thread, function, words } => {
            let has_answer = cuda::call(function).expect("a known function").capture().out.is_some();
            let word = |(at, word): (usize, &u64)| match (at, has_answer) {
                (0, true) => " &".to_owned(),
                _ => format!(" {word:#x}"),
            };
            let words: String = words.iter().enumerate().map(word).collect();
            format!("enter {thread} {function}{words}")
        }
        Step::Return { thread, answer, result } => {
            let answer = answer.map_or(String::new(), |answer| format!(" {answer:#x}"));
            format!("return {thread} {result}{answer}")
        }
    }
}
