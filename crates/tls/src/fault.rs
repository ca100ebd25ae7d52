//! The reasons why a TLS client's connection goes no further, in one word each.

/// The reason why a connection goes no further, as one of a few words for counters and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFault {
    /// The certificate of the server has expired.
    Expired,
    /// The certificate of the server is not valid yet.
    NotYetValid,
    /// The certificate of the server is for another name.
    Name,
    /// No authority that is trusted has signed the certificate of the server.
    Issuer,
    /// The certificate of the server has another error.
    Certificate,
    /// The server does not accept the certificate that it was shown, or requires one.
    Unwelcome,
    /// The server has refused, by another alert.
    Alert,
    /// The two ends have no version, suite or group in common.
    Unsupported,
    /// The bytes from the server are no TLS.
    NotTls,
    /// The server has not chosen HTTP/2, and nothing else was offered.
    NoHttp2,
    /// The server breaks a rule of TLS.
    Rules,
    /// The connection has ended before the handshake had.
    Ended,
}

impl TlsFault {
    /// All faults.
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

    /// The fault in words.
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
    /// The fault in one word, for logs.
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
