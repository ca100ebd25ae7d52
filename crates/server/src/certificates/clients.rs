//! What sites ask of their clients: the authorities and lists are read here, and it is kept which site asks
//! for what.

use super::{CertificateError, HeldCertificate, Owner, read};
use crate::config::{AskClients, ClientCertificates as ClientFiles, Config};
use forebay_conn::peer::ClientPolicy;
use forebay_tls::{Authorities, ClientAuth, ClientVerification, Revoked};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is asked of the clients of a site.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// What they are asked for on a connection of the site; `None` within if that is nothing, and without if
    /// the site has no certificate, so that it has no connections of its own.
    pub(super) policy: Option<Option<ClientPolicy>>,
    /// It is not served without TLS, nor are its clients led there.
    pub(super) only_tls: bool,
}

/// What is asked of the clients of each site; nothing if no site asks for anything.
pub(super) fn demands(config: &Config, with_pairs: &[HeldCertificate]) -> Vec<Demand> {
    if with_pairs.iter().all(|held| held.identity.clients().is_none()) {
        return Vec::new();
    }
    let mut endpoints = config.listeners.iter().flat_map(|listener| &listener.listen);
    let speaks_tls = endpoints.any(|endpoint| endpoint.tls);
    let mut with_pairs = with_pairs.iter();
    let demands = config.sites.iter().map(|site| {
        let held = if site.has_certificate() { with_pairs.next() } else { None };
        let is_redirected = speaks_tls && site.tls.redirect.0.is_some();
        Demand {
            policy: held.map(|held| held.identity.policy()),
            only_tls: site.tls.clients.asked == AskClients::Required && !is_redirected,
        }
    });
    demands.collect()
}

/// What clients are asked for, and when each list of revoked certificates expires.
type Wanted = (Option<Arc<ClientVerification>>, Vec<(PathBuf, i64)>);

/// What `owner` asks of its clients.
pub(super) fn open(owner: &Owner, files: &ClientFiles) -> Result<Wanted, CertificateError> {
    let asked = match files.asked {
        AskClients::Off => return Ok((None, Vec::new())),
        AskClients::Optional => ClientAuth::Optional,
        AskClients::Required => ClientAuth::Required,
    };
    let authorities: Vec<Authorities> =
        files.authorities.iter().map(|path| authorities(path)).collect::<Result<_, _>>()?;
    let revoked: Vec<Revoked> =
        files.revoked.iter().map(|path| revoked(path)).collect::<Result<_, _>>()?;
    let clients = ClientVerification::new(asked, &authorities, &revoked)
        .map_err(|error| CertificateError::Clients { owner: owner.clone(), error })?;
    let until = |(path, lists): (&PathBuf, &Revoked)| Some((path.clone(), lists.until_s()?));
    let lists = files.revoked.iter().zip(&revoked).filter_map(until).collect();
    Ok((Some(Arc::new(clients)), lists))
}

/// The authorities in a file.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn authorities(path: &Path) -> Result<Authorities, CertificateError> {
    let wrong = |error| CertificateError::ClientFile { path: path.to_owned(), error };
    Authorities::read(&read(path)?).map_err(wrong)
}

/// The lists of revoked certificates in a file.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn revoked(path: &Path) -> Result<Revoked, CertificateError> {
    let wrong = |error| CertificateError::ClientFile { path: path.to_owned(), error };
    Revoked::read(&read(path)?).map_err(wrong)
}
