//! Tests of the layers: packages import only downward, the pure ones stay pure, and `unsafe` stays
//! where it is allowed. CONTRIBUTING.md shows the layers, and gives a reason for every dependency. The files
//! that CONTRIBUTING.md, ARCHITECTURE.md and the glossary name exist.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every package and its layer. A package imports only from layers below its own.
const LAYERS: &[(&str, u8)] = &[
    // Pure: no sockets, files, threads or clocks.
    ("forebay-http", 0),
    ("forebay-http2", 0),
    ("forebay-metrics", 0),
    ("forebay-control", 0),
    ("forebay-policy", 1),
    ("forebay-conn", 1),
    ("forebay-tls", 2),
    // The kernel's side, and the only packages with `unsafe`.
    ("forebay-sys", 2),
    ("forebay-fiber", 2),
    ("forebay-gate", 2),
    // Work with connections and content.
    ("forebay-acme", 3),
    ("forebay-engine", 3),
    ("forebay-upstream", 3),
    ("forebay-site", 3),
    ("forebay-load", 3),
    // All of these together: a text becomes settings, settings become a request handler and a running server.
    ("forebay-config", 4),
    ("forebay-handler", 5),
    ("forebay-server", 6),
    // Libraries for other programs.
    ("forebay", 7),
    ("forebay-tower", 8),
    // Programs. Nothing imports these.
    ("forebay-cli", 7),
    ("forebay-tests", 7),
    // Programs that use the library.
    ("forebay-lab", 8),
    ("forebay-window", 8),
    ("forebay-origin", 8),
];

/// Imports that are forbidden although they point downward: an engine knows a handler, not its decisions.
const FORBIDDEN: &[(&str, &str)] = &[("forebay-engine", "forebay-policy")];

/// The highest layer whose packages are pure.
const PURE: u8 = 1;

/// Words that betray a socket, a file, a thread or a clock.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::thread",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "UnixStream",
    "Instant::now",
    "SystemTime::now",
];

/// Words for descriptors, and for crates that make system calls with them.
const DESCRIPTORS: &[&str] = &["OwnedFd", "BorrowedFd", "RawFd", "AsFd", "rustix::", "libc::"];

/// The files of pure packages that pass a descriptor on, with its type: ARCHITECTURE.md ("Descriptors in
/// `conn`") says why.
const PASSED_ON: &[(&str, &str)] = &[
    ("conn/src/handler/body.rs", "BorrowedFd"),
    ("conn/src/handler/hooks.rs", "OwnedFd"),
    ("conn/src/handler/relay.rs", "BorrowedFd"),
    ("conn/src/http.rs", "BorrowedFd"),
    ("conn/src/http1/mod.rs", "BorrowedFd"),
    ("conn/src/http1/relay.rs", "BorrowedFd"),
    ("conn/src/http2/protocol.rs", "BorrowedFd"),
    ("conn/src/protocol.rs", "BorrowedFd"),
];

/// The packages that may contain `unsafe`.
const MAY_BE_UNSAFE: &[&str] = &["forebay-sys", "forebay-fiber", "forebay-gate"];

/// A package of the workspace.
struct Package {
    name: String,
    folder: PathBuf,
    /// The workspace packages that the build needs, without those that only tests need.
    imports: Vec<String>,
    /// Packages from the registry, with those for tests.
    dependencies: Vec<String>,
    /// The root files of the library and the programs.
    roots: Vec<PathBuf>,
}

fn layer(name: &str) -> u8 {
    let found = LAYERS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("{name} has no layer; give it one in {}", file!())).1
}

fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages: Vec<_> = list(&metadata["packages"]).map(package).collect();
    assert!(packages.len() > 5, "cargo metadata names only {} packages", packages.len());
    packages
}

fn package(value: &Value) -> Package {
    let imports = list(&value["dependencies"])
        .filter(|import| import["source"].is_null() && import["kind"] != "dev")
        .map(|import| text(&import["name"]).to_owned());
    let is_built =
        |target: &&Value| list(&target["kind"]).any(|kind| kind == "lib" || kind == "bin");
    let roots =
        list(&value["targets"]).filter(is_built).map(|target| text(&target["src_path"]).into());
    let dependencies = list(&value["dependencies"])
        .filter(|import| !import["source"].is_null())
        .map(|import| text(&import["name"]).to_owned());
    Package {
        name: text(&value["name"]).to_owned(),
        folder: Path::new(text(&value["manifest_path"])).parent().unwrap().to_owned(),
        imports: imports.collect(),
        dependencies: dependencies.collect(),
        roots: roots.collect(),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap().iter()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// All Rust files below `folder`.
pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
    files
}

/// The text of a file without comments, read line by line.
fn code(file: &Path) -> String {
    let source = std::fs::read_to_string(file).unwrap();
    let lines = source.lines().map(|line| line.split("//").next().unwrap_or(""));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_layer_names_packages_that_exist() {
    let packages = packages();
    let is_known = |name: &str| packages.iter().any(|package| package.name == name);
    let names = LAYERS.iter().map(|(name, _)| *name);
    let names = names.chain(FORBIDDEN.iter().flat_map(|(one, other)| [*one, *other]));
    let names = names.chain(MAY_BE_UNSAFE.iter().copied());
    let gone: Vec<_> = names.filter(|name| !is_known(name)).collect();
    assert!(gone.is_empty(), "no such package: {}", gone.join(", "));
}

#[test]
fn packages_import_only_downward() {
    let mut wrong = Vec::new();
    for package in packages() {
        for import in &package.imports {
            let upward = layer(import) >= layer(&package.name);
            if upward || FORBIDDEN.contains(&(&package.name, import)) {
                wrong.push(format!("{} imports {import}", package.name));
            }
        }
    }
    assert!(wrong.is_empty(), "against the layers:\n{}", wrong.join("\n"));
}

#[test]
fn pure_packages_touch_no_file_socket_descriptor_thread_or_clock() {
    let mut wrong = Vec::new();
    for package in packages().iter().filter(|package| layer(&package.name) <= PURE) {
        let files = sources(&package.folder.join("src"));
        // tests may be impure
        for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
            let code = code(file);
            let code = code.split("#[cfg(test)]").next().unwrap_or("");
            let passes_on = |word: &str| {
                PASSED_ON.iter().any(|(place, passed)| file.ends_with(place) && *passed == word)
            };
            let words = IMPURE.iter().chain(DESCRIPTORS).filter(|word| code.contains(*word));
            let words = words.filter(|word| !passes_on(word));
            wrong.extend(words.map(|word| format!("{}: {word}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "not pure:\n{}", wrong.join("\n"));
}

#[test]
fn unsafe_stays_in_the_packages_made_for_it() {
    // Put together here, so that this file does not find itself.
    let marks = ["{", "fn ", "impl ", "extern ", "trait "].map(|next| ["unsafe", next].join(" "));
    let mut wrong = Vec::new();
    for package in packages() {
        if MAY_BE_UNSAFE.contains(&&*package.name) {
            continue;
        }
        for root in &package.roots {
            if !code(root).contains("#![forbid(unsafe_code)]") {
                wrong.push(format!("{}: no #![forbid(unsafe_code)]", root.display()));
            }
        }
        for file in sources(&package.folder) {
            let code = code(&file);
            if marks.iter().any(|mark| code.contains(mark)) {
                wrong.push(format!("{}: unsafe code", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "unsafe where it may not be:\n{}", wrong.join("\n"));
}

#[test]
fn every_dependency_has_a_reason() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../CONTRIBUTING.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut wanted: Vec<_> = packages().into_iter().flat_map(|one| one.dependencies).collect();
    wanted.sort();
    wanted.dedup();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let explained: Vec<_> = rows.filter(|name| !name.contains('/')).collect();
    let missing: Vec<_> = wanted.iter().filter(|name| !explained.contains(&&***name)).collect();
    assert!(missing.is_empty(), "CONTRIBUTING.md does not say why these are here: {missing:?}");
}

#[test]
fn contributing_shows_the_layers() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../CONTRIBUTING.md");
    let page = std::fs::read_to_string(page).unwrap();
    // a row: | `crates/http` | what it is | 0, pure |
    let row = |line: &str| {
        let (path, rest) = line.strip_prefix("| `")?.split_once('`')?;
        let last = rest.trim_end().strip_suffix('|')?.rsplit('|').next()?.trim();
        let (layer, is_pure) = match last.strip_suffix(", pure") {
            Some(layer) => (layer, true),
            None => (last, false),
        };
        let layer: u8 = layer.parse().ok()?;
        assert_eq!(is_pure, layer <= PURE, "{path}");
        let folders = ["crates/", "examples/", "tests/"];
        let name = folders.iter().find_map(|folder| path.strip_prefix(folder)).unwrap_or(path);
        // the package of the library is called `forebay`, without a suffix
        let name = if name == "forebay" { name.to_owned() } else { format!("forebay-{name}") };
        Some((name, layer))
    };
    let mut shown: Vec<(String, u8)> = page.lines().filter_map(row).collect();
    let mut known: Vec<_> = LAYERS.iter().map(|(name, of)| ((*name).to_owned(), *of)).collect();
    shown.sort();
    known.sort();
    assert_eq!(shown, known);
}

/// The pages whose named files must exist.
const PAGES: &[&str] = &["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/glossary.md"];

/// The paths that `text` names in code spans, with braces expanded: `a/{b,c}.rs` is two.
fn named_paths(text: &str) -> Vec<String> {
    let is_path = |span: &&str| {
        let of_path = |c: char| c.is_ascii_alphanumeric() || "/._-{},".contains(c);
        span.contains('/') && span.starts_with(char::is_alphanumeric) && span.chars().all(of_path)
    };
    // Code spans are the odd parts; blocks of code have their own marks, and are left out.
    let prose = text.split("```").step_by(2);
    let spans = prose.flat_map(|part| part.split('`').skip(1).step_by(2));
    spans.filter(is_path).flat_map(expanded).collect()
}

/// The forms of `span` with its braces expanded.
fn expanded(span: &str) -> Vec<String> {
    let Some((before, rest)) = span.split_once('{') else { return vec![span.to_owned()] };
    let (choices, after) = rest.split_once('}').unwrap_or_else(|| panic!("open brace in {span}"));
    choices.split(',').flat_map(|choice| expanded(&format!("{before}{choice}{after}"))).collect()
}

#[test]
fn pages_name_only_files_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut gone = Vec::new();
    for page in PAGES {
        let named = named_paths(&std::fs::read_to_string(root.join(page)).unwrap());
        assert!(named.len() > 10, "{page} names only {} files", named.len());
        // paths are relative to the root, or to the folder of crates
        let is_there =
            |path: &str| ["", "crates"].iter().any(|from| root.join(from).join(path).exists());
        let lost = named.iter().filter(|path| !is_there(path));
        gone.extend(lost.map(|path| format!("{page}: {path}")));
    }
    assert!(gone.is_empty(), "no such file:\n{}", gone.join("\n"));
}

#[test]
fn paths_in_pages_are_found() {
    let text = "see `a/{b,c}.rs`, `make x`\n```\nd/`e\n```\nand `f/g/`, not `Type::name`";
    assert_eq!(named_paths(text), ["a/b.rs", "a/c.rs", "f/g/"]);
}
