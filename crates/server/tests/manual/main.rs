//! The reference of the configuration, the commented sample and the man page forebay.toml(5) are
//! made from the tables of settings, the list of metrics from the golden file of metrics. This test
//! fails when one of them is stale.
//!
//! `UPDATE_MANUAL=1 cargo test -p forebay-server --test manual` writes them; read the difference.
//!
//! The test also parses every piece of configuration on a page of the manual.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

mod metrics;
mod reference;
mod roff;
mod sample;

use forebay_config::table::{Item, Section, SectionList, SettingDescription, rows};
use forebay_config::{
    CgiConfig, ClassConfig, Config, FastCgiConfig, ForwardAuth, HandOverConfig, ListenerConfig,
    ProtectConfig, ProxyConfig, RuleConfig, SiteConfig, TcpConfig, parse,
};
use forebay_site::rules::{AccessRule, Alias, Auth, HeaderRule, Redirect, Rewrite, WorkHandler};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A section as the pages show it.
struct Chapter {
    /// The section's header, `[timeouts]` or `[[site.redirect]]`; empty for the settings before all
    /// sections.
    header: String,
    title: &'static str,
    text: &'static str,
    rows: Vec<SettingDescription>,
}

/// Titles and introductions of the sections of the process.
const SECTIONS: &[(&str, &str, &str)] = &[
    ("timeouts", "Time-outs", "How long is waited for what."),
    (
        "keep_alive",
        "Keep-alive under load",
        "How long idle connections are kept while the server is busy.",
    ),
    ("limits", "Limits", "How much a client may ask for."),
    (
        "pipeline",
        "The engine pipeline",
        "How the four phases of the engine `pipeline` share its threads.",
    ),
    (
        "firewall",
        "Clients in the firewall",
        "Whom the machine's own firewall keeps away: [the chapter on it](firewall.md).",
    ),
    (
        "isolated",
        "The engine isolated",
        "How the stages of the engine `isolated` share the work, and when one is taken for lost. `[stages]` is the same \
         table, and puts the stages behind listeners of any engine; both at once is an error.",
    ),
    ("cache", "Cache", "What is kept in memory."),
    (
        "acme",
        "Certificates by ACME",
        "From which authority sites with `tls.acme` get their certificates.",
    ),
    ("admin", "Admin listener", "Metrics and status, to read. It is off by default."),
    (
        "traces",
        "Traces",
        "Spans of requests, for a collector of OpenTelemetry. They are off by default.",
    ),
    (
        "admin.tls",
        "TLS of the admin listener",
        "By what it is known where `admin.listen` says `https://`.",
    ),
    ("identity", "Identities of clients", "Who a client can prove to be, for rules."),
    (
        "policy",
        "Bans in files",
        "Whom an operator keeps out for a time: [the chapter on it](policy.md#bans).",
    ),
    ("control", "Control socket", "How `forebay reload` reaches the server."),
    ("sandbox", "Sandbox", "What the kernel keeps the server from."),
    ("helpers", "Helper threads", "Threads for work that may block."),
];

/// All sections, in the order of the pages.
fn chapters() -> Vec<Chapter> {
    let plain =
        |rows: Vec<SettingDescription>| rows.into_iter().filter(|row| row.subsection().is_empty());
    let mut chapters = vec![
        Chapter {
            header: "[[listener]]".to_owned(),
            title: "Listeners",
            text: "Before the first section these settings make one listener, and are the defaults \
                   of each `[[listener]]` except for `listen`.",
            rows: rows::<ListenerConfig>(),
        },
        Chapter {
            header: "[[site]]".to_owned(),
            title: "Sites",
            text: "Without any `[[site]]` these settings stand before the first section and make the \
                   only site. With some, what stands there is the default of each, except for `name` \
                   and `hosts`.",
            rows: rows::<SiteConfig>(),
        },
    ];
    for list in SiteConfig::LISTS {
        chapters.push(Chapter {
            header: format!("[[site.{}]]", list.name),
            title: title_of(list),
            text: list.meaning,
            rows: rows_of(list),
        });
    }
    chapters.push(Chapter {
        header: "[[class]]".to_owned(),
        title: "Classes",
        text: "Who is served before whom. Without any `[[class]]` there is one, called \"default\".",
        rows: rows::<ClassConfig>(),
    });
    chapters.push(Chapter {
        header: "[[rule]]".to_owned(),
        title: "Rules",
        text: "What becomes of which connections and requests. The values of one condition are \
               alternatives, and all conditions must hold; each is one text or a list. For each of \
               class, action, connections, requests and in_flight the first rule that fits and says \
               something decides. Keys with a dot can be written as a table: \
               `requests = { rate = \"60/s\", burst = 10 }`.",
        rows: rows::<RuleConfig>(),
    });
    chapters.push(Chapter {
        header: "[[tcp]]".to_owned(),
        title: "Connections that are passed on",
        text: "Where connections go that are passed on as they are, with nothing spoken here: what comes to addresses \
               of `listen` that begin with `tcp://`, and through `https://` those whose client asks for one of these \
               names. [tcp.md](tcp.md) tells more.",
        rows: rows::<TcpConfig>(),
    });
    chapters.push(Chapter {
        header: "[[protect]]".to_owned(),
        title: "Other servers",
        text: "Servers besides this one that the kernel protects ([Rules in the kernel](gate.md#other-servers)).",
        rows: rows::<ProtectConfig>(),
    });
    let process = rows::<Config>();
    chapters.push(Chapter {
        header: String::new(),
        title: "The process",
        text: "Settings of the process stand before the first section.",
        rows: plain(process.clone()).collect(),
    });
    for (name, title, text) in SECTIONS {
        let of_it = |row: &&SettingDescription| row.subsection() == *name;
        chapters.push(Chapter {
            header: format!("[{name}]"),
            title,
            text,
            rows: process.iter().filter(of_it).cloned().collect(),
        });
    }
    chapters
}

fn title_of(list: &SectionList<SiteConfig>) -> &'static str {
    match list.name {
        "alias" => "Other directories",
        "redirect" => "Redirects",
        "rewrite" => "Rewrites",
        "header" => "Header rules",
        "auth" => "Passwords",
        "access" => "Access by address",
        "proxy" => "Applications that speak HTTP",
        "fastcgi" => "Applications that speak FastCGI",
        "hand_over" => "Programs that get sockets",
        "cgi" => "Programs that are run for each request",
        "forward_auth" => "Servers that say who may pass",
        "work" => "The work handler",
        name => panic!("the list {name} needs a title"),
    }
}

fn rows_of(list: &SectionList<SiteConfig>) -> Vec<SettingDescription> {
    match list.name {
        "alias" => rows::<<Alias as Item>::Section>(),
        "redirect" => rows::<<Redirect as Item>::Section>(),
        "rewrite" => rows::<<Rewrite as Item>::Section>(),
        "header" => rows::<<HeaderRule as Item>::Section>(),
        "auth" => rows::<<Auth as Item>::Section>(),
        "access" => rows::<<AccessRule as Item>::Section>(),
        "proxy" => rows::<<ProxyConfig as Item>::Section>(),
        "fastcgi" => rows::<<FastCgiConfig as Item>::Section>(),
        "hand_over" => rows::<<HandOverConfig as Item>::Section>(),
        "cgi" => rows::<<CgiConfig as Item>::Section>(),
        "forward_auth" => rows::<<ForwardAuth as Item>::Section>(),
        "work" => rows::<<WorkHandler as Item>::Section>(),
        name => panic!("the list {name} needs its rows here"),
    }
}

/// A path of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn every_subsection_of_the_process_has_a_chapter() {
    for row in rows::<Config>() {
        let name = row.subsection();
        let is_known = name.is_empty() || SECTIONS.iter().any(|(known, ..)| *known == name);
        assert!(is_known, "[{name}] needs a title and a text in SECTIONS");
    }
}

/// The generated pages that are stale. With `UPDATE_MANUAL`, writes them first, so that every test
/// reads the new text.
static STALE: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let pages = [
        ("docs/manual/configuration.md", reference::page(&chapters())),
        ("docs/manual/metrics.md", metrics::page()),
        ("examples/forebay.toml", sample::page(&chapters())),
        ("packaging/man/forebay.toml.5", roff::page(&chapters())),
    ];
    let mut stale = Vec::new();
    for (path, page) in pages {
        let file = repository(path);
        if std::env::var_os("UPDATE_MANUAL").is_some() {
            std::fs::write(&file, page).unwrap();
        } else if std::fs::read_to_string(&file).unwrap_or_default() != page {
            stale.push(path);
        }
    }
    stale
});

#[test]
fn the_pages_say_what_the_tables_say() {
    let stale = STALE.join(", ");
    assert!(stale.is_empty(), "stale, UPDATE_MANUAL=1 writes them anew: {stale}");
}

#[test]
fn the_sample_is_good_with_and_without_its_settings() {
    LazyLock::force(&STALE);
    let sample = std::fs::read_to_string(repository("examples/forebay.toml")).unwrap();
    let shown = parse(&sample, "/etc/forebay.toml").unwrap();
    let site = SiteConfig { root: Some("/etc/site".into()), ..SiteConfig::default() };
    assert_eq!(shown, Config { sites: vec![site], ..Config::default() });
    let (one, several) = sample.split_once(sample::SEVERAL).unwrap();
    for part in [one, several] {
        // a text alone includes nothing
        let text = sample::uncommented(part).replace("include = [\"sites/*.toml\"]\n", "");
        // this setting takes the place of one for a directory of programs
        let text = text.replace("program = \"/usr/lib/git-core/git-http-backend\"\n", "");
        // these settings are for the machine that other machines ask
        let text = text.replace("process_listen = [\"10.0.0.2:9443\"]\n", "");
        let text = text.replace("respond_listen = [\"10.0.0.2:9444\"]\n", "");
        if let Err(problems) = parse(&text, "/etc/forebay.toml") {
            let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
            panic!("{}\nin:\n{text}", lines.join("\n"));
        }
    }
}

/// Pages with pieces of configuration in blocks marked `toml`.
fn written_pages() -> Vec<PathBuf> {
    LazyLock::force(&STALE);
    let manual = std::fs::read_dir(repository("docs/manual")).unwrap();
    let manual = manual.map(|entry| entry.unwrap().path());
    manual.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

#[test]
fn every_piece_of_configuration_in_the_manual_is_good() {
    let mut count = 0;
    for page in written_pages().into_iter().chain([repository("README.md")]) {
        let text = std::fs::read_to_string(&page).unwrap();
        for block in text.split("```toml\n").skip(1) {
            let block = block.split("```").next().unwrap();
            let problems = match parse(block, "/etc/forebay.toml") {
                Err(problems) => problems,
                Ok(_) => Vec::new(),
            };
            // a piece of a configuration need not name a root
            let mut wrong = problems.iter().filter(|problem| problem.key != "root");
            if let Some(problem) = wrong.next() {
                panic!("{}: {problem}\nin:\n{block}", page.display());
            }
            count += 1;
        }
    }
    assert!(count > 10, "only {count} pieces were found");
}

#[test]
fn links_within_the_manual_lead_somewhere() {
    for page in written_pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            if file.starts_with("http") {
                continue;
            }
            let target = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            let target_text = std::fs::read_to_string(&target);
            let found = target_text.unwrap_or_else(|_| panic!("{}: {link}", page.display()));
            let anchors: Vec<_> = found.lines().filter_map(reference::anchor).collect();
            let is_there = anchor.is_empty() || anchors.iter().any(|known| known == anchor);
            assert!(is_there, "{}: {link} has no such heading", page.display());
        }
    }
}
