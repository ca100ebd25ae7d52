//! "Did you mean": the known word closest to a mistyped one, for classes, sites and settings.

/// The candidate closest to `word`; `None` if none is close enough to be a typing error.
pub fn nearest<'c>(word: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    if word.len() > 64 {
        return None;
    }
    let word = word.to_lowercase();
    let likeness = |candidate: &str| {
        let lower = candidate.to_lowercase();
        is_slip(&word, &lower).then(|| strsim::jaro_winkler(&word, &lower))
    };
    candidates
        .filter_map(|candidate| Some((likeness(candidate)?, candidate)))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

/// Whether the words differ in few letters, or one is a part of the other.
fn is_slip(word: &str, candidate: &str) -> bool {
    let (short, long) = match word.len() < candidate.len() {
        true => (word, candidate),
        false => (candidate, word),
    };
    let is_part = long.starts_with(short) || (short.len() > 2 && long.contains(short));
    is_part || strsim::osa_distance(short, long) <= (long.len() / 3).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_alike_is_a_slip() {
        for (word, candidate, expected) in [
            ("haed", "head", true),
            ("Workers", "workers", true),
            ("golf", "GOLD", true),
            ("brotli", "br", true),
            ("max_connections", "connections", true),
            ("prio", "priority", true),
            ("shpo.example", "shop.example", true),
            ("from", "format", false),
            ("vhost", "hosts", false),
            ("url", "rule", false),
            ("acme", "name", false),
            ("source", "socket", false),
        ] {
            let found = nearest(word, [candidate].into_iter());
            assert_eq!(found.is_some(), expected, "{word} {candidate}");
        }
    }
}
