//! The certificate that all servers show: P-256, made for the run.

use crate::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// The paths of the certificate and its key, beside the folder that is served.
pub fn files(root: &Path) -> (PathBuf, PathBuf) {
    (root.with_file_name("certificate.pem"), root.with_file_name("key.pem"))
}

/// Makes the certificate and its key.
pub fn make(root: &Path) -> Result<(), Error> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]);
    let made =
        made.map_err(|error| Error::Client(format!("cannot make a certificate: {error}")))?;
    let (certificate, key) = files(root);
    let pairs = [(certificate, made.cert.pem()), (key, made.signing_key.serialize_pem())];
    pairs
        .iter()
        .try_for_each(|(path, text)| fs::write(path, text).map_err(Error::io("cannot write", path)))
}
