//! Files for TLS to applications and to stages on other machines: the authorities that must have signed
//! their certificates, and the certificates shown to them.

use super::held::{FileStamp, Stamps};
use super::{CertificateError, NoSystemRoots, Owner, native_roots, read};
use forebay_config::{Config, Role};
use forebay_tls::{Pair, Roots};
use forebay_upstream::settings::UpstreamTlsSettings;
use forebay_upstream::upstreams::UpstreamTlsFiles;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files for some applications, with their stamps when they were read.
#[derive(Clone)]
pub(super) struct HeldUpstreamTls {
    pub(super) settings: UpstreamTlsSettings,
    pub(super) files: Arc<UpstreamTlsFiles>,
    /// The owner whose configuration names the files.
    pub(super) owner: Owner,
    /// When the certificate expires, in seconds since 1970.
    pub(super) not_after_s: Option<i64>,
    pub(super) stamps: Stamps,
}

/// The authorities that the system trusts.
///
/// # Errors
/// [`NoSystemRoots`] if the system trusts none.
pub fn system_roots() -> Result<Roots, NoSystemRoots> {
    native_roots::find().ok_or(NoSystemRoots)
}

/// Reads the files that these settings name.
///
/// # Errors
/// The first error.
pub fn of_upstreams(
    settings: &UpstreamTlsSettings,
) -> Result<(Option<Roots>, Option<Pair>), CertificateError> {
    let roots = match &settings.authorities[..] {
        _ if !settings.verifies => None,
        [] => Some(system_roots().map_err(CertificateError::SystemRoots)?),
        files => {
            let mut text = Vec::new();
            for file in files {
                let bytes = read(file)?;
                let no_roots = || CertificateError::NoAuthority { path: file.clone() };
                Roots::of_pem(&bytes).ok_or_else(no_roots)?;
                text.extend(bytes);
                text.push(b'\n');
            }
            let no_roots = || CertificateError::NoAuthority { path: files[0].clone() };
            Some(Roots::of_pem(&text).ok_or_else(no_roots)?)
        }
    };
    let pair = match &settings.shows {
        None => None,
        Some((certificate, key)) => {
            let pair = Pair::read(&read(certificate)?, &read(key)?);
            Some(pair.map_err(|error| {
                let (certificate, key) = (certificate.clone(), key.clone());
                CertificateError::Pair { certificate, key, error }
            })?)
        }
    };
    Ok((roots, pair))
}

/// The files that the settings name, each as often as it is named.
fn named(settings: &UpstreamTlsSettings) -> impl Iterator<Item = &PathBuf> {
    let shown = settings.shows.iter().flat_map(|(certificate, key)| [certificate, key]);
    settings.authorities.iter().chain(shown)
}

impl HeldUpstreamTls {
    /// The files for all applications, each once, and for stages on other machines; none where this
    /// process asks no application.
    pub(super) fn open_all(config: &Config) -> Result<Vec<HeldUpstreamTls>, CertificateError> {
        let mut all: Vec<HeldUpstreamTls> = Vec::new();
        let role = config.place.as_ref().map(|place| place.role);
        if let Some(settings) = role.and_then(|role| config.isolated.tls_to(role)) {
            all.push(HeldUpstreamTls::open(settings, Owner::Stages)?);
        }
        // the earlier stages hold no keys that they do not use
        if role.is_some_and(|role| role != Role::Respond) {
            return Ok(all);
        }
        for site in &config.sites {
            for (_, _, settings) in site.upstream_tls() {
                if !all.iter().any(|held| held.settings == settings) {
                    let owner = Owner::Applications(site.name().to_string());
                    all.push(HeldUpstreamTls::open(settings, owner)?);
                }
            }
        }
        Ok(all)
    }

    fn open(
        settings: UpstreamTlsSettings,
        owner: Owner,
    ) -> Result<HeldUpstreamTls, CertificateError> {
        // taken before the files are read, so that a change in between is noticed later
        let stamps = named(&settings).map(|path| FileStamp::of(path)).collect();
        let (roots, pair) = of_upstreams(&settings)?;
        let not_after_s = pair.as_ref().map(|pair| pair.not_after_s);
        let files = Arc::new(UpstreamTlsFiles::new(&settings, roots, pair));
        Ok(HeldUpstreamTls { settings, files, owner, not_after_s, stamps })
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        named(&self.settings)
    }

    /// The file of the certificate that is shown.
    pub(super) fn certificate(&self) -> Option<&Path> {
        self.settings.shows.as_ref().map(|(certificate, _)| certificate.as_path())
    }

    /// The stamps of the files now. A file that cannot be read, or does not exist, keeps its stamp.
    pub(super) fn stamps_now(&self) -> Stamps {
        let known = self.stamps.iter();
        self.files().zip(known).map(|(path, known)| FileStamp::of(path).or(*known)).collect()
    }

    /// The same, with the files read again if they have changed.
    pub(super) fn renewed(
        &self,
        taken: &mut Vec<String>,
        errors: &mut Vec<CertificateError>,
    ) -> HeldUpstreamTls {
        // the supervisor checks those of stages
        if self.owner != Owner::Stages && self.stamps_now() != self.stamps {
            match HeldUpstreamTls::open(self.settings.clone(), self.owner.clone()) {
                Ok(renewed) => {
                    if let Owner::Applications(site) = &self.owner {
                        taken.push(format!(
                            "the certificates for applications of the site {site:?}"
                        ));
                    }
                    return renewed;
                }
                Err(error) => errors.push(error),
            }
        }
        self.clone()
    }
}
