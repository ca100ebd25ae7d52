//! Plays every case file below `conformance/` on every engine. `conformance/README.md` says how
//! cases are written, in which ways they are played, and how to play one of them, or another server.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on panics")]

use forebay_tests::case::Case;
use forebay_tests::play::{Manner, play};
use forebay_tests::server::{Origin, free_addr};
use forebay_tests::tls::{Authority, TlsRelay};
use forebay_tests::{ENGINES, ISOLATED, Options, Server, fixture, http2, is_full_matrix};
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{env, fs, process, thread};

/// The user of the server when the tests run as root, so that file permissions count.
const NOBODY: u32 = 65_534;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // most of a case is waiting
    arguments.test_threads.get_or_insert(8);
    let cases = cases();
    let peer = env::var("CONFORMANCE_ADDR").ok().map(|addr| addr.parse().unwrap());
    let (folder, is_ours) = match env::var_os("CONFORMANCE_FOLDER") {
        Some(folder) => (PathBuf::from(folder), false),
        None => (env::temp_dir().join(format!("forebay-conformance-{}", process::id())), true),
    };
    let root = folder.join("root");
    let fleet = Arc::new(Fleet { root, servers: Mutex::default(), panics: Mutex::default() });
    if !arguments.list {
        fixture::build(&folder);
        // the tag of a large file is weak while its last change is younger than two seconds
        thread::sleep(Duration::from_millis(2_100));
    }
    let conclusion = libtest_mimic::run(&arguments, trials(&cases, peer, &fleet));
    let panics = fleet.panics();
    if is_ours {
        fixture::open_up(&folder);
        let _ = fs::remove_dir_all(&folder);
    }
    if !panics.is_empty() {
        eprintln!("a case made the server panic:\n{panics}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// Every case file with its name, `framing/chunked-good`.
fn cases() -> Vec<(String, Arc<Case>)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance");
    let mut files = Vec::new();
    collect(&top, &mut files);
    files.sort();
    assert!(!files.is_empty(), "no cases below {}", top.display());
    let read = |path: &PathBuf| {
        let name = path.strip_prefix(&top).unwrap().with_extension("");
        let text = fs::read_to_string(path).unwrap();
        let case = Case::parse(&text).unwrap_or_else(|what| panic!("{}: {what}", path.display()));
        (name.to_string_lossy().into_owned(), Arc::new(case))
    };
    files.iter().map(read).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "http") {
            files.push(path);
        }
    }
}

fn trials(
    cases: &[(String, Arc<Case>)],
    peer: Option<SocketAddr>,
    fleet: &Arc<Fleet>,
) -> Vec<Trial> {
    let mut trials = Vec::new();
    for lane in lanes(peer.is_some()) {
        for (name, case) in cases.iter().filter(|(name, case)| lane.plays(name, case)) {
            let (fleet, case) = (Arc::clone(fleet), Arc::clone(case));
            // a peer is configured by its own people
            let ignored = peer.is_some() && !case.config.is_empty();
            let run = move || match peer {
                Some(addr) => play(&case, addr, &fleet.root, lane.manner).map_err(Failed::from),
                None => fleet.play(lane, &case),
            };
            let name = format!("{}{}/{name}", lane.engine, lane.way);
            trials.push(Trial::test(name, run).with_ignored_flag(ignored));
        }
    }
    trials
}

/// A way to play cases: an engine with a configuration, and requests that come whole or cut anywhere. An
/// answer depends on none of it.
#[derive(Clone, Copy)]
struct Lane {
    engine: &'static str,
    way: &'static str,
    config: &'static str,
    manner: Manner,
    /// Whether only cases are played that may not be cut; another lane of the engine plays the others.
    only_uncut: bool,
}

impl Lane {
    fn plays(&self, name: &str, case: &Case) -> bool {
        let is_of_http1 = case.is_of_http1 || OF_HTTP1.iter().any(|dir| name.starts_with(dir));
        if self.config == HTTP2 && is_of_http1 {
            return false;
        }
        if self.config == HANDLER && NOT_BY_HANDLERS.iter().any(|(it, _)| name.starts_with(it)) {
            return false;
        }
        if case.may_be_cut { !self.only_uncut } else { self.manner == Manner::Whole }
    }
}

/// The ways to play: their names, and the configuration that makes the server answer in another way.
const WAYS: [(&str, &str, Manner); 7] = [
    ("", "", Manner::Whole),
    ("-in-pieces", "", Manner::Pieces),
    ("-uncached", "cache.bytes = \"0B\"\n", Manner::Whole),
    ("-from-disk", "cache.file_bytes = \"0B\"\n", Manner::Whole),
    ("-tls", TLS, Manner::Whole),
    ("-http2", HTTP2, Manner::Whole),
    ("-handler", HANDLER, Manner::Whole),
];

/// The comment that asks for TLS at a second address; the server's folder holds the certificate.
const TLS: &str = "# tls\n";

/// The comment that asks for HTTP/2.
const HTTP2: &str = "# http2\n";

/// The comment that asks for a handler of a program with the server inside.
const HANDLER: &str = "# handler\n";

/// The cases, by the beginning of their names, that a handler cannot pass, and the reasons.
const NOT_BY_HANDLERS: &[(&str, &str)] = &[
    (
        "framing/body-bound-is-a-setting",
        "the bound of a handler's bodies is HandlerOptions::body_bytes, and counts what has come",
    ),
    (
        "framing/body-too-large-and-sent",
        "the bound of a handler's bodies is HandlerOptions::body_bytes, and counts what has come",
    ),
    (
        "framing/chunked-size-huge",
        "the bound of a handler's bodies is HandlerOptions::body_bytes, and counts what has come",
    ),
    (
        "framing/chunked-too-large",
        "the bound of a handler's bodies is HandlerOptions::body_bytes, and counts what has come",
    ),
    ("header/limit-of-lines", "the second server counts the line that the handler adds"),
    (
        "path/backslash",
        "such a path is refused with 400 before a handler is asked, as for any application",
    ),
    (
        "path/redirect-like-a-host-backslash",
        "such a path is refused with 400 before a handler is asked, as for any application",
    ),
    (
        "path/slash-encoded",
        "such a path is refused with 400 before a handler is asked, as for any application",
    ),
    ("site/header-of-304", "the server names itself in each answer of a handler"),
];

/// The folders whose cases are about HTTP/1 alone.
const OF_HTTP1: [&str; 6] =
    ["expect/", "framing/", "header/", "host/", "persistence/", "request-line/"];

/// The engines that read files in their own way, and are played without a cache even when time is short.
const UNCACHED: [&str; 2] = ["pool", "pipeline:never"];

fn lanes(is_peer: bool) -> Vec<Lane> {
    let of = |engine| {
        WAYS.map(|(way, config, manner)| Lane { engine, way, config, manner, only_uncut: false })
    };
    if is_peer {
        return of("peer")[..2].to_vec();
    }
    let engines = ENGINES.into_iter().enumerate();
    let chosen = |(number, engine)| match of(engine) {
        all if number == 0 || is_full_matrix() => all.to_vec(),
        [whole, in_pieces, uncached, _, tls, http2, handler] => {
            let mut lanes = vec![Lane { only_uncut: true, ..whole }, in_pieces, tls, http2];
            lanes.extend((engine == "fibers").then_some(handler));
            lanes.extend(UNCACHED.contains(&engine).then_some(uncached));
            lanes
        }
    };
    let [whole, in_pieces, .., tls, http2, _] = of(ISOLATED);
    let isolated = [Lane { only_uncut: !is_full_matrix(), ..whole }, in_pieces, tls, http2];
    engines.flat_map(chosen).chain(isolated).collect()
}

/// The number of running servers from which those of earlier lanes (an engine and a way to reach it) are
/// ended. Each server watches files, and by default a user has 128 inotify instances
/// (`fs.inotify.max_user_instances`), which other tests need, too.
const MOST: usize = 24;

/// The running servers: one for each engine and configuration, shared by the cases.
struct Fleet {
    root: PathBuf,
    servers: Mutex<HashMap<(&'static str, String), Arc<Running>>>,
    /// The panics in the output of servers that were ended.
    panics: Mutex<String>,
}

/// A server, and the address where cases are played.
struct Running {
    server: Server,
    addr: SocketAddr,
}

impl Fleet {
    fn play(&self, lane: Lane, case: &Case) -> Result<(), Failed> {
        let running = self.server(lane, &case.config);
        play(case, running.addr, &self.root, lane.manner).map_err(|what| {
            let said = running.server.stderr();
            Failed::from(if said.is_empty() { what } else { format!("{what}\nit said:\n{said}") })
        })
    }

    fn server(&self, lane: Lane, config: &str) -> Arc<Running> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let config = format!("{}{config}", lane.config);
        if servers.len() >= MOST && !servers.contains_key(&(lane.engine, config.clone())) {
            servers.retain(|(engine, config), running| {
                let is_of_lane = *engine == lane.engine && config.starts_with(lane.config);
                let stays = is_of_lane || Arc::strong_count(running) > 1;
                if !stays {
                    self.note(running);
                }
                stays
            });
        }
        Arc::clone(servers.entry((lane.engine, config.clone())).or_insert_with(|| {
            let mut options = Options::new(&self.root).engine(lane.engine);
            options.config = config;
            options.user = Some(NOBODY);
            if lane.config == HANDLER {
                options.origin = Origin::Handler;
            }
            Arc::new(match lane.config {
                TLS => self.start_with_tls(options),
                HTTP2 => {
                    let server = Server::start(&options);
                    Running { addr: http2::Http2Relay::start(server.addr()).addr, server }
                }
                _ => {
                    let server = Server::start(&options);
                    Running { addr: server.addr(), server }
                }
            })
        }))
    }

    /// Starts a server that cases reach through TLS.
    fn start_with_tls(&self, mut options: Options) -> Running {
        let (authority, addr) = (Authority::new(), free_addr());
        let folder = self.root.parent().unwrap();
        let name = format!("tls-{}", addr.port());
        authority.write(folder, &name, &["small.example"], &rcgen::PKCS_ECDSA_P256_SHA256);
        let file = |end| folder.join(format!("{name}.{end}"));
        let pair =
            format!("tls.certificate = [{:?}]\ntls.key = [{:?}]\n", file("crt"), file("key"));
        let listener = format!("\n[[listener]]\nlisten = [\"https://{addr}\"]\n");
        options.config = format!("{pair}{}{listener}", options.config);
        let server = Server::start(&options);
        let relay = TlsRelay::start(&authority, addr, "small.example");
        Running { server, addr: relay.addr }
    }

    /// The panics in the output of the servers: a case may have its right answer all the same.
    fn panics(&self) -> String {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.values().for_each(|running| self.note(running));
        self.panics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, running: &Running) {
        let said = running.server.stderr();
        if said.contains("panicked") {
            self.panics.lock().unwrap_or_else(PoisonError::into_inner).push_str(&said);
        }
    }
}
