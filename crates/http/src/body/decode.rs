//! A body as it arrives: where its data begins and ends, and how much may come (RFC 9112 §6.3, §7.1).

use super::BodyError;
use super::chunk_line::{ChunkLine, ChunkTolerance, EXTENSION_BYTES};
use super::trailers::{TrailerSection, Trailers};
use crate::framing::Framing;
use crate::head::HeadLimits;

/// A decoder of a body that arrives in pieces of any size. It copies no data; a caller that only
/// wants to know where the body ends [skips](BodyDecoder::skip) it.
///
/// The result does not depend on how the bytes are cut, except for where a run of data is.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: DecodeState,
    /// Bytes of the body, framing included, that may still come.
    allowance: u64,
    /// Bytes of chunk extensions that may still come.
    extension_bytes: u16,
    trailers: TrailerSection,
    tolerance: ChunkTolerance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecodeState {
    /// This many bytes of a sized body are still to come, at least one.
    Data(u64),
    ChunkLine(ChunkLine),
    /// This many bytes of a chunk are still to come, at least one.
    Chunk(u64),
    /// The line end after a chunk.
    ChunkCr,
    ChunkLf,
    Trailers,
    Done,
    Broken(BodyError),
}

/// The outcome for one piece of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedPiece<'b> {
    /// The number of bytes at its start that were used.
    pub used: usize,
    /// The data among them, which is at their end. Empty if they were all framing.
    pub data: &'b [u8],
}

impl BodyDecoder {
    /// A decoder that starts at the first byte after the head. At most `allowance` bytes of data
    /// may come. Framing has limits of its own: each chunk has at least one byte of data, its line
    /// is limited, and a trailer section may have the bytes and lines that `limits` allows for a
    /// head.
    ///
    /// # Errors
    /// [`BodyError::TooLarge`] if the length is known to exceed the allowance.
    pub fn new(
        framing: Framing,
        allowance: u64,
        trailers: Trailers,
        limits: &HeadLimits,
    ) -> Result<BodyDecoder, BodyError> {
        let state = match framing {
            Framing::None | Framing::Sized(0) => DecodeState::Done,
            Framing::Sized(length) if length > allowance => return Err(BodyError::TooLarge),
            Framing::Sized(length) => DecodeState::Data(length),
            Framing::Chunked => DecodeState::ChunkLine(ChunkLine::EMPTY),
        };
        let trailers = TrailerSection::new(trailers, limits);
        let tolerance = ChunkTolerance::default();
        Ok(BodyDecoder { state, allowance, extension_bytes: EXTENSION_BYTES, trailers, tolerance })
    }

    /// Allows the sender these deviations.
    #[must_use]
    pub fn tolerating(self, tolerance: ChunkTolerance) -> BodyDecoder {
        BodyDecoder { tolerance, trailers: self.trailers.tolerating(tolerance), ..self }
    }

    /// Whether the body's last byte was used.
    #[inline]
    pub fn is_done(&self) -> bool {
        matches!(self.state, DecodeState::Done)
    }

    /// Takes `bytes` up to the end of the first run of data in them, or all of them if they are
    /// only framing. Uses at least one byte, unless there is none or the body [is
    /// done](BodyDecoder::is_done). The caller must give again what was not used.
    ///
    /// # Errors
    /// The framing is broken or a limit is exceeded; from then on every call returns the same
    /// error.
    pub fn next<'b>(&mut self, bytes: &'b [u8]) -> Result<DecodedPiece<'b>, BodyError> {
        let mut used = 0;
        while used < bytes.len() && !self.is_done() {
            if let Some(data) = self.data(&bytes[used..]) {
                return Ok(DecodedPiece { used: used + data.len(), data });
            }
            match self.framing(&bytes[used..]) {
                Ok(count) => used += count,
                Err(error) => {
                    self.state = DecodeState::Broken(error);
                    return Err(error);
                }
            }
        }
        Ok(DecodedPiece { used, data: &[] })
    }

    /// Drops what belongs to the body at the start of `bytes`; returns how many bytes that were.
    ///
    /// # Errors
    /// The errors of [`next`](BodyDecoder::next).
    pub fn skip(&mut self, bytes: &[u8]) -> Result<usize, BodyError> {
        let mut used = 0;
        while used < bytes.len() && !self.is_done() {
            used += self.next(&bytes[used..])?.used;
        }
        Ok(used)
    }

    /// The trailer fields of a body that [is done](BodyDecoder::is_done): name as sent, value
    /// without surrounding white space, in order. There are none if they [were not
    /// kept](Trailers::Discard), and never one that RFC 9110 §6.5.1 does not allow in a trailer
    /// section.
    ///
    /// The caller must keep them apart from the fields of the head (RFC 9112 §7.1.2).
    pub fn trailers(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        self.trailers.kept().filter(|_| self.is_done())
    }

    /// The data at the start of `bytes`, if data comes next.
    #[inline]
    fn data<'b>(&mut self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let (left, more, end): (_, fn(u64) -> DecodeState, _) = match self.state {
            DecodeState::Data(left) => (left, DecodeState::Data, DecodeState::Done),
            DecodeState::Chunk(left) => (left, DecodeState::Chunk, DecodeState::ChunkCr),
            _ => return None,
        };
        let run = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let left = left - run as u64;
        // the allowance is at least `left`, which was checked when the size was known
        self.allowance = self.allowance.saturating_sub(run as u64);
        self.state = if left == 0 { end } else { more(left) };
        Some(&bytes[..run])
    }

    /// Takes framing at the start of `bytes`, where no data comes next (RFC 9112 §7.1); returns how
    /// many bytes that were, at least one.
    fn framing(&mut self, bytes: &[u8]) -> Result<usize, BodyError> {
        if let DecodeState::Broken(error) = self.state {
            return Err(error);
        }
        let Some(&first) = bytes.first() else { return Ok(0) };
        let (used, state) = match (self.state, first) {
            (DecodeState::ChunkLine(line), _) => self.chunk_line(line, bytes)?,
            (DecodeState::ChunkCr, b'\r') => (1, DecodeState::ChunkLf),
            (DecodeState::ChunkCr, b'\n') if self.tolerance.bare_lf => {
                (1, DecodeState::ChunkLine(ChunkLine::EMPTY))
            }
            (DecodeState::ChunkLf, b'\n') => (1, DecodeState::ChunkLine(ChunkLine::EMPTY)),
            (DecodeState::Trailers, _) => match self.trailers.take(bytes)? {
                (used, true) => (used, DecodeState::Done),
                (used, false) => (used, DecodeState::Trailers),
            },
            _ => return Err(BodyError::Malformed("a chunk does not end in CR LF")),
        };
        self.state = state;
        Ok(used)
    }

    /// Takes more of a chunk line; returns how many bytes that were, and the state after them.
    fn chunk_line(
        &mut self,
        mut line: ChunkLine,
        bytes: &[u8],
    ) -> Result<(usize, DecodeState), BodyError> {
        let (used, size) = line.take(bytes, &mut self.extension_bytes, self.tolerance)?;
        let state = match size {
            None => DecodeState::ChunkLine(line),
            Some(0) => DecodeState::Trailers,
            Some(size) if size > self.allowance => return Err(BodyError::TooLarge),
            Some(size) => DecodeState::Chunk(size),
        };
        Ok((used, state))
    }
}
