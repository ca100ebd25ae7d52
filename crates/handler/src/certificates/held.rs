//! Files that were read, with what they were then, so that a change is noticed.

use super::{CertificateError, Owner, Tokens, clients, read};
use crate::certificates::acme;
use crate::identity::Keys;
use forebay_config::{ClientCertificates as ClientFiles, KeyPairs};
use forebay_tls::{Identity, Pair, TicketSealer};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that is no certificate, and what is in it.
pub(super) struct HeldFile<T> {
    pub(super) path: PathBuf,
    pub(super) value: Arc<T>,
    /// How it is read.
    pub(super) read: fn(&Path) -> Result<T, CertificateError>,
    /// What the file was when it was read.
    pub(super) stamp: Option<FileStamp>,
}

/// The certificates of a site or of the admin listener.
#[derive(Clone)]
pub(super) struct HeldCertificate {
    pub(super) owner: Owner,
    /// Its files.
    pub(super) files: CertificateFiles,
    pub(super) identity: Arc<Identity>,
    /// Its certificate is self-signed, until ACME has got one.
    pub(super) is_temporary: bool,
    /// When lists of revoked certificates expire, in seconds since 1970.
    pub(super) lists: Vec<(PathBuf, i64)>,
    /// What seals its tickets: it outlives a reload.
    pub(super) tickets: Arc<TicketSealer>,
    /// Whether its clients may speak HTTP/2.
    pub(super) with_http2: bool,
    /// What its files were when they were read.
    pub(super) stamps: Stamps,
}

/// The files of one owner.
#[derive(Clone)]
pub(super) struct CertificateFiles {
    pub(super) pairs: KeyPairs,
    pub(super) clients: ClientFiles,
    /// The name that certificates of clients must have; any is good without.
    pub(super) name: Option<String>,
    /// Where its certificate comes from, if that is by ACME; its file is one of the pairs.
    pub(super) acme: Option<acme::CertificateSource>,
}

impl CertificateFiles {
    pub(super) fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.pairs.files().chain(self.clients.files())
    }
}

/// What files were when looked at; `None` where that could not be told.
pub type Stamps = Vec<Option<FileStamp>>;

/// What a file was when looked at: another one, or another content, has another stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) size: u64,
    pub(super) modified: (i64, i64),
    pub(super) changed: (i64, i64),
}

impl FileStamp {
    /// What the file is now; `None` if that cannot be told.
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

/// What opens tickets, and what was asked of the clients that have them.
pub(super) struct KnownTickets {
    pub(super) asked: Option<[u8; 32]>,
    pub(super) tickets: Arc<TicketSealer>,
}

impl HeldCertificate {
    /// Reads the files of `owner`. What sealed its tickets before does so again, unless other things are asked of
    /// its clients now: a session does not outlive that.
    pub(super) fn open(
        owner: Owner,
        files: CertificateFiles,
        before: Option<&KnownTickets>,
        with_http2: bool,
    ) -> Result<HeldCertificate, CertificateError> {
        // before they are read: what changes meanwhile is noticed afterwards
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

    /// The same, with what its files are now.
    pub(super) fn again(&self) -> Result<HeldCertificate, CertificateError> {
        let known = self.known_tickets();
        HeldCertificate::open(self.owner.clone(), self.files.clone(), Some(&known), self.with_http2)
    }

    /// What opens the tickets that its clients have.
    pub(super) fn known_tickets(&self) -> KnownTickets {
        KnownTickets {
            asked: self.identity.clients().map(|clients| clients.stamp()),
            tickets: Arc::clone(&self.tickets),
        }
    }

    /// What its files are now. One that cannot be looked at, or is not there, is what it was.
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

    /// What its file is now. One that cannot be looked at, or is not there, is what it was.
    pub(super) fn stamp_now(&self) -> Option<FileStamp> {
        FileStamp::of(&self.path).or(self.stamp)
    }

    /// The same, with what is in its file now if that has changed.
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
/// The first thing that is wrong.
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
