//! Generates examples/forebay.toml: every setting with its meaning, switched off.
//!
//! A line that begins with `#` and no blank is a setting; without that sign it is in force.

use super::Chapter;
use forebay_config::table::{Preset, SettingDescription};
use std::fmt::Write;

const INTRODUCTION: &str = "\
# Every setting of Forebay. A line that begins with # and no blank shows a default, or an example where
# there is no default: remove the # and change it. The manual says more: docs/manual/configuration.md
#
#   forebay check -c forebay.toml     says what is wrong
#   forebay run -c forebay.toml       serves
";

/// Where the part about several sites and listeners begins.
pub(crate) const SEVERAL: &str = "\
# --- several sites, and several listeners ---------------------------------------------------------
";

pub(crate) fn page(chapters: &[Chapter]) -> String {
    let mut page = INTRODUCTION.to_owned();
    let starts_with = |chapter: &&Chapter, start: &str| chapter.header.starts_with(start);
    let top =
        chapters.iter().filter(|c| matches!(c.header.as_str(), "" | "[[listener]]" | "[[site]]"));
    for chapter in top {
        let _ = write!(page, "\n# --- {} ---\n", chapter.title.to_lowercase());
        for row in chapter.rows.iter().filter(|row| row.subsection().is_empty()) {
            page.push_str(&setting(row));
        }
    }
    let site = chapters.iter().find(|chapter| chapter.header == "[[site]]");
    let logs = site.into_iter().flat_map(|site| &site.rows).filter(|row| row.subsection() == "log");
    page.push_str("\n[log]\n");
    logs.for_each(|row| page.push_str(&setting(row)));
    for chapter in chapters.iter().filter(|c| starts_with(c, "[") && !starts_with(c, "[[")) {
        let _ = write!(page, "\n{}\n", chapter.header);
        chapter.rows.iter().for_each(|row| page.push_str(&setting(row)));
    }
    for chapter in chapters.iter().filter(|c| starts_with(c, "[[site.")) {
        let header = chapter.header.replace("site.", "");
        let _ = write!(page, "\n{}#{header}\n", comment(chapter.text));
        chapter.rows.iter().for_each(|row| page.push_str(&named(row.key, row)));
    }
    for chapter in chapters
        .iter()
        .filter(|c| matches!(c.header.as_str(), "[[class]]" | "[[rule]]" | "[[tcp]]"))
    {
        let of_connections = |row: &&SettingDescription| row.subsection() == "connections";
        let text = comment(&chapter.text.replace('`', ""));
        let _ = write!(page, "\n{text}#{}\n", chapter.header);
        let rows = || chapter.rows.iter();
        rows()
            .filter(|row| !of_connections(row))
            .for_each(|row| page.push_str(&named(row.key, row)));
        if rows().any(|row| of_connections(&row)) {
            // these settings exclude conditions about requests
            let _ = write!(page, "\n#{}\n", chapter.header);
            rows().filter(of_connections).for_each(|row| page.push_str(&named(row.key, row)));
        }
    }
    let _ = write!(page, "\n{SEVERAL}\n{}", several());
    page
}

fn several() -> &'static str {
    "# Instead of root above: what stands above is the default of each site then.\n\
     \n\
     #[[site]]\n\
     #hosts = [\"shop.example\", \"*.shop.example\"]\n\
     #root = \"shop\"\n\
     \n\
     #[[site]]\n\
     #hosts = [\"www.shop.example\"]\n\
     #[[site.redirect]]\n\
     #path = \"*\"\n\
     #to = \"https://shop.example$path\"\n\
     \n\
     # The site of every host that no other site has.\n\
     #[[site]]\n\
     #root = \"default\"\n\
     \n\
     #[[listener]]\n\
     #listen = [\":80\"]\n\
     \n\
     #[[listener]]\n\
     #listen = [\"127.0.0.1:8081\"]\n\
     #engine = \"threads\"\n"
}

/// A setting below the header of its subsection.
fn setting(row: &SettingDescription) -> String {
    // the root is in force, so that the sample can be run as it is
    if row.key == "root" {
        return format!("\n{}root = \"site\"\n", row.comment());
    }
    named(row.name(), row)
}

/// A setting under the `name` that it has in its place.
fn named(name: &str, row: &SettingDescription) -> String {
    let line = match (&row.preset_toml, row.preset) {
        (Some(toml), preset) if preset != Preset::Items(&[]) => format!("{name} = {toml}"),
        _ => format!("{name} = {}", row.example),
    };
    format!("\n{}#{line}\n", row.comment())
}

fn comment(text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::from("#");
    for word in text.split(' ') {
        if line.len() + 1 + word.len() > 98 {
            lines.push_str(&line);
            lines.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    lines + &line + "\n"
}

/// A part of the sample with all its settings in force. Of two that exclude each other, the second
/// is left out, as are settings that need another one to differ from its default.
pub(crate) fn uncommented(part: &str) -> String {
    let setting = |line: &str| {
        let setting = line.strip_prefix('#')?;
        let is_setting = !setting.is_empty() && !setting.starts_with([' ', '#']);
        let second =
            ["regex", "requests.status", "in_flight.status", "hash", "file = \"/srv/shared"];
        let is_second = second.iter().any(|start| setting.starts_with(start));
        (is_setting && !is_second).then(|| setting.to_owned())
    };
    part.lines().map(|line| setting(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}
