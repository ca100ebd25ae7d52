//! An identifier of the configuration by which a stage answers, in a few bytes. Stages on other
//! machines report it, and `forebay status` shows those whose configuration differs.
//!
//! Settings that differ from machine to machine are left out: addresses, keys, roots, logs, limits
//! of processes.

use forebay_config::Config;
use forebay_upstream::balance::hash;

/// Version and configuration, as answers to pings carry them.
pub(super) fn said(config: &Config) -> String {
    format!("{} {:016x}", env!("CARGO_PKG_VERSION"), hash(shared(config).as_bytes()))
}

/// All settings that affect answers, in the same form in each process of one version.
fn shared(config: &Config) -> String {
    let mut sites = config.sites.clone();
    for site in &mut sites {
        site.tls = Default::default();
        site.log = Default::default();
        site.root = None;
    }
    let classes = config
        .classes
        .iter()
        .map(|class| (&class.name, &class.priority, class.share, class.default));
    let classes: Vec<_> = classes.collect();
    format!("{sites:?} {classes:?}")
}

/// How another machine's identifier differs from our own, in words; `None` if it does not.
pub(super) fn difference(own: &str, theirs: &str) -> Option<String> {
    let (version, configuration) = theirs.split_once(' ').unwrap_or((theirs, ""));
    match own.split_once(' ') {
        // two versions may print the same configuration differently, so only the version is
        // reported
        Some((own, _)) if own != version => Some(format!("version {version}")),
        Some((_, own)) if own != configuration => Some("another configuration".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolated;
    use forebay_config::{Role, StageProcess};

    fn read(text: &str) -> Config {
        forebay_config::parse(text, "/etc/forebay.toml").unwrap()
    }

    #[test]
    fn all_stages_of_a_configuration_say_the_same_and_another_says_another() {
        let text = "root = \"/srv\"\n[log]\naccess = \"/var/log/a\"\n[stages]\nprocess = 1\n\
                    [[class]]\nname = \"gold\"\npriority = 0\nrequests_per_connection = 5\n\
                    [[class]]\nname = \"rest\"\npriority = 1\n";
        let own = said(&read(text));
        for role in Role::ALL {
            let (file, links) = ("/etc/forebay.toml".into(), "/tmp/links".into());
            let place = StageProcess { role, instance: 1, file, links };
            assert_eq!(said(&isolated::at(read(text), place)), own, "{role}");
        }
        assert_eq!(difference(&own, &own), None);
        // paths of files and numbers of processes do not count
        for same in [text.replace("process = 1", "process = 2"), text.replace("/srv", "/other")] {
            assert_eq!(said(&read(&same)), own);
        }
        for other in [text.replace("rest", "bulk"), format!("listing = true\n{text}")] {
            let other = said(&read(&other));
            assert_eq!(difference(&own, &other).as_deref(), Some("another configuration"));
        }
        assert_eq!(difference(&own, "0.0.1 0").as_deref(), Some("version 0.0.1"));
        assert_eq!(difference(&own, "").as_deref(), Some("version "));
    }
}
