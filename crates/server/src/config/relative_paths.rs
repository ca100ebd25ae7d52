//! Relative paths of a configuration, which are relative to the directory of its file.

use super::draft::ConfigDraft;
use super::upstreams;
use super::{
    AccessLog, AcmeConfig, AdminConfig, ClientCertificates, ControlSocketChoice, ForwardAuth,
    KeyPairs, Listen, ProxyConfig,
};
use std::path::{Component, Path, PathBuf};

/// The same place without `..`: php-fpm runs nothing whose path has it. Symbolic links stay, so that one which is
/// set to another place leads there at once, unless the way up depends on where one leads. A place that is not
/// here, but where an application is, is taken by its name.
pub(super) fn without_parents(path: PathBuf) -> PathBuf {
    if !path.components().any(|part| part == Component::ParentDir) {
        return path;
    }
    let mut place = PathBuf::new();
    for part in std::path::absolute(&path).unwrap_or(path).components() {
        match part {
            Component::ParentDir => {
                place = place.canonicalize().unwrap_or(place);
                place.pop();
            }
            part => place.push(part),
        }
    }
    place
}

impl ConfigDraft {
    /// Makes relative paths relative to `directory`.
    pub fn rebase(&mut self, directory: &Path) {
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
                alias.to = without_parents(std::mem::take(&mut alias.to));
            }
            let proxied = site.proxies.iter_mut().flat_map(ProxyConfig::to_mut);
            let asked = site.authorities.iter_mut().flat_map(ForwardAuth::to_mut);
            proxied.chain(asked).for_each(|to| upstreams::rebase(&mut to.0, &join));
            site.fastcgi.iter_mut().for_each(|fastcgi| fastcgi.rebase(&join));
            site.auth.iter_mut().filter_map(|rule| rule.file.as_mut()).for_each(join);
            if let AccessLog::File(path) = &mut site.log.access {
                join(path);
            }
        }
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
        self.process.isolated.rebase(&join);
        self.process.pipeline.calibration.iter_mut().for_each(join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_up_are_gone_and_links_stay() {
        for (path, expected) in [
            ("/nowhere/app/../public", "/nowhere/public"),
            ("/nowhere/../../public", "/public"),
            ("/nowhere/public/..", "/nowhere"),
            ("/nowhere/public", "/nowhere/public"),
            // a link, and the way up from where it leads
            ("/proc/self/exe", "/proc/self/exe"),
            ("/proc/self/root/../exe", "/exe"),
            ("/..", "/"),
        ] {
            assert_eq!(without_parents(path.into()), Path::new(expected), "{path}");
        }
    }
}
