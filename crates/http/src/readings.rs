//! The readings of a path on which applications do not agree: the ways in which they may understand
//! it.
//!
//! `%2F` and `%5C` are a separator to some applications and a plain character to others, and some
//! merge `//` before or after decoding. A rule that protects a path must hold for each of these
//! readings, whichever the application uses.

/// The most readings that are judged: no honest path has more.
const MOST: usize = 6;

const DOTS: &str = "The path has . or .. in one of its readings, which `ambiguous` never passes";
const MANY: &str = "The path has more readings than `ambiguous` passes";
const SPELLINGS: &str = "The path spells one separator in two ways, which `ambiguous` never passes";
const PARAMETER: &str =
    "The path has an encoded separator in a parameter, which `ambiguous` never passes";
const BACKSLASH: &str =
    "A backslash that is not encoded is no part of a path, whatever `ambiguous` says";

/// The readings of a path with `//`, `%2F` or `%5C`: each is decoded once, and a plain `%2F` or
/// `%5C` stays as these three characters. There are at least one and at most seven, all different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReadings {
    texts: Vec<Vec<u8>>,
    problem: Option<&'static str>,
}

/// Whether applications may read `raw`, as it was sent, in more than one way because of its separators.
#[inline]
pub fn is_ambiguous(raw: &[u8]) -> bool {
    let is_separator = |two: &[u8]| matches!(two, [b'2', b'f' | b'F'] | [b'5', b'c' | b'C']);
    raw.iter().enumerate().any(|(at, &byte)| match byte {
        b'/' => raw.get(at + 1) == Some(&b'/'),
        b'%' => raw.get(at + 1..at + 3).is_some_and(is_separator),
        byte => byte == b'\\',
    })
}

impl PathReadings {
    /// The readings of `raw`, percent-encoded as in a target; `None` if it is no path, however
    /// separators are read.
    pub fn of(raw: &[u8]) -> Option<PathReadings> {
        let (parts, mut problem) = parts_of(raw)?;
        let mut texts: Vec<Vec<u8>> = Vec::with_capacity(4);
        // some read what follows `//` as a host (RFC 3986 §4.2)
        let has_host = matches!(parts[..], [Part::Slash, Part::Slash, ..]);
        let behind_host = parts.iter().skip(2).position(|&part| part == Part::Slash);
        let behind_host = behind_host.filter(|_| has_host).map(|at| &parts[at + 2..]);
        for parts in [&parts[..]].into_iter().chain(behind_host) {
            for reader in PathReader::all() {
                let text = reader.read(parts);
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
        }
        if texts.len() > MOST {
            texts.truncate(MOST);
            problem = problem.or(Some(MANY));
        }
        if texts.iter().any(|text| text.split(|&b| b == b'/').any(is_dots)) {
            problem = problem.or(Some(DOTS));
            let resolved = resolved(&texts[0]);
            if !texts.contains(&resolved) {
                texts.push(resolved);
            }
        }
        Some(PathReadings { texts, problem })
    }

    /// The reading in which every separator counts and is merged: the one by which files are found.
    pub fn main(&self) -> &[u8] {
        self.texts.first().map_or(b"/", Vec::as_slice)
    }

    /// All readings, the [main](PathReadings::main) one first.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.texts.iter().map(Vec::as_slice)
    }

    /// The reason why no application may get the path, whatever the rules decide about its
    /// readings.
    pub fn problem(&self) -> Option<&'static str> {
        self.problem
    }
}

/// A part of a path, decoded once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Slash,
    EncodedSlash,
    Backslash,
    Byte(u8),
}

fn parts_of(raw: &[u8]) -> Option<(Vec<Part>, Option<&'static str>)> {
    if raw.first() != Some(&b'/') {
        return None;
    }
    let (mut parts, mut problem) = (Vec::with_capacity(raw.len()), None);
    let mut spelt: [Option<u8>; 2] = [None; 2];
    // some applications end a parameter at an encoded slash, and others drop the slash with the
    // parameter
    let mut is_parameter = false;
    let mut rest = raw;
    while let [first, behind @ ..] = rest {
        rest = behind;
        let mut byte = *first;
        if byte == b'%' {
            let digit = |at: usize| char::from(*behind.get(at)?).to_digit(16);
            let (high, low) = digit(0).zip(digit(1))?;
            byte = u8::try_from(high << 4 | low).ok()?;
            rest = &behind[2..];
        }
        let part = match (byte, *first) {
            (b'/', b'/') => Part::Slash,
            (b'/', _) => Part::EncodedSlash,
            (b'\\', b'%') => Part::Backslash,
            (b'\\', _) => {
                problem = Some(BACKSLASH);
                Part::Backslash
            }
            (byte, _) if byte.is_ascii_control() => return None,
            (byte, _) => Part::Byte(byte),
        };
        match part {
            Part::Slash => is_parameter = false,
            Part::Byte(byte) => is_parameter |= byte == b';',
            _ if is_parameter => problem = problem.or(Some(PARAMETER)),
            _ => {}
        }
        // an application may know one spelling of a separator and not the other
        let known = match part {
            Part::EncodedSlash => &mut spelt[0],
            Part::Backslash if *first == b'%' => &mut spelt[1],
            _ => {
                parts.push(part);
                continue;
            }
        };
        if known.is_some_and(|known| known != behind[1]) {
            problem = problem.or(Some(SPELLINGS));
        }
        *known = Some(behind[1]);
        parts.push(part);
    }
    Some((parts, problem))
}

/// A way in which an application may read separators.
struct PathReader {
    decodes_slash: bool,
    decodes_backslash: bool,
    merges: Merges,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Merges {
    /// All separators that follow each other are merged, decoded or not.
    All,
    /// Separators that were sent as slashes are merged, before decoding.
    Sent,
    Nothing,
}

impl PathReader {
    /// All readers, first the one that reads all separators as such.
    fn all() -> impl Iterator<Item = PathReader> {
        (0..12).map(|number| PathReader {
            decodes_slash: number & 1 == 0,
            decodes_backslash: number & 2 == 0,
            merges: [Merges::All, Merges::Nothing, Merges::Sent][number >> 2],
        })
    }

    fn read(&self, parts: &[Part]) -> Vec<u8> {
        let mut text = Vec::with_capacity(parts.len());
        let mut before = None;
        for &part in parts {
            let separates = match part {
                Part::Slash => true,
                Part::EncodedSlash => self.decodes_slash,
                Part::Backslash => self.decodes_backslash,
                Part::Byte(_) => false,
            };
            let is_merged = match self.merges {
                Merges::All => separates && text.last() == Some(&b'/'),
                Merges::Sent => part == Part::Slash && before == Some(Part::Slash),
                Merges::Nothing => false,
            };
            before = Some(part);
            match part {
                _ if is_merged => {}
                _ if separates => text.push(b'/'),
                Part::EncodedSlash => text.extend_from_slice(b"%2F"),
                Part::Backslash => text.extend_from_slice(b"%5C"),
                Part::Byte(byte) => text.push(byte),
                Part::Slash => {}
            }
        }
        text
    }
}

/// Whether an application may take a segment for `.` or `..`: some drop what follows a semicolon.
fn is_dots(segment: &[u8]) -> bool {
    let name = segment.split(|&b| b == b';').next().unwrap_or_default();
    matches!(name, b"." | b"..")
}

/// The reading of an application that resolves dots, and stays at the root.
fn resolved(text: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for segment in text.split(|&b| b == b'/').skip(1) {
        match segment.split(|&b| b == b';').next() {
            Some(b"..") => drop(names.pop()),
            Some(b".") => {}
            _ => names.push(segment),
        }
    }
    [b"/".as_slice(), &names.join(&b'/')].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(raw: &str) -> (Vec<String>, bool) {
        let of = PathReadings::of(raw.as_bytes()).unwrap();
        let texts = of.iter().map(|text| String::from_utf8(text.to_vec()).unwrap()).collect();
        (texts, of.problem().is_some())
    }

    #[test]
    fn separators_are_read_in_every_way() {
        for (raw, expected) in [
            ("/@acme%2ftool", &["/@acme/tool", "/@acme%2Ftool"][..]),
            ("/a%5Cb", &["/a/b", "/a%5Cb"]),
            ("/web/http://x/", &["/web/http:/x/", "/web/http://x/"]),
            ("/a%2F%2Fb", &["/a/b", "/a%2F%2Fb", "/a//b"]),
            // decoded once
            ("/a%252Fb//c", &["/a%2Fb/c", "/a%2Fb//c"]),
            ("/a//b%2Fc", &["/a/b/c", "/a/b%2Fc", "/a//b/c", "/a//b%2Fc"]),
            ("/a%2Fb%5Cc", &["/a/b/c", "/a%2Fb/c", "/a/b%5Cc", "/a%2Fb%5Cc"]),
            ("//x/admin", &["/x/admin", "//x/admin", "/admin"]),
            ("//x", &["/x", "//x"]),
            ("/a", &["/a"]),
        ] {
            assert_eq!(readings(raw), (expected.iter().map(|&t| t.to_owned()).collect(), false));
            assert_eq!(is_ambiguous(raw.as_bytes()), expected.len() > 1, "{raw}");
        }
    }

    #[test]
    fn what_is_never_passed() {
        for raw in [
            "/a/..%2Fadmin",
            "/a%2f..",
            "/a%2f%2e%2e%2fb",
            "/a/.%5c",
            "/a//./b",
            "/a//..;x/b",
            "/a%2F.;x",
            "/a%2Fb%2fc",
            "/a%5Cb%5cc",
            "/a\\b",
            "/;%2Fa/%2Fadmin",
            "/a%3bx%5cb",
            "//x//a%2Fb%5Cc",
        ] {
            assert!(readings(raw).1, "{raw}");
            assert!(is_ambiguous(raw.as_bytes()), "{raw}");
        }
        assert_eq!(readings("/a/..%2Fadmin/x").0.last().map(String::as_str), Some("/admin/x"));
        for raw in ["/a%2Fb%00", "/a%2Fb%", "*"] {
            assert_eq!(PathReadings::of(raw.as_bytes()), None, "{raw}");
        }
    }
}
