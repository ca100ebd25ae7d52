//! The files and directories that a configuration needs, and for which use.

use super::stage_needs::StageNeeds;
use crate::privileges;
use crate::seal;
use forebay_config::{CollectorAddress, Config, Listen, SiteConfig, TcpConfig};
use forebay_handler::certificates::acme;
use forebay_sys::unix_address::UnixAddress;
use forebay_upstream::settings::UpstreamTlsSettings;
use landlock::{AccessFs, BitFlags};
use std::path::{Path, PathBuf};

/// A needed file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NeededPath {
    pub(super) key: &'static str,
    pub(super) path: PathBuf,
    /// The use.
    pub(super) what: PathUse,
}

impl NeededPath {
    /// Whether a setting names it. The others are the same in every configuration: the machine's list of
    /// certificate authorities, and files of the kernel, whose inode numbers change.
    pub(super) fn is_of_setting(&self) -> bool {
        !self.key.is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathUse {
    Read,
    /// Log files, which are made, appended to, and opened again after a rotation.
    Log,
    /// Sockets, which are made and removed, while the directory is locked; it must be opened for that.
    Socket,
    /// Files that are made, replaced by a rename, and removed.
    Store,
    /// Files without a name.
    Spool,
}

impl PathUse {
    pub(super) fn access(self) -> BitFlags<AccessFs> {
        match self {
            PathUse::Read => AccessFs::ReadFile | AccessFs::ReadDir,
            PathUse::Log => AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::ReadDir,
            PathUse::Socket => AccessFs::MakeSock | AccessFs::RemoveFile | AccessFs::ReadDir,
            PathUse::Spool => AccessFs::ReadFile | AccessFs::WriteFile,
            PathUse::Store => {
                let read = AccessFs::ReadFile | AccessFs::ReadDir;
                let write = AccessFs::WriteFile | AccessFs::Truncate;
                read | write | AccessFs::MakeReg | AccessFs::MakeDir | AccessFs::RemoveFile
            }
        }
    }
}

/// The needs of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxNeeds {
    pub(super) paths: Vec<NeededPath>,
    /// The other needs of a stage; `None` for a server without stages.
    pub(super) stage: Option<StageNeeds>,
}

impl SandboxNeeds {
    /// The needs of `config`, which was read from `file`; the control socket is at `control`.
    pub fn of(config: &Config, file: Option<&Path>, control: Option<&Path>) -> SandboxNeeds {
        let stage = config.place.as_ref().map(|place| StageNeeds::of(config, place.role));
        let mut needs = SandboxNeeds { stage, ..SandboxNeeds::default() };
        if seal::is_sealed(config) {
            // held as the descriptor in reserve
            needs.add("", PathBuf::from("/dev/null"), PathUse::Read);
            return needs;
        }
        for site in &config.sites {
            // a new version of a root replaces it by a link or a rename in the same directory
            let roots = site.root.iter().flat_map(|root| forebay_site::root_directories(root));
            roots.for_each(|directory| needs.add("root", directory, PathUse::Read));
            for mount in site.mounts() {
                let key = if site.aliases.contains(&mount) { "alias.to" } else { "links" };
                let directories = forebay_site::root_directories(&mount.to);
                directories.into_iter().for_each(|at| needs.add(key, at, PathUse::Read));
            }
            for file in site.auth.iter().filter_map(|auth| auth.file.as_deref()) {
                needs.add_file("auth.file", file);
            }
        }
        for site in &config.sites {
            site.tls.pairs.files().for_each(|file| needs.add_file("tls.certificate", file));
            site.tls.clients.files().for_each(|file| needs.add_file("tls.client_ca", file));
        }
        for (_, _, tls) in config.sites.iter().flat_map(SiteConfig::upstream_tls) {
            let UpstreamTlsSettings { authorities, shows, verifies, .. } = &tls;
            authorities.iter().for_each(|file| needs.add_file("tls.ca", file));
            if let Some((certificate, key)) = shows {
                [certificate, key].iter().for_each(|file| needs.add_file("tls.certificate", file));
            }
            if *verifies && authorities.is_empty() {
                acme::ROOTS.iter().for_each(|at| needs.add("", at.into(), PathUse::Read));
            }
        }
        let admin = &config.admin;
        admin.pairs.files().for_each(|file| needs.add_file("admin.tls.certificate", file));
        admin.token_file.iter().for_each(|file| needs.add_file("admin.token_file", file));
        config.identity.keys.iter().for_each(|file| needs.add_file("identity.keys", file));
        config.ban_files.iter().for_each(|file| needs.add_file("policy.ban_files", file));
        // the system's settings for name lookups, which other programs replace by a rename
        let with_acme = config.sites.iter().any(SiteConfig::has_acme);
        if with_acme {
            needs.add("acme.storage", config.acme.files().directory().to_owned(), PathUse::Store);
            match &config.acme.ca {
                Some(file) => needs.add_file("acme.ca", file),
                None => acme::ROOTS.iter().for_each(|at| needs.add("", at.into(), PathUse::Read)),
            }
        }
        let names_servers = config.sites.iter().any(SiteConfig::names_upstreams)
            || config.tcp.iter().any(TcpConfig::names_upstreams)
            || config.names_stages()
            || config.traces.to.as_ref().is_some_and(CollectorAddress::is_name);
        if with_acme || names_servers {
            needs.add_directory_of("to", Path::new("/etc/hosts"), PathUse::Read);
            if let Ok(target) = std::fs::canonicalize("/etc/resolv.conf") {
                needs.add_directory_of("to", &target, PathUse::Read);
            }
        }
        if let Some(path) = &config.spool_dir {
            needs.add("spool_dir", path.clone(), PathUse::Spool);
        }
        for path in &config.sandbox.read {
            needs.add("sandbox.read", path.clone(), PathUse::Read);
        }
        if let Some(file) = file {
            needs.add_file("the configuration file", file);
        }
        for directory in &config.origin.directories {
            let directory =
                if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
            needs.add("include", directory.to_owned(), PathUse::Read);
        }
        config.origin.links.iter().for_each(|file| needs.add_file("include", file));
        for file in &config.origin.secret_files {
            needs.add_file("the file of a secret", file);
        }
        if let Some(file) = &config.pipeline.calibration {
            needs.add_file("pipeline.calibration", file);
        }
        for path in privileges::logs(config) {
            needs.add_linked("log.access", path, PathUse::Log);
        }
        for endpoint in config.listeners.iter().flat_map(|listener| &listener.listen) {
            if let Listen::Unix(UnixAddress::Path(path)) = &endpoint.listen {
                needs.add_directory_of("listen", path, PathUse::Socket);
            }
        }
        for endpoint in &config.admin.listen.0 {
            if let Listen::Unix(UnixAddress::Path(path)) = &endpoint.listen {
                needs.add_directory_of("admin.listen", path, PathUse::Socket);
            }
        }
        if let Some(control) = control {
            needs.add_directory_of("control.socket", control, PathUse::Socket);
        }
        // the scheduler's statistics of threads, for the controller of a pipeline
        needs.add("", PathBuf::from("/proc/self/task"), PathUse::Read);
        // held as the descriptor in reserve
        needs.add("", PathBuf::from("/dev/null"), PathUse::Read);
        needs
    }

    /// Adds a file that is read again when it changes.
    fn add_file(&mut self, key: &'static str, file: &Path) {
        self.add_linked(key, file, PathUse::Read);
    }

    /// Adds a file that may be a link: programs that replace such files often keep them elsewhere.
    fn add_linked(&mut self, key: &'static str, file: &Path, what: PathUse) {
        self.add_directory_of(key, file, what);
        if let Ok(target) = std::fs::canonicalize(file) {
            self.add_directory_of(key, &target, what);
        }
    }

    fn add_directory_of(&mut self, key: &'static str, path: &Path, what: PathUse) {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        self.add(key, directory.to_owned(), what);
    }

    pub(super) fn add(&mut self, key: &'static str, path: PathBuf, what: PathUse) {
        // a missing file cannot be opened either, and its user reports the error
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        let need = NeededPath { key, path, what };
        if !self.paths.iter().any(|known| (&known.path, known.what) == (&need.path, what)) {
            self.paths.push(need);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_applications_can_be_looked_up() {
        let needs = |to: &str| {
            let text = format!("[[proxy]]\npath = \"/\"\nto = \"{to}\"\n");
            let config = forebay_config::parse(&text, "/etc/forebay/forebay.toml").unwrap();
            SandboxNeeds::of(&config, None, None)
        };
        let has_etc = |needs: SandboxNeeds| {
            needs
                .paths
                .iter()
                .any(|need| need.path == Path::new("/etc") && need.what == PathUse::Read)
        };
        assert!(has_etc(needs("http://app.internal")));
        let text = "root = \"/srv/www\"\ntraces.to = \"http://collector.internal:4318\"\n";
        let config = forebay_config::parse(text, "/etc/forebay/forebay.toml").unwrap();
        assert!(has_etc(SandboxNeeds::of(&config, None, None)));
        assert!(!has_etc(needs("http://10.0.0.1")));
    }
}
