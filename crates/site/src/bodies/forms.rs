//! The precompressed forms of files that may lie in a watched directory.
//!
//! Most files have none, and to look for three of them costs more than to find the file. So a
//! directory in which many were looked for is read once; the watcher reports names that come later.
//! The names kept are those that may be there: one that is removed stays among them, and is looked
//! for in vain.

use forebay_http::coding::Coding;
use std::collections::HashSet;

/// The codings in which a file may lie beside its original.
pub(crate) const CODINGS: [Coding; 3] = [Coding::Br, Coding::Zstd, Coding::Gzip];

/// The number of names looked at in a directory before it is read.
const WORTH_READING: u32 = 32;

/// A directory with more names than this is not read to its end, and no more forms are remembered.
pub(crate) const MOST_NAMES: usize = 1 << 16;

/// The forms in one directory, as far as they are known.
#[derive(Debug)]
pub(crate) enum Forms {
    /// Nothing is known; the number of looks for forms so far.
    Unknown(u32),
    /// The directory is being read. These forms came meanwhile.
    Reading(HashSet<Box<[u8]>>),
    /// The directory has been read; no forms but these are there.
    Known(HashSet<Box<[u8]>>),
    /// Nothing is known, and trying again is of no use.
    Unknowable,
}

impl Default for Forms {
    fn default() -> Forms {
        Forms::Unknown(0)
    }
}

/// The answer to a question for a file's forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedForms {
    /// Forms in any coding may be there.
    Any,
    /// The same, but now it is worth reading the directory: [`Forms::learn`] must follow.
    ReadFirst,
    /// Forms in these of the [`CODINGS`] alone.
    These([bool; CODINGS.len()]),
}

impl ExpectedForms {
    /// Whether the form in this coding must be looked for.
    pub(crate) fn is(self, coding: Coding) -> bool {
        match self {
            ExpectedForms::Any | ExpectedForms::ReadFirst => true,
            ExpectedForms::These(these) => {
                CODINGS.into_iter().zip(these).any(|(at, is)| at == coding && is)
            }
        }
    }
}

impl Forms {
    /// The forms of the file `name` that may be there.
    pub(crate) fn expected(&mut self, name: &[u8]) -> ExpectedForms {
        match self {
            Forms::Unknown(looks) if *looks < WORTH_READING => {
                *looks += 1;
                ExpectedForms::Any
            }
            Forms::Unknown(_) => {
                *self = Forms::Reading(HashSet::new());
                ExpectedForms::ReadFirst
            }
            Forms::Known(names) if names.is_empty() => ExpectedForms::These([false; CODINGS.len()]),
            Forms::Known(names) => {
                let is_there = |coding: Coding| {
                    names.contains([name, coding.suffix().as_bytes()].concat().as_slice())
                };
                ExpectedForms::These(CODINGS.map(is_there))
            }
            Forms::Reading(_) | Forms::Unknowable => ExpectedForms::Any,
        }
    }

    /// Notes that something happened to a form of this name.
    pub(crate) fn may_be_there(&mut self, name: &[u8]) {
        match self {
            Forms::Reading(names) | Forms::Known(names) => {
                if names.len() >= MOST_NAMES {
                    *self = Forms::Unknowable;
                } else if !names.contains(name) {
                    names.insert(name.into());
                }
            }
            Forms::Unknown(_) | Forms::Unknowable => {}
        }
    }

    /// Takes all names of the directory, which was read after [`ExpectedForms::ReadFirst`]; `None`
    /// if it could not be read to its end.
    pub(crate) fn learn(&mut self, all: Option<Vec<Vec<u8>>>) {
        let Forms::Reading(came) = self else { return };
        *self = match all {
            None => Forms::Unknowable,
            Some(all) => {
                let forms = all.into_iter().filter(|name| original(name).is_some());
                let names = forms.map(Vec::into_boxed_slice).chain(came.drain());
                Forms::Known(names.collect())
            }
        };
    }
}

/// The name of the file that one with this name would be a precompressed form of.
pub(crate) fn original(name: &[u8]) -> Option<&[u8]> {
    let mut suffixes = CODINGS.into_iter().map(Coding::suffix);
    suffixes.find_map(|suffix| name.strip_suffix(suffix.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(forms: &mut Forms, names: &[&str]) {
        while forms.expected(b"a") == ExpectedForms::Any {}
        forms.learn(Some(names.iter().map(|name| name.as_bytes().to_vec()).collect()));
    }

    #[test]
    fn a_directory_is_read_once_and_then_told_of() {
        let mut forms = Forms::default();
        assert_eq!(forms.expected(b"a"), ExpectedForms::Any);
        forms.may_be_there(b"a.gz");
        read(&mut forms, &["a", "a.zst", "b.br", "c"]);
        let expected = |forms: &mut Forms, name: &str| {
            CODINGS.map(|coding| forms.expected(name.as_bytes()).is(coding))
        };
        assert_eq!(expected(&mut forms, "a"), [false, true, false]);
        assert_eq!(expected(&mut forms, "b"), [true, false, false]);
        assert_eq!(expected(&mut forms, "c"), [false; 3]);
        forms.may_be_there(b"c.gz");
        assert_eq!(expected(&mut forms, "c"), [false, false, true]);
    }

    #[test]
    fn what_comes_while_it_is_read_is_not_forgotten() {
        let mut forms = Forms::default();
        while forms.expected(b"a") == ExpectedForms::Any {}
        assert_eq!(forms.expected(b"a"), ExpectedForms::Any, "somebody else reads it");
        forms.may_be_there(b"a.gz");
        forms.learn(Some(Vec::new()));
        assert_eq!(forms.expected(b"a"), ExpectedForms::These([false, false, true]));
        let mut forms = Forms::default();
        while forms.expected(b"a") == ExpectedForms::Any {}
        forms.learn(None);
        assert_eq!(forms.expected(b"a"), ExpectedForms::Any);
    }

    #[test]
    fn the_original_has_the_same_name_without_the_end() {
        assert_eq!(original(b"a.tar.gz"), Some(&b"a.tar"[..]));
        assert_eq!(original(b"a.br.zst"), Some(&b"a.br"[..]));
        assert_eq!(original(b"a.gzip"), None);
    }
}
