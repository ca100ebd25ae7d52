//! The certificate of `forebay serve --tls`: made on this machine when it is first needed, and kept, so that
//! its user has to trust it only once.
//!
//! The certificate is for this server alone and signs nothing else: a client that trusts it trusts no other
//! certificate thereby.

use forebay_tls::Pair;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rcgen::{KeyUsagePurpose, PKCS_ECDSA_P256_SHA256};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fmt, process};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// The lifetime of a certificate: browsers reject one that is valid for more than 398 days.
const GOOD_FOR: Duration = Duration::from_secs(397 * 24 * 3600);
/// The time before its end at which a certificate is replaced.
const RENEWED_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);

/// A certificate and its key.
#[derive(Debug)]
pub(crate) struct LocalCertificate {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// The hosts of the certificate.
    hosts: Vec<String>,
    /// Whether the certificate was made just now.
    is_new: bool,
}

/// The reason why there is no certificate.
#[derive(Debug)]
pub(crate) enum LocalError {
    /// No environment variable names a directory for it.
    NoHome,
    /// A file or directory cannot be read or written.
    File(PathBuf, io::Error),
    /// The certificate cannot be made.
    Making(rcgen::Error),
}

impl fmt::Display for LocalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocalError::NoHome => f.write_str(
                "--tls keeps its certificate in $XDG_DATA_HOME/forebay or \
                 $HOME/.local/share/forebay, and neither variable is set",
            ),
            LocalError::File(path, error) => {
                write!(f, "the certificate of --tls: {}: {error}", path.display())
            }
            LocalError::Making(error) => write!(f, "the certificate of --tls: {error}"),
        }
    }
}

impl LocalCertificate {
    /// The kept certificate, if it is valid for all these hosts and long enough; otherwise a new one.
    ///
    /// # Errors
    /// See [`LocalError`].
    pub(crate) fn prepare(hosts: &[String]) -> Result<LocalCertificate, LocalError> {
        let directory = directory(|name| env::var_os(name)).ok_or(LocalError::NoHome)?;
        LocalCertificate::within(&directory, hosts, SystemTime::now())
    }

    fn within(
        directory: &Path,
        hosts: &[String],
        now: SystemTime,
    ) -> Result<LocalCertificate, LocalError> {
        let certificate = directory.join("local.crt");
        let key = directory.join("local.key");
        let kept = kept(&certificate, &key).map(|mut pair| {
            // without the brackets that IPv6 addresses have in URLs
            pair.names
                .iter_mut()
                .for_each(|name| name.retain(|letter| !matches!(letter, '[' | ']')));
            pair
        });
        let good_until = now + RENEWED_BEFORE;
        let is_good = |pair: &Pair| {
            let not_after = Duration::from_secs(pair.not_after_s.max(0).unsigned_abs());
            UNIX_EPOCH + not_after > good_until
                && hosts.iter().all(|host| pair.names.contains(host))
        };
        let mut hosts = hosts.to_vec();
        let is_new = !kept.as_ref().is_some_and(is_good);
        if let Some(pair) = kept {
            // hosts of an earlier start stay in the certificate
            let others = pair.names.into_iter().filter(|name| !hosts.contains(name));
            hosts.extend(others.collect::<Vec<_>>());
        }
        if is_new {
            let (certificate_text, key_text) = make(&hosts, now).map_err(LocalError::Making)?;
            let wrong = |path: &Path| {
                let path = path.to_owned();
                move |error| LocalError::File(path, error)
            };
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .map_err(wrong(directory))?;
            write(&key, &key_text, 0o600).map_err(wrong(&key))?;
            write(&certificate, &certificate_text, 0o644).map_err(wrong(&certificate))?;
        }
        Ok(LocalCertificate { certificate, key, hosts, is_new })
    }

    /// The message about the certificate.
    pub(crate) fn words(&self) -> String {
        let (path, hosts) = (self.certificate.display(), self.hosts.join(", "));
        if !self.is_new {
            return format!("forebay serve: the certificate is {path}, for {hosts}");
        }
        format!(
            "forebay serve: made a certificate for {hosts}: {path}\n\
             Browsers do not know it, and ask before they show the site. To trust it on this machine:\n  \
             curl      curl --cacert {path} https://localhost:PORT/\n  \
             Chromium  certutil -d sql:$HOME/.pki/nssdb -A -t P,, -n forebay -i {path}   (libnss3-tools)\n  \
             Firefox   Settings, Certificates, View Certificates, Servers, Add Exception\n  \
             Debian    sudo cp {path} /usr/local/share/ca-certificates/forebay.crt && sudo update-ca-certificates"
        )
    }
}

/// The directory of the certificate.
fn directory(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    // a relative path must be ignored (XDG Base Directory Specification)
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(absolute("HOME")?.join(".local/share"));
    Some(absolute("XDG_DATA_HOME").or_else(home)?.join("forebay"))
}

/// The hosts of a certificate for this machine: its names, and the addresses that clients use.
pub(crate) fn hosts(addresses: impl Iterator<Item = std::net::IpAddr>) -> Vec<String> {
    let mut hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim().to_ascii_lowercase();
    let is_host = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
    };
    let names = Some(name).filter(|name| !name.is_empty() && is_host(name));
    let addresses = addresses.filter(|address| !address.is_unspecified());
    for host in names.into_iter().chain(addresses.map(|address| address.to_string())) {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

/// The kept pair of certificate and key, if it can be used.
fn kept(certificate: &Path, key: &Path) -> Option<Pair> {
    Pair::read(&fs::read(certificate).ok()?, &fs::read(key).ok()?).ok()
}

/// A certificate and its key, in PEM.
fn make(hosts: &[String], now: SystemTime) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = CertificateParams::new(hosts)?;
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, "forebay serve --tls on this machine");
    params.distinguished_name = name;
    // a day earlier, because clients' clocks may be slow
    params.not_before = (now - DAY).into();
    params.not_after = (now + GOOD_FOR - DAY).into();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// Writes a file atomically: readers see the old content or the new.
pub(crate) fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let new = path.with_extension(format!("{}.new", process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    let result = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&new, path));
    if result.is_err() {
        // an error here is ignored: `result` has the first one
        let _ = fs::remove_file(&new);
    }
    result
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says so by panicking")]

    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn hosts_of(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn it_is_kept_while_it_is_good() {
        let directory = env::temp_dir().join(format!("forebay-local-{}", process::id()));
        let prepare = |hosts: &[&str], now| {
            LocalCertificate::within(&directory, &hosts_of(hosts), now).unwrap()
        };
        let now = SystemTime::now();
        let first = prepare(&["localhost", "::1"], now);
        assert!(first.is_new && first.words().contains("update-ca-certificates"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&first.key), mode(&directory)), (0o600, 0o700));
        let text = || fs::read(&first.certificate).unwrap();
        let before = text();

        let again = prepare(&["localhost"], now);
        assert!(!again.is_new && text() == before);
        assert_eq!(again.hosts, ["localhost", "::1"]);
        // replaced for another host, when it is old, with a key of another certificate, and when it is broken
        let more = prepare(&["192.0.2.1"], now);
        assert!(more.is_new && text() != before);
        assert_eq!(more.hosts, ["192.0.2.1", "localhost", "::1"]);
        let late = now + GOOD_FOR - RENEWED_BEFORE;
        assert!(prepare(&["localhost"], late).is_new && !prepare(&["localhost"], late).is_new);
        let key = fs::read(&more.key).unwrap();
        assert!(prepare(&["a.example"], now).is_new);
        fs::write(&more.key, key).unwrap();
        assert!(prepare(&["localhost"], now).is_new);
        fs::write(&more.certificate, "").unwrap();
        assert!(prepare(&["localhost"], now).is_new);
        assert!(kept(&more.certificate, &more.key).is_some());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn it_is_kept_where_data_of_programs_is() {
        let of = |data: &str, home: &str| {
            directory(|name| Some(if name == "HOME" { home } else { data }.into()))
        };
        assert_eq!(of("/d", "/h").unwrap(), Path::new("/d/forebay"));
        assert_eq!(of("d", "/h").unwrap(), Path::new("/h/.local/share/forebay"));
        assert_eq!(of("", ""), None);
        assert_eq!(directory(|_| None), None);
    }

    #[test]
    fn it_is_for_this_machine() {
        let address = |text: &str| text.parse().unwrap();
        let found = hosts(["127.0.0.1", "0.0.0.0", "192.0.2.7", "::"].map(address).into_iter());
        assert_eq!(found[..3], ["localhost", "127.0.0.1", "::1"]);
        assert_eq!(found.last().unwrap(), "192.0.2.7");
        assert!(!found.iter().any(|host| host == "0.0.0.0" || host == "::"));
    }
}
