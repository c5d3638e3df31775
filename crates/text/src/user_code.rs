//! Distinguishes the user's code from library code.

/// Whether a Python file is the user's, and not part of the interpreter or an installed package. Code without a file is the
/// user's if it was typed or passed with `-c`; otherwise a library generated it.
pub fn is_user_file(path: &str) -> bool {
    if path.starts_with('<') {
        return matches!(path, "<stdin>" | "<string>") || path.starts_with("<ipython-input");
    }
    let mut parts = path.split('/').peekable();
    let mut inside = false;
    while let Some(part) = parts.next() {
        let python =
            |next: &str| next.strip_prefix("python").is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit()));
        inside |= matches!(part, "site-packages" | "dist-packages");
        inside |= matches!(part, "lib" | "lib64") && parts.peek().is_some_and(|next| python(next));
    }
    !inside && !path.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_packages_are_not_the_users() {
        for path in ["/home/me/train.py", "train.py", "/srv/lib/pythonic/a.py", "<stdin>", "/opt/site/module.py"] {
            assert!(is_user_file(path), "{path}");
        }
        let packages = "/usr/lib/python3.12/threading.py /venv/lib/python3.12/site-packages/torch/nn/module.py \
                        /usr/lib64/python3.9/dist-packages/a.py <eval_with_key>.7";
        for path in packages.split_whitespace().chain(["", "<frozen runpy>"]) {
            assert!(!is_user_file(path), "{path}");
        }
    }
}
