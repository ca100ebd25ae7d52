//! "Did you mean": the word that was probably meant.

/// The known word most like `word`, if one is like it at all.
pub(crate) fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let lower = word.to_lowercase();
    let likeness = |one: &str| strsim::jaro_winkler(&lower, &one.to_lowercase());
    let rated = known.map(|one| (likeness(one), one)).filter(|(likeness, _)| *likeness > 0.7);
    rated.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, one)| one)
}
