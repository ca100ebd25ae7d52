//! Whether clients or servers would trust a certificate of this server's own, before it is shown.

use super::TlsRefusal;
use crate::pair::Pair;
use crate::provider::provider;
use crate::roots::Roots;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::UnixTime;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, Error};
use std::sync::Arc;

impl Roots {
    /// Verifies that an authority among these has signed the certificate, for a server or for a
    /// client, and that it is valid today. Names are not compared.
    ///
    /// # Errors
    /// The reason why the certificate would not be trusted.
    pub fn believe(&self, pair: &Pair, is_server: bool) -> Result<(), TlsRefusal> {
        self.look_at(pair, is_server).map_err(TlsRefusal::of)
    }

    fn look_at(&self, pair: &Pair, is_server: bool) -> Result<(), Error> {
        let (own, others) = pair.key.cert.split_first().ok_or(CertificateError::BadEncoding)?;
        let (now, provider) = (UnixTime::now(), provider());
        if is_server {
            let (own, known) = (ParsedCertificate::try_from(own)?, &self.store);
            let algorithms = provider.signature_verification_algorithms.all;
            return verify_server_cert_signed_by_trust_anchor(&own, known, others, now, algorithms);
        }
        let built = WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.store), provider);
        let built = built.build().map_err(|error| Error::General(error.to_string()))?;
        built.verify_client_cert(own, others, now).map(drop)
    }
}
