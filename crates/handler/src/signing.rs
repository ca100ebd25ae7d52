//! Signatures of texts by HMAC-SHA256 (RFC 2104): for cookies of identities and of the admin listener's
//! page.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A key that signs texts.
#[derive(Clone)]
pub(crate) struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// The key with these bytes.
    pub(crate) fn new(key: &[u8]) -> SigningKey {
        SigningKey(Hmac::new_from_slice(key).expect("a key of HMAC may have any length"))
    }

    /// The signature of this text.
    pub(crate) fn sign(&self, text: &[u8]) -> [u8; 32] {
        self.0.clone().chain_update(text).finalize().into_bytes().into()
    }

    /// Whether this is the signature of the text. The time of the comparison reveals nothing about the
    /// right one.
    pub(crate) fn has_signed(&self, text: &[u8], signature: &[u8]) -> bool {
        self.0.clone().chain_update(text).verify_slice(signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231 §4.3
    #[test]
    fn a_text_has_one_signature() {
        let key = SigningKey::new(b"Jefe");
        let signature = key.sign(b"what do ya want for nothing?");
        let known = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let hex: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, known);
        assert!(key.has_signed(b"what do ya want for nothing?", &signature));
        assert!(!key.has_signed(b"what do ya want for something?", &signature));
        assert!(!key.has_signed(b"what do ya want for nothing?", &signature[..31]));
        let other = SigningKey::new(b"jefe");
        assert!(!other.has_signed(b"what do ya want for nothing?", &signature));
    }
}
