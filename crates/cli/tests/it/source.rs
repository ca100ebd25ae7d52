//! The sources of the workspace as text, without comments and without tests.
//!
//! An item of the tests (`#[cfg(test)]`) is assumed to end at its first closing brace or semicolon. That
//! holds for items, but not for fields.
#![allow(clippy::unwrap_used, reason = "a failed check panics")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The names of a path from a crate's root to a module, or to an item in one.
pub(super) type Names = Vec<String>;

/// The names in a path; the empty path is the root.
pub(super) fn names(path: &str) -> Names {
    path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// `source` without comments, texts and characters, each replaced by a space.
pub(super) fn without_texts(source: &str) -> String {
    let mut code = String::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let hidden = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => text_end(rest),
            'r' if !code.ends_with(is_of_name) => raw_text_end(rest),
            '\'' => character_end(rest),
            _ => 0,
        };
        match hidden {
            0 => code.push(first),
            _ => code.push(' '),
        }
        rest = &rest[hidden.max(first.len_utf8())..];
    }
    code
}

/// The length of the text in quotes that `rest` begins with.
fn text_end(rest: &str) -> usize {
    let mut is_escaped = true;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'"' if !is_escaped => return at + 1,
            b'\\' if !is_escaped => is_escaped = true,
            _ => is_escaped = false,
        }
    }
    rest.len()
}

/// The length of the raw text (`r#"…"#`) that `rest` begins with, or 0.
fn raw_text_end(rest: &str) -> usize {
    let marks = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
    if !rest[1 + marks..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(marks));
    rest[2 + marks..].find(&end).map_or(rest.len(), |at| 2 + marks + at + end.len())
}

/// The length of the character (`'x'`, `'\n'`) that `rest` begins with, or 0 for a lifetime.
fn character_end(rest: &str) -> usize {
    let mut inner = rest.char_indices().skip(1);
    match inner.next() {
        Some((_, '\\')) => rest[3..].find('\'').map_or(0, |at| at + 4),
        Some(_) => inner.next().filter(|(_, next)| *next == '\'').map_or(0, |(at, _)| at + 1),
        None => 0,
    }
}

pub(super) fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `code` without items of the tests, and the test modules that have files.
pub(super) fn without_tests(code: &str) -> (String, Vec<String>) {
    let mut parts = code.split("#[cfg(test)]");
    let mut kept = parts.next().unwrap_or("").to_owned();
    let mut modules = Vec::new();
    for part in parts {
        let end = item_end(part);
        let declared = part[..end].trim_end_matches(';').rsplit_once("mod ");
        modules.extend(declared.map(|(_, name)| name.trim().to_owned()));
        kept.push_str(&part[end..]);
    }
    (kept, modules)
}

/// The end of the item that `code` begins with: behind its block, or its semicolon.
fn item_end(code: &str) -> usize {
    let mut depth = 0_i32;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth <= 0 && (byte == b'}' || byte == b';') {
            return at + 1;
        }
    }
    code.len()
}

/// The tokens of `code`: names, `::`, and single characters.
pub(super) fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            ':' if rest.starts_with("::") => 2,
            _ if is_of_name(first) => rest.find(|c| !is_of_name(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

/// The module of a file, by its path below `src`.
pub(super) fn module_of(path: &Path) -> Names {
    let names = path.with_extension("");
    let names = names.iter().map(|name| name.to_string_lossy().into_owned());
    let mut names: Names = names.collect();
    if matches!(names.last().map(|last| &**last), Some("mod" | "lib" | "main")) {
        names.pop();
    }
    names
}

/// The folders of the server's packages, and that of the laboratory.
pub(super) fn packages(root: &Path) -> Vec<PathBuf> {
    let crates = std::fs::read_dir(root.join("crates")).unwrap();
    let mut folders: Vec<_> = crates.map(|entry| entry.unwrap().path()).collect();
    folders.push(root.join("lab"));
    folders.sort();
    folders
}

/// The code of a package without tests, by module.
pub(super) fn codes(src: &Path) -> BTreeMap<Names, String> {
    let mut codes = BTreeMap::new();
    let mut tests: Vec<Names> = Vec::new();
    for path in super::layers::sources(src) {
        let module = module_of(path.strip_prefix(src).expect("it lies there"));
        let (code, of_tests) = without_tests(&without_texts(
            &std::fs::read_to_string(&path).expect("a readable file"),
        ));
        tests.extend(of_tests.into_iter().map(|name| [&module[..], &[name]].concat()));
        codes.insert(module, code);
    }
    let is_test = |module: &Names| {
        let is_named = module.last().is_some_and(|last| last.ends_with("tests"));
        is_named || tests.iter().any(|test| module.starts_with(test))
    };
    codes.retain(|module, _| !is_test(module));
    codes
}
