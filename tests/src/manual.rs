//! Pages of the manual, read by tests: the blocks and the tables beneath their headlines.

use std::path::Path;

/// A page of the manual.
#[derive(Clone, Debug)]
pub struct ManualPage(String);

impl ManualPage {
    /// Reads the page of this name below `docs/manual`.
    ///
    /// # Panics
    /// If it is not there.
    pub fn read(name: &str) -> ManualPage {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/manual").join(name);
        ManualPage(
            std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file:?}: {error}")),
        )
    }

    /// The text below this headline, up to the next one of the same or a higher level.
    ///
    /// # Panics
    /// If there is no such headline.
    pub fn chapter(&self, headline: &str) -> &str {
        let begin = format!("\n{headline}\n");
        let (_, rest) = self.0.split_once(&begin).unwrap_or_else(|| panic!("no {headline:?}"));
        let level = headline.chars().take_while(|char| *char == '#').count();
        let mut at = 0;
        let mut is_code = false;
        for line in rest.split_inclusive('\n') {
            is_code ^= line.starts_with("```");
            let marks = line.chars().take_while(|char| *char == '#').count();
            if !is_code && (1..=level).contains(&marks) {
                break;
            }
            at += line.len();
        }
        &rest[..at]
    }
}

/// The code blocks of this language, in order.
pub fn blocks<'a>(chapter: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    let pieces = chapter.split(&*begin).skip(1);
    pieces.map(|piece| piece.split("```").next().unwrap_or_default()).collect()
}

/// The rows of the tables whose first column has this head: their cells without backticks.
pub fn rows(chapter: &str, first_column: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut is_meant = false;
    for line in chapter.lines() {
        let Some(line) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else {
            is_meant &= line.starts_with("|-");
            continue;
        };
        let cells: Vec<String> = line.split(" | ").map(|it| it.replace('`', "")).collect();
        match is_meant {
            true => rows.push(cells),
            false => is_meant = cells[0] == first_column,
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_tables_are_found_below_their_headline() {
        let text = "# a\n\n## b\n\n```toml\n# no headline\nx = 1\n```\n\n| one | two |\n|---|---|\n| `1` | 2 |\n\n\
                    | three |\n|---|\n| 3 |\n### c\n\n```toml\ny = 2\n```\n## d\n```toml\nz = 3\n```\n";
        let page = ManualPage(text.to_owned());
        let chapter = page.chapter("## b");
        assert_eq!(blocks(chapter, "toml"), ["# no headline\nx = 1\n", "y = 2\n"]);
        assert_eq!(rows(chapter, "one"), [["1", "2"]]);
        assert_eq!(rows(chapter, "three"), [["3"]]);
        assert_eq!(blocks(page.chapter("### c"), "toml"), ["y = 2\n"]);
    }
}
