//! `forebay stages keys`: certificates and keys for stages on several machines. A private authority signs a
//! certificate for each stage, which limits what the stage may be: receive a client, respond a server,
//! process both.
//!
//! A second run makes new certificates of the same authority. Servers take them over while they run, and
//! trust old and new ones alike, so that machines need not change at the same time.

use crate::local_certificate::write;
use forebay_config::{Role, StageKeyFiles, stage_name};
use forebay_tls::{Pair, Roots};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The lifetime of the authority, in days; its own certificate is replaced by hand.
const AUTHORITY_DAYS: u32 = 3650;

/// Commands about stages.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum StagesCommand {
    /// Make certificates and keys for stages on several machines (isolated.keys), or new ones of the same authority
    Keys(StageKeysArgs),
}

/// Options of `stages keys`.
#[derive(Debug, clap::Args)]
pub(crate) struct StageKeysArgs {
    /// The directory; it is made if it is not there
    pub(crate) dir: PathBuf,
    /// For how many days the certificates of stages are good
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) days: u32,
}

/// The reason why there are no keys.
#[derive(Debug)]
pub(crate) enum StageKeysError {
    /// A file or directory cannot be read or written.
    File(PathBuf, io::Error),
    /// The key of the authority is missing beside its certificate.
    NoAuthorityKey(PathBuf),
    /// Key and certificate of the authority do not belong together: a signature of the key is not valid.
    OtherAuthority {
        /// The authority's key.
        key: PathBuf,
        /// The authority's certificate.
        certificate: PathBuf,
    },
    /// Keys or certificates cannot be made.
    Making(rcgen::Error),
}

impl fmt::Display for StageKeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StageKeysError::File(path, error) => write!(f, "{}: {error}", path.display()),
            StageKeysError::NoAuthorityKey(path) => write!(
                f,
                "{} is not there, beside the certificate of the authority: run this where the authority was made, \
                 and copy the files of stages from there",
                path.display()
            ),
            StageKeysError::OtherAuthority { key, certificate } => write!(
                f,
                "{} is not the key of the authority in {}: who trusts that would not believe the certificates of \
                 stages; nothing was written",
                key.display(),
                certificate.display()
            ),
            StageKeysError::Making(error) => write!(f, "the keys cannot be made: {error}"),
        }
    }
}

/// Makes keys and certificates, and returns the message about them.
///
/// # Errors
/// See [`StageKeysError`].
pub(crate) fn make(args: &StageKeysArgs) -> Result<String, StageKeysError> {
    let StageKeysArgs { dir, days } = args;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| StageKeysError::File(path, error)
    };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed(dir))?;
    let (certificate, key) = (dir.join("ca.pem"), dir.join("ca.key"));
    let now = SystemTime::now();
    let (authority, is_new) = match (certificate.exists(), fs::read_to_string(&key)) {
        (_, Ok(text)) => (KeyPair::from_pem(&text).map_err(StageKeysError::Making)?, false),
        (false, Err(error)) if error.kind() == io::ErrorKind::NotFound => (new_key()?, true),
        (true, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Err(StageKeysError::NoAuthorityKey(key));
        }
        (_, Err(error)) => return Err(StageKeysError::File(key, error)),
    };
    let params = authority_params(now);
    if is_new || !certificate.exists() {
        let own = params.self_signed(&authority).map_err(StageKeysError::Making)?;
        write(&key, &authority.serialize_pem(), 0o600).map_err(failed(&key))?;
        write(&certificate, &own.pem(), 0o644).map_err(failed(&certificate))?;
    }
    let issuer = Issuer::new(params, authority);
    let trusted = Roots::of_pem(&fs::read(&certificate).map_err(failed(&certificate))?);
    let authority_key = key;
    for role in Role::ALL {
        let files = StageKeyFiles::within(dir, role);
        let key = new_key()?;
        let signed = stage_params(role, now, *days)?.signed_by(&key, &issuer);
        let signed = signed.map_err(StageKeysError::Making)?;
        let pair = Pair::read(signed.pem().as_bytes(), key.serialize_pem().as_bytes()).ok();
        let is_believed = trusted
            .as_ref()
            .zip(pair)
            .is_some_and(|(trusted, pair)| trusted.believe(&pair, role != Role::Receive).is_ok());
        if !is_believed {
            let (key, certificate) = (authority_key, certificate);
            return Err(StageKeysError::OtherAuthority { key, certificate });
        }
        // a server that reads both between the two writes sees that they do not match, and reads them again
        write(&files.key, &key.serialize_pem(), 0o600).map_err(failed(&files.key))?;
        write(&files.certificate, &signed.pem(), 0o644).map_err(failed(&files.certificate))?;
    }
    Ok(words(dir, *days, is_new))
}

fn words(dir: &Path, days: u32, is_new: bool) -> String {
    let dir = dir.display();
    let made = match is_new {
        true => format!("made an authority, {dir}/ca.pem, and certificates of it"),
        false => format!("made new certificates of the authority {dir}/ca.pem"),
    };
    format!(
        "{made}, good for {days} days:\n  \
         receive.pem, receive.key  for machines that accept clients\n  \
         process.pem, process.key  for machines with isolated.process_listen, or that ask respond elsewhere\n  \
         respond.pem, respond.key  for machines with isolated.respond_listen\n\
         Each machine needs ca.pem and the files of its stages, in the directory that isolated.keys names there. \
         ca.key stays here.\n"
    )
}

fn new_key() -> Result<KeyPair, StageKeysError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(StageKeysError::Making)
}

/// The parameters of the authority's own certificate: the same in each run, except the times.
fn authority_params(now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("Forebay, authority of stages");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    good_for(&mut params, now, AUTHORITY_DAYS);
    params
}

fn stage_params(
    role: Role,
    now: SystemTime,
    days: u32,
) -> Result<CertificateParams, StageKeysError> {
    let mut params = CertificateParams::new([stage_name(role)]).map_err(StageKeysError::Making)?;
    params.distinguished_name = named(&format!("Forebay, stage {role}"));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = match role {
        Role::Receive => vec![ExtendedKeyUsagePurpose::ClientAuth],
        Role::Process => {
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]
        }
        Role::Respond => vec![ExtendedKeyUsagePurpose::ServerAuth],
    };
    params.use_authority_key_identifier_extension = true;
    good_for(&mut params, now, days);
    Ok(params)
}

fn named(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}

fn good_for(params: &mut CertificateParams, now: SystemTime, days: u32) {
    // a day earlier, because clocks of other machines may be slow
    params.not_before = (now - DAY).into();
    params.not_after = (now + days * DAY).into();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says so by panicking")]

    use super::*;
    use forebay_tls::Pair;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn each_stage_has_its_own_and_a_second_run_keeps_the_authority() {
        let dir = std::env::temp_dir().join(format!("forebay-keys-{}", std::process::id()));
        let args = StageKeysArgs { dir: dir.clone(), days: 30 };
        let said = make(&args).unwrap();
        assert!(said.starts_with("made an authority"), "{said}");
        let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
        let before = (read("ca.pem"), read("process.pem"));
        for role in Role::ALL {
            let files = StageKeyFiles::within(&dir, role);
            let pair =
                Pair::read(&fs::read(&files.certificate).unwrap(), &fs::read(&files.key).unwrap());
            assert_eq!(pair.unwrap().names, [stage_name(role)]);
            let mode = fs::metadata(&files.key).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600);
        }
        assert!(make(&args).unwrap().starts_with("made new certificates"));
        assert_eq!(read("ca.pem"), before.0);
        assert_ne!(read("process.pem"), before.1);
        let written = read("process.pem");
        fs::write(dir.join("ca.key"), new_key().unwrap().serialize_pem()).unwrap();
        assert!(matches!(make(&args), Err(StageKeysError::OtherAuthority { .. })));
        assert_eq!(read("process.pem"), written);
        fs::remove_file(dir.join("ca.key")).unwrap();
        assert!(matches!(make(&args), Err(StageKeysError::NoAuthorityKey(_))));
        fs::remove_dir_all(&dir).unwrap();
    }
}
