//! SETTINGS (RFC 9113 §6.5): the limits that each side sets for the other.

use crate::error::{ErrorCode, Fault};
use crate::flow::MOST_WINDOW;
use crate::frame::{self, kind};

/// Numbers of settings.
#[allow(missing_docs)]
pub mod id {
    pub const HEADER_TABLE_SIZE: u16 = 0x1;
    pub const ENABLE_PUSH: u16 = 0x2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub const MAX_FRAME_SIZE: u16 = 0x5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    /// RFC 8441 §3.
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
    /// RFC 9218 §2.1.
    pub const NO_RFC7540_PRIORITIES: u16 = 0x9;
}

/// The initial window of a stream unless a setting changes it, in bytes.
pub const FIRST_WINDOW: u32 = 65_535;

/// The settings of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// The number of streams that may be open to it at once.
    pub max_concurrent_streams: u32,
    /// The window of a new stream, in bytes.
    pub initial_window_bytes: u32,
    /// The largest payload it accepts, in bytes.
    pub max_frame_bytes: u32,
    /// The largest list of fields it accepts, in bytes (advisory).
    pub max_field_list_bytes: u32,
    /// Whether it accepts extended CONNECT (RFC 8441 §3).
    pub extended_connect: bool,
    /// The smallest dynamic table it has ever requested, in bytes.
    pub(crate) smallest_table_bytes: u32,
}

impl Default for PeerSettings {
    fn default() -> PeerSettings {
        PeerSettings {
            max_concurrent_streams: u32::MAX,
            initial_window_bytes: FIRST_WINDOW,
            max_frame_bytes: frame::PAYLOAD_BYTES as u32,
            max_field_list_bytes: u32::MAX,
            extended_connect: false,
            smallest_table_bytes: 4096,
        }
    }
}

impl PeerSettings {
    /// Applies the settings of a payload. Unknown settings are ignored.
    ///
    /// # Errors
    /// A [`Fault`] of the connection: the length is not a multiple of 6, or a value is out of its
    /// range.
    pub fn apply(&mut self, payload: &[u8], is_server: bool) -> Result<(), Fault> {
        let (entries, []) = payload.as_chunks::<6>() else {
            return Err(Fault::size("SETTINGS has a length that is no multiple of 6"));
        };
        for &[a, b, value @ ..] in entries {
            let value = frame::number(value);
            match u16::from_be_bytes([a, b]) {
                id::HEADER_TABLE_SIZE => {
                    self.smallest_table_bytes = self.smallest_table_bytes.min(value);
                }
                id::ENABLE_PUSH if value > u32::from(is_server) => {
                    return Err(Fault::protocol(
                        "SETTINGS_ENABLE_PUSH has a value it may not have",
                    ));
                }
                id::MAX_CONCURRENT_STREAMS => self.max_concurrent_streams = value,
                id::INITIAL_WINDOW_SIZE if value > MOST_WINDOW => {
                    let reason = "SETTINGS_INITIAL_WINDOW_SIZE is above 2^31-1";
                    return Err(Fault::new(ErrorCode::FLOW_CONTROL_ERROR, reason));
                }
                id::INITIAL_WINDOW_SIZE => self.initial_window_bytes = value,
                id::MAX_FRAME_SIZE if !(16_384..=16_777_215).contains(&value) => {
                    return Err(Fault::protocol("SETTINGS_MAX_FRAME_SIZE is out of its range"));
                }
                id::MAX_FRAME_SIZE => self.max_frame_bytes = value,
                id::MAX_HEADER_LIST_SIZE => self.max_field_list_bytes = value,
                id::NO_RFC7540_PRIORITIES if value > 1 => {
                    let reason = "SETTINGS_NO_RFC7540_PRIORITIES is neither 0 nor 1";
                    return Err(Fault::protocol(reason));
                }
                id::ENABLE_CONNECT_PROTOCOL if value > 1 => {
                    let reason = "SETTINGS_ENABLE_CONNECT_PROTOCOL is neither 0 nor 1";
                    return Err(Fault::protocol(reason));
                }
                id::ENABLE_CONNECT_PROTOCOL => self.extended_connect = value == 1,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Appends a SETTINGS frame.
pub fn write(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let header =
        frame::FrameHeader { len: settings.len() * 6, kind: kind::SETTINGS, flags: 0, stream: 0 };
    out.extend_from_slice(&header.bytes());
    for (id, value) in settings {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(settings: &[(u16, u32)], is_server: bool) -> Result<PeerSettings, ErrorCode> {
        let mut out = Vec::new();
        write(&mut out, settings);
        let mut peer = PeerSettings::default();
        peer.apply(&out[frame::HEADER_BYTES..], is_server).map_err(|fault| fault.code)?;
        Ok(peer)
    }

    #[test]
    fn the_last_value_counts_and_unknown_ones_do_not() {
        let peer = applied(
            &[
                (id::INITIAL_WINDOW_SIZE, 1),
                (id::INITIAL_WINDOW_SIZE, 2),
                (id::MAX_FRAME_SIZE, 16_777_215),
                (id::MAX_CONCURRENT_STREAMS, 0),
                (id::HEADER_TABLE_SIZE, 10),
                (id::HEADER_TABLE_SIZE, 8192),
                (id::ENABLE_CONNECT_PROTOCOL, 1),
                (0x7777, 1),
            ],
            true,
        );
        let expected = PeerSettings {
            initial_window_bytes: 2,
            max_frame_bytes: 16_777_215,
            max_concurrent_streams: 0,
            smallest_table_bytes: 10,
            extended_connect: true,
            ..PeerSettings::default()
        };
        assert_eq!(peer, Ok(expected));
    }

    #[test]
    fn values_out_of_range_end_the_connection() {
        for (id, value, code) in [
            (id::ENABLE_PUSH, 2, ErrorCode::PROTOCOL_ERROR),
            (id::INITIAL_WINDOW_SIZE, 1 << 31, ErrorCode::FLOW_CONTROL_ERROR),
            (id::MAX_FRAME_SIZE, 16_383, ErrorCode::PROTOCOL_ERROR),
            (id::MAX_FRAME_SIZE, 1 << 24, ErrorCode::PROTOCOL_ERROR),
            (id::NO_RFC7540_PRIORITIES, 2, ErrorCode::PROTOCOL_ERROR),
            (id::ENABLE_CONNECT_PROTOCOL, 2, ErrorCode::PROTOCOL_ERROR),
        ] {
            assert_eq!(applied(&[(id, value)], true), Err(code), "{id} {value}");
        }
        assert!(applied(&[(id::ENABLE_PUSH, 1)], true).is_ok());
        // a server may not enable push (§6.5.2)
        assert_eq!(applied(&[(id::ENABLE_PUSH, 1)], false), Err(ErrorCode::PROTOCOL_ERROR));
        let mut peer = PeerSettings::default();
        assert!(peer.apply(&[0; 7], true).is_err_and(|f| f.code == ErrorCode::FRAME_SIZE_ERROR));
    }
}
