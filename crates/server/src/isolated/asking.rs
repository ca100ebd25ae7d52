//! The processes that ask servers other than stages, which commands about upstreams concern:
//! respond, and receive where it passes connections on.

use super::generation::Generation;
use super::relayed;
use crate::command::CommandAnswer;
use crate::control_socket::{self, UnansweredCommand};
use crate::machine::script_root;
use forebay_config::{Config, Role};
use forebay_upstream::settings::UpstreamAddress;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The longest wait for the answer of one process, far below that of the client, who waits for all.
const PATIENCE: Duration = Duration::from_secs(5);

/// A process that asks servers other than stages.
#[derive(Clone, Debug)]
pub(super) struct AskingProcess {
    pub(super) role: Role,
    pub(super) number: u64,
    socket: PathBuf,
    /// The servers that the configuration names; `None` if records of the name service name some.
    named: Option<Arc<[String]>>,
}

impl AskingProcess {
    /// All such processes of these stages.
    pub(super) fn all(generation: &Generation) -> Vec<AskingProcess> {
        let (config, directory) = (&generation.config, generation.directory());
        let mut all = Vec::new();
        for role in [Role::Receive, Role::Respond] {
            if role == Role::Receive && config.tcp.is_empty() {
                continue;
            }
            let named = named(config, role);
            all.extend((1..=config.isolated.instances(role)).map(|number| AskingProcess {
                role,
                number,
                socket: relayed::socket_of(directory, role, number),
                named: named.clone(),
            }));
        }
        all
    }

    /// Has the process answer `list`, `drain NAME` or `resume NAME`.
    ///
    /// # Errors
    /// When the process does not answer soon.
    pub(super) fn ask(&self, question: &str) -> Result<CommandAnswer, UnansweredCommand> {
        control_socket::ask_within(&self.socket, &format!("upstream {question}"), PATIENCE)
    }

    /// Whether the process may know a server by this name, now or after a look at the name service.
    pub(super) fn may_know(&self, name: &str) -> bool {
        self.named.as_ref().is_none_or(|named| named.iter().any(|one| one == name))
    }

    /// Whether the stages of this process are gone.
    pub(super) fn is_gone(&self) -> bool {
        self.socket.parent().is_some_and(|directory| !directory.exists())
    }
}

impl fmt::Display for AskingProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.role, self.number)
    }
}

/// The names of the servers that a stage asks; `None` if records of the name service name some.
fn named(config: &Config, role: Role) -> Option<Arc<[String]>> {
    let servers: Vec<UpstreamAddress> = match role {
        Role::Receive => config.tcp.iter().flat_map(|tcp| tcp.settings().group.to).collect(),
        Role::Process => Vec::new(),
        Role::Respond => {
            let all = config.sites.iter().flat_map(|site| site.applications(script_root));
            all.flat_map(|one| one.group().to.clone()).collect()
        }
    };
    let has_service = servers.iter().any(|one| matches!(one, UpstreamAddress::Service(_)));
    (!has_service).then(|| servers.iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_know_what_its_configuration_names() {
        let may_know = |lines: &str, role: Role, name: &str| {
            let text = format!("root = \"/site\"\n{lines}");
            let config = forebay_config::parse(&text, "/etc/forebay.toml").unwrap();
            let (named, socket) = (named(&config, role), PathBuf::new());
            AskingProcess { role, number: 1, socket, named }.may_know(name)
        };
        let proxy = "[[proxy]]\npath = \"/\"\nto = \"http://10.0.0.1:9000\"\n";
        assert!(may_know(proxy, Role::Respond, "10.0.0.1:9000"));
        assert!(!may_know(proxy, Role::Respond, "10.0.0.2:9000"));
        assert!(!may_know(proxy, Role::Receive, "10.0.0.1:9000"));
        let service = "[[proxy]]\npath = \"/\"\nto = \"srv+http://_http._tcp.app.internal\"\n";
        assert!(may_know(service, Role::Respond, "a.app.internal:8080"));
    }
}
