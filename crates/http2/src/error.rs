//! Errors that end a stream or a connection.

/// Error codes of RST_STREAM and GOAWAY (RFC 9113 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

#[allow(missing_docs)]
impl ErrorCode {
    pub const NO_ERROR: ErrorCode = ErrorCode(0x0);
    pub const PROTOCOL_ERROR: ErrorCode = ErrorCode(0x1);
    pub const INTERNAL_ERROR: ErrorCode = ErrorCode(0x2);
    pub const FLOW_CONTROL_ERROR: ErrorCode = ErrorCode(0x3);
    pub const SETTINGS_TIMEOUT: ErrorCode = ErrorCode(0x4);
    pub const STREAM_CLOSED: ErrorCode = ErrorCode(0x5);
    pub const FRAME_SIZE_ERROR: ErrorCode = ErrorCode(0x6);
    pub const REFUSED_STREAM: ErrorCode = ErrorCode(0x7);
    pub const CANCEL: ErrorCode = ErrorCode(0x8);
    pub const COMPRESSION_ERROR: ErrorCode = ErrorCode(0x9);
    pub const CONNECT_ERROR: ErrorCode = ErrorCode(0xa);
    pub const ENHANCE_YOUR_CALM: ErrorCode = ErrorCode(0xb);
    pub const INADEQUATE_SECURITY: ErrorCode = ErrorCode(0xc);
    pub const HTTP_1_1_REQUIRED: ErrorCode = ErrorCode(0xd);
}

impl ErrorCode {
    /// The registered name of the code.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorCode::NO_ERROR => "NO_ERROR",
            ErrorCode::PROTOCOL_ERROR => "PROTOCOL_ERROR",
            ErrorCode::INTERNAL_ERROR => "INTERNAL_ERROR",
            ErrorCode::FLOW_CONTROL_ERROR => "FLOW_CONTROL_ERROR",
            ErrorCode::SETTINGS_TIMEOUT => "SETTINGS_TIMEOUT",
            ErrorCode::STREAM_CLOSED => "STREAM_CLOSED",
            ErrorCode::FRAME_SIZE_ERROR => "FRAME_SIZE_ERROR",
            ErrorCode::REFUSED_STREAM => "REFUSED_STREAM",
            ErrorCode::CANCEL => "CANCEL",
            ErrorCode::COMPRESSION_ERROR => "COMPRESSION_ERROR",
            ErrorCode::CONNECT_ERROR => "CONNECT_ERROR",
            ErrorCode::ENHANCE_YOUR_CALM => "ENHANCE_YOUR_CALM",
            ErrorCode::INADEQUATE_SECURITY => "INADEQUATE_SECURITY",
            ErrorCode::HTTP_1_1_REQUIRED => "HTTP_1_1_REQUIRED",
            ErrorCode(_) => "an unknown code",
        }
    }
}

/// An error of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The code that the peer gets.
    pub code: ErrorCode,
    /// A description in a few words, for the log.
    pub reason: &'static str,
}

impl Fault {
    pub(crate) const fn new(code: ErrorCode, reason: &'static str) -> Fault {
        Fault { code, reason }
    }

    pub(crate) const fn protocol(reason: &'static str) -> Fault {
        Fault::new(ErrorCode::PROTOCOL_ERROR, reason)
    }

    /// The fault of a message whose content length is wrong (RFC 9113 §8.1.1).
    pub(crate) const fn length() -> Fault {
        Fault::protocol("a body has another length than its head says")
    }

    pub(crate) const fn size(reason: &'static str) -> Fault {
        Fault::new(ErrorCode::FRAME_SIZE_ERROR, reason)
    }

    pub(crate) const fn calm(reason: &'static str) -> Fault {
        Fault::new(ErrorCode::ENHANCE_YOUR_CALM, reason)
    }
}
