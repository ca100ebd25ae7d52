//! Files that were read, with their stamps at that time, so that a change is noticed.

use super::{CertificateError, Owner, Tokens, clients, read};
use crate::certificates::acme;
use crate::identity::Keys;
use forebay_config::{ClientCertificates as ClientFiles, KeyPairs};
use forebay_tls::{Identity, Pair, TicketSealer};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file other than a certificate, and its content.
pub(super) struct HeldFile<T> {
    pub(super) path: PathBuf,
    pub(super) value: Arc<T>,
    /// The function that reads the file.
    pub(super) read: fn(&Path) -> Result<T, CertificateError>,
    /// The stamp of the file when it was read.
    pub(super) stamp: Option<FileStamp>,
}

/// The certificates of a site or of the admin listener.
#[derive(Clone)]
pub(super) struct HeldCertificate {
    pub(super) owner: Owner,
    /// The files of the certificates.
    pub(super) files: CertificateFiles,
    pub(super) identity: Arc<Identity>,
    /// Whether the certificate is self-signed, until ACME has got one.
    pub(super) is_temporary: bool,
    /// When lists of revoked certificates expire, in seconds since 1970.
    pub(super) lists: Vec<(PathBuf, i64)>,
    /// The keys of its session tickets, which outlive a reload.
    pub(super) tickets: Arc<TicketSealer>,
    /// Whether its clients may speak HTTP/2.
    pub(super) with_http2: bool,
    /// The stamps of the files when they were read.
    pub(super) stamps: Stamps,
}

/// The files of one owner.
#[derive(Clone)]
pub(super) struct CertificateFiles {
    pub(super) pairs: KeyPairs,
    pub(super) clients: ClientFiles,
    /// The name that clients' certificates must have; `None` accepts any.
    pub(super) name: Option<String>,
    /// The source of the certificate, if that is ACME; its file is one of the pairs.
    pub(super) acme: Option<acme::CertificateSource>,
}

impl CertificateFiles {
    pub(super) fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.pairs.files().chain(self.clients.files())
    }
}

/// The stamps of files when they were looked at; `None` where a stamp could not be read.
pub type Stamps = Vec<Option<FileStamp>>;

/// The state of a file when it was looked at: another file, or other content, has another stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) size: u64,
    pub(super) modified: (i64, i64),
    pub(super) changed: (i64, i64),
}

impl FileStamp {
    /// The stamp of the file now; `None` if it cannot be read.
    pub fn of(path: &Path) -> Option<FileStamp> {
        let found = fs::metadata(path).ok()?;
        Some(FileStamp {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// The keys of session tickets, and the demands on the clients that have such tickets.
pub(super) struct KnownTickets {
    pub(super) asked: Option<[u8; 32]>,
    pub(super) tickets: Arc<TicketSealer>,
}

impl HeldCertificate {
    /// Reads the files of `owner`. The keys of its session tickets are kept, unless the demands on its
    /// clients have changed: a session does not outlive that.
    pub(super) fn open(
        owner: Owner,
        files: CertificateFiles,
        before: Option<&KnownTickets>,
        with_http2: bool,
    ) -> Result<HeldCertificate, CertificateError> {
        // taken before the files are read, so that a change in between is noticed later
        let stamps = files.all().map(|path| FileStamp::of(path)).collect();
        let (read, is_temporary) = match &files.acme {
            None => (self::pairs(&files.pairs)?, false),
            Some(acme) => match acme.pair() {
                Ok((pair, is_temporary)) => (vec![pair], is_temporary),
                Err(error) => {
                    let (certificate, key) = (acme.file(), acme.file());
                    return Err(CertificateError::Pair { certificate, key, error });
                }
            },
        };
        let (clients, lists) = clients::open(&owner, &files.clients, files.name.as_deref())?;
        let asked = clients.as_ref().map(|clients| clients.stamp());
        let tickets = match before.filter(|before| before.asked == asked) {
            Some(before) => Arc::clone(&before.tickets),
            None => {
                let new = TicketSealer::new();
                Arc::new(new.map_err(|error| CertificateError::Tickets(error.to_string()))?)
            }
        };
        let identity = match Identity::new(read, Arc::clone(&tickets), with_http2, clients) {
            Ok(identity) => Arc::new(identity),
            Err(error) => return Err(CertificateError::Names { owner, error }),
        };
        Ok(HeldCertificate {
            owner,
            files,
            identity,
            is_temporary,
            lists,
            tickets,
            with_http2,
            stamps,
        })
    }

    /// The same certificates, read from their files now.
    pub(super) fn again(&self) -> Result<HeldCertificate, CertificateError> {
        let known = self.known_tickets();
        HeldCertificate::open(self.owner.clone(), self.files.clone(), Some(&known), self.with_http2)
    }

    /// The keys of the session tickets that clients have.
    pub(super) fn known_tickets(&self) -> KnownTickets {
        KnownTickets {
            asked: self.identity.clients().map(|clients| clients.stamp()),
            tickets: Arc::clone(&self.tickets),
        }
    }

    /// The stamps of the files now. A file that cannot be read, or does not exist, keeps its stamp.
    pub(super) fn stamps_now(&self) -> Stamps {
        let known = self.stamps.iter();
        self.files.all().zip(known).map(|(path, known)| FileStamp::of(path).or(*known)).collect()
    }
}

impl<T> HeldFile<T> {
    pub(super) fn open(
        path: &Path,
        read: fn(&Path) -> Result<T, CertificateError>,
    ) -> Result<HeldFile<T>, CertificateError> {
        let stamp = FileStamp::of(path);
        Ok(HeldFile { path: path.to_owned(), value: Arc::new(read(path)?), read, stamp })
    }

    /// The stamp of the file now. A file that cannot be read, or does not exist, keeps its stamp.
    pub(super) fn stamp_now(&self) -> Option<FileStamp> {
        FileStamp::of(&self.path).or(self.stamp)
    }

    /// The same file, read again if it has changed.
    pub(super) fn renewed(
        &self,
        what: &str,
        taken: &mut Vec<String>,
        errors: &mut Vec<CertificateError>,
    ) -> HeldFile<T> {
        if self.stamp_now() != self.stamp {
            match HeldFile::open(&self.path, self.read) {
                Ok(renewed) => {
                    taken.push(format!("the {what} in {:?}", self.path));
                    return renewed;
                }
                Err(error) => errors.push(error),
            }
        }
        self.clone()
    }
}

impl<T> Clone for HeldFile<T> {
    fn clone(&self) -> HeldFile<T> {
        let HeldFile { path, value, read, stamp } = self;
        HeldFile { path: path.clone(), value: Arc::clone(value), read: *read, stamp: *stamp }
    }
}

pub(super) fn read_tokens(path: &Path) -> Result<Tokens, CertificateError> {
    Tokens::open(path).map_err(|error| CertificateError::Token { path: path.to_owned(), error })
}

pub(super) fn read_keys(path: &Path) -> Result<Keys, CertificateError> {
    Keys::open(path).map_err(|error| CertificateError::Keys { path: path.to_owned(), error })
}

/// Certificates with their keys.
///
/// # Errors
/// The first error.
pub fn pairs(files: &KeyPairs) -> Result<Vec<Pair>, CertificateError> {
    let pairs = files.certificates.iter().zip(&files.keys).map(|(certificate, key)| {
        let pair = Pair::read(&read(certificate)?, &read(key)?);
        pair.map_err(|error| {
            let (certificate, key) = (certificate.clone(), key.clone());
            CertificateError::Pair { certificate, key, error }
        })
    });
    pairs.collect()
}
