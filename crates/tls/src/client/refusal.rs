//! The reason why a connection goes no further, and whose fault that is.

use crate::fault::TlsFault;
use rustls::{AlertDescription, CertificateError, Error};
use std::fmt;

/// The reason why a connection goes no further.
#[derive(Debug)]
pub struct TlsRefusal(Error);

impl TlsRefusal {
    pub(crate) fn of(error: Error) -> TlsRefusal {
        TlsRefusal(error)
    }

    /// The kind of fault, in one word.
    pub fn fault(&self) -> TlsFault {
        use CertificateError as Of;
        match &self.0 {
            Error::AlertReceived(alert) => of_alert(*alert),
            Error::InvalidCertificate(of) => match of {
                Of::Expired | Of::ExpiredContext { .. } => TlsFault::Expired,
                Of::NotValidYet | Of::NotValidYetContext { .. } => TlsFault::NotYetValid,
                Of::NotValidForName | Of::NotValidForNameContext { .. } => TlsFault::Name,
                // an authority with the same name, and another key
                Of::UnknownIssuer | Of::BadSignature => TlsFault::Issuer,
                // "openssl req -x509" makes certificates that only their own key has signed
                Of::Other(other) if other.to_string() == "CaUsedAsEndEntity" => TlsFault::Issuer,
                _ => TlsFault::Certificate,
            },
            Error::NoCertificatesPresented => TlsFault::Certificate,
            Error::InvalidMessage(_) => TlsFault::NotTls,
            Error::PeerIncompatible(_) => TlsFault::Unsupported,
            _ => TlsFault::Rules,
        }
    }

    /// Whether the server has refused, by an alert.
    pub fn is_by_server(&self) -> bool {
        matches!(self.0, Error::AlertReceived(_))
    }
}

/// The fault that an alert reports.
fn of_alert(alert: AlertDescription) -> TlsFault {
    use AlertDescription as Of;
    match alert {
        Of::ProtocolVersion | Of::HandshakeFailure | Of::InsufficientSecurity => {
            TlsFault::Unsupported
        }
        Of::BadCertificate
        | Of::UnsupportedCertificate
        | Of::CertificateRevoked
        | Of::CertificateExpired
        | Of::CertificateUnknown
        | Of::CertificateRequired
        | Of::UnknownCA
        // the server knows an authority with the same name, and another key
        | Of::DecryptError
        | Of::AccessDenied => TlsFault::Unwelcome,
        Of::NoApplicationProtocol => TlsFault::NoHttp2,
        _ => TlsFault::Alert,
    }
}

/// Writes the reason in a few words. There are not many texts, as times and other numbers are left
/// out.
impl fmt::Display for TlsRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use CertificateError as Of;
        match &self.0 {
            Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
                f.write_str("the server does not speak this version of HTTP (alert)")
            }
            Error::AlertReceived(alert) => {
                write!(f, "the server refused: {}", alert.as_str().unwrap_or("unknown alert"))
            }
            Error::InvalidCertificate(Of::Expired | Of::ExpiredContext { .. }) => {
                f.write_str("certificate expired")
            }
            Error::InvalidCertificate(Of::NotValidYet | Of::NotValidYetContext { .. }) => {
                f.write_str("certificate not valid yet")
            }
            Error::InvalidCertificate(Of::NotValidForNameContext { expected, .. }) => {
                write!(f, "certificate for another name than {}", expected.to_str())
            }
            Error::InvalidCertificate(Of::UnknownIssuer) => {
                f.write_str("certificate not trusted: unknown issuer")
            }
            Error::InvalidCertificate(Of::Other(_)) => f.write_str("certificate not trusted"),
            Error::InvalidCertificate(error) => write!(f, "certificate not trusted: {error}"),
            Error::InvalidMessage(_) => f.write_str("what the server says is no TLS"),
            Error::PeerIncompatible(why) => write!(f, "nothing in common: {why:?}"),
            Error::PeerMisbehaved(why) => write!(f, "the server breaks the rules: {why:?}"),
            error => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for TlsRefusal {}
