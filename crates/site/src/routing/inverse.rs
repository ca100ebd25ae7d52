//! Templates followed backwards: the paths that lead to a path.
//!
//! A capture may have been cut in several ways, and a slash at its edge may have been merged with
//! one of the template. Each way is found, up to a bound. The text of a star that the template does
//! not use cannot be recovered; then only the beginning and the end of the path are known, and a
//! rule holds if it is for all such paths.

use crate::rules::{GuardedPaths, MOST_CAPTURES, Scope, Template, TemplatePart};

/// The largest number of paths that are told apart for one rule. If there are more, all that fit
/// its pattern are meant.
const MOST_PATHS: usize = 32;

/// The largest number of ends of captures that are tried for one rule, besides one for each byte of
/// the path, which is enough for a single capture; comparing 64 bytes is one step. Beyond it, too,
/// all that fit the rule's pattern are meant.
const MOST_STEPS: usize = 512;

/// A path under which a file can be asked for, or all paths with a beginning and an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathName {
    /// A single path.
    Exact(Vec<u8>),
    /// All paths with this beginning and end.
    Between { start: Vec<u8>, end: Vec<u8> },
}

impl PathName {
    /// The path, if it is a single one.
    pub(crate) fn path(&self) -> Option<&[u8]> {
        match self {
            PathName::Exact(path) => Some(path),
            PathName::Between { .. } => None,
        }
    }

    /// Whether a rule is for the path: for all of the paths, if there are many. A rule for some of
    /// them would close the targets of the others.
    pub(crate) fn is_in(&self, scope: &Scope) -> bool {
        match self {
            PathName::Exact(path) => scope.contains(path),
            PathName::Between { start, .. } => scope.contains_all(start),
        }
    }

    /// Whether a rule closes the path: certainly one of the paths, if there are many and the rule
    /// is for all.
    pub(crate) fn is_closed_by(&self, paths: &GuardedPaths) -> bool {
        match self {
            PathName::Exact(path) => paths.contains(path),
            PathName::Between { start, .. } => paths.contains_all(start),
        }
    }

    /// The text of the name, with a star where nothing is known.
    #[cfg(test)]
    pub(crate) fn written(&self) -> String {
        match self {
            PathName::Exact(path) => String::from_utf8_lossy(path).into_owned(),
            PathName::Between { start, end } => {
                let text = [start.as_slice(), b"*", end.as_slice()].concat();
                String::from_utf8_lossy(&text).into_owned()
            }
        }
    }
}

/// The paths from which `template` makes `to`, and perhaps others. They fit the pattern that has
/// `pieces` between its stars. A target that is the same for many paths names none of them.
pub(crate) fn leading_to(pieces: &[&[u8]], template: &Template, to: &[u8]) -> Vec<PathName> {
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Vec::new() };
    let steps = steps_of(pieces, template);
    let is_variable = steps.iter().any(|step| matches!(step, TemplateStep::Star(_)));
    if pieces.len() > 1 && !is_variable {
        return Vec::new();
    }
    let mut search = InverseSearch {
        pieces,
        to,
        steps_left: to.len() + 1 + MOST_STEPS,
        captured: [None; MOST_CAPTURES],
        found: Vec::new(),
    };
    match search.fill(&steps, 0) {
        Some(()) => search.found,
        None => vec![PathName::Between { start: first.to_vec(), end: last.to_vec() }],
    }
}

/// A part of a template, with `$path` taken apart.
#[derive(Clone, Copy)]
enum TemplateStep<'t> {
    Text(&'t [u8]),
    /// The text of this star of the pattern; the first is 0.
    Star(usize),
}

fn steps_of<'t>(pieces: &[&'t [u8]], template: &'t Template) -> Vec<TemplateStep<'t>> {
    let mut steps = Vec::new();
    for part in template.parts() {
        match part {
            TemplatePart::Text(text) => steps.push(TemplateStep::Text(text.as_bytes())),
            TemplatePart::Capture(number) => {
                steps.extend(usize::from(*number).checked_sub(1).map(TemplateStep::Star));
            }
            TemplatePart::Path => {
                for (star, &piece) in pieces.iter().enumerate() {
                    steps.extend(star.checked_sub(1).map(TemplateStep::Star));
                    steps.extend((!piece.is_empty()).then_some(TemplateStep::Text(piece)));
                }
            }
            // rules for files have no such parts
            TemplatePart::Query | TemplatePart::Host | TemplatePart::Of(_) => {}
        }
    }
    steps
}

/// The text that a star matched.
#[derive(Clone, Copy)]
struct KnownCapture<'n> {
    /// Whether the text began with a slash that was merged with the one before it.
    has_merged: bool,
    text: &'n [u8],
}

/// A search for the texts that the stars of a pattern matched.
struct InverseSearch<'n> {
    /// The texts between the stars.
    pieces: &'n [&'n [u8]],
    /// The path that was led to.
    to: &'n [u8],
    steps_left: usize,
    captured: [Option<KnownCapture<'n>>; MOST_CAPTURES],
    found: Vec<PathName>,
}

impl InverseSearch<'_> {
    /// Finds texts for the stars with which the steps make the path from `at` on. `None` if a bound
    /// is reached.
    fn fill(&mut self, steps: &[TemplateStep<'_>], at: usize) -> Option<()> {
        let Some((step, rest)) = steps.split_first() else {
            return if at == self.to.len() { self.add() } else { Some(()) };
        };
        let end = match *step {
            TemplateStep::Text(text) => self.end_of(text, at),
            TemplateStep::Star(star) => match self.captured[star] {
                Some(KnownCapture { has_merged, text }) => {
                    self.steps_left = self.steps_left.checked_sub(text.len() / 64)?;
                    let slash: &[u8] = if has_merged { b"/" } else { b"" };
                    self.end_of(slash, at).and_then(|at| self.end_of(text, at))
                }
                None => return self.fill_star(star, rest, at),
            },
        };
        match end {
            Some(end) => self.fill(rest, end),
            None => Some(()),
        }
    }

    /// The same for a star that has no text yet, and the steps behind it.
    fn fill_star(&mut self, star: usize, rest: &[TemplateStep<'_>], at: usize) -> Option<()> {
        let to = self.to;
        // the last step has the rest of the path
        let first_end = if rest.is_empty() { to.len() } else { at };
        for end in first_end..=to.len() {
            self.steps_left = self.steps_left.checked_sub(1)?;
            for has_merged in [false, true] {
                let capture = KnownCapture { has_merged, text: &to[at..end] };
                if (has_merged && !self.is_after_slash(at)) || !self.is_possible(star, capture) {
                    continue;
                }
                self.captured[star] = Some(capture);
                self.fill(rest, end)?;
            }
        }
        self.captured[star] = None;
        Some(())
    }

    /// The end of a text that begins at `at`, if it is there. Slashes are merged.
    fn end_of(&self, text: &[u8], mut at: usize) -> Option<usize> {
        for byte in text {
            if *byte == b'/' && self.is_after_slash(at) {
                continue;
            }
            if self.to.get(at) != Some(byte) {
                return None;
            }
            at += 1;
        }
        Some(at)
    }

    fn is_after_slash(&self, at: usize) -> bool {
        at.checked_sub(1).and_then(|before| self.to.get(before)) == Some(&b'/')
    }

    /// Whether the text leaves no two slashes in a row beside the star, which no path has.
    fn is_possible(&self, star: usize, capture: KnownCapture<'_>) -> bool {
        let KnownCapture { has_merged, text } = capture;
        let has_first = has_merged || text.starts_with(b"/");
        let has_last = text.ends_with(b"/") || (has_merged && text.is_empty());
        let before = self.pieces.get(star).is_some_and(|piece| piece.ends_with(b"/"));
        let after = self.pieces.get(star + 1).is_some_and(|piece| piece.starts_with(b"/"));
        let is_double = (has_first && before) || (has_last && after);
        !is_double
    }

    /// Adds the path that the stars make with their texts. `None` if there are too many.
    fn add(&mut self) -> Option<()> {
        self.steps_left = self.steps_left.checked_sub(self.to.len() / 64)?;
        let name = self.name();
        let (start, end) = match &name {
            PathName::Exact(path) => (path.as_slice(), b"".as_slice()),
            PathName::Between { start, end } => (start.as_slice(), end.as_slice()),
        };
        let is_open = start.is_empty() && name.path().is_none();
        let has_two = |text: &[u8]| text.windows(2).any(|two| two == b"//");
        let is_path = (is_open || start.starts_with(b"/")) && !has_two(start) && !has_two(end);
        if is_path && !self.found.contains(&name) {
            if self.found.len() == MOST_PATHS {
                return None;
            }
            self.found.push(name);
        }
        Some(())
    }

    /// The path of the stars; or its beginning up to the first star without a text, and its end
    /// from the last such star on.
    fn name(&self) -> PathName {
        let mut start = Vec::new();
        let mut end: Option<Vec<u8>> = None;
        for (number, piece) in self.pieces.iter().enumerate() {
            if let Some(star) = number.checked_sub(1) {
                match self.captured[star] {
                    Some(KnownCapture { has_merged, text }) => {
                        let text_end = end.as_mut().unwrap_or(&mut start);
                        text_end.extend(has_merged.then_some(b'/'));
                        text_end.extend_from_slice(text);
                    }
                    None => end = Some(Vec::new()),
                }
            }
            end.as_mut().unwrap_or(&mut start).extend_from_slice(piece);
        }
        match end {
            Some(end) => PathName::Between { start, end },
            None => PathName::Exact(start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn found(pattern: &str, template: &str, to: &str) -> BTreeSet<String> {
        let pieces: Vec<_> = pattern.split('*').map(str::as_bytes).collect();
        let names = leading_to(&pieces, &Template::parse(template).unwrap(), to.as_bytes());
        names.iter().map(PathName::written).collect()
    }

    #[test]
    fn what_leads_to_a_path_is_found_in_every_way() {
        for (pattern, template, to, expected) in [
            ("/a", "/b", "/b", &["/a"][..]),
            ("/a", "/b", "/c", &[]),
            // the last text is at the end, and slashes are merged
            ("/m/*", "/d/$1.txt", "/d/x.txt.txt", &["/m/x.txt"]),
            ("/m/*", "/d/$1/", "/d/a/b/", &["/m/a/b", "/m/a/b/"]),
            ("/m*", "/d/$1", "/d/x", &["/m/x", "/mx"]),
            ("/m*", "/d/$1", "/d/", &["/m", "/m/"]),
            ("/m/*", "/d/$1/x", "/d/x", &["/m/"]),
            ("/m*", "/d//$1", "/d/x", &["/m/x", "/mx"]),
            ("*", "/d$1", "/d/x", &["/x"]),
            ("*", "/d$1", "/dx", &[]),
            // wherever a text between two captures is
            ("/u/*/p/*", "/d/$2-$1", "/d/a-b-c", &["/u/b-c/p/a", "/u/c/p/a-b"]),
            ("/u/*/*", "/d/$1$2", "/d/ab", &["/u/a/b", "/u/ab/"]),
            // twice the same
            ("/m/*", "/d/$1/$1.txt", "/d/ab/ab.txt", &["/m/ab"]),
            ("/m/*", "/d/$1/$1.txt", "/d/ab/a.txt", &[]),
            ("/m/*", "/$1$path", "/ab/m/ab", &["/m/ab"]),
            ("/m/*", "/$1$path", "/ab/m/a", &[]),
            // nothing shows what the star matched
            ("/n/*/*", "/s/$2", "/s/x", &["/n/*/x"]),
            ("/n/*/*", "/s/$1", "/s/x", &["/n/x/*"]),
            ("*/n/*", "/s/$2", "/s/x", &["*/n/x"]),
            ("/*/b/*/*/c", "/s/$2", "/s/x", &["/*/c"]),
            ("/n/*", "/page.html", "/page.html", &[]),
        ] {
            let expected: BTreeSet<_> = expected.iter().map(|path| (*path).to_owned()).collect();
            assert_eq!(found(pattern, template, to), expected, "{pattern} {template} {to}");
        }
    }

    #[test]
    fn beyond_a_bound_all_that_fit_the_pattern_are_meant() {
        let dashes = |number| format!("/d/{}a", "a-".repeat(number));
        assert_eq!(found("/u/*/p/*", "/d/$2-$1", &dashes(MOST_PATHS)).len(), MOST_PATHS);
        let all = BTreeSet::from(["/u/*".to_owned()]);
        assert_eq!(found("/u/*/p/*", "/d/$2-$1", &dashes(MOST_PATHS + 1)), all);
        // none is found, but not every way was tried
        let long = format!("/d/{}", "a-".repeat(MOST_STEPS));
        assert_eq!(found("/u/*/p/*", "/d/$2-$1.txt", &long), all);
        // one capture needs no bound
        assert_eq!(found("/u/*", "/d/$1.txt", &long), BTreeSet::new());
    }
}
