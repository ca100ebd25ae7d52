//! The media type that the client prefers (RFC 9110 §12.5.1).

use crate::coding::read_weight;
use crate::head::{Head, Name};

/// Whether the client prefers the type `other` to `usual`, of the two that exist. Both are written
/// `type/subtype`.
///
/// The higher weight wins; if they are equal, the one that is named more exactly, and then the
/// usual one. The usual one is also the answer without the field, and if neither is acceptable.
pub fn prefers(head: &Head<'_>, other: &str, usual: &str) -> bool {
    if !head.has(Name::Accept) {
        return false;
    }
    let merit = |media_type| {
        let items = head.values(Name::Accept).flat_map(|line| line.split(|&b| b == b','));
        let fits = items.filter_map(|item| fit(item.trim_ascii(), media_type));
        let (exactness, weight) = fits.max_by_key(|(exactness, _)| *exactness).unwrap_or((0, 0));
        (weight, exactness)
    };
    let other = merit(other);
    other.0 > 0 && other > merit(usual)
}

/// How exactly a range names the type, from 1, and its weight; `None` if it does not name it.
fn fit(item: &[u8], media_type: &str) -> Option<(u8, u16)> {
    // parameters of the type itself are not compared
    let name_end = item.iter().position(|&b| b == b';').unwrap_or(item.len());
    let name = item[..name_end].trim_ascii_end();
    let exactness = match name.strip_suffix(b"/*") {
        Some(b"*") => 1,
        Some(kind) => {
            let own = media_type.split('/').next().unwrap_or_default();
            kind.eq_ignore_ascii_case(own.as_bytes()).then_some(2)?
        }
        None => name.eq_ignore_ascii_case(media_type.as_bytes()).then_some(3)?,
    };
    let parameters = item[name_end..].split(|&b| b == b';').map(<[u8]>::trim_ascii);
    let mut weighed =
        parameters.filter(|text| text.get(..2).is_some_and(|q| q.eq_ignore_ascii_case(b"q=")));
    let weight = match weighed.next_back() {
        None => 1000,
        Some(text) => read_weight(&text[2..])?,
    };
    Some((exactness, weight))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::tests::with_fields;

    #[test]
    fn the_usual_type_unless_the_other_is_preferred() {
        for (accept, expected) in [
            ("", false),
            ("Accept: application/json\r\n", true),
            ("Accept: Application/JSON; charset=utf-8\r\n", true),
            ("Accept: application/json, text/plain, */*\r\n", true),
            ("Accept: text/html,application/json\r\n", false),
            ("Accept: text/html;q=0.5\r\nAccept: application/json;q=0.6\r\n", true),
            ("Accept: */*\r\n", false),
            ("Accept: application/*, text/*;q=0.9\r\n", true),
            ("Accept: application/json;q=0, */*\r\n", false),
            ("Accept: application/json;q=0\r\n", false),
            ("Accept: text/html;q=0, */*;q=0.1\r\n", true),
            ("Accept: application/json;q=nonsense\r\n", false),
            ("Accept: ,;,/,*\r\n", false),
        ] {
            let got =
                with_fields("GET", accept, |head| prefers(head, "application/json", "text/html"));
            assert_eq!(got, expected, "{accept}");
        }
    }
}
