//! Selections: the rows that are meant, and the subjects of a claim.

use super::ClaimSubject;
use crate::experiment::{
    Claim, ClaimKind, CurveShape, Experiment, ExperimentTask, RatioTo, RowSelector, SelectedWord,
};
use crate::rows::RawRow;

/// Whether a row has one of the words of each key.
pub fn is_selected(row: &RawRow, selector: &RowSelector) -> bool {
    selector
        .0
        .iter()
        .all(|SelectedWord { key, words }| words.iter().any(|word| word == row.text(key)))
}

/// Both selectors together; where both name a key, the second one counts.
pub fn joined(first: &RowSelector, second: &RowSelector) -> RowSelector {
    let first = first.0.iter().filter(|word| second.words(&word.key).is_none());
    RowSelector(first.chain(&second.0).cloned().collect())
}

/// Every combination of one word for each key of a selector.
pub fn combinations(selector: &RowSelector) -> Vec<Vec<(&str, &str)>> {
    let mut all: Vec<Vec<(&str, &str)>> = vec![Vec::new()];
    for SelectedWord { key, words } in &selector.0 {
        let mut longer = Vec::new();
        for before in &all {
            for word in words {
                longer.push([before.as_slice(), &[(key.as_str(), word.as_str())]].concat());
            }
        }
        all = longer;
    }
    all
}

/// The columns that name the subject: server and form, or the first key of a program.
pub fn who_keys(experiment: &Experiment) -> Vec<&str> {
    match &experiment.task {
        ExperimentTask::Load(_) => vec!["server", "form"],
        ExperimentTask::Program(program) => {
            program.keys.iter().take(1).map(String::as_str).collect()
        }
    }
}

/// All subjects of an experiment: those that its file names, and those of its rows.
pub fn everybody(experiment: &Experiment, rows: &[&RawRow]) -> Vec<ClaimSubject> {
    let keys = who_keys(experiment);
    let mut all = Vec::new();
    if let ExperimentTask::Load(load) = &experiment.task {
        let none = vec![String::new()];
        let forms = if load.cast.forms.is_empty() { &none } else { &load.cast.forms };
        let ours = load.cast.ours.iter().flat_map(|server| forms.iter().map(move |f| (server, f)));
        let peers = load.cast.peers.iter().map(|server| (server, &none[0]));
        for (server, form) in ours.chain(peers) {
            let word = |key: &str, word: &String| (key.to_owned(), word.clone());
            all.push(ClaimSubject(vec![word("server", server), word("form", form)]));
        }
    }
    for row in rows {
        let words = keys.iter().map(|key| ((*key).to_owned(), row.text(key).to_owned()));
        let found = ClaimSubject(words.collect());
        if !all.contains(&found) {
            all.push(found);
        }
    }
    all
}

/// The rows that a claim compares with one another in an order; none of any other claim.
pub fn ordered(claim: &Claim) -> &[RowSelector] {
    match &claim.kind {
        ClaimKind::Order { order, .. } => order,
        _ => &[],
    }
}

/// The rows that a claim compares others with.
pub fn compared(claim: &Claim) -> Option<&RowSelector> {
    match &claim.kind {
        ClaimKind::Along { shape: CurveShape::Crosses(other), .. } => Some(other),
        ClaimKind::Ratio { to: RatioTo::Rows { words, .. }, .. } => Some(words),
        _ => None,
    }
}

/// The subjects of a claim. A subject that the claim only compares others with is none of them.
///
/// `of` are the rows of the claim and of its figure.
pub fn subjects(
    experiment: &Experiment,
    claim: &Claim,
    of: &RowSelector,
    rows: &[&RawRow],
) -> Vec<ClaimSubject> {
    let order = ordered(claim);
    let all = known(experiment, claim, of, rows);
    let is_named = |key: &str| order.iter().any(|selector| selector.words(key).is_some());
    let mut found: Vec<ClaimSubject> = Vec::new();
    for one in &all {
        // in an order that names forms, all other forms of the same server have to be there, too
        let has_all = order.iter().all(|selector| {
            all.iter().any(|other| {
                other.0.iter().all(|(key, word)| match selector.words(key) {
                    Some(words) => words.contains(word),
                    None => one.word(key) == Some(word) || is_named("server") && key == "form",
                })
            })
        });
        let keys =
            one.0.iter().filter(|(key, _)| !(is_named(key) || is_named("server") && key == "form"));
        let subject = ClaimSubject(keys.cloned().collect());
        let is_itself = compared(claim).is_some_and(|other| is_itself(one, other));
        if is_meant(one, of) && has_all && !is_itself && !found.contains(&subject) {
            found.push(subject);
        }
    }
    if found.is_empty() {
        // no subject is known yet: that is reported, too
        found.push(ClaimSubject::default());
    }
    found
}

/// All subjects. Those of a program are only known from its rows and from the claim.
fn known(
    experiment: &Experiment,
    claim: &Claim,
    of: &RowSelector,
    rows: &[&RawRow],
) -> Vec<ClaimSubject> {
    let mut all = everybody(experiment, rows);
    let ExperimentTask::Program(program) = &experiment.task else { return all };
    let Some(key) = program.keys.first() else { return all };
    let named = [of].into_iter().chain(ordered(claim)).filter_map(|selector| selector.words(key));
    for word in named.flatten() {
        let one = ClaimSubject(vec![(key.clone(), word.clone())]);
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

/// Whether a selector means a subject: names its words, or not its keys.
fn is_meant(one: &ClaimSubject, selector: &RowSelector) -> bool {
    one.0.iter().all(|(key, word)| selector.words(key).is_none_or(|words| words.contains(word)))
}

/// Whether a subject would be compared with itself: the selector names it, and nothing else.
fn is_itself(one: &ClaimSubject, other: &RowSelector) -> bool {
    let names_nothing_else = other.0.iter().all(|word| one.word(&word.key).is_some());
    !other.0.is_empty() && names_nothing_else && is_meant(one, other)
}

/// The words of a row, except for some keys: those of another row that it is compared with.
pub fn point<'r>(row: &'r RawRow, without: &[&str]) -> Vec<(&'r str, &'r str)> {
    let words = row.words().iter().map(|(key, word)| (key.as_str(), word.as_str()));
    words.filter(|(key, _)| !without.contains(key)).collect()
}

/// The row of these that counts and has the words of `point` and those of `instead`. Where the server is another, its
/// form is the same, or it has none.
pub fn row_at<'r>(
    rows: &[&'r RawRow],
    point: &[(&str, &str)],
    instead: &[(&str, &str)],
) -> Option<&'r RawRow> {
    let is_named = |key: &str| instead.iter().any(|(known, _)| *known == key);
    let is_other = is_named("server") && !is_named("form");
    let fits = |row: &&&'r RawRow, is_formless: bool| {
        row.is_valid()
            && instead.iter().all(|(key, word)| row.text(key) == *word)
            && point.iter().filter(|(key, _)| !is_named(key)).all(|(key, word)| {
                row.text(key) == *word || is_formless && *key == "form" && row.text(key).is_empty()
            })
    };
    let same = rows.iter().find(|row| fits(row, false));
    same.or_else(|| rows.iter().find(|row| is_other && fits(row, true))).copied()
}
