//! Checks of stages that are asked at addresses, here and elsewhere: obstacles, and bytes that cross
//! networks in clear.

use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Wrong};
use crate::reading::draft::ConfigDraft;
use crate::values::address::Listen;
use crate::{FirewallMode, GateMode, ListenerConfig, Role, StageAddress, StageKind};
use forebay_upstream::settings::UpstreamAddress;
use std::fmt;
use std::net::SocketAddr;

/// A fault in the address of a stage, and what to write instead.
#[derive(Debug)]
struct StageAddressFinding(&'static str);

impl Finding for StageAddressFinding {}

impl fmt::Display for StageAddressFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The stages that may run elsewhere, with the keys for their addresses there, and for their listeners
/// here.
const KEYS: [(Role, &str, &str); 2] = [
    (Role::Process, "process_at", "process_listen"),
    (Role::Respond, "respond_at", "respond_listen"),
];

fn at(key: &str) -> At {
    At::default().child("isolated").child(key)
}

impl ConfigDraft {
    /// Checks that the addresses of stages can be used.
    pub(crate) fn check_machines(&self, wrong: &mut Vec<(At, Wrong)>) {
        if !self.is_isolated() {
            return;
        }
        let isolated = &self.process.isolated;
        let listeners = self.all_listeners();
        let own = || Role::ALL.into_iter().flat_map(|role| isolated.listen(role));
        let mut refuse = |at: At, what| wrong.push((at, Wrong::said(StageAddressFinding(what))));
        for (role, asked, listen) in KEYS {
            let elsewhere = isolated.elsewhere(role);
            let all: Vec<_> = isolated.asked(role).collect();
            for (index, &one) in all.iter().enumerate() {
                let refused = match one.kind {
                    StageKind::Foreign if index >= elsewhere.len() => Some(
                        "other software is no backup of a stage: write tls:// and a machine of ours",
                    ),
                    _ if one.kind != all[0].kind => Some(
                        "the first one is of another kind: a stage is either on other machines (tls://) or other \
                         software (http://, unix:)",
                    ),
                    _ if listens_at(&listeners, own(), &one.to) => {
                        Some("this server listens there itself: it would ask itself")
                    }
                    // a machine that is not well stands in for no other, least of all for itself
                    _ if index >= elsewhere.len()
                        && elsewhere.iter().any(|first| first.to == one.to) =>
                    {
                        Some("process_at names this machine, too: it would be its own backup")
                    }
                    _ => self.refuses(role, one),
                };
                if let Some(what) = refused {
                    let place = match index.checked_sub(elsewhere.len()) {
                        Some(index) => at("process_backup").item(index),
                        None => at(asked).item(index),
                    };
                    refuse(place, what);
                }
            }
            for (index, one) in isolated.listen(role).iter().enumerate() {
                let refused = match one {
                    _ if !elsewhere.is_empty() => Some(
                        "the stage is elsewhere, so that there is nothing here for other machines to ask",
                    ),
                    Listen::Unix(_) => {
                        Some("other machines come to no Unix socket: write an address and port")
                    }
                    Listen::All(_) | Listen::At(_) => self.lacks_keys(),
                };
                if let Some(what) = refused {
                    refuse(at(listen).item(index), what);
                }
            }
        }
    }

    /// The reason why a stage cannot be asked at an address, if there is one.
    fn refuses(&self, role: Role, one: &StageAddress) -> Option<&'static str> {
        let isolated = &self.process.isolated;
        let is_named = one.to.is_looked_up();
        match one.kind {
            StageKind::Foreign if is_named => {
                Some("write an address: names of other software are not looked up")
            }
            StageKind::Foreign => None,
            // the process that asks is in its sandbox
            StageKind::Sealed | StageKind::Clear if is_named && role == Role::Respond => {
                Some("write an address: process looks up no names")
            }
            StageKind::Sealed if isolated.unencrypted => Some(
                "isolated.unencrypted says that stages speak in clear: write tcp://, or leave that key out",
            ),
            StageKind::Sealed => self.lacks_keys(),
            StageKind::Clear if !isolated.unencrypted => Some(
                "what clients send, and who they are, would go there in clear, and whoever reaches the port is \
                 believed: write tls://, or isolated.unencrypted = true where the network is encrypted and closed",
            ),
            StageKind::Clear => None,
        }
    }

    fn lacks_keys(&self) -> Option<&'static str> {
        let isolated = &self.process.isolated;
        (isolated.keys.is_none() && !isolated.unencrypted).then_some(
            "stages on several machines show one another certificates: make them with forebay stages keys DIR, and \
             name the directory in isolated.keys",
        )
    }

    /// Remarks on bytes that cross networks in clear, and on settings without effect where no clients come.
    pub(crate) fn remark_machines(&self, remarks: &mut Vec<(At, Wrong)>) {
        if !self.is_isolated() {
            return;
        }
        let isolated = &self.process.isolated;
        let mut remark = |at: At, what| remarks.push((at, Wrong::said(StageAddressFinding(what))));
        for (role, asked, _) in KEYS {
            for (index, one) in isolated.elsewhere(role).iter().enumerate() {
                let is_far = |to: &UpstreamAddress| match to {
                    UpstreamAddress::Socket(address) => !address.ip().is_loopback(),
                    other => other.is_looked_up(),
                };
                if one.kind == StageKind::Foreign && is_far(&one.to) {
                    remark(
                        at(asked).item(index),
                        "what clients send, and who they are, goes to another machine in clear: see that the network \
                         between is encrypted and closed",
                    );
                }
            }
        }
        let mut elsewhere = Role::ALL.into_iter().flat_map(|role| isolated.asked(role));
        let speaks = isolated.listens() || elsewhere.any(|one| one.kind == StageKind::Clear);
        if isolated.unencrypted && speaks {
            remark(
                at("unencrypted"),
                "stages speak in clear with other machines, and believe whoever reaches their port",
            );
        }
        if !self.all_listeners().is_empty() {
            return;
        }
        if !isolated.process_backup.is_empty() {
            remark(
                at("process_backup"),
                "this does nothing here: receive asks these machines, and there is none, since without listen and \
                 [[listener]] no clients come here",
            );
        }
        let (admin, gate) = (&self.process.admin, self.process.gate);
        let firewall = self.process.firewall.mode;
        for (is_set, at) in [
            (!admin.listen.0.is_empty(), At::default().child("admin").child("listen")),
            (gate != GateMode::Off, At::default().child("gate")),
            (firewall != FirewallMode::Off, At::default().child("firewall").child("mode")),
        ] {
            if is_set {
                remark(
                    at,
                    "this does nothing here: it is receive's, and there is none, since without listen and [[listener]] \
                     no clients come here",
                );
            }
        }
    }
}

/// Whether a listener, or a stage, has this address, or all addresses of this machine.
fn listens_at<'l>(
    listeners: &'l [(At, ListenerConfig)],
    own: impl Iterator<Item = &'l Listen>,
    address: &UpstreamAddress,
) -> bool {
    let is_it = |listen: &Listen| match (listen, address) {
        (Listen::Unix(path), UpstreamAddress::Unix(to)) => path == to,
        (Listen::At(at), UpstreamAddress::Socket(to)) => {
            at == to || (at.ip().is_unspecified() && is_here(to, at.port()))
        }
        (Listen::All(port), UpstreamAddress::Socket(to)) => is_here(to, *port),
        _ => false,
    };
    let of_clients = listeners.iter().flat_map(|(_, listener)| &listener.listen);
    of_clients.map(|end| &end.listen).chain(own).any(is_it)
}

fn is_here(to: &SocketAddr, port: u16) -> bool {
    to.port() == port && to.ip().is_loopback()
}

#[cfg(test)]
mod tests {
    use crate::table::ConfigReader;

    fn remarks(text: &str) -> Vec<String> {
        let draft = ConfigReader::new(text, "").draft();
        let mut remarks = Vec::new();
        draft.remark_machines(&mut remarks);
        remarks.into_iter().map(|(at, _)| at.shown).collect()
    }

    #[test]
    fn what_is_done_in_clear_or_not_at_all_is_said() {
        let foreign = "unencrypted = true\nrespond_at = [\"http://127.0.0.1:9000\"]\n";
        let behind = "process_listen = [\"127.0.0.1:9443\"]\nunencrypted = true\n";
        let backed = "process_listen = [\"127.0.0.1:9443\"]\nunencrypted = true\n\
                      process_backup = [\"tcp://10.0.0.2:9443\"]\n";
        for (before, stages, expected) in [
            ("", foreign, &[][..]),
            ("", behind, &["isolated.unencrypted"]),
            ("listen = [\":80\"]\ngate = \"auto\"\n", behind, &["isolated.unencrypted"]),
            (
                "gate = \"auto\"\nfirewall.mode = \"auto\"\nadmin.listen = [\"127.0.0.1:9090\"]\n",
                behind,
                &["isolated.unencrypted", "admin.listen", "gate", "firewall.mode"],
            ),
            ("", backed, &["isolated.unencrypted", "isolated.process_backup"]),
            ("listen = [\":80\"]\n", backed, &["isolated.unencrypted"]),
        ] {
            assert_eq!(remarks(&format!("root = \"/\"\n{before}[stages]\n{stages}")), expected);
        }
    }
}
