//! Why a head is refused: the status and the reason of each error.

/// Why a head was refused. All of it is the client's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The bytes are not an HTTP/1 request; says what is wrong with them. 400.
    Malformed(&'static str),
    /// The request target is longer than allowed. 414.
    TargetTooLong,
    /// The head is longer than allowed or has too many lines. 431.
    HeadTooLarge,
    /// A well-formed version we do not speak. 505.
    Version,
    /// A transfer coding we do not know. 501.
    TransferCoding,
    /// An expectation other than `100-continue`. 417.
    Expectation,
}

impl Error {
    /// The status that answers it.
    pub fn status(self) -> u16 {
        match self {
            Error::Malformed(_) => 400,
            Error::TargetTooLong => 414,
            Error::HeadTooLarge => 431,
            Error::Version => 505,
            Error::TransferCoding => 501,
            Error::Expectation => 417,
        }
    }

    /// What is wrong, in a few words for the client and the log.
    pub fn reason(self) -> &'static str {
        match self {
            Error::Malformed(what) => what,
            Error::TargetTooLong => "the request target is too long",
            Error::HeadTooLarge => "the request head is too large",
            Error::Version => "this server speaks HTTP/1.0 and HTTP/1.1",
            Error::TransferCoding => "the only transfer coding known here is chunked",
            Error::Expectation => "the only expectation known here is 100-continue",
        }
    }
}

pub(super) fn refused(error: httparse::Error) -> Error {
    match error {
        httparse::Error::TooManyHeaders => Error::HeadTooLarge,
        httparse::Error::HeaderName => Error::Malformed("a field name is malformed"),
        httparse::Error::HeaderValue => Error::Malformed("a field value has a forbidden byte"),
        httparse::Error::NewLine => Error::Malformed("a line does not end in CR LF"),
        httparse::Error::Token => Error::Malformed("the request line is malformed"),
        _ => Error::Malformed("the request is malformed"),
    }
}
