//! REDbot and httplint check the example site: a page, a style sheet, a picture and a large file must
//! cause neither a complaint nor a warning.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on panics")]

use forebay_tests::{ENGINES, Options, Server, is_full_matrix};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs, thread};

/// The packages that are installed, with their versions.
const PACKAGES: [&str; 2] = ["redbot==2.7.1", "httplint==2026.10.4"];

const PATHS: [&str; 4] = ["/", "/css/site.css", "/img/water.jpg", "/files/large.bin"];

#[test]
fn the_example_site_is_clean_and_a_bad_answer_is_not() {
    let Some(python) = python() else { return };
    notices_a_bad_answer(&python);
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let site = tests.join("../examples/site");
    let made = Command::new(tests.join("../scripts/make-example")).status().unwrap();
    assert!(made.success(), "scripts/make-example: {made}");
    // the conformance cases find differences between engines
    let engines = if is_full_matrix() { &ENGINES[..] } else { &ENGINES[..1] };
    for engine in engines {
        let server = Server::start(&Options::new(&site).engine(engine));
        for path in PATHS {
            let output = lint(&python, &format!("http://{}{path}", server.addr()));
            let said = String::from_utf8_lossy(&output.stdout);
            let trouble = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{engine} {path}:\n{said}{trouble}");
            for note in ["CL_CORRECT", "INM_304", "IMS_304", "RANGE_CORRECT"] {
                assert!(said.contains(note), "{engine} {path} lacks {note}:\n{said}");
            }
        }
    }
}

/// The checker must be able to complain, or its silence means nothing.
fn notices_a_bad_answer(python: &Path) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().take(20) {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\nLast-Modified: yesterday\r\nETag: bad\r\n\
                  Content-Length: 2\r\nConnection: close\r\n\r\nhi",
            );
        }
    });
    let output = lint(python, &format!("http://{addr}/"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("FAILED: "), "{said}");
}

fn lint(python: &Path, url: &str) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/lint.py");
    Command::new(python).arg(script).arg(url).output().unwrap()
}

/// A Python that has the packages, in an environment below the target directory. Where it cannot
/// be made the test is left out and says so; but not where CI runs.
fn python() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("httplint");
    let python = folder.join("bin/python");
    let stamp = folder.join("installed");
    let wanted = PACKAGES.join(" ");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Some(python);
    }
    let venv = Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder).output();
    let pip = venv.and_then(|venv| {
        let arguments = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        let pip = || Command::new(&python).args(arguments).args(PACKAGES).output();
        if venv.status.success() { pip() } else { Ok(venv) }
    });
    let trouble = match pip {
        Ok(output) if output.status.success() => {
            fs::write(stamp, wanted).unwrap();
            return Some(python);
        }
        Ok(output) => [output.stdout, output.stderr].concat(),
        Err(error) => error.to_string().into_bytes(),
    };
    let trouble = String::from_utf8_lossy(&trouble);
    let is_ci = env::var("CI").is_ok_and(|value| value == "true");
    assert!(!is_ci, "{PACKAGES:?} cannot be installed:\n{trouble}");
    // not by eprintln!, which is shown for failed tests only
    let _ = writeln!(
        io::stderr(),
        "\nSKIPPED: httplint did not judge anything, {PACKAGES:?} cannot be installed:\n{trouble}"
    );
    None
}
