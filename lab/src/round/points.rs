//! The points of a sweep, in the order of a round.

use crate::experiment::{Experiment, SweepAxis};

/// A word for each axis.
pub type SweepPoint = Vec<(String, String)>;

/// The values that an axis has in a round: fewer in the short form, others if some are given.
fn axes(experiment: &Experiment, quick: bool, set: &[SweepAxis]) -> Vec<SweepAxis> {
    let short = experiment.quick.as_ref().filter(|_| quick);
    let short = short.map(|quick| quick.sweep.as_slice()).unwrap_or_default();
    let of = |axis: &SweepAxis| {
        let own = set.iter().chain(short).find(|one| one.name == axis.name);
        own.unwrap_or(axis).clone()
    };
    experiment.sweep.iter().map(of).collect()
}

/// Every combination of the values, the last axis varied first; each round begins with another.
pub fn points(
    experiment: &Experiment,
    quick: bool,
    set: &[SweepAxis],
    round: u32,
) -> Vec<SweepPoint> {
    let mut all = vec![SweepPoint::new()];
    for axis in axes(experiment, quick, set) {
        let with = |point: &SweepPoint| {
            let point = point.clone();
            let one =
                |value: &String| [point.as_slice(), &[(axis.name.clone(), value.clone())]].concat();
            axis.values.iter().map(one).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    let turn = (round as usize).saturating_sub(1) % all.len().max(1);
    all.rotate_left(turn);
    all
}

/// Whether a server is left out at a point; `words` are its own.
pub fn is_skipped(experiment: &Experiment, words: &[(String, String)]) -> bool {
    experiment.skip.iter().any(|selector| {
        selector.0.iter().all(|word| {
            let own = words.iter().find(|(key, _)| *key == word.key);
            own.is_some_and(|(_, own)| word.words.contains(own))
        })
    })
}

/// A text with `@name@` replaced.
pub fn filled(text: &str, words: &[(String, String)]) -> String {
    words
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("@{name}@"), value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::read::parse;

    #[test]
    fn each_round_begins_with_another_point() {
        let text = "title = \"A\"\nquestion = \"B?\"\nset = \"papers\"\nkind = \"program\"\nminutes = 1\n\
                    command = [\"true\"]\nkeys = [\"way\"]\nmeasures = [\"ms\"]\n\
                    sweep = { a = [\"1\", \"2\"], b = [\"x\", \"y\"] }\nskip = [{ a = \"1\", b = \"y\" }]\n\
                    quick = { sweep = { a = [\"2\"] } }\n";
        let experiment = parse("a", text).expect("an experiment");
        let of = |quick, round| {
            let points = points(&experiment, quick, &[], round).into_iter();
            let word = |point: SweepPoint| point.into_iter().map(|(_, word)| word).collect();
            points.map(word).collect::<Vec<String>>()
        };
        assert_eq!(of(false, 1), ["1x", "1y", "2x", "2y"]);
        assert_eq!(of(false, 2), ["1y", "2x", "2y", "1x"]);
        assert_eq!(of(true, 5), ["2x", "2y"]);
        let at = &points(&experiment, false, &[], 2)[0];
        assert!(is_skipped(&experiment, at) && filled("@a@/@b@ @c@", at) == "1/y @c@");
    }
}
