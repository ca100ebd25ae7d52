//! Why a head is refused: the status and the reason of each error.

/// The reason why a head was refused. It is always the client's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// The bytes are not an HTTP/1 request, for this reason. 400.
    Malformed(&'static str),
    /// The request target is longer than allowed. 414.
    TargetTooLong,
    /// The head is longer than allowed or has too many lines. 431.
    HeadTooLarge,
    /// The version is well-formed, and not supported. 505.
    Version,
    /// The transfer coding is not supported. 501.
    TransferCoding,
    /// The expectation is another one than `100-continue`. 417.
    Expectation,
}

impl HeadError {
    /// The status of the answer.
    pub fn status(self) -> u16 {
        match self {
            HeadError::Malformed(_) => 400,
            HeadError::TargetTooLong => 414,
            HeadError::HeadTooLarge => 431,
            HeadError::Version => 505,
            HeadError::TransferCoding => 501,
            HeadError::Expectation => 417,
        }
    }

    /// The error in a few words, for the client and the log.
    pub fn reason(self) -> &'static str {
        match self {
            HeadError::Malformed(what) => what,
            HeadError::TargetTooLong => "the request target is too long",
            HeadError::HeadTooLarge => "the request head is too large",
            HeadError::Version => "this server speaks HTTP/1.0 and HTTP/1.1",
            HeadError::TransferCoding => "the only transfer coding known here is chunked",
            HeadError::Expectation => "the only expectation known here is 100-continue",
        }
    }
}

pub(super) fn refused(error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::TooManyHeaders => HeadError::HeadTooLarge,
        httparse::Error::HeaderName => HeadError::Malformed("a field name is malformed"),
        httparse::Error::HeaderValue => HeadError::Malformed("a field value has a forbidden byte"),
        httparse::Error::NewLine => HeadError::Malformed("a line does not end in CR LF"),
        httparse::Error::Token => HeadError::Malformed("the request line is malformed"),
        _ => HeadError::Malformed("the request is malformed"),
    }
}
