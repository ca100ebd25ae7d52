//! The fields of a head that determine how its body is framed (RFC 9112 §6).

use super::{HeadError, Version};
use crate::framing::{Framing, number};

/// The length fields seen so far in a head.
#[derive(Default)]
pub(crate) struct Lengths {
    content_length: Option<u64>,
    chunked: bool,
}

impl Lengths {
    pub(crate) fn content_length(&mut self, value: &[u8]) -> Result<(), HeadError> {
        if self.content_length.is_some() {
            return Err(HeadError::Malformed("Content-Length is repeated"));
        }
        self.content_length = Some(number(value).map_err(HeadError::Malformed)?);
        Ok(())
    }

    pub(crate) fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), HeadError> {
        if self.chunked {
            return Err(HeadError::Malformed("Transfer-Encoding is repeated"));
        }
        let codings = || value.split(|&b| b == b',').map(<[u8]>::trim_ascii);
        let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
        match codings().position(is_chunked) {
            Some(0) if codings().count() == 1 => self.chunked = true,
            // the end of such a body cannot be found (RFC 9112 §6.3)
            Some(at) if at + 1 < codings().count() => {
                return Err(HeadError::Malformed("chunked is not the last transfer coding"));
            }
            _ => return Err(HeadError::TransferCoding),
        }
        Ok(())
    }

    /// Decides the framing. RFC 9112 §6.1 and §6.3: a message with both lengths, or a transfer
    /// coding in HTTP/1.0, may be an attempt to smuggle a request and is refused.
    pub(crate) fn framing(&self, version: Version) -> Result<Framing, HeadError> {
        match (self.chunked, self.content_length) {
            (true, Some(_)) => {
                Err(HeadError::Malformed("both Content-Length and Transfer-Encoding are given"))
            }
            (true, None) if version == Version::Http10 => {
                Err(HeadError::Malformed("HTTP/1.0 has no Transfer-Encoding"))
            }
            (true, None) => Ok(Framing::Chunked),
            (false, Some(0)) | (false, None) => Ok(Framing::None),
            (false, Some(length)) => Ok(Framing::Sized(length)),
        }
    }
}
