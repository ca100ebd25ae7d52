//! The man pages and docs/manual/commands.md, which are made from the commands and options. The test fails
//! when one of them is stale.
//!
//! `UPDATE_MANUAL=1 cargo test -p forebay-cli` writes them; read the difference.

use crate::args::Args;
use crate::exit::{CODES, SIGNALS};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use roff::{Roff, bold, roman};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The columns of a help text.
const WIDTH: usize = 100;

const INTRODUCTION: &str = "\
# Commands

Data goes to standard output, everything else to standard error. Nothing is coloured where no terminal
is. `forebay COMMAND --help` says what stands here.

For completion in your shell:

```
forebay completions bash > ~/.local/share/bash-completion/completions/forebay
forebay completions zsh > ~/.zfunc/_forebay        # a directory of your fpath
forebay completions fish > ~/.config/fish/completions/forebay.fish
```

";

/// Every command with its name, subcommands behind their command: `policy`, `policy explain`.
fn commands() -> Vec<(String, Command)> {
    let mut all = Args::command().term_width(WIDTH);
    all.build();
    within(&all)
}

fn within(all: &Command) -> Vec<(String, Command)> {
    let mut found = Vec::new();
    collect(all, "", &mut found);
    found
}

/// Removes the commands `help`, which man pages do not list.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

fn collect(parent: &Command, path: &str, found: &mut Vec<(String, Command)>) {
    for command in parent
        .get_subcommands()
        .filter(|command| command.get_name() != "help" && !command.is_hide_set())
    {
        let name = format!("{path}{}", command.get_name());
        found.push((name.clone(), command.clone()));
        collect(command, &format!("{name} "), found);
    }
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("| command | what it does |\n|---|---|\n");
    for (name, command) in commands() {
        let (anchor, about) = (name.replace(' ', "-"), command.get_about().unwrap_or_default());
        let _ = writeln!(page, "| [`{name}`](#forebay-{anchor}) | {about} |");
    }
    for (name, command) in commands() {
        let help = command.term_width(WIDTH).render_help().to_string();
        let _ = write!(page, "\n## forebay {name}\n\n```\n{}\n```\n", help.trim_end());
    }
    page.push_str("\n## Signals\n\n| signal | what the server does |\n|---|---|\n");
    for (signal, meaning) in SIGNALS {
        let _ = writeln!(page, "| `{signal}` | {meaning} |");
    }
    page.push_str("\n## Exit codes\n\n| code | meaning |\n|---|---|\n");
    for (code, meaning) in CODES {
        let _ = writeln!(page, "| {code} | {meaning} |");
    }
    page
}

/// The man pages by file name.
fn man_pages() -> BTreeMap<String, String> {
    let all = without_help(Args::command());
    let mut all = all.term_width(WIDTH);
    all.build();
    let mut pages = BTreeMap::from([("forebay.1".to_owned(), rendered(all.clone(), tables()))]);
    for (name, command) in within(&all) {
        let name = format!("forebay-{}.1", name.replace(' ', "-"));
        pages.insert(name, rendered(command, Roff::new()));
    }
    pages
}

/// Renders a page: the parts that all pages have, the `special` one, and references.
fn rendered(command: Command, special: Roff) -> String {
    let (mut page, man) = (Vec::new(), Man::new(command.clone()));
    let parts = [Man::render_title, Man::render_name_section, Man::render_synopsis_section];
    let more = [Man::render_description_section, Man::render_options_section];
    for part in parts.iter().chain(&more) {
        part(&man, &mut page).unwrap();
    }
    let is_main = !special.to_roff().is_empty();
    if is_main || command.has_subcommands() {
        man.render_subcommands_section(&mut page).unwrap();
    }
    let mut end = Roff::new();
    end.control("SH", ["SEE ALSO"]);
    end.text([roman(if is_main { "forebay.toml(5)" } else { "forebay(1), forebay.toml(5)" })]);
    let page = String::from_utf8(page).unwrap();
    // only the beginning of a page has roff's preamble
    page + &special.to_roff() + &end.to_roff()
}

fn tables() -> Roff {
    let mut tables = Roff::new();
    tables.control("SH", ["SIGNALS"]);
    for (signal, meaning) in SIGNALS {
        tables.control("TP", []).text([bold(signal)]).text([roman(meaning)]);
    }
    tables.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in CODES {
        tables.control("TP", []).text([bold(code.to_string())]).text([roman(meaning)]);
    }
    tables
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn the_pages_say_what_the_commands_are() {
    let mut pages = vec![(repository("docs/manual/commands.md"), page())];
    let man = |(name, page): (String, String)| (repository("packaging/man").join(name), page);
    pages.extend(man_pages().into_iter().map(man));
    let mut stale = Vec::new();
    for (path, page) in &pages {
        if std::env::var_os("UPDATE_MANUAL").is_some() {
            std::fs::write(path, page).unwrap();
        } else if std::fs::read_to_string(path).unwrap_or_default() != *page {
            stale.push(path.display().to_string());
        }
    }
    assert!(stale.is_empty(), "stale, UPDATE_MANUAL=1 writes them anew: {}", stale.join(", "));
}

#[test]
fn no_man_page_is_of_a_command_that_is_gone() {
    let pages = man_pages();
    for entry in std::fs::read_dir(repository("packaging/man")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(pages.contains_key(&name) || name == "forebay.toml.5", "{name}");
    }
}

#[test]
fn completions_name_every_command() {
    for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish]
    {
        let script = crate::completions(shell);
        for (name, command) in commands() {
            assert!(script.contains(command.get_name()), "{shell}: {name}");
        }
    }
}
