//! The words of a point: those of the sweep, parts of a capacity, tags.
//!
//! `@name@` is replaced. `0.52 static`, where `static` is a capacity, is that part of it. `@limit:m@` is the
//! number per minute, `@limit:n@` as a whole number: policies take whole ones. A word that is `off` takes every line
//! away that has it; each word is a tag, and has one that begins with `no-`.

use crate::template;

/// All words and tags at a point.
#[derive(Clone, Debug, Default)]
pub struct PointWords {
    capacities: Vec<(String, f64)>,
    words: Vec<(String, String)>,
    tags: Vec<String>,
}

/// A word that takes lines away.
const OFF: &str = "off";

impl PointWords {
    /// No words yet; parts of these capacities can be named.
    pub fn new(capacities: Vec<(String, f64)>) -> PointWords {
        PointWords { capacities, ..PointWords::default() }
    }

    /// Adds words; a later one of the same name counts.
    pub fn add_all(&mut self, words: &[(String, String)]) {
        for (name, value) in words {
            self.words.retain(|(known, _)| known != name);
            self.words.push((name.clone(), value.clone()));
        }
    }

    /// Adds tags.
    pub fn tags(&mut self, tags: &[String]) {
        self.tags.extend_from_slice(tags);
    }

    /// All words, parts of capacities as numbers.
    pub fn all(&self) -> Vec<(String, String)> {
        self.words.iter().map(|(name, value)| (name.clone(), self.part(value))).collect()
    }

    /// A word as a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        let (_, value) = self.words.iter().find(|(known, _)| known == name)?;
        self.part(value).parse().ok()
    }

    /// A text that may be a part of a capacity: `0.52 static`.
    fn part(&self, text: &str) -> String {
        let found = text.split_once(' ').and_then(|(number, name)| {
            let number: f64 = number.parse().ok()?;
            let (_, per_s) = self.capacities.iter().find(|(known, _)| known == name)?;
            Some(number * per_s)
        });
        found.map_or_else(|| text.to_owned(), |number| format!("{number:.3}"))
    }

    /// A text with words in it.
    pub fn value(&self, text: &str) -> String {
        let mut text = self.part(text);
        for (name, value) in self.all() {
            if let Ok(number) = value.parse::<f64>() {
                // rates of policies are whole numbers, and not 0
                let [minute, whole] = [number * 60.0, number].map(|number| number.round().max(1.0));
                text = text.replace(&format!("@{name}:m@"), &format!("{minute:.0}/m"));
                text = text.replace(&format!("@{name}:n@"), &format!("{whole:.0}"));
            }
            text = text.replace(&format!("@{name}@"), &value);
        }
        text
    }

    /// Lines with words and tags in them.
    pub fn lines(&self, lines: &str) -> String {
        let all = self.all();
        let off: Vec<_> =
            all.iter().filter(|(_, value)| value == OFF).map(|(name, _)| name).collect();
        let names = ["@", ":"];
        let has = |line: &str, word: &str| {
            names.iter().any(|end| line.contains(&format!("@{word}{end}")))
        };
        let known = lines.lines().map(str::trim_start).filter_map(|line| {
            let (tag, _) = line.strip_prefix('@')?.split_once("@ ")?;
            (!tag.contains(['@', ' ', ':'])).then(|| tag.to_owned())
        });
        let stays = |tag: String| {
            let word = tag.strip_prefix("no-").unwrap_or(&tag);
            let is_word = all.iter().any(|(name, _)| name == word);
            let is_off = off.iter().any(|name| *name == word);
            let stays = match is_word {
                true => is_off == tag.starts_with("no-"),
                false => self.tags.contains(&tag),
            };
            (tag, stays)
        };
        let tags: Vec<(String, bool)> = known.map(stays).collect();
        let tags: Vec<(&str, bool)> =
            tags.iter().map(|(tag, stays)| (tag.as_str(), *stays)).collect();
        let filled = template::fill(lines, &tags, &[]);
        let left = filled.lines().filter(|line| !off.iter().any(|word| has(line, word)));
        let left: String = left.flat_map(|line| [line, "\n"]).collect();
        self.value(&left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(limit: &str) -> PointWords {
        let mut words = PointWords::new(vec![("static".to_owned(), 400.0)]);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        words.add_all(&[pair("OVER", "drop"), pair("limit", limit)]);
        words.tags(&["kernel".to_owned()]);
        words
    }

    #[test]
    fn parts_of_a_capacity_are_numbers() {
        let words = words("0.52 static");
        assert_eq!(words.number("limit"), Some(208.0));
        assert_eq!(
            words.value("rate = \"@limit:m@\", burst = @limit:n@"),
            "rate = \"12480/m\", burst = 208"
        );
        assert_eq!(words.value("0.26 static"), "104.000");
        assert_eq!(words.value("50-80@2/s"), "50-80@2/s");
    }

    #[test]
    fn what_is_off_takes_its_lines_away() {
        let lines = "@kernel@ gate = 1\n@other@ no\nover = \"@OVER@\", rate = \"@limit:m@\"\n@no-limit@ action = 2\n";
        assert_eq!(words("off").lines(lines), "gate = 1\naction = 2\n");
        assert_eq!(
            words("0.5 static").lines(lines),
            "gate = 1\nover = \"drop\", rate = \"12000/m\"\n"
        );
    }
}
