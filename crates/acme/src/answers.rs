//! The answers to challenges, by which an authority validates that the server controls a name.

use forebay_tls::Proofs;
#[cfg(feature = "acme")]
use instant_acme::ChallengeType;
use std::sync::{Arc, Mutex, PoisonError};

/// The longest token that is accepted, in bytes. Tokens have at least 22 characters, and authorities use 43.
const LONGEST_TOKEN: usize = 256;

/// The kind of challenge by which an authority validates a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeKind {
    /// A request to port 80 (http-01, RFC 8555 §8.3).
    Http,
    /// A handshake on port 443 (tls-alpn-01, RFC 8737).
    TlsAlpn,
    /// A DNS record (dns-01, RFC 8555 §8.4).
    Dns,
    /// A permanent DNS record that the operator has made (dns-persist-01, draft-ietf-acme-dns-persist-01).
    Persist,
}

impl ChallengeKind {
    /// Whether the authority looks up a DNS record, as it does for wildcards.
    pub fn is_by_name_service(self) -> bool {
        matches!(self, ChallengeKind::Dns | ChallengeKind::Persist)
    }

    #[cfg(feature = "acme")]
    pub(crate) fn name(self) -> ChallengeType {
        match self {
            ChallengeKind::Http => ChallengeType::Http01,
            ChallengeKind::TlsAlpn => ChallengeType::TlsAlpn01,
            ChallengeKind::Dns => ChallengeType::Dns01,
            ChallengeKind::Persist => ChallengeType::Unknown("dns-persist-01".to_owned()),
        }
    }
}

/// The answers that requests and handshakes look up. They outlive a reload.
#[derive(Debug, Default)]
pub struct ChallengeAnswers {
    /// The thumbprint of the account's key, once there is an account.
    thumbprint: Mutex<Option<Arc<str>>>,
    /// The certificates for tls-alpn-01 handshakes.
    pub proofs: Arc<Proofs>,
}

impl ChallengeAnswers {
    /// Sets the thumbprint of the account's key (RFC 7638).
    pub(crate) fn is_of(&self, thumbprint: &str) {
        *self.thumbprint.lock().unwrap_or_else(PoisonError::into_inner) = Some(thumbprint.into());
    }

    /// The answer to a request for the challenge with this token (RFC 8555 §8.3). It is made from the token
    /// and the account's thumbprint alone, so every server with the account can give it, whichever has
    /// ordered the certificate. It is of no use to others: only with the account's key can an order be made
    /// with it.
    pub fn to_token(&self, token: &[u8]) -> Option<String> {
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if token.is_empty() || token.len() > LONGEST_TOKEN || !token.iter().all(fits) {
            return None;
        }
        let token = std::str::from_utf8(token).ok()?;
        let thumbprint = self.thumbprint.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(format!("{token}.{thumbprint}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_answered_and_nothing_else() {
        let answers = ChallengeAnswers::default();
        assert_eq!(answers.to_token(b"a-_Z9"), None);
        answers.is_of("thumb");
        assert_eq!(answers.to_token(b"a-_Z9").as_deref(), Some("a-_Z9.thumb"));
        for token in [&b""[..], b"a.b", b"a/b", b"<a>", b"a%20", "\u{e9}".as_bytes(), &[b'a'; 257]]
        {
            assert_eq!(answers.to_token(token), None, "{token:?}");
        }
    }
}
