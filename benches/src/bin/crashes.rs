//! Processes that are killed, frozen or cut off under an open loop, Forebay's stages and others in turn: who
//! loses what.
//!
//! All of it runs in a network namespace of its own, which needs root: rules of nftables cut links there.
#![forbid(unsafe_code)]

use clap::{Parser, ValueEnum};
use forebay_benches::Error;
use forebay_benches::crashes::{Load, Part, ask, run};
use forebay_benches::group::{Group, nginx};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

/// The acknowledgement timer's floor, as Forebay has it here and by default.
const TIMER: Duration = Duration::from_millis(200);

/// Says that this is the process within the namespace.
const INSIDE: &str = "FOREBAY_CRASHES_INSIDE";

/// Where clients come to, and where the servers behind are, each at an address of its own.
const FRONT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8000);
const BEHIND: [&str; 2] = ["127.0.0.2:8000", "127.0.0.3:8000"];

/// Kill, freeze and cut off processes under load, and count what that costs the clients.
#[derive(Parser)]
struct Options {
    /// Servers
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "forebay,forebay-tcp,haproxy,nginx"
    )]
    servers: Vec<Server>,
    /// Requests per second, each on a connection of its own
    #[arg(long, default_value_t = 300)]
    rate: u32,
    /// Seconds before the trouble, with it, and after it
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Seconds until an answer counts as none
    #[arg(long, default_value_t = 5)]
    timeout: u64,
    /// Each trouble so often
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Forebay's binary [default: the one beside this program]
    #[arg(long)]
    program: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Server {
    /// The engine `isolated`, two processes of process and two of respond
    Forebay,
    /// The same, and the place of respond is taken by two servers over TCP, which acknowledge nothing
    ForebayTcp,
    /// HAProxy with checks before two Apaches
    Haproxy,
    /// nginx with `proxy_next_upstream` before two of nginx
    Nginx,
}

#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    Kill,
    Freeze,
    /// Packets are dropped in both directions, without a word.
    Cut,
}

/// Whom it befalls.
#[derive(Clone, Copy)]
enum Victim {
    /// These stages of Forebay.
    Stages(&'static [&'static str]),
    /// The first of the servers behind.
    Behind,
}

impl Server {
    fn name(self) -> &'static str {
        match self {
            Server::Forebay => "forebay isolated",
            Server::ForebayTcp => "forebay isolated, respond over TCP",
            Server::Haproxy => "haproxy, 2 apache",
            Server::Nginx => "nginx, 2 nginx",
        }
    }

    fn troubles(self) -> Vec<(&'static str, Trouble, Victim)> {
        use Trouble::{Cut, Freeze, Kill};
        use Victim::{Behind, Stages};
        match self {
            Server::Forebay => {
                let (process, respond) = (&["process 1"][..], &["respond 1"][..]);
                let both = &["process 1", "respond 1"][..];
                vec![
                    ("process killed", Kill, Stages(process)),
                    ("respond killed", Kill, Stages(respond)),
                    ("both killed", Kill, Stages(both)),
                    ("process frozen", Freeze, Stages(process)),
                    ("respond frozen", Freeze, Stages(respond)),
                    ("both frozen", Freeze, Stages(both)),
                    ("receive killed", Kill, Stages(&["receive 1"])),
                ]
            }
            _ => vec![
                ("one behind killed", Kill, Behind),
                ("one behind frozen", Freeze, Behind),
                ("one behind cut off", Cut, Behind),
            ],
        }
    }
}

/// All servers of a run; the first of those behind is the one that gets into trouble.
struct Running {
    front: Group,
    behind: Vec<Group>,
}

/// What a run needs to know of the place where it is.
struct Place {
    dir: PathBuf,
    program: PathBuf,
}

impl Place {
    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.dir.join(name);
        fs::write(&path, text).map_err(Error::io("cannot write", &path))?;
        Ok(path)
    }

    fn forebay(&self, name: &str, text: &str) -> Result<Command, Error> {
        let root = self.dir.join("root");
        let file = self.write(
            name,
            &format!(
                "root = {root:?}\nlog.access = \"off\"\ncontrol.socket = \"off\"\n\
                 limits.connections_per_client = 100000\n{text}"
            ),
        )?;
        let mut command = Command::new(&self.program);
        command.args(["run", "-c"]).arg(file);
        Ok(command)
    }

    fn nginx(&self, name: &str, http: &str) -> Result<Command, Error> {
        nginx(&self.dir, name, http)
    }

    fn apache(&self, at: usize) -> Result<Command, Error> {
        let (dir, root) = (self.dir.display(), self.dir.join("root"));
        let modules = "/usr/lib/apache2/modules";
        let file = self.write(
            &format!("apache{at}.conf"),
            &format!(
                "ServerRoot {dir}\nServerName localhost\nListen {}\nPidFile {dir}/apache{at}.pid\n\
                 ErrorLog /dev/null\nLoadModule mpm_event_module {modules}/mod_mpm_event.so\n\
                 LoadModule authz_core_module {modules}/mod_authz_core.so\n\
                 User www-data\nGroup www-data\nDocumentRoot {root:?}\n\
                 <Directory {root:?}>\nRequire all granted\n</Directory>\n",
                BEHIND[at]
            ),
        )?;
        let mut command = Command::new("apache2");
        command.args(["-DFOREGROUND", "-f"]).arg(file);
        Ok(command)
    }

    fn behind(&self, server: Server, at: usize) -> Result<Group, Error> {
        let address = BEHIND[at];
        let root = self.dir.join("root");
        Group::start(match server {
            Server::Forebay | Server::ForebayTcp => {
                self.forebay(&format!("behind{at}.toml"), &format!("listen = [\"{address}\"]\n"))?
            }
            Server::Haproxy => self.apache(at)?,
            Server::Nginx => self.nginx(
                &format!("behind{at}"),
                &format!("server {{ listen {address}; root {}; }}", root.display()),
            )?,
        })
    }

    fn start(&self, server: Server) -> Result<Running, Error> {
        let [first, second] = BEHIND;
        let count = if server == Server::Forebay { 0 } else { BEHIND.len() };
        let behind = (0..count).map(|at| self.behind(server, at));
        let behind = behind.collect::<Result<Vec<_>, _>>()?;
        let isolated = format!("listen = [\"{FRONT}\"]\nengine = \"isolated\"\n");
        let front = match server {
            Server::Forebay => self.forebay("front.toml", &isolated)?,
            Server::ForebayTcp => {
                let at = format!("isolated.respond_at = [\"http://{first}\", \"http://{second}\"]\n");
                self.forebay("front.toml", &format!("{isolated}{at}"))?
            }
            Server::Haproxy => {
                let check = "check inter 1s fall 2 rise 2";
                let file = self.write(
                    "haproxy.cfg",
                    &format!(
                        "defaults\n mode http\n timeout client 10s\n timeout connect 1s\n \
                         timeout server 10s\n retries 3\n option redispatch 1\n\
                         frontend f\n bind {FRONT}\n default_backend b\n\
                         backend b\n balance roundrobin\n server a {first} {check}\n server b {second} {check}\n"
                    ),
                )?;
                let mut command = Command::new("haproxy");
                command.args(["-db", "-f"]).arg(file);
                command
            }
            Server::Nginx => self.nginx(
                "front",
                &format!(
                    "upstream u {{ server {first}; server {second}; }}\n\
                     server {{ listen {FRONT}; location / {{ proxy_pass http://u;\n\
                     proxy_next_upstream error timeout; proxy_connect_timeout 1s; proxy_read_timeout 1s; }} }}"
                ),
            )?,
        };
        let mut running = Running { front: Group::start(front)?, behind };
        let begun = Instant::now();
        let is_there = |address: &str| {
            address.parse().is_ok_and(|at: SocketAddr| TcpStream::connect(at).is_ok())
        };
        while ask(FRONT, "/1k", Instant::now() + Duration::from_secs(1)).is_none()
            || BEHIND[..count].iter().any(|at| !is_there(at))
        {
            let mut all = running.behind.iter_mut().chain([&mut running.front]);
            let has_ended = all.any(Group::has_ended);
            if has_ended || begun.elapsed() > Duration::from_secs(20) {
                let said = if has_ended { "it has ended" } else { "no answer" };
                return Err(Error::NotReady { server: server.name(), said: said.to_owned() });
            }
            thread::sleep(Duration::from_millis(20));
        }
        // checks and caches
        thread::sleep(Duration::from_secs(2));
        Ok(running)
    }
}

/// The process of a stage, by its name and number.
fn stage(supervisor: Pid, name: &str) -> Option<Pid> {
    let pid = supervisor.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
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

/// Makes the trouble; what is returned ends it.
fn begin_trouble(
    running: &mut Running,
    trouble: Trouble,
    victim: Victim,
) -> Result<Vec<Pid>, Error> {
    let pids = match victim {
        Victim::Behind => vec![running.behind[0].pid()],
        Victim::Stages(names) => {
            names.iter().filter_map(|name| stage(running.front.pid(), name)).collect()
        }
    };
    let signal = |signal| match victim {
        Victim::Behind => running.behind[0].signal(signal),
        Victim::Stages(_) => pids.iter().for_each(|pid| _ = kill_process(*pid, signal)),
    };
    match trouble {
        Trouble::Kill => signal(Signal::KILL),
        Trouble::Freeze => signal(Signal::STOP),
        Trouble::Cut => {
            let address = BEHIND[0].split(':').next().unwrap_or_default();
            nft("add table ip crashes")?;
            nft("add chain ip crashes input { type filter hook input priority 0 ; }")?;
            nft(&format!("add rule ip crashes input ip daddr {address} drop"))?;
            nft(&format!("add rule ip crashes input ip saddr {address} drop"))?;
        }
    }
    Ok(pids)
}

fn end_trouble(
    place: &Place,
    server: Server,
    running: &mut Running,
    trouble: Trouble,
    victim: Victim,
    pids: &[Pid],
) -> Result<(), Error> {
    match (trouble, victim) {
        // stages are started again by their supervisor
        (Trouble::Kill, Victim::Stages(_)) => {}
        (Trouble::Kill, Victim::Behind) => running.behind[0] = place.behind(server, 0)?,
        (Trouble::Freeze, Victim::Behind) => running.behind[0].signal(Signal::CONT),
        (Trouble::Freeze, Victim::Stages(_)) => {
            pids.iter().for_each(|pid| _ = kill_process(*pid, Signal::CONT));
        }
        (Trouble::Cut, _) => nft("delete table ip crashes")?,
    }
    Ok(())
}

fn measure(options: &Options, place: &Place, server: Server) -> Result<(), Error> {
    let third = Duration::from_secs(options.seconds);
    for (name, trouble, victim) in server.troubles() {
        for _ in 0..options.rounds {
            let mut running = place.start(server)?;
            let load = run(Load {
                address: FRONT,
                targets: vec!["/1k".to_owned(), "/10k".to_owned(), "/100k".to_owned()],
                rate: options.rate,
                time: third * 3,
                timeout: Duration::from_secs(options.timeout),
            });
            thread::sleep(third);
            let pids = begin_trouble(&mut running, trouble, victim)?;
            thread::sleep(third);
            end_trouble(place, server, &mut running, trouble, victim, &pids)?;
            let fates = load.join().map_err(|_| Error::Client("the load has failed".to_owned()))?;
            // what was under way when it began was hit by it, too
            let begin = third.saturating_sub(Duration::from_millis(100));
            let before = Part::of(&fates, Duration::ZERO, begin);
            let during = Part::of(&fates, begin, third * 2);
            let all = Part::of(&fates, Duration::ZERO, third * 3);
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            println!(
                "| {} | {name} | {} | {} | {:.3} | {:.1} | {:.1} | {:.1} |",
                server.name(),
                all.requests,
                all.lost,
                all.availability(),
                ms(before.p99),
                ms(during.p99),
                ms(TIMER + before.p99),
            );
        }
    }
    Ok(())
}

fn inside(options: &Options, dir: &Path) -> Result<(), Error> {
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    up.map_err(Error::io("cannot start", "ip"))?;
    let root = dir.join("root");
    fs::create_dir_all(&root).map_err(Error::io("cannot make", &root))?;
    for (name, bytes) in [("1k", 1 << 10), ("10k", 10 << 10), ("100k", 100 << 10)] {
        let file = root.join(name);
        fs::write(&file, vec![b'x'; bytes]).map_err(Error::io("cannot write", &file))?;
    }
    let beside = || std::env::current_exe().unwrap_or_default().with_file_name("forebay");
    let program = options.program.clone().unwrap_or_else(beside);
    let place = Place { dir: dir.to_owned(), program };
    println!(
        "| server | trouble | requests | lost | availability % | p99 ms before | p99 ms with it | timer + p99 before |\n\
         |---|---|---|---|---|---|---|---|"
    );
    options.servers.iter().try_for_each(|server| measure(options, &place, *server))
}

fn main() -> ExitCode {
    let options = Options::parse();
    if std::env::var_os(INSIDE).is_none() {
        let mut command = Command::new("unshare");
        command.args(["--net", "--"]).arg(std::env::current_exe().unwrap_or_default());
        let error = command.args(std::env::args_os().skip(1)).env(INSIDE, "1").exec();
        eprintln!("crashes: cannot start unshare: {error}");
        return ExitCode::FAILURE;
    }
    let dir = std::env::temp_dir().join(format!("forebay-crashes-{}", std::process::id()));
    let result = inside(&options, &dir);
    let _ = fs::remove_dir_all(&dir);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crashes: {error}");
            ExitCode::FAILURE
        }
    }
}
