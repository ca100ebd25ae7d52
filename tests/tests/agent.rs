//! The agent on the real server: a flood of work, what is served of it, and that it ends.
//!
//! Nothing here depends on how fast the machine is: clients ask again as soon as they are answered,
//! so whatever it can do, they want more.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::client::Client;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{Served, soon};
use forebay_tests::server::binary;
use forebay_tests::{ENGINES, Options};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// A busy machine has little CPU time to give.
const PATIENCE: Duration = Duration::from_secs(60);
const CLIENTS: usize = 40;

const POLICY: &str = r#"
[[class]]
name = "gold"
priority = 0
delay = "20ms"
[[class]]
name = "bulk"
priority = 1
share = "10%"
delay = "20ms"
[[rule]]
name = "files"
path = "/*.html"
class = "gold"
[[work]]
path = "/work"
"#;

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("site/index.html", "index");
    folder
}

fn options(folder: &Folder, engine: &str, lines: &str) -> Options {
    Options::new(folder.join("site")).engine(engine).config(lines)
}

/// What the clients of a flood were told.
#[derive(Default)]
struct Told {
    good: AtomicU64,
    refused: AtomicU64,
}

/// Clients that ask for 10 ms of work again and again while `meanwhile` runs.
fn flood<R>(served: &Served, meanwhile: impl FnOnce(&Told) -> R) -> (R, Told) {
    let (told, is_over) = (Told::default(), AtomicBool::new(false));
    let result = thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = served.client().patience(PATIENCE);
                while !is_over.load(Relaxed) {
                    match client.get("/work?cpu=10ms").unwrap() {
                        answer if answer.status == 200 => told.good.fetch_add(1, Relaxed),
                        answer => {
                            assert_eq!(answer.status, 503);
                            let after = answer.field("Retry-After").unwrap();
                            assert!((1..=60).contains(&after.parse().unwrap()), "{after}");
                            thread::sleep(Duration::from_millis(1));
                            told.refused.fetch_add(1, Relaxed)
                        }
                    };
                }
            });
        }
        // whatever happens, the clients end
        struct Over<'o>(&'o AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let _over = Over(&is_over);
        meanwhile(&told)
    });
    (result, told)
}

/// What `forebay policy` says.
fn policy(command: &str, served: &Served) -> String {
    let output =
        Command::new(binary()).args(["policy", command, "-c"]).arg(served.file()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn is_idle(served: &Served) -> bool {
    ["forebay_class_unfinished_jobs", "forebay_class_in_flight"]
        .iter()
        .all(|metric| served.metric(&format!("{metric}{{class=\"bulk\"}}")) == 0)
}

#[test]
fn what_is_too_much_is_refused_and_the_rest_is_served() {
    let folder = site();
    for engine in ENGINES.into_iter().chain(["pipeline:never"]) {
        let lines = format!("agent = \"on\"\n{POLICY}");
        let served = Served::with(options(&folder, engine, &lines));
        let mut gold = served.client().patience(PATIENCE);
        assert_eq!(gold.get("/index.html").unwrap().status, 200);
        let ((), told) = flood(&served, |told| {
            let is_limited = || {
                assert_eq!(gold.get("/index.html").unwrap().status, 200, "{engine}");
                let most = served.metric("forebay_class_window_jobs{class=\"bulk\"}");
                served.metric("forebay_overload_level") > 0
                    && (1..CLIENTS as u64).contains(&most)
                    && told.refused.load(Relaxed) > 100
                    && told.good.load(Relaxed) > 100
            };
            assert!(soon(PATIENCE, is_limited), "{engine}: {}", served.metrics());
            let is_cut = |line: &str| line.contains("header_control (") && line.contains(" bulk ");
            let is_told = || policy("history", &served).lines().any(is_cut);
            assert!(soon(PATIENCE, is_told), "{engine}: {}", policy("history", &served));
        });
        assert!(soon(PATIENCE, || is_idle(&served)), "{engine}: {}", served.metrics());
        let of = |metric: &str| served.metric(metric);
        let refused =
            "forebay_class_refused_total{class=\"bulk\",place=\"request\",reason=\"agent\"}";
        assert_eq!(of(refused), told.refused.into_inner(), "{engine}");
        let answered = of("forebay_class_answered_total{class=\"bulk\"}");
        assert_eq!(answered, told.good.into_inner(), "{engine}");
        assert_eq!(of("forebay_class_requests_total{class=\"bulk\"}"), answered + of(refused));
        let mut client = served.client().patience(PATIENCE);
        assert_eq!(client.get("/work?cpu=1ms").unwrap().status, 200, "{engine}: it is over");
        if engine == ENGINES[0] {
            let is_calm = || served.metric("forebay_overload_level") == 0;
            assert!(soon(PATIENCE, is_calm), "{}", served.metrics());
        }
    }
}

#[test]
fn a_reload_keeps_what_was_learned_and_the_agent_can_be_taken_off() {
    let folder = site();
    let on = format!("agent = \"on\"\n{POLICY}");
    let served = Served::with(options(&folder, ENGINES[0], &on));
    flood(&served, |told| {
        assert!(soon(PATIENCE, || told.refused.load(Relaxed) > 100 && told.good.load(Relaxed) > 20));
        let window = "forebay_class_window_jobs{class=\"bulk\"}";
        let text = std::fs::read_to_string(served.file()).unwrap();
        let reload = |text: &str| {
            served.configure_with(text);
            let (code, said) = served.reload();
            assert_eq!(code, Some(0), "{said}");
        };
        assert!(text.contains("priority = 0"));
        reload(&text.replace("priority = 0", "priority = 0\nshare = \"1%\""));
        let most = served.metric(window);
        assert!((1..CLIENTS as u64).contains(&most), "{most} right after a reload");
        reload(&text.replace("agent = \"on\"", "agent = \"off\""));
        assert!(soon(PATIENCE, || !served.metrics().contains("forebay_class_window_jobs")));
        let goes_on_without_refusals = || {
            let (refused, good) = (told.refused.load(Relaxed), told.good.load(Relaxed));
            assert!(soon(PATIENCE, || told.good.load(Relaxed) > good + 2 * CLIENTS as u64));
            told.refused.load(Relaxed) == refused
        };
        assert!(soon(PATIENCE, goes_on_without_refusals), "nothing is refused any more");
        reload(&text);
        let before = told.refused.load(Relaxed);
        assert!(soon(PATIENCE, || told.refused.load(Relaxed) > before), "it limits again");
    });
}

#[test]
fn rules_for_overload_hold_in_overload_only_and_need_no_agent() {
    let folder = site();
    let rule =
        "[[rule]]\nname = \"later\"\nwhen = \"overload\"\npath = \"/later\"\naction = \"reject\"\n";
    let lines = format!("{POLICY}\n{rule}");
    folder.write("site/later", "later");
    let served = Served::with(options(&folder, ENGINES[0], &lines));
    let get = |served: &Served| {
        let mut client: Client = served.client().patience(PATIENCE);
        client.get("/later").unwrap().status
    };
    assert_eq!(get(&served), 200);
    let ((), told) = flood(&served, |_| {
        assert!(soon(PATIENCE, || get(&served) == 403), "{}", served.metrics());
    });
    assert_eq!(told.refused.into_inner(), 0, "the agent is off");
    assert!(soon(PATIENCE, || get(&served) == 200), "{}", served.metrics());
}
