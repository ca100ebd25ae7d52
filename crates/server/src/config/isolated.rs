//! What `engine = "isolated"` is told, and what it cannot do yet.

use super::choice::{FirewallMode, GateMode, Switch, Word};
use super::draft::Draft;
use super::problem::Wrong;
use super::read::Path as At;
use super::upstreams::{self, HttpAddress};
use super::value::Written;
use forebay_engine::Engine;
use forebay_upstream::link::{Choice, Settings};
use forebay_upstream::settings::Address;
use forebay_upstream::stage::{ADDED_BYTES, ADDED_LINES};
use std::path::PathBuf;
use std::time::Duration;

/// Most bytes of a head that a loop has room for.
const MOST_HEAD_BYTES: u64 = 64 * 1024;

/// Most field lines that a parser holds.
const MOST_LINES: u64 = 128;

/// Other software in the place of a stage: an address like that of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageAddress(pub Address);

impl Written for StageAddress {
    const EXPECTED: &'static str = HttpAddress::EXPECTED;
    fn read(text: &str) -> Result<StageAddress, Wrong> {
        HttpAddress::read(text).map(|HttpAddress(address)| StageAddress(address))
    }
    fn text(&self) -> String {
        HttpAddress(self.0.clone()).text()
    }
    fn guess(text: &str) -> Option<String> {
        HttpAddress::guess(text)
    }
}

/// What only the engine `isolated` is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Isolated {
    /// `isolated.process`
    pub process: u64,
    /// `isolated.respond`
    pub respond: u64,
    /// `isolated.process_at`
    pub process_at: Vec<StageAddress>,
    /// `isolated.respond_at`
    pub respond_at: Vec<StageAddress>,
    /// `isolated.http2`
    pub http2: Switch,
    /// `isolated.balance`
    pub balance: Choice,
    /// `isolated.acknowledge_floor`
    pub floor: Duration,
    /// `isolated.acknowledge_ceiling`
    pub ceiling: Duration,
    /// `isolated.ping`
    pub ping: Duration,
    /// `isolated.back_off`
    pub back_off: Duration,
}

impl Isolated {
    /// Whether instances are asked over HTTP/2: our own are, if that is wanted.
    pub fn is_http2(&self, is_own: bool) -> bool {
        is_own && self.http2 == Switch::On
    }

    /// What a link keeps to, whose instances are our own or others.
    pub fn link(&self, is_own: bool) -> Settings {
        Settings {
            choice: self.balance,
            acknowledges: is_own,
            withholds: self.is_http2(is_own),
            floor: self.floor,
            ceiling: self.ceiling.max(self.floor),
            idle: self.ping,
            back_off: self.back_off,
            ..Settings::default()
        }
    }
}

impl Isolated {
    /// Relative paths begin in this directory.
    pub(super) fn rebase(&mut self, join: &impl Fn(&mut PathBuf)) {
        let lists = self.process_at.iter_mut().chain(&mut self.respond_at);
        lists.for_each(|to| upstreams::rebase(&mut to.0, join));
    }
}

impl Word for Choice {
    const EXPECTED: &'static str =
        "\"round-robin\", \"least\", \"two-choices\", \"feedback\" or \"hash\"";
    const WORDS: &'static [&'static str] =
        &["round-robin", "least", "two-choices", "feedback", "hash"];
    const MEANINGS: &'static [Choice] =
        &[Choice::RoundRobin, Choice::Least, Choice::TwoChoices, Choice::Feedback, Choice::Hash];
}

impl Draft {
    /// What cannot stand beside `engine = "isolated"`.
    pub(super) fn check_isolated(&self, wrong: &mut Vec<(At, Wrong)>) {
        let listeners = self.all_listeners();
        let isolated = |(_, listener): &&(At, super::Listener)| listener.engine == Engine::Isolated;
        let Some((first, _)) = listeners.iter().find(isolated) else { return };
        let top = At::default();
        let mut refuse = |at: At, what: &'static str| wrong.push((at, Wrong::NotIsolated { what }));
        if listeners.len() > 1 {
            refuse(first.child("engine"), "it takes one [[listener]], with all addresses");
        }
        let process = &self.process;
        let refused = [
            (process.gate != GateMode::Off, "gate", "rules are not judged in the kernel yet"),
            (
                process.firewall.mode != FirewallMode::Off,
                "firewall.mode",
                "the firewall is not told of clients yet",
            ),
            (process.agent == Switch::On, "agent", "the agent does not see the other stages yet"),
            (process.user.is_some(), "user", "the stages stay what started them yet"),
            (
                process.limits.head_bytes.0 + ADDED_BYTES as u64 > MOST_HEAD_BYTES,
                "limits.head_bytes",
                "at most 63KiB, because stages add fields of their own",
            ),
            (
                process.limits.head_lines + ADDED_LINES as u64 > MOST_LINES,
                "limits.head_lines",
                "at most 120, because stages add lines of their own",
            ),
        ];
        for (_, key, what) in refused.into_iter().filter(|(is_refused, ..)| *is_refused) {
            refuse(top.child(key), what);
        }
        let isolated = &process.isolated;
        for (key, list) in
            [("process_at", &isolated.process_at), ("respond_at", &isolated.respond_at)]
        {
            let list = list.iter().enumerate();
            let names = list.filter(|(_, to)| matches!(to.0, Address::Name { .. }));
            for (index, _) in names {
                let what = "write an address: names of stages are not looked up";
                refuse(top.child("isolated").child(key).item(index), what);
            }
        }
        for (path, site) in self.all_sites() {
            if site.has_acme() {
                refuse(path.child("tls.acme"), "its stages get no certificates by ACME yet");
            }
            for (index, _) in site
                .auth
                .iter()
                .enumerate()
                .filter(|(_, auth)| auth.file.is_some() && !isolated.respond_at.is_empty())
            {
                let what = "write them as users: where respond is other software, no stage reads this file";
                refuse(path.child("auth").item(index).child("file"), what);
            }
            if !site.authorities.is_empty() {
                let what = "its stages ask no other server who may yet";
                refuse(path.child("forward_auth").item(0), what);
            }
            for (index, proxy) in site.proxies.iter().enumerate() {
                if proxy.tells_client_first() {
                    let at = path.child("proxy").item(index).child("proxy_protocol");
                    refuse(at, "its stages do not know the port of a client");
                }
            }
            let counts = [("proxy", site.proxies.len()), ("fastcgi", site.fastcgi.len())];
            for (list, count) in counts.into_iter().filter(|_| !isolated.respond_at.is_empty()) {
                (0..count.min(1)).for_each(|index| {
                    let what = "where respond is other software, no stage asks this application";
                    refuse(path.child(list).item(index), what);
                });
            }
        }
    }
}
