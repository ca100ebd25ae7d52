//! The test that a word has one meaning: no two types have the same name, in the server, its tools or the
//! laboratory.
//!
//! The test reads text, not Rust: structs, enums, traits and types of a file, without those within functions,
//! traits and macros.
#![forbid(unsafe_code)]

use super::source::{self, tokens};
use std::collections::BTreeMap;
use std::path::Path;

/// Names that several files may have, with the number of files and the reason: they mean the same, or the
/// subject of their module.
const SHARED: &[(&str, usize, &str)] = &[
    ("AnswerOutcome", 2, "how an attempt to answer ended, in HTTP/1 and HTTP/2"),
    ("CertificateKeeper", 2, "two builds of one"),
    ("ClientAuth", 2, "two builds of one"),
    ("DoneOf", 2, "what a handler's job has brought: an alias in conn and in engine"),
    ("FieldLines", 2, "field lines of a head: of a request, of a response"),
    ("GivenAnswers", 2, "two builds of one"),
    ("Kept", 2, "a request that is kept, in HTTP/1 and HTTP/2"),
    ("KeptFor", 2, "what it is kept for"),
    ("KernelGate", 2, "two builds of one"),
    ("KernelTables", 2, "two builds of one"),
    ("Kind", 2, "of what its module is about"),
    ("Node", 3, "of a list, a trie, a graph"),
    ("Options", 3, "how that is made which its module is about"),
    ("Pair", 2, "two builds of one"),
    ("Places", 3, "a limited number of them, as the glossary has it"),
    ("Proofs", 2, "two builds of one"),
    ("Sending", 2, "an answer under way to its client, in HTTP/1 and HTTP/2"),
    ("ServeOrClose", 2, "what a thread does with a connection, in pool and threads"),
    ("Server", 4, "one that runs, as its owner holds it"),
    ("Session", 2, "two builds of one"),
    ("Setting", 2, "something that can be set, and what it means"),
    ("Shared", 3, "what threads or fibers of a module share"),
    ("Stamp", 2, "what tells one state of a file from another"),
    ("State", 2, "what changes in that which its module is about"),
    ("Told", 2, "what a client was told of the answer of another server, in HTTP/1 and HTTP/2"),
    ("Trial", 2, "one measurement of one server"),
    ("Waiter", 3, "one that waits, and how it is told"),
];

/// The types that are declared at the outermost level of a file.
fn types(code: &str) -> Vec<&str> {
    let (mut depth, mut types) = (0, Vec::new());
    let tokens = tokens(code);
    for pair in tokens.windows(2) {
        match pair {
            ["{" | "(" | "[", _] => depth += 1,
            ["}" | ")" | "]", _] => depth -= 1,
            ["struct" | "enum" | "trait" | "type" | "union", name] if depth == 0 => {
                types.push(*name)
            }
            _ => {}
        }
    }
    types
}

#[test]
fn a_type_has_a_name_of_its_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for folder in source::packages(&root) {
        let package = folder.file_name().unwrap_or_default().to_string_lossy();
        for (module, code) in source::codes(&folder.join("src")) {
            let place = format!("{package}::{}", module.join("::"));
            for name in types(&code) {
                places.entry(name.to_owned()).or_default().push(place.clone());
            }
        }
    }
    assert!(places.len() > 1000, "too few types are found: {}", places.len());
    places.retain(|_, places| places.len() > 1);
    let mut wrong = String::new();
    for (name, places) in &places {
        let is_known = |known: &(&str, usize, &str)| known.0 == name && known.1 == places.len();
        if !SHARED.iter().any(is_known) {
            wrong.push_str(&format!("    {name}, {}: {}\n", places.len(), places.join(", ")));
        }
    }
    assert!(
        wrong.is_empty(),
        "names with several meanings. Find others, or say in SHARED how many mean the same:\n{wrong}"
    );
    for (name, ..) in SHARED {
        assert!(places.contains_key(*name), "SHARED: {name} is written once at the most");
    }
}

#[test]
fn types_are_found() {
    let code = "pub struct A<T>(T); enum B { C } mod d { struct E; } \
                impl F for A { type G = u8; } fn h() { struct I; } type J = u8; pub(crate) trait K {}";
    assert_eq!(types(code), ["A", "B", "J", "K"]);
}
