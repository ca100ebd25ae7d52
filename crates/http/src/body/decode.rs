//! A body as it arrives: where its data begins and ends, and how much may come (RFC 9112 §6.3, §7.1).

use super::BodyError;
use super::chunk_line::{ChunkLine, ChunkTolerance, EXTENSION_BYTES};
use super::trailers::{TrailerSection, Trailers};
use crate::framing::Framing;
use crate::head::HeadLimits;

/// Takes a body apart that arrives in pieces of any size. It copies no data; a caller that only wants to
/// know where the body ends [skips](BodyDecoder::skip) it.
///
/// What it finds does not depend on how the bytes are cut, apart from where a run of data is.
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
    /// Of a sized body: so many bytes are to come, one at least.
    Data(u64),
    ChunkLine(ChunkLine),
    /// So many bytes of a chunk are to come, one at least.
    Chunk(u64),
    /// The line end behind a chunk.
    ChunkCr,
    ChunkLf,
    Trailers,
    Done,
    Broken(BodyError),
}

/// What a piece of a body held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedPiece<'b> {
    /// So many bytes at its start are dealt with.
    pub used: usize,
    /// The data among them; it is at their end. Empty if they were all framing.
    pub data: &'b [u8],
}

impl BodyDecoder {
    /// Starts at the first byte after the head. At most `allowance` bytes of data may come. Framing is bounded by
    /// itself: each chunk has a byte of data at least, its line a bound, and a trailer section those that `limits`
    /// sets for a head.
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

    /// Of a sender who may do this besides.
    #[must_use]
    pub fn tolerating(self, tolerance: ChunkTolerance) -> BodyDecoder {
        BodyDecoder { tolerance, trailers: self.trailers.tolerating(tolerance), ..self }
    }

    /// Whether the body's last byte was used.
    #[inline]
    pub fn is_done(&self) -> bool {
        matches!(self.state, DecodeState::Done)
    }

    /// Takes `bytes` up to the end of the first run of data in them, or all of them if they are but
    /// framing. Uses one byte at least, unless there is none or the body [is
    /// done](BodyDecoder::is_done). What it did not use is to be given again.
    ///
    /// # Errors
    /// When the framing is broken or a bound is passed; from then on always the same.
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
    /// Those of [`next`](BodyDecoder::next).
    pub fn skip(&mut self, bytes: &[u8]) -> Result<usize, BodyError> {
        let mut used = 0;
        while used < bytes.len() && !self.is_done() {
            used += self.next(&bytes[used..])?.used;
        }
        Ok(used)
    }

    /// The trailer fields of a body that [is done](BodyDecoder::is_done): name as sent, value without
    /// surrounding white space, in order. None if they were [not to be kept](Trailers::Discard), and
    /// never one that RFC 9110 §6.5.1 does not allow in a trailer section.
    ///
    /// They must stay apart from the fields of the head (RFC 9112 §7.1.2).
    pub fn trailers(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        self.trailers.kept().filter(|_| self.is_done())
    }

    /// The data at the start of `bytes`, if data is to come.
    #[inline]
    fn data<'b>(&mut self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let (left, more, end): (_, fn(u64) -> DecodeState, _) = match self.state {
            DecodeState::Data(left) => (left, DecodeState::Data, DecodeState::Done),
            DecodeState::Chunk(left) => (left, DecodeState::Chunk, DecodeState::ChunkCr),
            _ => return None,
        };
        let run = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let left = left - run as u64;
        // It has been checked before that the allowance suffices for all of `left`.
        self.allowance = self.allowance.saturating_sub(run as u64);
        self.state = if left == 0 { end } else { more(left) };
        Some(&bytes[..run])
    }

    /// Takes framing at the start of `bytes`, where no data is to come (RFC 9112 §7.1); returns how
    /// many bytes that were, one at least.
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

    /// Takes more of a chunk line; returns how many bytes that were, and the state behind them.
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
