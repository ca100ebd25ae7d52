//! Why a connection goes no further, and whose fault that is.

use rustls::{AlertDescription, CertificateError, Error};
use std::fmt;

/// Why a connection goes no further.
#[derive(Debug)]
pub struct TlsRefusal(Error);

/// The same in one word of few: for counters and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFault {
    /// The certificate of the server has expired.
    Expired,
    /// It is not valid yet.
    NotYetValid,
    /// It is for another name.
    Name,
    /// No authority that is trusted has signed it.
    Issuer,
    /// There is something else that is wrong with it.
    Certificate,
    /// The server does not take the certificate that it was shown, or wants one.
    Unwelcome,
    /// The server has refused, by another alert.
    Alert,
    /// Both have no version, suite or group in common.
    Unsupported,
    /// What the server says is no TLS.
    NotTls,
    /// The server has not chosen HTTP/2, and nothing else was offered.
    NoHttp2,
    /// The server breaks a rule of TLS.
    Rules,
    /// The connection has ended before the handshake had.
    Ended,
}

impl TlsFault {
    /// All there are.
    pub const ALL: [TlsFault; 12] = [
        TlsFault::Expired,
        TlsFault::NotYetValid,
        TlsFault::Name,
        TlsFault::Issuer,
        TlsFault::Certificate,
        TlsFault::Unwelcome,
        TlsFault::Alert,
        TlsFault::Unsupported,
        TlsFault::NotTls,
        TlsFault::NoHttp2,
        TlsFault::Rules,
        TlsFault::Ended,
    ];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            TlsFault::Expired => "TLS: its certificate has expired",
            TlsFault::NotYetValid => "TLS: its certificate is not valid yet",
            TlsFault::Name => "TLS: its certificate is for another name",
            TlsFault::Issuer => "TLS: no authority that is trusted has signed its certificate",
            TlsFault::Certificate => "TLS: its certificate cannot be accepted",
            TlsFault::Unwelcome => "TLS: it does not take our certificate, or wants one (alert)",
            TlsFault::Alert => "TLS: it has refused (alert)",
            TlsFault::Unsupported => "TLS: no version, suite or group in common",
            TlsFault::NotTls => "TLS: what it says is no TLS",
            TlsFault::NoHttp2 => "TLS: it does not choose HTTP/2 (ALPN h2)",
            TlsFault::Rules => "TLS: it breaks the rules",
            TlsFault::Ended => "TLS: it ends the connection in the handshake",
        }
    }
}

impl TlsFault {
    /// In a word, for logs.
    pub fn word(self) -> &'static str {
        match self {
            TlsFault::Expired => "tls_expired",
            TlsFault::NotYetValid => "tls_not_yet_valid",
            TlsFault::Name => "tls_name",
            TlsFault::Issuer => "tls_issuer",
            TlsFault::Certificate => "tls_certificate",
            TlsFault::Unwelcome => "tls_unwelcome",
            TlsFault::Alert => "tls_alert",
            TlsFault::Unsupported => "tls_unsupported",
            TlsFault::NotTls => "tls_not_tls",
            TlsFault::NoHttp2 => "tls_no_http2",
            TlsFault::Rules => "tls_rules",
            TlsFault::Ended => "tls_ended",
        }
    }
}

impl TlsRefusal {
    pub(super) fn of(error: Error) -> TlsRefusal {
        TlsRefusal(error)
    }

    /// Whose fault it is, in one word.
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
                // nobody else has signed what was made by "openssl req -x509"
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

/// What an alert says.
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
        | Of::AccessDenied => TlsFault::Unwelcome,
        Of::NoApplicationProtocol => TlsFault::NoHttp2,
        _ => TlsFault::Alert,
    }
}

/// In few words, of which there are not many: times and other numbers are left out.
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
