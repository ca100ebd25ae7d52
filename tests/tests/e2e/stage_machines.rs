//! Stages on several machines, over loopback: TLS in which both sides show certificates, what becomes of
//! requests while processes and machines end, and which peers are not believed.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::isolated::{RULES, end, get, signal, site, stages, told, under_load};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::{binary, free_addr};
use forebay_tests::tls::Authority;
use forebay_tests::wire::{self, PATIENCE};
use forebay_tests::{Options, Server, on_each_engine};
use rcgen::{ExtendedKeyUsagePurpose, PKCS_ECDSA_P256_SHA256 as ECDSA, date_time_ymd};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

on_each_engine!(answers_are_those_of_one_process);

/// Times with frequent checks, so that tests need not wait for them; no stage is given up for being late
/// on a busy machine.
const EAGER: &str = "acknowledge_floor = \"1s\"\nback_off = \"50ms\"\nping = \"200ms\"\n";

/// A long limit, so that a client that is slow because the machine is busy is not cut off.
const PATIENT: &str = "[timeouts]\nsend_window = \"1h\"\n";

/// A machine without clients: a server whose stages answer others. All its processes end when this is
/// dropped.
struct Machine {
    child: Child,
    folder: Folder,
    addr: SocketAddr,
}

impl Machine {
    /// Starts a server for `site` with these keys; `more` stands in its `[stages]`.
    fn start(site: &Folder, keys: &Path, more: &str) -> Machine {
        Machine::start_with(site, keys, more, "")
    }

    fn start_with(site: &Folder, keys: &Path, more: &str, last: &str) -> Machine {
        let (folder, addr) = (Folder::new(), free_addr());
        let keys = match more.contains("unencrypted") {
            true => String::new(),
            false => format!("keys = {keys:?}\n"),
        };
        let text = format!(
            "root = {root:?}\ncontrol.socket = {control:?}\n{PATIENT}[stages]\nprocess_listen = [\"{addr}\"]\n{keys}{EAGER}\
             {more}\n[[site]]\nhosts = [\"*.example\"]\nroot = {root:?}\n{RULES}{last}\n",
            root = site.join("."),
            control = folder.join("control"),
        );
        let file = folder.write("forebay.toml", text);
        let said = File::create(folder.join("said")).unwrap();
        let mut command = Command::new(binary());
        command.arg("run").arg("-c").arg(file).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(said).spawn().unwrap();
        let mut machine = Machine { child, folder, addr };
        assert!(
            soon(PATIENCE, || {
                let ended = machine.child.try_wait().unwrap();
                assert!(ended.is_none(), "{ended:?}: {}", machine.said());
                machine.said().contains("answer other machines")
            }),
            "{}",
            machine.said()
        );
        machine
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.join("said")).unwrap_or_default()
    }

    fn command(&self, words: &str) -> String {
        command(&self.folder.join("forebay.toml"), words)
    }

    /// The processes of its stages, by name.
    fn stages(&self) -> Vec<(String, u32)> {
        let table = self.command("status");
        let row = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            let [stage, instance, process, ..] = words[..] else { return None };
            Some((format!("{stage} {instance}"), process.parse().ok()?))
        };
        table.lines().filter_map(row).collect()
    }

    fn end(mut self) {
        signal(self.child.id(), Signal::TERM);
        assert!(soon(PATIENCE, || self.child.try_wait().unwrap().is_some()), "{}", self.said());
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("the machine at {} said:\n{}", self.addr, self.said());
        }
    }
}

/// The output of a command about a server.
fn command(file: &Path, words: &str) -> String {
    let mut command = Command::new(binary());
    let output = command.args(words.split(' ')).arg("-c").arg(file).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Keys from the command that makes them.
fn keys(folder: &Folder) -> PathBuf {
    let keys = folder.join("keys");
    let made = Command::new(binary()).args(["stages", "keys"]).arg(&keys).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    keys
}

/// A server that accepts clients, and asks these machines.
fn front(site: &Folder, engine: &str, keys: &Path, to: &[&Machine], more: &str) -> Server {
    let to: Vec<_> = to.iter().map(|machine| format!("\"tls://{}\"", machine.addr)).collect();
    let config = format!(
        "[stages]\nprocess_at = [{}]\nkeys = {keys:?}\n{EAGER}{more}\n{PATIENT}\
         [[site]]\nhosts = [\"*.example\"]\nroot = {:?}\n{RULES}\n",
        to.join(", "),
        site.join("."),
    );
    let options = Options::new(site.join(".")).engine(engine);
    Server::start(&options.config(&config))
}

fn status(server: &Server) -> String {
    command(&server.file(), "status")
}

fn answers_are_those_of_one_process(engine: &str) {
    let (site, own) = (site(), Folder::new());
    let keys = keys(&own);
    let alone = crate::isolated::start(&site, engine, PATIENT);
    let asked = [
        ("GET / ", ""),
        ("HEAD / ", ""),
        ("GET /sub ", ""),
        ("GET /app/a.txt ", ""),
        ("GET /old/x%20y?q=1 ", ""),
        ("POST /old/x ", "Content-Length: 3\r\n\r\nabc"),
        ("GET /nothing ", ""),
        ("GET /closed/a.txt ", ""),
        ("GET /secret/a.txt ", ""),
        ("GET /secret/a.txt ", "Authorization: Basic YWxpY2U6c2VjcmV0\r\n\r\n"),
        ("GET /text.txt ", "Range: bytes=5-9\r\n\r\n"),
        ("GET /text.txt ", "Accept-Encoding: gzip\r\n\r\n"),
        ("GET /large.bin ", ""),
        ("GET /%2e%2e/x ", ""),
    ];
    for http2 in ["off", "on"] {
        let more = format!("http2 = \"{http2}\"\n");
        let machine = Machine::start(&site, &keys, &more);
        let server = front(&site, engine, &keys, &[&machine], &more);
        let names: Vec<_> = stages(&server).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["receive 1"]);
        for (line, rest) in asked {
            let rest = if rest.is_empty() { "\r\n" } else { rest };
            let request =
                format!("{line}HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{rest}");
            let [one, many] =
                [&alone, &server].map(|server| told(&server.exchange(request.as_bytes())));
            let size = (one.2.len(), many.2.len());
            assert!(
                one == many,
                "{request}: {size:?} {:?} {:?} with HTTP/2 {http2}",
                (&one.0, &one.1),
                (&many.0, &many.1)
            );
        }
        let table = status(&server);
        let row = table.lines().find(|line| line.starts_with("process")).unwrap();
        assert!(row.contains("  elsewhere  answers   "), "{table}");
        end(server);
        machine.end();
    }
}

#[test]
fn what_ends_on_a_machine_loses_no_request() {
    let (site, own) = (site(), Folder::new());
    let keys = keys(&own);
    let (one, mut two) = (Machine::start(&site, &keys, ""), Machine::start(&site, &keys, ""));
    let server = front(&site, "event", &keys, &[&one, &two], "");
    under_load(&server, || {
        for name in ["process 1", "process 2", "respond 1", "respond 2"] {
            let found = one.stages().into_iter().find(|(stage, _)| stage == name);
            let (_, pid) = found.unwrap_or_else(|| panic!("{name}: {}", one.command("status")));
            signal(pid, Signal::KILL);
            assert!(soon(PATIENCE, || {
                one.stages().iter().any(|(stage, other)| stage == name && *other != pid)
            }));
        }
    });
    under_load(&server, || {
        let said = one.command("reload");
        assert!(said.contains("the stages are replaced"), "{said}");
    });
    // all of a machine at once
    under_load(&server, || {
        let all = two.stages();
        assert_eq!(all.len(), 4, "{all:?}");
        all.iter().for_each(|(_, pid)| signal(*pid, Signal::STOP));
        two.child.kill().unwrap();
        all.iter().for_each(|(_, pid)| signal(*pid, Signal::KILL));
        two.child.wait().unwrap();
        let gone = || status(&server).contains("does not answer");
        assert!(soon(PATIENCE, gone), "{}", status(&server));
    });
    end(server);
}

#[test]
fn keys_are_replaced_under_load_on_both_sides() {
    let (site, own) = (site(), Folder::new());
    let keys = keys(&own);
    let machine = Machine::start(&site, &keys, "");
    let server = front(&site, "event", &keys, &[&machine], "");
    let before = (machine.stages(), stages(&server));
    under_load(&server, || {
        self::keys(&own);
        let are_taken = || {
            let said = "the stages are replaced";
            machine.said().contains(said) && server.stderr().contains(said)
        };
        assert!(soon(2 * PATIENCE, are_taken), "{} {}", machine.said(), server.stderr());
    });
    assert_ne!((machine.stages(), stages(&server)), before);
    // the authority is one's own: no other party has to issue certificates
    assert!(machine.said().contains("the keys of stages have changed"), "{}", machine.said());
    end(server);
}

/// Keys of another kind than those that the command makes.
fn other_keys(folder: &Folder, authority: &Authority, is_expired: bool) -> PathBuf {
    let keys = folder.join("other");
    fs::create_dir_all(&keys).unwrap();
    fs::write(keys.join("ca.pem"), &authority.pem).unwrap();
    for role in ["receive", "process", "respond"] {
        let name = format!("{role}.forebay.internal");
        authority.write_with(&keys, role, &[&name], &ECDSA, |params| {
            params.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            if is_expired {
                params.not_before = date_time_ymd(2020, 1, 1);
                params.not_after = date_time_ymd(2020, 12, 31);
            }
        });
        fs::rename(keys.join(format!("{role}.crt")), keys.join(format!("{role}.pem"))).unwrap();
    }
    keys
}

#[test]
fn who_has_other_keys_or_none_is_asked_nothing_and_told_nothing() {
    let (site, own) = (site(), Folder::new());
    let keys = keys(&own);
    let machine = Machine::start(&site, &keys, "");
    let strangers = other_keys(&own, &Authority::new(), false);
    let server = front(&site, "event", &strangers, &[&machine], "");
    let (answer, ..) = told(&get(server.addr(), "/"));
    assert_eq!(answer, "HTTP/1.1 503 Service Unavailable");
    let table = status(&server);
    assert!(table.contains("no trust: "), "{table}");
    end(server);
    // in clear, and through TLS without a certificate
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\nForebay-Class: gold\r\n\r\n";
    let mut plain = TcpStream::connect(machine.addr).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("https"), "{answer}");
    let client = std::sync::Arc::new(forebay_tests::tls::untrusting());
    let mut sealed = forebay_tests::tls::connect(&client, machine.addr, "process.forebay.internal");
    let _ = sealed.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = sealed.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    // respond is asked, and asks no stage: its key opens nothing
    let stolen = own.join("stolen");
    fs::create_dir(&stolen).unwrap();
    for (from, to) in
        [("ca.pem", "ca.pem"), ("respond.pem", "receive.pem"), ("respond.key", "receive.key")]
    {
        fs::copy(keys.join(from), stolen.join(to)).unwrap();
    }
    let server = front(&site, "event", &stolen, &[&machine], "");
    assert_eq!(told(&get(server.addr(), "/")).0, "HTTP/1.1 503 Service Unavailable");
    end(server);
    let server = front(&site, "event", &keys, &[&machine], "");
    assert_eq!(told(&get(server.addr(), "/")).0, "HTTP/1.1 200 OK");
    end(server);
}

#[test]
fn a_certificate_that_has_expired_is_named_and_its_successor_is_taken() {
    let (site, own) = (site(), Folder::new());
    let authority = Authority::new();
    let good = other_keys(&own, &authority, false);
    let kept = own.join("good");
    fs::rename(good, &kept).unwrap();
    let expired = other_keys(&own, &authority, true);
    let machine = Machine::start(&site, &expired, "");
    let server = front(&site, "event", &kept, &[&machine], "");
    assert_eq!(told(&get(server.addr(), "/")).0, "HTTP/1.1 503 Service Unavailable");
    let table = status(&server);
    assert!(table.contains("no trust: ") && table.contains("expired"), "{table}");
    let own_words = machine.command("status");
    assert!(own_words.contains("process.pem\" of the stages has expired"), "{own_words}");
    for name in ["process.key", "process.pem"] {
        fs::copy(kept.join(name), expired.join("new")).unwrap();
        fs::rename(expired.join("new"), expired.join(name)).unwrap();
    }
    let is_back = || told(&get(server.addr(), "/")).0 == "HTTP/1.1 200 OK";
    assert!(soon(2 * PATIENCE, is_back), "{}{}", status(&server), machine.said());
    end(server);
}

#[test]
fn a_client_is_known_on_the_other_machine_and_its_class_holds() {
    let (site, own) = (site(), Folder::new());
    let keys = keys(&own);
    let policy = "[[site.header]]\npath = \"/text.txt\"\n\
                  set = { X-Class = \"$class\", X-Client = \"$client\", X-Scheme = \"$scheme\" }\n\
                  [[class]]\nname = \"gold\"\npriority = 0\n[[class]]\nname = \"bulk\"\npriority = 1\n\
                  [[rule]]\nname = \"paid\"\ncookie = \"tier=gold\"\nclass = \"gold\"\n";
    let machine = Machine::start_with(&site, &keys, "", policy);
    let to = format!("\"tls://{}\"", machine.addr);
    let config = format!(
        "[stages]\nprocess_at = [{to}]\nkeys = {keys:?}\n{EAGER}\n\
         [[site]]\nhosts = [\"*.example\"]\nroot = {:?}\n{RULES}{policy}\n",
        site.join("."),
    );
    let options = Options::new(site.join(".")).engine("event");
    let server = Server::start(&options.config(&config));
    for (field, class) in [("Cookie: tier=gold", "gold"), ("Forebay-Class: gold", "bulk")] {
        let request = format!(
            "GET /text.txt HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{field}\r\n\r\n"
        );
        let (_, fields, _) = told(&wire::exchange(server.addr(), request.as_bytes()));
        for expected in [
            format!("X-Class: {class}"),
            "X-Client: 127.0.0.1".to_owned(),
            "X-Scheme: http".to_owned(),
        ] {
            assert!(fields.contains(&expected), "{expected}: {fields:?}");
        }
    }
    end(server);
}

#[test]
fn another_configuration_is_told_of() {
    let (site, own) = (site(), Folder::new());
    let keys = keys(&own);
    let more = "[[site.header]]\npath = \"/only\"\nset = { X-Only = \"here\" }\n";
    let (same, other) =
        (Machine::start(&site, &keys, ""), Machine::start_with(&site, &keys, "", more));
    let server = front(&site, "event", &keys, &[&same, &other], "");
    let table = status(&server);
    let row = |machine: &Machine| {
        let name = machine.addr.to_string();
        table.lines().find(|line| line.contains(&name)).unwrap_or_else(|| panic!("{table}"))
    };
    assert!(row(&same).contains("  answers   "), "{table}");
    assert!(row(&other).contains("  answers, another configuration  "), "{table}");
    end(server);
}

#[test]
fn stages_speak_in_clear_where_the_network_is_closed() {
    let (site, own) = (site(), Folder::new());
    let machine = Machine::start(&site, own.path(), "unencrypted = true\n");
    let config = format!(
        "[stages]\nprocess_at = [\"tcp://{}\"]\nunencrypted = true\n{EAGER}\n\
         [[site]]\nhosts = [\"*.example\"]\nroot = {:?}\n{RULES}\n",
        machine.addr,
        site.join("."),
    );
    let options = Options::new(site.join(".")).engine("event");
    let server = Server::start(&options.config(&config));
    under_load(&server, || {});
    assert_eq!(told(&get(server.addr(), "/closed/a.txt")).0, "HTTP/1.1 403 Forbidden");
    end(server);
}

/// Process runs here and respond elsewhere: the sandboxed process speaks TLS over connections that are
/// made for it.
#[test]
fn respond_alone_is_on_another_machine() {
    let (site, own) = (site(), Folder::new());
    let keys = keys(&own);
    let addr = free_addr();
    let machine = Machine::start(&site, &keys, &format!("respond_listen = [\"{addr}\"]\n"));
    let config = format!(
        "[stages]\nrespond_at = [\"tls://{addr}\"]\nkeys = {keys:?}\n{EAGER}\n\
         [[site]]\nhosts = [\"*.example\"]\nroot = {:?}\n{RULES}\n",
        site.join("."),
    );
    let options = Options::new(site.join(".")).engine("event");
    let server = Server::start(&options.config(&config));
    let names: Vec<_> = stages(&server).into_iter().map(|(name, _)| name).collect();
    assert!(!names.iter().any(|name| name.starts_with("respond")), "{names:?}");
    under_load(&server, || {});
    let (answer, ..) = told(&get(server.addr(), "/sub/a.txt"));
    assert_eq!(answer, "HTTP/1.1 200 OK");
    end(server);
    machine.end();
}

/// One of two whole pipelines on machines of their own: receive, process and respond, and the other's process behind them.
fn pipeline(site: &Folder, keys: &Path, listen: SocketAddr, backup: SocketAddr) -> Server {
    let config = format!(
        "[stages]\nprocess_listen = [\"{listen}\"]\nprocess_backup = [\"tls://{backup}\"]\nkeys = {keys:?}\n{EAGER}\n{PATIENT}"
    );
    Server::start(&Options::new(site.join(".")).config(&config))
}

/// Who has answered so many requests.
fn who(server: &Server, requests: usize) -> Vec<String> {
    let answer = |_| told(&get(server.addr(), "/who.txt"));
    let all = (0..requests).map(answer).map(|(status, _, body)| {
        assert_eq!(status, "HTTP/1.1 200 OK");
        String::from_utf8(body).unwrap()
    });
    all.collect()
}

#[test]
fn two_pipelines_prefer_their_own_stages_and_use_one_another() {
    let (sites, own) = ([site(), site()], Folder::new());
    let (keys, at) = (keys(&own), [free_addr(), free_addr()]);
    for (site, name) in sites.iter().zip(["a", "b"]) {
        site.write("who.txt", name);
    }
    let servers = [0, 1].map(|number| pipeline(&sites[number], &keys, at[number], at[1 - number]));
    for (number, server) in servers.iter().enumerate() {
        let (own, other) = (["a", "b"][number], ["a", "b"][1 - number]);
        // nothing goes to the other one while its own are well
        assert!(who(server, 30).iter().all(|name| name == own));
        under_load(server, || {
            let all = stages(server);
            let hung: Vec<_> = all.iter().filter(|(name, _)| name.starts_with("process")).collect();
            assert_eq!(hung.len(), 2, "{all:?}");
            hung.iter().for_each(|(_, pid)| signal(*pid, Signal::STOP));
            let is_lost = soon(PATIENCE, || who(server, 5).iter().all(|name| name == other));
            hung.iter().for_each(|(_, pid)| signal(*pid, Signal::CONT));
            assert!(is_lost, "{}", status(server));
            let is_back = || who(server, 20).iter().all(|name| name == own);
            assert!(soon(PATIENCE, is_back), "{}", status(server));
        });
        let table = status(server);
        let line = table.lines().find(|line| line.contains(&at[1 - number].to_string()));
        assert!(line.is_some_and(|line| line.contains("answers")), "{table}");
    }
    servers.into_iter().for_each(end);
}

#[test]
fn a_backup_is_asked_while_the_machines_before_it_are_gone() {
    let (near, far, own) = (site(), site(), Folder::new());
    near.write("who.txt", "near");
    far.write("who.txt", "far");
    let keys = keys(&own);
    let machines = [&near, &near, &far].map(|site| Machine::start(site, &keys, ""));
    let [one, two, backup] = machines;
    let more = format!("process_backup = [\"tls://{}\"]\n", backup.addr);
    let server = front(&near, "event", &keys, &[&one, &two], &more);
    assert!(who(&server, 30).iter().all(|name| name == "near"));
    let at = one.addr;
    one.end();
    assert!(soon(PATIENCE, || status(&server).contains("does not answer")), "{at}");
    assert!(who(&server, 30).iter().all(|name| name == "near"), "one of the first is left");
    two.end();
    assert!(soon(PATIENCE, || who(&server, 5).iter().all(|name| name == "far")));
    end(server);
}
