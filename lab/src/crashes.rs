//! Processes that are killed, frozen or cut off under an open loop: how many requests Forebay's
//! stages and other servers lose.
//!
//! All of it runs in a network namespace of its own, which needs root: rules of nftables cut links
//! there.

pub mod load;

use crate::benchmark::{Benchmark, BenchmarkNetwork, Measure, nothing};
use crate::claim::{Against, BenchmarkClaim, DecidedBy, Goal};
use crate::columns::{figure, key};
use crate::options::{Axis, Kind, Setting};
use crate::reference::RowKeys;
use crate::rows::RawRow;
use crate::run::{Run, Trial};
use crate::serving::{PeerProcess, Serving};
use crate::{Error, stages};
use load::Load;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The acknowledgement timer's floor, as Forebay has it here and by default.
const TIMER: Duration = Duration::from_millis(200);

/// Servers behind, each at an address of its own.
const BEHIND: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];

/// The first server behind is cut off silently, then reachable without its server process, then whole.
const REBOOTS: &str = "one behind reboots";

/// The claim that no request is lost that can be asked again.
const fn nothing_lost(of: RowKeys) -> BenchmarkClaim {
    BenchmarkClaim {
        what: "requests lost",
        of,
        figure: "lost",
        against: Against::Nothing,
        goal: Goal::AtMost(0.0, 0.0),
        by: DecidedBy::Each,
    }
}

/// The experiment.
pub const CRASHES: Benchmark = Benchmark {
    name: "crashes",
    title: "Processes killed, frozen and cut off",
    about: "Who loses what when processes are killed, frozen or cut off: a time without trouble, as long with \
            it, as long after it.",
    servers: Axis::new(
        "server",
        "servers",
        "Servers: forebay is isolated; forebay-tcp has two servers over TCP in the place of respond; haproxy \
         is before two Apaches, nginx before two of nginx",
        servers,
        "",
    ),
    peers: &[
        ("haproxy", &["crashes/haproxy.cfg", "crashes/apache2.conf"]),
        ("nginx", &["crashes/nginx.conf"]),
    ],
    clients: &[],
    sweep: &[Axis::new(
        "trouble",
        "troubles",
        "What befalls whom; not every server has each",
        troubles,
        "",
    )],
    points: None,
    settings: &[
        Setting {
            name: "rate",
            kind: Kind::Number,
            default: "300",
            help: "Requests per second, each on a connection of its own",
        },
        Setting {
            name: "timeout",
            kind: Kind::Time,
            default: "5s",
            help: "Time until an answer counts as none",
        },
    ],
    rounds: 3,
    measured: "4s",
    network: BenchmarkNetwork::Own(None),
    pinned: false,
    columns: &[
        key("server"),
        key("trouble"),
        figure("requests").shown("requests", 0),
        figure("lost").shown("lost", 0),
        figure("availability_percent").shown("availability %", 3),
        figure("p99_before_ms").shown("p99 ms before", 1),
        figure("p99_with_ms").shown("p99 ms with it", 1),
        figure("p999_with_ms").shown("p999 ms with it", 1),
        figure("longest_with_ms").shown("longest ms with it", 1),
        figure("timer_and_p99_before_ms").shown("timer + p99 before", 1),
    ],
    tables: &[],
    lines: &["server", "trouble"],
    ratios: &[],
    claims: &[
        nothing_lost(&[("server", "forebay"), ("trouble", "process killed")]),
        nothing_lost(&[("server", "forebay"), ("trouble", "respond killed")]),
        nothing_lost(&[("server", "forebay"), ("trouble", "both killed")]),
        nothing_lost(&[("server", "forebay"), ("trouble", "process frozen")]),
        nothing_lost(&[("server", "forebay"), ("trouble", "respond frozen")]),
        nothing_lost(&[("server", "forebay"), ("trouble", "both frozen")]),
        BenchmarkClaim {
            what: "p99 with it",
            of: &[],
            figure: "p99_with_ms",
            against: Against::Column("timer_and_p99_before_ms"),
            goal: Goal::AtMost(1.0, 0.0),
            by: DecidedBy::Median,
        },
    ],
    more: nothing,
    prepare,
};

fn servers() -> Vec<&'static str> {
    vec!["forebay", "forebay-tcp", "haproxy", "nginx"]
}

fn troubles() -> Vec<&'static str> {
    vec![
        "process killed",
        "respond killed",
        "both killed",
        "process frozen",
        "respond frozen",
        "both frozen",
        "receive killed",
        "one behind killed",
        "one behind frozen",
        "one behind cut off",
        "one behind reboots",
    ]
}

/// The stages that a failure hits; none if it hits a server behind.
fn stages_of(trouble: &str) -> &'static [&'static str] {
    match trouble.split(' ').next() {
        Some("process") => &["process 1"],
        Some("respond") => &["respond 1"],
        Some("both") => &["process 1", "respond 1"],
        Some("receive") => &["receive 1"],
        _ => &[],
    }
}

struct Crashes;

fn prepare(run: &Run) -> Result<Box<dyn Measure>, Error> {
    stages::write(run)?;
    Ok(Box::new(Crashes))
}

/// All servers of a measurement. The first process is the one in front; the one after it is the one
/// behind that the failure hits.
struct Chain<'c> {
    run: &'c Run,
    server: &'c str,
    serving: Serving,
}

impl<'c> Chain<'c> {
    fn start(run: &'c Run, server: &'c str) -> Result<Chain<'c>, Error> {
        let serving = Serving::empty(&run.folder()?, run.port()?);
        let mut chain = Chain { run, server, serving };
        let lines = match server {
            "forebay" => "engine = \"isolated\"\n".to_owned(),
            _ => format!(
                "engine = \"isolated\"\nisolated.respond_at = [\"http://{}\", \"http://{}\"]\n",
                chain.behind(0),
                chain.behind(1)
            ),
        };
        let words = [
            ("LISTEN", chain.front().to_string()),
            ("FIRST", chain.behind(0).to_string()),
            ("SECOND", chain.behind(1).to_string()),
            ("LINES", lines),
        ];
        let peer = match server {
            "haproxy" => "crashes/haproxy.cfg",
            "nginx" => "crashes/nginx.conf",
            _ => "crashes/forebay.toml",
        };
        let front = chain.part(peer, "front", &words);
        chain.serving.add(run, &front)?;
        let count = if server == "forebay" { 0 } else { BEHIND.len() };
        (0..count).try_for_each(|at| chain.begin_behind(at, false))?;
        let is_there = |_: &Serving| {
            (0..count).try_for_each(|at| TcpStream::connect(chain.behind(at)).map(|_| ()))?;
            let asked = load::ask(chain.front(), "/1k", Instant::now() + Duration::from_secs(1));
            asked.ok_or_else(|| io::Error::other("no answer"))
        };
        chain.serving.until(run, server, is_there)?;
        // checks and caches
        thread::sleep(Duration::from_secs(2));
        Ok(chain)
    }

    fn part<'p>(
        &self,
        peer: &'p str,
        folder: &'p str,
        words: &'p [(&'p str, String)],
    ) -> PeerProcess<'p>
    where
        'c: 'p,
    {
        let ours = peer == "crashes/forebay.toml";
        let program = ours.then_some(self.run.options.program.as_path());
        PeerProcess { program, folder, words, ..PeerProcess::new(peer) }
    }

    /// The address that clients connect to.
    fn front(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.serving.port()))
    }

    fn behind(&self, at: usize) -> SocketAddr {
        SocketAddr::from((BEHIND[at], self.serving.port()))
    }

    fn begin_behind(&mut self, at: usize, again: bool) -> Result<(), Error> {
        let words = [("LISTEN", self.behind(at).to_string()), ("LINES", String::new())];
        let peer = match self.server {
            "haproxy" => "crashes/apache2.conf",
            "nginx" => "chain/nginx-files.conf",
            _ => "crashes/forebay.toml",
        };
        let part = self.part(peer, ["first", "second"][at], &words);
        match again {
            true => self.serving.replace(self.run, at + 1, &part),
            false => self.serving.add(self.run, &part),
        }
    }

    /// Cuts the first server behind off: packets to it and from it are dropped without an answer.
    fn cut() -> Result<(), Error> {
        let address = BEHIND[0];
        nft("add table ip crashes")?;
        nft("add chain ip crashes input { type filter hook input priority 0 ; }")?;
        nft(&format!("add rule ip crashes input ip daddr {address} drop"))?;
        nft(&format!("add rule ip crashes input ip saddr {address} drop"))
    }

    /// Makes the rebooting machine reachable again, which it is before its server runs.
    fn halfway(trouble: &str) -> Result<(), Error> {
        match trouble {
            REBOOTS => nft("delete table ip crashes"),
            _ => Ok(()),
        }
    }

    /// Makes the failure; the processes that are returned end it.
    fn trouble(&self, trouble: &str) -> Result<Vec<Pid>, Error> {
        let stages = stages_of(trouble);
        let front = self.serving.process(0).pid();
        let pids: Vec<Pid> = stages.iter().filter_map(|name| stage(front, name)).collect();
        let signal = |signal| match stages {
            [] => self.serving.process(1).signal(signal),
            _ => pids.iter().for_each(|pid| _ = kill_process(*pid, signal)),
        };
        match trouble.split(' ').next_back() {
            Some("killed") => signal(Signal::KILL),
            Some("frozen") => signal(Signal::STOP),
            // no packet announces that the server has ended
            Some("reboots") => {
                Chain::cut()?;
                signal(Signal::KILL);
            }
            _ => Chain::cut()?,
        }
        Ok(pids)
    }

    fn end(&mut self, trouble: &str, pids: &[Pid]) -> Result<(), Error> {
        match (trouble.split(' ').next_back(), stages_of(trouble)) {
            (Some("killed" | "reboots"), []) => self.begin_behind(0, true)?,
            // stages are started again by their supervisor
            (Some("killed"), _) => {}
            (Some("frozen"), []) => self.serving.process(1).signal(Signal::CONT),
            (Some("frozen"), _) => {
                pids.iter().for_each(|pid| _ = kill_process(*pid, Signal::CONT));
            }
            _ => nft("delete table ip crashes")?,
        }
        Ok(())
    }
}

/// The process of a stage, by its name and number.
fn stage(supervisor: u32, name: &str) -> Option<Pid> {
    let children = format!("/proc/{supervisor}/task/{supervisor}/children");
    let children = fs::read_to_string(children).ok()?;
    let is_it = |pid: &&str| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|&b| b == 0).map(String::from_utf8_lossy).collect();
        let after = |word| words.iter().skip_while(|one| *one != word).nth(1);
        match (after("stage"), after("--instance")) {
            (Some(role), Some(number)) => format!("{role} {number}") == name,
            _ => false,
        }
    };
    Pid::from_raw(children.split_whitespace().find(is_it)?.parse().ok()?)
}

fn nft(text: &str) -> Result<(), Error> {
    let status =
        Command::new("nft").arg(text).status().map_err(Error::io("cannot start", "nft"))?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::Client(format!("nft {text}: {status}"))),
    }
}

impl Measure for Crashes {
    fn measure(&mut self, trial: &Trial<'_>) -> Result<Vec<RawRow>, Error> {
        let (run, trouble) = (trial.run, trial.at("trouble"));
        if (trial.server == "forebay") == stages_of(trouble).is_empty() {
            return Ok(Vec::new());
        }
        let third = run.options.measured;
        let mut chain = Chain::start(run, trial.server)?;
        let load = load::run(Load {
            address: chain.front(),
            targets: vec!["/1k".to_owned(), "/10k".to_owned(), "/100k".to_owned()],
            rate: run.options.number("rate") as u32,
            time: third * 3,
            timeout: run.options.time("timeout"),
        });
        thread::sleep(third);
        let pids = chain.trouble(trouble)?;
        thread::sleep(third / 2);
        Chain::halfway(trouble)?;
        thread::sleep(third / 2);
        chain.end(trouble, &pids)?;
        let fates = load.join().map_err(|_| Error::Client("the load has failed".to_owned()))?;
        // requests under way when the failure began were hit by it, too
        let begin = third.saturating_sub(Duration::from_millis(100));
        let before = load::RunPart::of(&fates, Duration::ZERO, begin);
        let during = load::RunPart::of(&fates, begin, third * 2);
        let all = load::RunPart::of(&fates, Duration::ZERO, third * 3);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let row = RawRow::default()
            .figure("requests", all.requests as f64)
            .figure("lost", all.lost as f64)
            .figure("availability_percent", all.availability())
            .figure("p99_before_ms", ms(before.p99))
            .figure("p99_with_ms", ms(during.p99))
            .figure("p999_with_ms", ms(during.p999))
            .figure("longest_with_ms", ms(during.longest))
            .figure("timer_and_p99_before_ms", ms(TIMER + before.p99));
        Ok(vec![row])
    }
}
