//! Makes relative paths of a configuration relative to the directory of its file.

use crate::reading::draft::ConfigDraft;
use crate::sections::upstreams;
use crate::{
    AccessLog, AcmeConfig, AdminConfig, ClientCertificates, ControlSocketChoice, ForwardAuth,
    KeyPairs, Listen,
};
use std::path::{Path, PathBuf};

impl ConfigDraft {
    /// Makes relative paths relative to `directory`; `place` turns one with `..` into one without.
    pub fn rebase(&mut self, directory: &Path, place: fn(PathBuf) -> PathBuf) {
        // taking a path apart leaves out each "." within it
        let join = |path: &mut PathBuf| *path = directory.join(&*path).components().collect();
        for site in std::iter::once(&mut self.site).chain(&mut self.sites) {
            site.root.iter_mut().for_each(join);
            let KeyPairs { certificates, keys } = &mut site.tls.pairs;
            certificates.iter_mut().chain(keys).for_each(join);
            let ClientCertificates { authorities, revoked, .. } = &mut site.tls.clients;
            authorities.iter_mut().chain(revoked).for_each(join);
            for alias in &mut site.aliases {
                join(&mut alias.to);
                alias.to = place(std::mem::take(&mut alias.to));
            }
            site.proxies.iter_mut().for_each(|proxy| proxy.rebase(&join));
            let asked = site.authorities.iter_mut().flat_map(ForwardAuth::to_mut);
            asked.for_each(|to| upstreams::rebase(&mut to.0.address, &join));
            site.authorities.iter_mut().for_each(|authority| authority.tls_mut().rebase(&join));
            site.fastcgi.iter_mut().for_each(|fastcgi| fastcgi.rebase(&join));
            site.hand_overs.iter_mut().for_each(|one| one.rebase(&join));
            site.cgi.iter_mut().for_each(|cgi| cgi.rebase(&join));
            site.auth.iter_mut().filter_map(|rule| rule.file.as_mut()).for_each(join);
            if let AccessLog::File(path) = &mut site.log.access {
                join(path);
            }
        }
        self.tcp.iter_mut().for_each(|tcp| tcp.rebase(&join));
        for listener in std::iter::once(&mut self.listener).chain(&mut self.listeners) {
            for endpoint in &mut listener.listen {
                if let Listen::Unix(at) = &mut endpoint.listen {
                    at.path_mut().into_iter().for_each(join);
                }
            }
        }
        let AdminConfig { listen, token_file, pairs: KeyPairs { certificates, keys }, .. } =
            &mut self.process.admin;
        for endpoint in &mut listen.0 {
            if let Listen::Unix(at) = &mut endpoint.listen {
                at.path_mut().into_iter().for_each(join);
            }
        }
        let identity = &mut self.process.identity.keys;
        certificates.iter_mut().chain(keys).chain(token_file).chain(identity).for_each(join);
        if let ControlSocketChoice::At(path) = &mut self.process.control.socket {
            join(path);
        }
        let AcmeConfig { storage, ca, .. } = &mut self.process.acme;
        storage.iter_mut().chain(ca).for_each(join);
        self.process.sandbox.read.iter_mut().for_each(join);
        self.process.ban_files.iter_mut().for_each(join);
        self.process.spool_dir.iter_mut().for_each(join);
        self.process.isolated.rebase(&join);
        self.process.pipeline.calibration.iter_mut().for_each(join);
    }
}
