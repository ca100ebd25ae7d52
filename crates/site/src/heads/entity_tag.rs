//! Entity tags of files, made of their bytes, or of their state in the file system.
//!
//! A strong tag promises that bytes are the same (RFC 9110 §8.8.1). The state in the file system
//! can repeat: images of file systems are made with fixed times and numbers, and a program that
//! writes into a file can put its time back. So a file that is small enough has a tag of its bytes.
//! Larger ones have size, time of modification and time of change, which no program can put back;
//! where the time of change is not a time of its own the tag is weak. The number of the inode says
//! nothing of the bytes, and differs between machines.
//!
//! The size and the settings alone decide which of the two it is, never whether the file is in
//! memory or sent from the disk. So a file has one tag, whichever way it is sent.

use crate::settings::EtagMode;
use base64ct::{Base64UrlUnpadded, Encoding};
use forebay_http::coding::Coding;
use forebay_sys::file::{self, Stamp};
use std::io;
use std::os::fd::AsFd;

/// The time after a change in which a file may change again without its time stamp moving.
const YOUNG_NS: i64 = 2_000_000_000;

const SECOND_NS: i64 = 1_000_000_000;

/// 128 bits, so that finding two texts with the same hash is out of reach.
const HASH_BYTES: usize = 16;

/// Bytes read at once.
const SCRATCH_BYTES: usize = 64 * 1024;

/// The hash of a body's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentHash([u8; HASH_BYTES]);

impl ContentHash {
    pub(crate) fn of(bytes: &[u8]) -> ContentHash {
        ContentHash::from(blake3::hash(bytes))
    }

    fn from(hash: blake3::Hash) -> ContentHash {
        let mut short = [0; HASH_BYTES];
        short.copy_from_slice(&hash.as_bytes()[..HASH_BYTES]);
        ContentHash(short)
    }

    /// The hash of a file of `size` bytes; `None` if the file has another length. May block.
    pub(crate) fn read(file: impl AsFd, size: u64) -> io::Result<Option<ContentHash>> {
        let mut hasher = blake3::Hasher::new();
        let mut scratch = vec![0; SCRATCH_BYTES];
        let mut done = 0;
        loop {
            match file::read_at(file.as_fd(), &mut scratch, done)? {
                0 => return Ok((done == size).then(|| ContentHash::from(hasher.finalize()))),
                count => {
                    hasher.update(&scratch[..count]);
                    done += count as u64;
                }
            }
            if done > size {
                return Ok(None);
            }
        }
    }
}

/// The source of a variant's tag.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Validator {
    /// The bytes of the body.
    Content(ContentHash),
    /// The file's state in the file system.
    Stat,
}

/// The tag of one variant.
#[derive(Clone, Debug)]
pub(crate) struct EntityTag {
    /// The text of the `ETag` field.
    pub(crate) text: Box<[u8]>,
    /// The end of the time in which the tag is weak because the file may still change unnoticed, in
    /// nanoseconds since 1970; `None` if it is not weak for that.
    pub(crate) young_until_ns: Option<i64>,
}

impl EntityTag {
    /// The tag of a file with this stamp, in its coding.
    pub(crate) fn of_file(
        validator: Validator,
        coding: Coding,
        stamp: &Stamp,
        mode: EtagMode,
        now_ns: i64,
    ) -> EntityTag {
        let changed_ns = match validator {
            Validator::Content(_) => stamp.mtime_ns,
            // the time of modification says nothing once a program has put it back
            Validator::Stat => latest(stamp, now_ns),
        };
        let young_until_ns =
            is_young(changed_ns, now_ns).then(|| changed_ns.saturating_add(YOUNG_NS));
        let opaque = match validator {
            Validator::Content(hash) => Base64UrlUnpadded::encode_string(&hash.0),
            Validator::Stat => {
                format!("{:x}-{:x}-{:x}", stamp.size, stamp.mtime_ns, stamp.ctime_ns)
            }
        };
        let is_vague = matches!(validator, Validator::Stat) && has_one_time(stamp);
        let is_weak = young_until_ns.is_some() || is_vague || mode == EtagMode::Weak;
        EntityTag { text: written(is_weak, &opaque, coding), young_until_ns }
    }

    /// A weak tag for a file that changes whenever it is read, of which nothing strong can be said.
    pub(crate) fn of_moment(coding: Coding, stamp: &Stamp, now_ns: i64) -> EntityTag {
        EntityTag::of_file(Validator::Stat, coding, stamp, EtagMode::Weak, now_ns)
    }

    /// A tag that takes as much room in a head as the longest of a content does, in HTTP/2 too: no
    /// text of this length has a longer code in HPACK.
    pub(crate) fn widest(coding: Coding) -> EntityTag {
        let opaque = "X".repeat(Base64UrlUnpadded::encoded_len(&[0; HASH_BYTES]));
        EntityTag { text: written(true, &opaque, coding), young_until_ns: None }
    }

    /// The empty tag of a body that has none.
    pub(crate) fn none() -> EntityTag {
        EntityTag { text: Box::default(), young_until_ns: None }
    }

    /// The tag of the same content in a coding. The tag depends on these bytes, because another
    /// release of a codec may write others; it is as strong as this one.
    pub(crate) fn recoded(&self, coding: Coding, bytes: &[u8]) -> EntityTag {
        let opaque = Base64UrlUnpadded::encode_string(&ContentHash::of(bytes).0);
        EntityTag {
            text: written(self.text.starts_with(b"W/"), &opaque, coding),
            young_until_ns: self.young_until_ns,
        }
    }
}

/// The text of a tag. Two codings of a file may have the same stamp, or both no bytes, so the
/// coding is a part of it.
fn written(is_weak: bool, opaque: &str, coding: Coding) -> Box<[u8]> {
    let weak = if is_weak { "W/" } else { "" };
    let (dash, coding) = match coding {
        Coding::Identity => ("", ""),
        coding => ("-", coding.as_str()),
    };
    format!("{weak}\"{opaque}{dash}{coding}\"").into_bytes().into_boxed_slice()
}

/// The last change of the file, by whichever of its times is nearer to now.
fn latest(stamp: &Stamp, now_ns: i64) -> i64 {
    match is_young(stamp.ctime_ns, now_ns) && stamp.ctime_ns > stamp.mtime_ns {
        true => stamp.ctime_ns,
        false => stamp.mtime_ns,
    }
}

/// Whether the time of change only repeats the time of modification, to the second: a file system that is made once and
/// mounted to be read (squashfs) keeps no other, and tools give all files of an image the same.
fn has_one_time(stamp: &Stamp) -> bool {
    stamp.ctime_ns == stamp.mtime_ns && stamp.mtime_ns % SECOND_NS == 0
}

fn is_young(changed_ns: i64, now_ns: i64) -> bool {
    now_ns.saturating_sub(changed_ns).unsigned_abs() < YOUNG_NS.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_sys::file::FileKind;
    use std::fs;

    const OLD_NS: i64 = 10 * YOUNG_NS;

    fn stamp(mtime_ns: i64, ctime_ns: i64) -> Stamp {
        let (device, inode, links, size) = (1, 0xabc, 1, 1024);
        Stamp { kind: FileKind::Regular, device, inode, links, size, mtime_ns, ctime_ns }
    }

    fn text(validator: Validator, coding: Coding, stamp: &Stamp, now_ns: i64) -> String {
        let tag = EntityTag::of_file(validator, coding, stamp, EtagMode::Auto, now_ns);
        assert_eq!(tag.text.starts_with(b"W/"), tag.young_until_ns.is_some());
        String::from_utf8(tag.text.into_vec()).unwrap()
    }

    #[test]
    fn a_tag_is_weak_for_two_seconds() {
        for validator in [Validator::Stat, Validator::Content(ContentHash::of(b"a"))] {
            let tag =
                |age_ns| text(validator, Coding::Identity, &stamp(OLD_NS, 0), OLD_NS + age_ns);
            assert!(tag(0).starts_with("W/\""));
            assert!(tag(YOUNG_NS - 1).starts_with("W/\""));
            assert!(tag(YOUNG_NS).starts_with('"'));
            assert!(tag(-YOUNG_NS).starts_with('"'), "a date in the future was set on purpose");
        }
    }

    #[test]
    fn a_time_that_was_put_back_does_not_make_a_tag_of_the_stamp_strong() {
        let tag = |ctime_ns| text(Validator::Stat, Coding::Identity, &stamp(1, ctime_ns), OLD_NS);
        assert!(tag(OLD_NS - 1).starts_with("W/\""));
        assert!(tag(OLD_NS - YOUNG_NS).starts_with('"'));
        assert_ne!(tag(5), tag(6), "and each change is another tag");
    }

    #[test]
    fn a_tag_of_a_stamp_is_weak_where_the_time_of_change_is_none_of_its_own() {
        let now_ns = 1_700_000_000 * SECOND_NS;
        let hash = Validator::Content(ContentHash::of(b"a"));
        for seconds in [0, 1, 315_532_800, 1_600_000_000] {
            let time_ns = seconds * SECOND_NS;
            let tag = |validator, ctime_ns, mode| {
                let stamp = stamp(time_ns, ctime_ns);
                let tag = EntityTag::of_file(validator, Coding::Identity, &stamp, mode, now_ns);
                (tag.text.starts_with(b"W/"), tag.young_until_ns)
            };
            for mode in [EtagMode::Auto, EtagMode::Stat] {
                assert_eq!(tag(Validator::Stat, time_ns, mode), (true, None));
                assert_eq!(tag(Validator::Stat, time_ns + 1, mode), (false, None));
            }
            assert_eq!(tag(hash, time_ns, EtagMode::Auto), (false, None));
        }
        // on a file system on a disk both are the same moment, to a fraction of a second
        let moment_ns = 1_600_000_000 * SECOND_NS + 5;
        assert!(
            text(Validator::Stat, Coding::Identity, &stamp(moment_ns, moment_ns), now_ns)
                .starts_with('"')
        );
    }

    #[test]
    fn each_coding_has_a_tag_of_its_own() {
        let codings = [Coding::Identity, Coding::Br, Coding::Zstd, Coding::Gzip];
        for validator in [Validator::Stat, Validator::Content(ContentHash::of(b""))] {
            let tag = |coding| text(validator, coding, &stamp(1, 1), OLD_NS);
            let tags: std::collections::HashSet<_> = codings.map(tag).into_iter().collect();
            assert_eq!(tags.len(), codings.len());
        }
        let recoded = |text: &str, bytes: &[u8]| {
            let tag = EntityTag { text: text.as_bytes().into(), young_until_ns: None };
            String::from_utf8(tag.recoded(Coding::Br, bytes).text.into_vec()).unwrap()
        };
        let strong = recoded("\"a\"", b"x");
        assert_ne!(recoded("\"a\"", b"y"), strong);
        assert_eq!(recoded("W/\"a\"", b"x"), format!("W/{strong}"));
    }

    #[test]
    fn a_tag_of_the_content_says_nothing_of_the_file() {
        let validator = Validator::Content(ContentHash::of(b"abc"));
        let tag = text(validator, Coding::Identity, &stamp(1, 1), OLD_NS);
        let other = Stamp { device: 7, inode: 8, links: 9, size: 10, ..stamp(11, 12) };
        assert_eq!(tag, text(validator, Coding::Identity, &other, OLD_NS));
        // BLAKE3 of "abc": 6437b3ac38465133ffb63b75273a8db5…, the same for ever and on every machine
        assert_eq!(tag, "\"ZDezrDhGUTP_tjt1JzqNtQ\"");
        assert_eq!(tag.len() + "W/".len() + "-br".len(), EntityTag::widest(Coding::Br).text.len());
    }

    #[test]
    fn weak_is_weak_for_ever() {
        let tag =
            EntityTag::of_file(Validator::Stat, Coding::Br, &stamp(1, 2), EtagMode::Weak, OLD_NS);
        assert_eq!((&*tag.text, tag.young_until_ns), (&b"W/\"400-1-2-br\""[..], None));
    }

    #[test]
    fn a_file_is_hashed_as_it_is() {
        let path = std::env::temp_dir().join(format!("forebay-hash-{}", std::process::id()));
        for size in [0, 1, SCRATCH_BYTES - 1, SCRATCH_BYTES, 3 * SCRATCH_BYTES + 5] {
            let content: Vec<u8> = (0..size).map(|at| (at * 31 % 251) as u8).collect();
            fs::write(&path, &content).unwrap();
            let read = |size| ContentHash::read(fs::File::open(&path).unwrap(), size).unwrap();
            assert_eq!(read(size as u64), Some(ContentHash::of(&content)), "{size}");
            assert_eq!(read(size as u64 + 1), None, "{size}");
            assert!(size == 0 || read(size as u64 - 1).is_none(), "{size}");
        }
        fs::remove_file(path).unwrap();
    }
}
