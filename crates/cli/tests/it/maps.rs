//! Tests of the maps: a table of modules at the head of a file names each of the file's modules, and nothing
//! else. The head of a crate has one.
//!
//! A map is a table with a column `module` or `file`, in which names are between backquotes: `` `name` ``,
//! `` [`name`] ``, `` `name.rs` ``, `` `folder/name.rs` ``. A file may have several maps. A link to a
//! module elsewhere (`crate::…`), or to a child's child (`a::b`), must lead to a module. Modules of tests
//! may be missing.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use super::layers;
use super::source::{self, Names, names, tokens, without_tests, without_texts};
use std::collections::BTreeSet;
use std::path::Path;

/// The names in the maps of a file, each as a path from the root of the crate; `None` if it has no map.
fn mapped(module: &[String], text: &str) -> Option<BTreeSet<Names>> {
    let mut maps: Option<BTreeSet<Names>> = None;
    let mut column = None;
    let mut is_in_table = false;
    for line in text.lines().take_while(|line| line.starts_with("//!")) {
        let Some(row) = line.strip_prefix("//! | ") else {
            // the line below the titles belongs to the table
            is_in_table &= line.starts_with("//! |");
            continue;
        };
        let mut cells = row.split('|').map(str::trim);
        if !is_in_table {
            is_in_table = true;
            column = cells.position(|title| matches!(title, "module" | "file"));
            if column.is_some() {
                maps.get_or_insert_default();
            }
        } else if let (Some(column), Some(names)) = (column, &mut maps) {
            let cell = cells.nth(column).unwrap_or_default();
            names.extend(names_in(module, cell));
        }
    }
    maps
}

/// The names between backquotes in a cell.
fn names_in(module: &[String], cell: &str) -> Vec<Names> {
    let parts: Vec<&str> = cell.split('`').collect();
    let mut names = Vec::new();
    for pair in parts[1..].chunks_exact(2) {
        let (name, after) = (pair[0], pair[1]);
        // a folder without modules
        if name.ends_with('/') {
            continue;
        }
        let link = after.strip_prefix("](").and_then(|link| link.split(')').next());
        if let Some(path) = link.and_then(|link| link.strip_prefix("crate::")) {
            names.push(path.split("::").map(str::to_owned).collect());
            continue;
        }
        let name = name
            .trim_start_matches("mod@")
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .trim_end_matches(".rs");
        let path = name.split("::").map(str::to_owned);
        names.push(module.iter().cloned().chain(path).collect());
    }
    names
}

/// The modules that a file declares in files of their own: all, and those of the tests.
fn declared(module: &[String], text: &str) -> (BTreeSet<Names>, BTreeSet<Names>) {
    let (code, of_tests) = without_tests(&without_texts(text));
    let tokens = tokens(&code);
    let declared = tokens.windows(3).filter(|three| three[0] == "mod" && three[2] == ";");
    let path = |name: &str| [module, &[name.to_owned()]].concat();
    let tests: BTreeSet<Names> = of_tests.iter().map(|name| path(name)).collect();
    let all = declared.map(|three| path(three[1])).chain(tests.iter().cloned());
    (all.collect(), tests)
}

/// The errors in the maps of a package, given its files as module and text.
fn wrong_maps(files: &[(Names, String)]) -> Vec<String> {
    let modules: BTreeSet<&Names> = files.iter().map(|(module, _)| module).collect();
    let mut wrong = Vec::new();
    for (module, text) in files {
        let (declared, tests) = declared(module, text);
        let named: Vec<_> = declared.difference(&tests).collect();
        if named.is_empty() {
            continue;
        }
        let name = if module.is_empty() { "the crate".to_owned() } else { module.join("::") };
        let Some(mapped) = mapped(module, text) else {
            if module.is_empty() {
                wrong.push(format!("{name} has no map"));
            }
            continue;
        };
        let last = |names: &Names| names.last().cloned().unwrap_or_default();
        let missing = named.iter().filter(|child| !mapped.contains(**child));
        wrong.extend(missing.map(|child| format!("the map of {name} lacks {}", last(child))));
        // a map may have a row for the file itself
        let is_there = |path: &Names| {
            modules.contains(path) || declared.contains(path) || path.last() == module.last()
        };
        let other = mapped.iter().filter(|path| !is_there(path));
        wrong.extend(
            other.map(|path| format!("the map of {name} names {}, which is no module", last(path))),
        );
    }
    wrong
}

#[test]
fn maps_name_the_modules_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut wrong = Vec::new();
    for folder in source::packages(&root) {
        let package = folder.file_name().unwrap().to_string_lossy().into_owned();
        let src = folder.join("src");
        let paths = layers::sources(&src).into_iter();
        let file = |path: std::path::PathBuf| {
            let module = source::module_of(path.strip_prefix(&src).expect("it lies there"));
            (module, std::fs::read_to_string(&path).expect("a readable file"))
        };
        let is_of_program = |module: &Names| module.first().is_some_and(|first| first == "bin");
        let files: Vec<_> = paths.map(file).filter(|(module, _)| !is_of_program(module)).collect();
        wrong.extend(wrong_maps(&files).iter().map(|wrong| format!("{package}: {wrong}\n")));
    }
    assert!(wrong.is_empty(), "{} places in maps are untrue:\n{}", wrong.len(), wrong.concat());
}

#[test]
fn an_untrue_map_is_found() {
    let files = |code: &[(&str, &str)]| -> Vec<(Names, String)> {
        let file = |(module, text): &(&str, &str)| (names(module), (*text).to_owned());
        code.iter().map(file).collect()
    };
    let table = "//! What it is.\n//!\n//! | module | what it holds |\n//! |---|---|\n";
    let root = format!("{table}//! | [`a`], `b` | `c` |\n\nmod a;\npub mod b;\n");
    let tests = "#[cfg(test)]\nmod tests;\n";
    let child = "//! | who | file |\n//! |---|---|\n//! | it | `b/d.rs`, `b.rs` |\n\
        //! | a | [`a`](crate::a) |\n//!\n//! | what | how |\n//! |---|---|\n//! | `e` | |\n\nmod d;\n";
    let all = [("", &*(root + tests)), ("a", ""), ("b", child), ("b::d", ""), ("tests", "")];
    assert!(wrong_maps(&files(&all)).is_empty());

    let second =
        "//!\n//! | module | what |\n//! |---|---|\n//! | [`a`](mod@a), `b::d`, `bpf/`, `f` | |\n";
    let root = format!("{table}//! | `b` | |\n{second}\nmod a;\nmod b;\nmod c;\n");
    let child = "//! | file | what |\n//! |---|---|\n\nmod d; // mod e;";
    let all = [("", &*root), ("a", ""), ("b", child), ("b::d", ""), ("c", "")];
    let expected = [
        "the map of the crate lacks c",
        "the map of the crate names f, which is no module",
        "the map of b lacks d",
    ];
    assert_eq!(wrong_maps(&files(&all)), expected);
    assert_eq!(wrong_maps(&files(&[("", "//! What.\n\nmod a;")])), ["the crate has no map"]);
}
