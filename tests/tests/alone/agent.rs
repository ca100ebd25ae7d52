//! The agent on the real server: a flood of work, the share of it that is served, and its end.
//!
//! No test depends on how fast the machine is: clients ask again as soon as they are answered, so they
//! always want more than it can do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::client::Client;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::server::binary;
use forebay_tests::{ENGINES, Options, has_thread_each};
use std::io::Write;
use std::num::NonZero;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, available_parallelism};
use std::time::Duration;

/// A long patience: a busy machine has little CPU time to give.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of clients, several for each core: 10 ms of work for each of them is more than [`POLICY`]
/// lets wait.
fn clients() -> usize {
    available_parallelism().map_or(1, NonZero::get).max(4) * 10
}

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
    // A flood that lasts comes to the last request of a connection. And helpers that give way to others
    // get next to nothing on a machine where others compute all the time. All clients have one address, which
    // otherwise has half of the threads, and many cores have many clients.
    let lines = format!(
        "limits.requests_per_connection = 0\nlimits.connections_per_client = 100000\n\
         helpers.niceness = 0\n{lines}"
    );
    let mut options = Options::new(folder.join("site")).engine(engine).config(&lines);
    if has_thread_each(engine) {
        options.workers = options.workers.max(2 * clients());
    }
    options
}

/// The answers that the clients of a flood got.
#[derive(Default)]
struct Told {
    good: AtomicU64,
    refused: AtomicU64,
}

/// Has clients ask for 10 ms of work again and again while `meanwhile` runs.
fn flood<R>(served: &WatchedServer, meanwhile: impl FnOnce(&Told) -> R) -> (R, Told) {
    let (told, is_over) = (Told::default(), AtomicBool::new(false));
    let result = thread::scope(|scope| {
        for _ in 0..clients() {
            scope.spawn(|| {
                let mut client = served.client().patience(PATIENCE);
                while !is_over.load(Relaxed) {
                    match client.get("/work?cpu=10ms").unwrap() {
                        answer if answer.status == 200 => told.good.fetch_add(1, Relaxed),
                        answer => {
                            assert_eq!(answer.status, 503);
                            let after = answer.field("Retry-After").unwrap();
                            assert!((1..=60).contains(&after.parse().unwrap()), "{after}");
                            // even with these pauses, the clients together ask far more than a machine can do
                            thread::sleep(Duration::from_millis(10));
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

/// The output of a command of `forebay policy`.
fn policy(command: &str, served: &WatchedServer) -> String {
    let output =
        Command::new(binary()).args(["policy", command, "-c"]).arg(served.file()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn is_idle(served: &WatchedServer) -> bool {
    ["forebay_class_unfinished_jobs", "forebay_class_in_flight"]
        .iter()
        .all(|metric| served.metric(&format!("{metric}{{class=\"bulk\"}}")) == 0)
}

#[test]
fn what_is_too_much_is_refused_and_the_rest_is_served() {
    let folder = site();
    for engine in ENGINES {
        let lines = format!("agent = \"on\"\n{POLICY}");
        let served = WatchedServer::with(options(&folder, engine, &lines));
        let mut gold = served.client().patience(PATIENCE);
        assert_eq!(gold.get("/index.html").unwrap().status, 200);
        let ((), told) = flood(&served, |told| {
            let is_limited = || {
                assert_eq!(gold.get("/index.html").unwrap().status, 200, "{engine}");
                let most = served.metric("forebay_class_window_jobs{class=\"bulk\"}");
                served.metric("forebay_overload_level") > 0
                    && (1..clients() as u64).contains(&most)
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

/// A client that keeps its body back, or waits for its turn under a limit, takes no place from another
/// client.
#[test]
fn what_waits_for_its_client_is_no_unfinished_work() {
    let folder = site();
    let queue = "requests = { rate = \"1/m\", burst = 1, over = \"queue\", deadline = \"60s\" }";
    let rule = format!("[[rule]]\nname = \"turns\"\npath = \"/turn\"\n{queue}\n");
    for engine in ENGINES {
        // no client's time is over before all are there
        let lines = format!("agent = \"on\"\ntimeouts.body = \"1h\"\n{POLICY}\n{rule}");
        let served = WatchedServer::with(options(&folder, engine, &lines));
        assert_eq!(served.client().get("/turn").unwrap().status, 404, "{engine}");
        let mut slow: Vec<Client> = (0..clients()).map(|_| served.client()).collect();
        for client in &mut slow {
            let head = "POST /work HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
            client.stream().write_all(head.as_bytes()).unwrap();
        }
        let mut in_turn = served.client();
        assert!(in_turn.ask("/turn"));
        let count = |what: &str| served.metric(&format!("forebay_class_{what}{{class=\"bulk\"}}"));
        let all_are_there = || count("in_flight") == clients() as u64 + 1;
        assert!(soon(PATIENCE, all_are_there), "{engine}: {}", served.metrics());
        assert_eq!(count("unfinished_jobs"), 0, "{engine}");
        let mut client = served.client().patience(PATIENCE);
        assert_eq!(client.get("/work?cpu=1ms").unwrap().status, 200, "{engine}");
        // the time for the last bytes does not count as a wait for a worker
        for client in &mut slow {
            client.stream().write_all(b"hello").unwrap();
        }
        for client in &mut slow {
            assert!(client.answer().is_ok(), "{engine}");
        }
        assert!(soon(PATIENCE, || count("in_flight") == 1), "{engine}: {}", served.metrics());
    }
}

/// A line of `forebay policy history` about a class.
#[derive(Debug)]
struct Decided {
    ago_s: f64,
    lasted_ms: u64,
    level: String,
    load: u64,
    class: String,
    /// The limit; `None` where there is none.
    most: Option<u64>,
    offered: u64,
    refused: u64,
    done: u64,
    longest_wait_ms: f64,
    unfinished: u64,
}

/// The lines of `forebay policy history` about times in which there was work.
fn history(served: &WatchedServer) -> Vec<Decided> {
    let text = policy("history", served);
    let cells = |line: &str| {
        let cells = line.split("  ").map(|cell| cell.trim().to_owned());
        cells.filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
    };
    let mut lines = text.lines().map(cells);
    let names = lines.next().unwrap();
    assert_eq!(names.len(), 15, "{names:?}");
    let decided = |cells: Vec<String>| {
        let of = |name: &str| &cells[names.iter().position(|other| other == name).unwrap()];
        let number = |name: &str| of(name).parse().unwrap_or_else(|_| panic!("{name}: {cells:?}"));
        Decided {
            ago_s: of("ago s").parse().unwrap(),
            lasted_ms: number("lasted ms"),
            level: of("level").clone(),
            load: number("load %"),
            class: of("class").clone(),
            most: of("most jobs").parse().ok(),
            offered: number("offered"),
            refused: number("refused"),
            done: number("done"),
            longest_wait_ms: of("longest wait ms").parse().unwrap(),
            unfinished: number("unfinished"),
        }
    };
    // a line of three cells says that there was nothing to do, since when and for how long
    lines.filter(|cells| cells.len() > 3).map(decided).collect()
}

#[test]
fn the_history_has_each_decision_with_its_inputs_and_what_followed() {
    let folder = site();
    for engine in ["event", "pipeline"] {
        let lines = format!("agent = \"on\"\n{POLICY}");
        let served = WatchedServer::with(options(&folder, engine, &lines));
        let sum = |lines: &[Decided], of: fn(&Decided) -> u64| lines.iter().map(of).sum::<u64>();
        let sums = |lines: &[Decided]| {
            [
                sum(lines, |line| line.offered),
                sum(lines, |line| line.done),
                sum(lines, |line| line.refused),
            ]
        };
        // records begin when the agent looks for the first time
        let mut before = [0; 3];
        let is_looking = || {
            assert_eq!(served.client().get("/work?cpu=1ms").unwrap().status, 200);
            before = sums(&history(&served));
            before[0] > 0
        };
        assert!(soon(PATIENCE, is_looking), "{engine}: {}", policy("history", &served));
        let is_known = || {
            before = sums(&history(&served));
            is_idle(&served) && before[1] >= before[0]
        };
        assert!(soon(PATIENCE, is_known), "{engine}: {}", policy("history", &served));
        let ((), told) = flood(&served, |told| {
            let has_enough = || {
                let is_told = told.refused.load(Relaxed) > 200 && told.good.load(Relaxed) > 50;
                is_told && history(&served).iter().filter(|line| line.refused > 0).count() > 5
            };
            assert!(soon(PATIENCE, has_enough), "{engine}: {}", policy("history", &served));
        });
        assert!(soon(PATIENCE, || is_idle(&served)), "{engine}: {}", served.metrics());
        let (good, refused) = (told.good.into_inner(), told.refused.into_inner());
        // the last decision knows a moment later what followed
        let mut lines = Vec::new();
        let expected = [before[0] + good + refused, before[1] + good, before[2] + refused];
        let is_whole = soon(PATIENCE, || {
            // once for all: the first ones are forgotten after a while
            lines = history(&served);
            sums(&lines) == expected
        });
        assert!(is_whole, "{engine}: {before:?} {expected:?} {lines:#?}");
        assert!(lines.iter().all(|line| line.class == "bulk"), "{engine}: {lines:#?}");
        assert!(lines.is_sorted_by(|one, next| one.ago_s >= next.ago_s), "{engine}: {lines:#?}");
        for line in &lines {
            let is_limited = line.refused == 0 || line.most.is_some_and(|most| most > 0);
            assert!(is_limited && line.lasted_ms <= 60_000, "{engine}: {line:?}");
        }
        // the causes: more requests than can be served, and work that waits
        let overloaded = |line: &&Decided| {
            let causes = ["(delay)", "(refused)", "(load)"];
            line.load > 100
                && line.longest_wait_ms > 0.0
                && line.unfinished > 0
                && causes.iter().any(|cause| line.level.ends_with(cause))
        };
        assert!(lines.iter().any(|line| overloaded(&line)), "{engine}: {lines:#?}");
        // and what it was: less and less is let in
        let most = || lines.iter().filter_map(|line| line.most);
        let (first, least) = (most().next().unwrap(), most().min().unwrap());
        assert!(least < first && least < clients() as u64, "{engine}: {first} {least}");
    }
}

#[test]
fn a_reload_keeps_what_was_learned_and_the_agent_can_be_taken_off() {
    let folder = site();
    let on = format!("agent = \"on\"\n{POLICY}");
    let served = WatchedServer::with(options(&folder, ENGINES[0], &on));
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
        // how much it lets in goes up and down
        let is_limited = || (1..clients() as u64).contains(&served.metric(window));
        let stays_limited = |share| {
            assert!(soon(PATIENCE, is_limited), "{}", served.metrics());
            reload(&text.replace("priority = 0", &format!("priority = 0\nshare = \"{share}%\"")));
            is_limited()
        };
        assert!((1..=3).any(stays_limited), "it limits nobody right after a reload");
        reload(&text.replace("agent = \"on\"", "agent = \"off\""));
        assert!(soon(PATIENCE, || !served.metrics().contains("forebay_class_window_jobs")));
        let goes_on_without_refusals = || {
            let (refused, good) = (told.refused.load(Relaxed), told.good.load(Relaxed));
            assert!(soon(PATIENCE, || told.good.load(Relaxed) > good + 2 * clients() as u64));
            told.refused.load(Relaxed) == refused
        };
        assert!(soon(PATIENCE, goes_on_without_refusals), "nothing is refused any more");
        reload(&text);
        let before = told.refused.load(Relaxed);
        assert!(soon(PATIENCE, || told.refused.load(Relaxed) > before), "it limits again");
    });
}

/// From the second level on, and no longer, the crowd comes after the others: its rule gives it their
/// class.
#[test]
fn at_the_second_level_a_crowd_changes_its_class() {
    let folder = site();
    folder.write("site/crowd.txt", "crowd");
    let crowd = "[[class]]\nname = \"normal\"\npriority = 2\ndefault = true\n\
                 [[rule]]\nname = \"flood\"\npath = \"/work\"\nclass = \"gold\"\n\
                 [[rule]]\nname = \"crowd\"\nwhen = \"class_order\"\npath = \"/crowd.txt\"\n\
                 class = \"bulk\"\nmetric = true\n";
    let served = WatchedServer::with(options(
        &folder,
        ENGINES[0],
        &format!("agent = \"on\"\n{POLICY}{crowd}"),
    ));
    let get = || {
        let mut client: Client = served.client().patience(PATIENCE);
        client.get("/crowd.txt").unwrap().status
    };
    let of =
        |class: &str| served.metric(&format!("forebay_class_requests_total{{class=\"{class}\"}}"));
    let matched = || served.metric("forebay_rule_matches_total{rule=\"crowd\"}");
    // a machine that is busy with something else may be overloaded for a moment
    let is_normal = || {
        let before = (of("normal"), of("bulk"), matched());
        let (normal, bulk, matched_then) = before;
        get() == 200 && (of("normal"), of("bulk"), matched()) == (normal + 1, bulk, matched_then)
    };
    assert!(soon(PATIENCE, is_normal), "{}", served.metrics());
    let bulk = of("bulk");
    let ((), _) = flood(&served, |_| {
        let is_behind = || {
            assert_eq!(get(), 200, "it is behind others, and not turned away");
            of("bulk") > bulk
        };
        assert!(soon(PATIENCE, is_behind), "{}", served.metrics());
        assert_eq!(matched(), of("bulk"));
    });
    let goes_back = || {
        let before = of("bulk");
        get() == 200 && of("bulk") == before
    };
    assert!(soon(PATIENCE, goes_back), "{}", served.metrics());
}

#[test]
fn rules_for_overload_hold_in_overload_only_and_need_no_agent() {
    let folder = site();
    let rule =
        "[[rule]]\nname = \"later\"\nwhen = \"overload\"\npath = \"/later\"\naction = \"reject\"\n";
    let lines = format!("{POLICY}\n{rule}");
    folder.write("site/later", "later");
    let served = WatchedServer::with(options(&folder, ENGINES[0], &lines));
    let get = |served: &WatchedServer| {
        let mut client: Client = served.client().patience(PATIENCE);
        client.get("/later").unwrap().status
    };
    // a machine that is busy with something else may be overloaded for a moment
    assert!(soon(PATIENCE, || get(&served) == 200), "{}", served.metrics());
    let ((), told) = flood(&served, |_| {
        assert!(soon(PATIENCE, || get(&served) == 403), "{}", served.metrics());
    });
    assert_eq!(told.refused.into_inner(), 0, "the agent is off");
    assert!(soon(PATIENCE, || get(&served) == 200), "{}", served.metrics());
}
