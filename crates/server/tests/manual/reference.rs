//! Generates docs/manual/configuration.md.

use super::Chapter;
use forebay_config::table::{Preset, SettingDescription};
use forebay_config::value::Form;
use std::fmt::Write;

const INTRODUCTION: &str = "\
# Configuration reference

Every key that `forebay.toml` may have. This page is made from the same tables that read the file, so
it cannot be out of date. [Sites](sites.md) shows how the keys work together, and
[Classes and rules](policy.md) how to serve some before others.

```
forebay check -c forebay.toml            # what is wrong, by line and column
forebay check -c forebay.toml --print    # every key with the value it has
```

## How the file is read

- The file is [TOML](https://toml.io). Settings that stand before the first `[section]` are the top
  level. Mind the order: a key behind a section header belongs to that section.
- An unknown key is an error, and so is a value out of range. All mistakes are told at once, with line
  and column.
- A relative path begins at the directory of the configuration file, in files of [`include`](#include), too.
- `${NAME}` in a value is a variable of the environment, `${NAME:-default}` one with a default; a number or a switch
  with one is written as a string. `$${` is the text `${`. Secrets in files: [Sites](sites.md#variables-and-secrets).
- **Time**: a whole number and `ms`, `s`, `m`, `h` or `d`, as in `\"15s\"`.
- **Size**: a whole number and `B`, `KiB`, `MiB`, `GiB` or `TiB`, as in `\"64KiB\"`. A rate has `/s`
  behind it.
- `check` also looks at the disk: roots, password files and the directories of logs must be there.

## Paths in rules

`path` in a rule is held against the decoded path without the query; `//`, `.` and `..` are gone by
then. The whole path must fit.

| pattern | fits |
|---|---|
| `\"/exact\"` | this path only |
| `\"/dir/*\"` | everything below `/dir/`, and `/dir/` itself |
| `\"*.pdf\"` | every path that ends so |
| `\"*\"` | every path |

A star stands for any run of characters, slashes too. There may be nine, in `[[rule]]` any number. What the first star
stood for is `$1` in `to`, and so on. In `access`, `auth`, `forward_auth`, `proxy`, `fastcgi`, `hand_over` and in lists of paths a path
without a star is meant with all below it, and `\"=/exact\"` is that path alone. `regex` takes a regular expression instead
([syntax](https://docs.rs/regex/latest/regex/#syntax)); it may be found anywhere in the path unless it
begins with `^` or ends with `$`, and its groups are `$1` to `$9`. Put it in single quotes, so that TOML
leaves `\\` alone.

In `to` there are also `$path` (the path), `$host` (the host without port) and `$query` (`?` and the
query, or nothing). `$$` is a dollar sign.

## The order of things

For each request: `[[rule]]`; host → site; `tls.redirect`; `access`; `auth`; `forward_auth`; `redirect`; `work`;
`rewrite`; then the longest path of `proxy`, `fastcgi`, `hand_over` and `alias` decides, and for files `try_files`, file,
script or listing; `errors`; `header`. In each list the first rule that fits decides, except: every `access` rule
that fits must admit the client, and every `header` rule that fits applies. Rules at the top level hold
for all sites. They come after the site's own, `header` rules before them.

";

pub(crate) fn page(chapters: &[Chapter]) -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("## All keys\n\n");
    for chapter in chapters {
        let link = |row: &SettingDescription| {
            let heading = heading(chapter, row);
            let name = if chapter.header.starts_with("[[") { row.key } else { row.name() };
            format!("[`{name}`](#{})", slug(&heading))
        };
        let links: Vec<_> = chapter.rows.iter().map(link).collect();
        let _ = writeln!(page, "- {}: {}", chapter.title, links.join(", "));
    }
    for chapter in chapters {
        let header = match chapter.header.as_str() {
            "" => String::new(),
            header => format!(" `{header}`"),
        };
        let _ = write!(page, "\n## {}{header}\n\n{}\n", chapter.title, chapter.text);
        for row in &chapter.rows {
            let _ = write!(page, "\n### {}\n\n{}", heading(chapter, row), entry(chapter, row));
        }
    }
    page
}

/// A key with its section, so that each heading is unique.
fn heading(chapter: &Chapter, row: &SettingDescription) -> String {
    match chapter.header.as_str() {
        "[[listener]]" | "[[site]]" => row.key.to_owned(),
        list if list.starts_with("[[") => format!("{}.{}", list.trim_matches(['[', ']']), row.key),
        _ => row.key.to_owned(),
    }
}

fn entry(chapter: &Chapter, row: &SettingDescription) -> String {
    let mut entry = format!("{}\n\n", code(row.meaning));
    let range = row.range.map_or(String::new(), |(least, most)| format!(", `{least}` to `{most}`"));
    let list = match row.form {
        Form::List => "a list; each item is ",
        Form::TextOrList => "one of these, or a list of them: ",
        _ => "",
    };
    let value = match row.choices {
        [] => code(row.expected),
        words => words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(" or "),
    };
    let _ = writeln!(entry, "- Value: {list}{value}{range}");
    let default = match (&row.preset_toml, row.preset) {
        (_, Preset::Items([])) => "an empty list".to_owned(),
        (Some(toml), _) => format!("`{toml}`"),
        (None, _) => code(&row.default()),
    };
    match row.preset {
        Preset::Required => entry.push_str("- It must be set.\n"),
        _ => {
            let _ = writeln!(entry, "- Default: {default}");
        }
    }
    let name = if chapter.header.starts_with("[[") { row.key } else { row.name() };
    let _ = writeln!(entry, "- Example: `{name} = {}`", row.example);
    entry
}

/// Marks quoted text and names of other keys as code.
fn code(text: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    let mut bare = false;
    for c in text.chars() {
        match c {
            '`' => {
                bare = !bare;
                out.push('`');
            }
            '"' if !bare && !inside => {
                inside = true;
                out.push_str("`\"");
            }
            '"' if !bare => {
                inside = false;
                out.push_str("\"`");
            }
            '*' if !bare && !inside => out.push_str("\\*"),
            '<' if !bare && !inside => out.push_str("&lt;"),
            c => out.push(c),
        }
    }
    out
}

/// The anchor a heading gets where the pages are shown.
pub(crate) fn anchor(line: &str) -> Option<String> {
    let heading = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?;
    Some(slug(heading))
}

fn slug(heading: &str) -> String {
    let keep = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => c.to_lowercase().next(),
        _ => None,
    };
    heading.chars().filter_map(keep).collect()
}
