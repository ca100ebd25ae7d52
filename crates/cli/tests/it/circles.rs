//! The test that there is no circle between files or folders: of two files or folders in one folder, at most
//! one needs the other, directly or through others. A need between files in different folders counts for the
//! two children of their nearest common folder. So a file and its children count as one towards all others,
//! and a circle that closes through a child is found. A parent and its children, in any generation, are one
//! subject, and may need each other.
//!
//! The test reads text, not Rust. It follows paths in `use` and in code, and through `use` in other files to
//! the definition of a name. It does not see needs without a path: calls of methods, impls of traits, macros
//! and their output, `use …::*`. Modules within a file count as that file, and a file that replaces another
//! (`#[path]`) counts by its own path.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use super::source::{self, Names, is_of_name, names, tokens, without_tests, without_texts};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The paths in a file of the package.
struct SourceFile {
    /// Every path in the code, with names replaced by what a `use` of the file imports under them.
    paths: Vec<Names>,
    /// The path that `use` imports under each name, also for other files.
    imports: BTreeMap<String, Names>,
}

/// The files of a package by their modules.
type Sources = BTreeMap<Names, SourceFile>;

/// The needs of each module, with its children: the modules that it needs, and the names that it uses of
/// them.
type Needs = BTreeMap<Names, BTreeMap<Names, BTreeSet<String>>>;

/// Takes the tree of a `use`, or a path in code, from the front of `tokens`; collects each path in it, and
/// the name that it has in the file.
fn path_tree(tokens: &mut &[&str], before: &[&str], found: &mut Vec<(Names, String)>) {
    let mut path = before.to_vec();
    while let Some((first, rest)) = tokens.split_first() {
        if *first == "{" {
            *tokens = rest;
            while let Some((first, rest)) = tokens.split_first() {
                match *first {
                    "}" => return *tokens = rest,
                    name if name.starts_with(is_of_name) => path_tree(tokens, &path, found),
                    _ => *tokens = rest,
                }
            }
            return;
        }
        if !first.starts_with(is_of_name) {
            break;
        }
        // `self` in `a::{self, b}` is `a`
        if *first != "self" || path.is_empty() {
            path.push(first);
        }
        *tokens = rest;
        match tokens.split_first() {
            Some((&"::", rest)) => *tokens = rest,
            _ => break,
        }
    }
    let known = match *tokens {
        ["as", name, rest @ ..] => {
            *tokens = rest;
            *name
        }
        _ => path.last().copied().unwrap_or(""),
    };
    found.push((path.iter().map(|name| (*name).to_owned()).collect(), known.to_owned()));
}

/// Reads the paths of `module` from its code; `modules` are all that have files.
fn source_file(module: &Names, code: &str, modules: &BTreeSet<Names>) -> SourceFile {
    let all = tokens(code);
    let mut rest = &all[..];
    let (mut used, mut named) = (Vec::new(), Vec::new());
    while let Some((first, after)) = rest.split_first() {
        let is_path = first.starts_with(is_of_name) && after.first() == Some(&"::");
        if *first == "use" {
            rest = after;
            path_tree(&mut rest, &[], &mut used);
        } else if is_path {
            path_tree(&mut rest, &[], &mut named);
        } else {
            rest = after;
        }
    }
    let mut file = SourceFile { paths: Vec::new(), imports: BTreeMap::new() };
    for (path, known) in used {
        if let Some(path) = from_root(module, &path, modules, &BTreeMap::new()) {
            file.paths.push(path.clone());
            file.imports.insert(known, path);
        }
    }
    let named =
        named.iter().filter_map(|(path, _)| from_root(module, path, modules, &file.imports));
    file.paths.extend(named.collect::<Vec<_>>());
    file
}

/// Resolves `path`, as `module` writes it, to one from the root of the crate; `None` if it leads elsewhere.
fn from_root(
    module: &Names,
    path: &[String],
    modules: &BTreeSet<Names>,
    imports: &BTreeMap<String, Names>,
) -> Option<Names> {
    let (first, rest) = path.split_first()?;
    let child = [&module[..], std::slice::from_ref(first)].concat();
    let start = match &**first {
        "crate" => Vec::new(),
        "self" => module.clone(),
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        _ if modules.contains(&child) => child,
        name => imports.get(name)?.clone(),
    };
    // super::super::
    let ups = rest.iter().take_while(|name| *name == "super").count();
    let start = &start[..start.len().checked_sub(ups)?];
    Some([start, &rest[ups..]].concat())
}

/// The module that defines what `path` names, found through each `use` on the way, and the name there.
fn owner(path: &[String], sources: &Sources) -> (Names, String) {
    let mut path = path.to_vec();
    // Longer than any chain of `use` here, so that one that leads to itself ends.
    for _ in 0..8 {
        let is_module = |length: &usize| sources.contains_key(&path[..*length]);
        let module = (0..=path.len()).rev().find(is_module).unwrap_or(0);
        let Some(name) = path.get(module) else { break };
        let Some(import) = sources.get(&path[..module]).and_then(|file| file.imports.get(name))
        else {
            return (path[..module].to_vec(), name.clone());
        };
        path = [import, &path[module + 1..]].concat();
    }
    let name = path.last().cloned().unwrap_or_default();
    (path, name)
}

/// The sources of a package without tests, and without programs in `bin`, which nothing needs.
fn sources(src: &Path) -> Sources {
    let mut codes = source::codes(src);
    codes.retain(|module, _| module.first().is_none_or(|first| first != "bin"));
    let modules = codes.keys().cloned().collect();
    let file =
        |(module, code): (&Names, &String)| (module.clone(), source_file(module, code, &modules));
    codes.iter().map(file).collect()
}

/// The needs between children of a folder, without those between parents and children.
fn needs(sources: &Sources) -> Needs {
    let mut needs = Needs::new();
    for (module, file) in sources {
        needs.entry(module.clone()).or_default();
        for path in &file.paths {
            let (owner, name) = owner(path, sources);
            let common = module.iter().zip(&owner).take_while(|(a, b)| a == b).count();
            let is_family = common == module.len() || common == owner.len();
            if !is_family && sources.contains_key(&owner) {
                // the children of their nearest common folder
                let (from, to) = (module[..=common].to_vec(), owner[..=common].to_vec());
                needs.entry(to.clone()).or_default();
                needs.entry(from).or_default().entry(to).or_default().insert(name);
            }
        }
    }
    needs
}

/// All modules that `from` needs, directly or through others.
fn reached(from: &Names, needs: &Needs) -> BTreeSet<Names> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        let next = needs.get(module).into_iter().flat_map(BTreeMap::keys);
        open.extend(next.filter(|module| reached.insert((*module).clone())));
    }
    reached
}

/// The circles: sets of modules each of which needs all the others.
fn circles(needs: &Needs) -> BTreeSet<BTreeSet<Names>> {
    let reaches: BTreeMap<_, _> =
        needs.keys().map(|module| (module, reached(module, needs))).collect();
    let circle = |(module, reached): (&&Names, &BTreeSet<Names>)| {
        let back = reached.iter().filter(|other| reaches[other].contains(*module));
        back.cloned().collect::<BTreeSet<_>>()
    };
    reaches.iter().map(circle).filter(|circle| !circle.is_empty()).collect()
}

/// The needs within a circle, a line for each of its modules that needs another.
fn ties(circle: &BTreeSet<Names>, needs: &Needs) -> String {
    let mut lines = String::new();
    for module in circle {
        for (other, names) in needs[module].iter().filter(|(other, _)| circle.contains(*other)) {
            let names: Vec<_> = names.iter().map(|name| &**name).collect();
            let (module, other) = (module.join("::"), other.join("::"));
            lines.push_str(&format!("    {module} needs {other}: {}\n", names.join(", ")));
        }
    }
    lines
}

#[test]
fn no_circle_between_files_or_folders_but_parent_and_child() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut wrong = Vec::new();
    for folder in source::packages(&root) {
        let package = folder.file_name().unwrap().to_string_lossy();
        let needs = needs(&sources(&folder.join("src")));
        for circle in circles(&needs) {
            let ties = ties(&circle, &needs);
            let count = ties.lines().count();
            wrong.push(format!("{package}, {} modules, {count} ties:\n{ties}", circle.len()));
        }
    }
    let count = wrong.len();
    assert!(wrong.is_empty(), "{count} circles between files or folders:\n{}", wrong.join("\n"));
}

/// The needs in a package of files with this code.
fn needs_of(code: &[(&str, &str)]) -> Needs {
    let modules: BTreeSet<Names> = code.iter().map(|(module, _)| names(module)).collect();
    let file = |(module, code): &(&str, &str)| {
        let (code, _) = without_tests(&without_texts(code));
        (names(module), source_file(&names(module), &code, &modules))
    };
    needs(&code.iter().map(file).collect())
}

/// The modules that `module` needs.
fn needed_by(module: &str, needs: &Needs) -> Vec<String> {
    needs[&names(module)].keys().map(|other| other.join("::")).collect()
}

#[test]
fn a_circle_is_found() {
    let code = [
        ("", "mod a; mod c; pub use a::b::{Deep as D, other}; use d::E;"),
        ("a", "use crate::{D, e::{self, X}}; e::f(\"crate::d::X\"); // crate::d::X"),
        ("a::b", "pub struct Deep; fn up(_: super::Of<'_>) {} '\"'; r#\"\"crate::d\"#;"),
        ("c", "#[cfg(test)] mod tests { use crate::d::X; } type Y = crate::D; fn f<'a>() {}"),
        ("d", "type Z = crate::a::b::Deep;"),
        ("e", "pub struct X;"),
    ];
    let mut needs = needs_of(&code);
    assert_eq!(needed_by("a", &needs), ["e"]);
    assert_eq!(needed_by("c", &needs), ["a"]);
    assert_eq!(needed_by("d", &needs), ["a"]);
    assert!(needed_by("a::b", &needs).is_empty(), "a parent is no other");
    assert!(circles(&needs).is_empty());

    let tie = BTreeSet::from(["Z".to_owned()]);
    needs.entry(names("a")).or_default().insert(names("d"), tie);
    let found = circles(&needs);
    assert_eq!(found, BTreeSet::from([BTreeSet::from([names("a"), names("d")])]));
    let found = ties(found.first().unwrap(), &needs);
    assert_eq!(found, "    a needs d: Z\n    d needs a: Deep\n");
}

#[test]
fn a_circle_of_folders_is_found() {
    // no two of these files need each other, but `a` and `c` do with their children
    let through_a_child = [
        ("", ""),
        ("a", "use crate::c::X;"),
        ("a::b", "pub struct Deep;"),
        ("c", "pub struct X; type Y = crate::a::b::Deep;"),
    ];
    let between_children = [
        ("", ""),
        ("a", ""),
        ("a::b", "pub struct Deep;"),
        ("a::d", "use crate::c::e::X;"),
        ("c", ""),
        ("c::e", "pub struct X;"),
        ("c::f", "type Y = crate::a::b::Deep;"),
    ];
    for code in [&through_a_child[..], &between_children] {
        let needs = needs_of(code);
        let found = circles(&needs);
        assert_eq!(found, BTreeSet::from([BTreeSet::from([names("a"), names("c")])]));
        let found = ties(found.first().unwrap(), &needs);
        assert_eq!(found, "    a needs c: X\n    c needs a: Deep\n");
    }
    // within a folder, each file counts by itself
    let within = [("a", ""), ("a::b", "use super::d::X;"), ("a::d", "pub struct X;")];
    let needs = needs_of(&within);
    assert_eq!(needed_by("a::b", &needs), ["a::d"]);
    assert!(circles(&needs).is_empty());
}
