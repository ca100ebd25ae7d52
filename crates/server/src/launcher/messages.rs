//! The messages between the server and the launcher, one in each packet.
//!
//! | bytes | of a question | of an answer |
//! |---|---|---|
//! | 4 | its number, which the answer repeats (all numbers are little-endian) | the same |
//! | 1 | 1: read the file; 2: use what was read; 3: run a command | 0: success; 1: failure |
//! | 2 | of 3 only: the number of the command | |
//! | rest | of 3 only: values, each with a zero byte behind it | two texts, each with a zero byte behind it: why not, and what was said |
//!
//! A question cannot hold a path, a command or the name of a variable.

/// The longest text of an answer.
const MOST_TEXT_BYTES: usize = 16 * 1024;

/// The longest value.
const MOST_VALUE_BYTES: usize = 1024;

/// A question of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchRequest {
    /// Read the commands from the file; the answer is their fingerprint.
    Prepare,
    /// Use from now on what was read last.
    Commit,
    /// Run a command.
    Run {
        /// The number of the command.
        command: u16,
        /// The values of the command's variables.
        values: Vec<String>,
    },
}

/// An answer of the launcher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchReply {
    /// Why the question could not be fulfilled; `None` if it was.
    pub failure: Option<String>,
    /// The fingerprint, or the last output of the command.
    pub said: String,
}

impl LaunchRequest {
    /// The packet of the question with this number.
    pub fn encode(&self, asked: u32) -> Vec<u8> {
        let mut packet = asked.to_le_bytes().to_vec();
        match self {
            LaunchRequest::Prepare => packet.push(1),
            LaunchRequest::Commit => packet.push(2),
            LaunchRequest::Run { command, values } => {
                packet.push(3);
                packet.extend(command.to_le_bytes());
                values.iter().for_each(|value| push(&mut packet, value));
            }
        }
        packet
    }

    /// The question in a packet, and its number; `None` if the packet is not a question.
    pub fn decode(packet: &[u8]) -> Option<(u32, LaunchRequest)> {
        let (asked, rest) = packet.split_first_chunk()?;
        let (kind, rest) = rest.split_first()?;
        let request = match (kind, rest) {
            (1, []) => LaunchRequest::Prepare,
            (2, []) => LaunchRequest::Commit,
            (3, rest) => {
                let (command, rest) = rest.split_first_chunk()?;
                let values = texts(rest)?;
                if !values.iter().all(|value| is_value(value)) {
                    return None;
                }
                LaunchRequest::Run { command: u16::from_le_bytes(*command), values }
            }
            _ => return None,
        };
        Some((u32::from_le_bytes(*asked), request))
    }
}

impl LaunchReply {
    /// The answer that says why a question failed.
    pub fn failed(why: impl Into<String>) -> LaunchReply {
        LaunchReply { failure: Some(why.into()), said: String::new() }
    }

    /// The packet of the answer to the question with this number.
    pub fn encode(&self, asked: u32) -> Vec<u8> {
        let mut packet = asked.to_le_bytes().to_vec();
        packet.push(self.failure.is_some().into());
        push(&mut packet, self.failure.as_deref().unwrap_or(""));
        push(&mut packet, &self.said);
        packet
    }

    /// The answer in a packet, and the number of its question; `None` if the packet is not an answer.
    pub fn decode(packet: &[u8]) -> Option<(u32, LaunchReply)> {
        let (asked, rest) = packet.split_first_chunk()?;
        let (failed, rest) = rest.split_first()?;
        let [why, said] = <[String; 2]>::try_from(texts(rest)?).ok()?;
        let failure = (*failed != 0).then_some(why);
        Some((u32::from_le_bytes(*asked), LaunchReply { failure, said }))
    }
}

/// Appends a text with a zero byte behind it. A text that is too long is cut, because a packet is bounded.
fn push(packet: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(MOST_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // a zero byte within the text would end it
    packet.extend(text[..end].bytes().filter(|byte| *byte != 0));
    packet.push(0);
}

/// The texts of a packet, each of which has a zero byte behind it.
fn texts(bytes: &[u8]) -> Option<Vec<String>> {
    let Some(bytes) = bytes.strip_suffix(&[0]) else {
        return bytes.is_empty().then(Vec::new);
    };
    bytes.split(|byte| *byte == 0).map(|text| String::from_utf8(text.to_vec()).ok()).collect()
}

/// Whether a value has only characters of names, tokens and addresses: no line break and no blank.
fn is_value(text: &str) -> bool {
    text.len() <= MOST_VALUE_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_questions_are_taken_for_one() {
        let run = |values: &[&str]| LaunchRequest::Run {
            command: 0,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        };
        let packet = run(&["present", ""]).encode(7);
        assert_eq!(packet, b"\x07\0\0\0\x03\0\0present\0\0");
        assert_eq!(LaunchRequest::decode(&packet), Some((7, run(&["present", ""]))));
        assert_eq!(LaunchRequest::decode(b"\x07\0\0\0\x03\0\0"), Some((7, run(&[]))));
        let reply = LaunchReply::failed("ä".repeat(MOST_TEXT_BYTES));
        let (_, reply) = LaunchReply::decode(&reply.encode(7)).unwrap();
        assert_eq!(reply.failure.map(|why| why.len()), Some(MOST_TEXT_BYTES));
        let long = run(&[&"a".repeat(1025)]).encode(7);
        for wrong in [
            &b""[..],
            b"\x07\0\0\0",
            b"\x07\0\0\0\0",
            b"\x07\0\0\0\x04",
            b"\x07\0\0\0\x01/bin/sh",
            b"\x07\0\0\0\x03\0",
            b"\x07\0\0\0\x03\0\0unended",
            b"\x07\0\0\0\x03\0\0two\nlines\0",
            b"\x07\0\0\0\x03\0\0a blank\0",
            b"\x07\0\0\0\x03\0\0\xff\0",
            &long,
        ] {
            assert_eq!(LaunchRequest::decode(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_said_is_understood(
            asked: u32,
            command: u16,
            values in proptest::collection::vec("[!-~]{0,40}", 0..8),
            why in proptest::option::of("[^\0]{0,40}"),
            said in "[^\0]{0,40}",
        ) {
            let request = LaunchRequest::Run { command, values };
            let packet = request.encode(asked);
            prop_assert_eq!(LaunchRequest::decode(&packet), Some((asked, request)));
            let reply = LaunchReply { failure: why, said };
            let packet = reply.encode(asked);
            prop_assert_eq!(LaunchReply::decode(&packet), Some((asked, reply)));
        }

        #[test]
        fn nothing_that_comes_is_a_panic(packet: Vec<u8>) {
            let _ = (LaunchRequest::decode(&packet), LaunchReply::decode(&packet));
        }
    }
}
