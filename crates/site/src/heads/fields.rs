//! The fields of an answer while they are put together, and the rules that change them.

use crate::rules::HeaderRule;
use forebay_conn::HeadValues;
use std::borrow::Cow;

/// Fields in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerFields<'f>(Vec<(&'f str, Cow<'f, [u8]>)>);

impl<'f> From<Vec<(&'f str, Cow<'f, [u8]>)>> for AnswerFields<'f> {
    fn from(fields: Vec<(&'f str, Cow<'f, [u8]>)>) -> AnswerFields<'f> {
        AnswerFields(fields)
    }
}

impl<'f> AnswerFields<'f> {
    pub(crate) fn push(&mut self, name: &'f str, value: impl Into<Cow<'f, [u8]>>) {
        self.0.push((name, value.into()));
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|(at, _)| at.eq_ignore_ascii_case(name))
    }

    /// Takes a field out.
    pub(crate) fn take(&mut self, name: &str) -> Option<Cow<'f, [u8]>> {
        self.position(name).map(|at| self.0.remove(at).1)
    }

    /// The value of a field.
    pub(crate) fn value(&self, name: &str) -> Option<Cow<'f, [u8]>> {
        self.position(name).map(|at| self.0[at].1.clone())
    }

    /// Whether there is such a field.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    fn set(&mut self, name: &'f str, value: &'f [u8]) {
        let Some(at) = self.position(name) else { return self.push(name, value) };
        if !name.eq_ignore_ascii_case("Vary") {
            // an application may have sent the field several times
            let mut place = 0..;
            self.0
                .retain(|(other, _)| place.next() == Some(at) || !other.eq_ignore_ascii_case(name));
        }
        let held = &mut self.0[at];
        if name.eq_ignore_ascii_case("Vary") {
            // the answer still depends on what it depended on before
            for one in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                let mut known = held.1.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
                if !known.any(|known| known.eq_ignore_ascii_case(one)) {
                    held.1 = [&held.1, b", ".as_slice(), one].concat().into();
                }
            }
        } else {
            *held = (name, Cow::Borrowed(value));
        }
    }

    /// Changes the fields as the rules for a path say. The type is that of the fields, or of the
    /// answer they belong to if that is given, as for a 304.
    pub(crate) fn apply(&mut self, header_rules: HeaderRuleSet<'f>, content_type: Option<&str>) {
        for rule in header_rules.rules() {
            let own = self.position("Content-Type").map(|at| &self.0[at].1);
            let own = own.and_then(|value| std::str::from_utf8(value).ok());
            let media_type = content_type.or(own).unwrap_or_default();
            if rule.media_type().is_some_and(|pattern| !pattern.matches(media_type)) {
                continue;
            }
            for name in rule.remove() {
                self.0.retain(|(other, _)| !name.is(other));
            }
            for (name, value) in rule.lines() {
                self.set(name, value);
            }
        }
    }

    /// Puts the values of a request into their places.
    pub(crate) fn fill(&mut self, values: &HeadValues) {
        self.0.retain_mut(|(_, value)| match values.filled(value) {
            Some(filled) if filled == &**value => true,
            Some(filled) => {
                *value = Cow::Owned(filled.to_vec());
                true
            }
            None => false,
        });
    }

    /// Changes a Cache-Control that rules have set for a path's content: an error must not be kept
    /// as long. If the application's `own` value forbids keeping the answer, it is put in its
    /// place.
    pub(crate) fn shorten_for_error(&mut self, own: Option<Cow<'f, [u8]>>) {
        let Some(at) = self.position("Cache-Control") else { return };
        if !lets_keep(&self.0[at].1) {
            return;
        }
        let is_private =
            String::from_utf8_lossy(&self.0[at].1).to_ascii_lowercase().contains("private");
        match own.filter(|own| forbids_keeping(own)) {
            _ if is_private => self.0[at].1 = Cow::Borrowed(b"private"),
            Some(own) => self.0[at].1 = own,
            None => _ = self.0.remove(at),
        }
    }

    /// Appends the lines.
    pub(crate) fn write(&self, head: &mut Vec<u8>) {
        self.0.iter().for_each(|(name, value)| line(head, name, value));
    }
}

/// Whether a Cache-Control lets answers be kept for a time.
fn lets_keep(value: &[u8]) -> bool {
    let value = String::from_utf8_lossy(value).to_ascii_lowercase();
    ["max-age", "s-maxage", "public", "immutable"].iter().any(|word| value.contains(word))
}

/// Whether a Cache-Control forbids keeping an answer, or has it validated each time.
fn forbids_keeping(value: &[u8]) -> bool {
    let value = String::from_utf8_lossy(value).to_ascii_lowercase();
    value.contains("no-cache") || value.contains("no-store")
}

/// Appends one field line.
pub(crate) fn line(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

/// The header rules of a site that are for one path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeaderRuleSet<'r> {
    all: &'r [HeaderRule],
    which: &'r [u16],
}

impl<'r> HeaderRuleSet<'r> {
    /// The rules with these numbers, of all rules of the site.
    pub(crate) fn new(all: &'r [HeaderRule], which: &'r [u16]) -> HeaderRuleSet<'r> {
        HeaderRuleSet { all, which }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.which.is_empty()
    }

    fn rules(self) -> impl Iterator<Item = &'r HeaderRule> {
        self.which.iter().filter_map(move |number| self.all.get(usize::from(*number)))
    }
}

/// The numbers of the rules for a path, of those from number `first` on.
pub(crate) fn header_rules_of(rules: &[HeaderRule], first: u16, path: &[u8]) -> Box<[u16]> {
    let fits = |rule: &HeaderRule| rule.path().is_none_or(|pattern| pattern.matches(path));
    let numbered = (0..=u16::MAX).zip(rules).skip(usize::from(first));
    numbered.filter(|(_, rule)| fits(rule)).map(|(number, _)| number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{FieldName, FieldValue, MediaPattern, Pattern};

    fn rule(
        path: Option<&str>,
        kind: Option<&str>,
        set: &[(&str, &str)],
        remove: &[&str],
    ) -> HeaderRule {
        let name = |text: &str| FieldName::parse(text).unwrap();
        let set = set.iter().map(|(at, value)| (name(at), FieldValue::parse(value).unwrap()));
        let path = path.map(|path| Pattern::parse(path).unwrap());
        let kind = kind.map(|kind| MediaPattern::parse(kind).unwrap());
        HeaderRule::new(path, kind, set.collect(), remove.iter().map(|at| name(at)).collect())
            .unwrap()
    }

    #[test]
    fn rules_apply_in_order() {
        let rules = [
            rule(None, None, &[("x-a", "1"), ("Vary", "Origin")], &["server"]),
            rule(Some("/b/*"), None, &[("X-A", "never")], &[]),
            rule(Some("/a*"), Some("text/*"), &[("X-A", "2"), ("Cache-Control", "no-store")], &[]),
            rule(None, Some("image/*"), &[("X-B", "never")], &[]),
        ];
        let which = header_rules_of(&rules, 0, b"/a");
        assert_eq!(*which, [0, 2, 3]);
        let mut fields = AnswerFields::default();
        for (name, value) in [
            ("Content-Type", "text/css; charset=utf-8"),
            ("Server", "Forebay"),
            ("Cache-Control", "no-cache"),
            ("Vary", "Accept-Encoding"),
        ] {
            fields.push(name, value.as_bytes());
        }
        fields.apply(HeaderRuleSet::new(&rules, &which), None);
        let mut head = Vec::new();
        fields.write(&mut head);
        let expected = "Content-Type: text/css; charset=utf-8\r\nCache-Control: no-store\r\n\
            Vary: Accept-Encoding, Origin\r\nX-A: 2\r\n";
        assert_eq!(String::from_utf8(head).unwrap(), expected);
    }

    #[test]
    fn an_error_is_not_kept_like_content() {
        for (said, left) in [
            ("public, max-age=31536000", None),
            ("Private, max-age=60", Some("private")),
            ("no-store", Some("no-store")),
            ("no-cache", Some("no-cache")),
        ] {
            let mut fields = AnswerFields::default();
            fields.push("cache-control", said.as_bytes());
            let mut own = fields.clone();
            fields.shorten_for_error(None);
            assert_eq!(fields.take("Cache-Control").as_deref(), left.map(str::as_bytes), "{said}");
            // an application has sent such a field, too
            own.shorten_for_error(Some(Cow::Borrowed(b"no-cache, max-age=0")));
            let left = left.unwrap_or("no-cache, max-age=0");
            assert_eq!(own.take("Cache-Control").as_deref(), Some(left.as_bytes()), "{said}");
        }
    }

    #[test]
    fn the_type_may_be_that_of_another_answer() {
        let rules = [rule(None, Some("image/*"), &[("X-B", "1")], &[])];
        let mut fields = AnswerFields::default();
        fields.apply(HeaderRuleSet::new(&rules, &[0]), Some("image/png"));
        assert!(fields.take("X-b").is_some());
    }
}
