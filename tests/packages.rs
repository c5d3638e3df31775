//! The release packages of `scripts/package`: each is installed as a user would, and its binary runs.

use std::{fs, process::Command};

use crate::support::{Ended, Scene, coverage::not_covered, programs};

/// The version line that an installed binary prints.
const VERSION: &str = concat!("warpscope ", env!("CARGO_PKG_VERSION"), "\n");

/// A scene with the packages of the binary under test in `packages`.
fn packaged() -> Scene {
    let scene = Scene::new();
    let script = programs::sources().join("../scripts/package");
    let run = Ended::of(scene.bare(script).args(["--binary", programs::WARPSCOPE, "--out", "packages"])).exits(0);
    assert!(run.out().contains("with glibc 2."), "{}", run.out());
    scene
}

/// The path of the package whose name ends so, relative to the scene.
fn package(scene: &Scene, ending: &str) -> String {
    let names = fs::read_dir(scene.path("packages")).expect("the packages");
    let mut names = names.map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
    format!("packages/{}", names.find(|name| name.ends_with(ending)).unwrap_or_else(|| panic!("no {ending}")))
}

fn runs(command: &str, arguments: &[&str]) -> bool {
    Command::new(command).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Asserts that a prefix contains the binary, which runs, and a manual page for `record`.
#[track_caller]
fn assert_installed(scene: &Scene, prefix: &str, page: &str) {
    let version = Ended::of(scene.bare(scene.path(&format!("{prefix}/bin/warpscope"))).arg("--version")).exits(0);
    assert_eq!(version.out(), VERSION);
    for file in [&format!("man/man1/{page}"), "warpscope/skills/warpscope/SKILL.md"] {
        assert!(scene.path(&format!("{prefix}/share/{file}")).is_file(), "{prefix} has no {file}");
    }
}

/// Check that the tarball, the Debian package and the wheel install a binary that runs, and the manual pages.
#[test]
fn packages_install_a_binary_that_runs() {
    let scene = packaged();
    Ended::of(scene.bare("tar").args(["-xzf", &package(&scene, ".tar.gz")])).exits(0);
    let top = format!("warpscope-{}-x86_64-linux", env!("CARGO_PKG_VERSION"));
    assert_installed(&scene, &top, "warpscope-record.1");

    if runs("dpkg", &["--version"]) {
        fs::create_dir_all(scene.path("root/var/lib/dpkg/info")).expect("a directory");
        fs::create_dir_all(scene.path("root/var/lib/dpkg/updates")).expect("a directory");
        fs::write(scene.path("root/var/lib/dpkg/status"), "").expect("a file");
        let package = package(&scene, ".deb");
        // An empty root has no libc6, which the package depends on.
        let install = ["--root=root", "--force-depends", "--force-not-root", "--force-bad-path", "-i", &package];
        Ended::of(scene.bare("dpkg").args(install)).exits(0);
        assert_installed(&scene, "root/usr", "warpscope-record.1.gz");
        let needs = Ended::of(scene.bare("dpkg-deb").args(["-f", &package, "Depends"])).exits(0);
        assert!(needs.out().starts_with("libc6 (>= 2."), "{}", needs.out());
    } else {
        not_covered("the Debian package: dpkg is not installed");
    }

    if runs("python3", &["-m", "pip", "--version"]) {
        Ended::of(scene.bare("python3").args(["-m", "venv", "--without-pip", "venv"])).exits(0);
        let pip = ["-m", "pip", "--isolated", "--disable-pip-version-check", "--python", "venv/bin/python"];
        let install = ["install", "--no-index", "--no-cache-dir", "--no-compile", &package(&scene, ".whl")];
        Ended::of(scene.bare("python3").args(pip).args(install)).exits(0);
        assert_installed(&scene, "venv", "warpscope-record.1");
    } else {
        not_covered("the Python wheel: python3 has no pip");
    }
}
