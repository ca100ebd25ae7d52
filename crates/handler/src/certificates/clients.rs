//! The demands of sites on their clients: authorities and lists of revoked certificates are read here.

use super::{CertificateError, Owner, read};
use forebay_config::{AskClients, ClientCertificates as ClientFiles};
use forebay_tls::{Authorities, ClientAuth, ClientVerification, Revoked};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The demands on clients, and when each list of revoked certificates expires.
type ClientDemand = (Option<Arc<ClientVerification>>, Vec<(PathBuf, i64)>);

/// Reads the demands of `owner` on its clients: certificates with this name, or with any.
pub(super) fn open(
    owner: &Owner,
    files: &ClientFiles,
    name: Option<&str>,
) -> Result<ClientDemand, CertificateError> {
    let asked = match files.asked {
        AskClients::Off => return Ok((None, Vec::new())),
        AskClients::Optional => ClientAuth::Optional,
        AskClients::Required => ClientAuth::Required,
    };
    let authorities: Vec<Authorities> =
        files.authorities.iter().map(|path| authorities(path)).collect::<Result<_, _>>()?;
    let revoked: Vec<Revoked> =
        files.revoked.iter().map(|path| revoked(path)).collect::<Result<_, _>>()?;
    let clients =
        ClientVerification::new(asked, &authorities, &revoked).and_then(|all| match name {
            Some(name) => all.of_name(name),
            None => Ok(all),
        });
    let clients =
        clients.map_err(|error| CertificateError::Clients { owner: owner.clone(), error })?;
    let until = |(path, lists): (&PathBuf, &Revoked)| Some((path.clone(), lists.until_s()?));
    let lists = files.revoked.iter().zip(&revoked).filter_map(until).collect();
    Ok((Some(Arc::new(clients)), lists))
}

/// The authorities in a file.
///
/// # Errors
/// An error in the file.
pub fn authorities(path: &Path) -> Result<Authorities, CertificateError> {
    let wrong = |error| CertificateError::ClientFile { path: path.to_owned(), error };
    Authorities::read(&read(path)?).map_err(wrong)
}

/// The lists of revoked certificates in a file.
///
/// # Errors
/// An error in the file.
pub fn revoked(path: &Path) -> Result<Revoked, CertificateError> {
    let wrong = |error| CertificateError::ClientFile { path: path.to_owned(), error };
    Revoked::read(&read(path)?).map_err(wrong)
}
