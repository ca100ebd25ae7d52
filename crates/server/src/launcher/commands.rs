//! The commands of a configuration: what is run, as which user, for how long, and which variables
//! of the environment the server may set.

use forebay_config::{Account, Config};
use std::time::Duration;

/// The number of the command that makes records of the name service.
pub const DNS_HOOK: u16 = 0;

/// The variables of that command's environment.
pub const DNS_VARIABLES: [&str; 6] =
    ["ACME_ACTION", "ACME_HOST", "ACME_RECORD", "ACME_VALUE", "ACME_TOKEN", "ACME_ACCOUNT"];

/// A command that the server may have run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LaunchCommand {
    /// The setting that names the command.
    pub key: &'static str,
    /// The path of the program, and its arguments.
    pub words: Vec<String>,
    /// The user who runs the command, and the setting that names the user; the user of the
    /// launcher, if none is set.
    pub user: Option<(&'static str, Account)>,
    /// The group of that user, where the configuration names one.
    pub group: Option<Account>,
    /// How long the command may take.
    pub limit: Duration,
    /// The variables of its environment that the server sets.
    pub variables: &'static [&'static str],
}

/// The commands of a configuration, by their numbers.
pub fn of(config: &Config) -> Vec<LaunchCommand> {
    let acme = &config.acme;
    let words = acme.hook();
    if words.is_empty() {
        return Vec::new();
    }
    let own = acme.dns_user.clone().map(|user| ("acme.dns_user", user));
    let group = config.group.clone().filter(|_| own.is_none());
    let user = own.or_else(|| config.user.clone().map(|user| ("user", user)));
    Vec::from([LaunchCommand {
        key: "acme.dns_hook",
        words,
        user,
        group,
        limit: acme.dns_timeout,
        variables: &DNS_VARIABLES,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher::fingerprint;

    fn of_text(text: &str) -> Vec<LaunchCommand> {
        of(&forebay_config::parse(text, "forebay.toml").unwrap())
    }

    #[test]
    fn the_user_of_the_command_is_its_own_else_that_of_the_server() {
        let site = "root = \"/srv\"\n";
        assert!(of_text(site).is_empty());
        let user = |lines: &str| {
            let text = format!("{lines}{site}acme.dns_hook = [\"/bin/hook\", \"a b\"]\n");
            let [command] = &of_text(&text)[..] else { panic!("{text}") };
            assert_eq!(command.words, ["/bin/hook", "a b"]);
            let text = |account: &Account| account.as_str().to_owned();
            (command.user.as_ref().map(|(_, name)| text(name)), command.group.as_ref().map(text))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(user(""), (None, None));
        assert_eq!(user("user = \"web\"\ngroup = \"www\"\n"), (some("web"), some("www")));
        assert_eq!(
            user("user = \"web\"\ngroup = \"www\"\nacme.dns_user = \"dns\"\n"),
            (some("dns"), None)
        );
    }

    #[test]
    fn other_commands_have_another_fingerprint() {
        let of = |more: &str| {
            let text = format!("root = \"/srv\"\nacme.dns_hook = [\"/bin/hook\"]\n{more}");
            fingerprint(&of_text(&text))
        };
        assert_eq!(of(""), of("acme.dns_wait = \"1s\"\n"));
        assert_ne!(of(""), of("acme.dns_timeout = \"1s\"\n"));
        assert_ne!(of(""), of("acme.dns_user = \"dns\"\n"));
    }
}
