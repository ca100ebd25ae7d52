//! Generates packaging/man/forebay.toml.5.

use super::Chapter;
use forebay_config::table::{Preset, SettingDescription};
use roff::{Roff, bold, italic, roman};

const INTRODUCTION: &[&str] = &[
    "forebay.toml says what forebay(1) serves, where, and within which limits. It is a TOML file. \
     Settings before the first section are the top level. Unknown keys are errors; all mistakes are \
     told at once, with line and column, by forebay check. Relative paths begin at the directory of \
     the file.",
    "A time is a whole number and ms, s, m, h or d, as in \"15s\". A size is a whole number and B, \
     KiB, MiB, GiB or TiB, as in \"64KiB\".",
];

pub(crate) fn page(chapters: &[Chapter]) -> String {
    let mut page = Roff::new();
    let version = concat!("forebay ", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["forebay.toml", "5", "", version]);
    page.control("SH", ["NAME"]).text([roman("forebay.toml - the configuration of forebay")]);
    page.control("SH", ["DESCRIPTION"]);
    for paragraph in INTRODUCTION {
        page.text([roman(*paragraph)]).control("PP", []);
    }
    for chapter in chapters {
        let title = chapter.title.to_uppercase();
        let title = format!("{title} {}", chapter.header);
        page.control("SH", [title.trim_end()]);
        page.text([roman(chapter.text.replace('`', ""))]);
        chapter.rows.iter().for_each(|row| entry(&mut page, row));
    }
    page.control("SH", ["EXAMPLE"]);
    page.control("nf", []).text([roman(
        "listen = [\":80\"]\n\n[[site]]\nhosts = [\"shop.example\"]\nroot = \"/srv/shop\"\n\n[[site]]\n\
         root = \"/srv/www\"\n",
    )]);
    page.control("fi", []);
    page.control("SH", ["SEE ALSO"]).text([roman("forebay(1), forebay-check(1), forebay-run(1)")]);
    page.render()
}

fn entry(page: &mut Roff, row: &SettingDescription) {
    page.control("TP", []);
    page.text([bold(row.key), roman(" = "), italic(row.example)]);
    page.text([roman(row.meaning.replace('`', ""))]);
    page.control("br", []);
    let range = row.range.map(|(least, most)| format!("; from {least} to {most}"));
    let default = match (&row.preset_toml, row.preset) {
        (_, Preset::Items([])) | (None, _) => row.default(),
        (Some(toml), _) => toml.clone(),
    };
    page.text([roman(format!("Default: {default}{}.", range.unwrap_or_default()))]);
}
