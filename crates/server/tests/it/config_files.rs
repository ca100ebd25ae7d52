//! What `forebay check` says about files and directories that a configuration names.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_server::config::{Config, check, load};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A fresh directory with `site` in it, gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("config-files-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(path.join("site")).unwrap();
        Folder(path)
    }

    /// Loads a file with this text; what is wrong comes with `DIR` for the directory.
    fn load(&self, text: &str) -> Result<Config, Vec<String>> {
        let file = self.0.join("forebay.toml");
        fs::write(&file, text).unwrap();
        let directory = self.0.display().to_string();
        load(&file).map_err(|problems| {
            problems.iter().map(|problem| problem.to_string().replace(&directory, "DIR")).collect()
        })
    }

    /// What is remarked of a file with this text, which is good.
    fn remarks(&self, text: &str) -> Vec<String> {
        let file = self.0.join("forebay.toml");
        fs::write(&file, text).unwrap();
        let directory = self.0.display().to_string();
        let (_, remarks) = check(&file).unwrap();
        remarks.iter().map(|remark| remark.to_string().replace(&directory, "DIR")).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_there_is_good() {
    let folder = Folder::new();
    fs::write(folder.0.join("users"), "").unwrap();
    let text = "root = \"site\"\nlog.access = \"access.log\"\n[[auth]]\nfile = \"users\"\n";
    let config = folder.load(text).unwrap();
    assert_eq!(config.sites[0].root, Some(folder.0.join("site")));
    assert_eq!(config.sites[0].auth[0].file, Some(folder.0.join("users")));
}

#[test]
fn everything_that_is_missing_is_told_with_its_place() {
    let folder = Folder::new();
    fs::write(folder.0.join("file"), "").unwrap();
    let problems = folder.load(
        "[[site]]\nhosts = [\"a.example\"]\nroot = \"nowhere\"\nlog.access = \"logs/a.log\"\n\
         [[site]]\nroot = \"file\"\n[[site.auth]]\nfile = \"users\"\n",
    );
    let expected = [
        "DIR/forebay.toml:3:8: site.root: cannot use the directory \"DIR/nowhere\": No such file or \
         directory (os error 2)",
        "DIR/forebay.toml:4:14: site.log.access: cannot use the directory \"DIR/logs\": No such file \
         or directory (os error 2)",
        "DIR/forebay.toml:6:8: site.root: cannot use the directory \"DIR/file\": not a directory",
        "DIR/forebay.toml:8:8: site.auth.file: cannot read the file \"DIR/users\": No such file or \
         directory (os error 2)",
    ];
    assert_eq!(problems.unwrap_err(), expected);
}

#[test]
fn accounts_that_this_machine_does_not_have_are_remarked() {
    let folder = Folder::new();
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}\n"));
    let of = |place: &str, kind: &str, name: &str| {
        format!(
            "DIR/forebay.toml:{place}: {kind}: there is no {kind} {name:?} on this machine; without it \
             the server does not start"
        )
    };
    let expected = [of("2:8", "user", "no-such-user"), of("3:9", "group", "no-such-group")];
    assert_eq!(remarks("user = \"no-such-user\"\ngroup = \"no-such-group\""), expected);
    let no_group = "DIR/forebay.toml:2:8: user: no user of this machine has this number; without \
                    group beside it the server does not start";
    assert_eq!(remarks("user = \"3999999999\""), [no_group]);
    let nothing: [&str; 0] = [];
    for good in [
        "user = \"root\"",
        "user = \"root\"\ngroup = \"root\"",
        "user = \"3999999999\"\ngroup = \"3999999998\"",
        "group = \"no-such-group\"",
    ] {
        assert_eq!(remarks(good), nothing, "{good}");
    }
}

#[test]
fn rules_for_hosts_that_no_site_has_are_remarked() {
    let folder = Folder::new();
    let rules = "[[rule]]\nsite = [\"shop.example\", \"shpo.example\"]\naction = \"reset\"\n\
                 [[rule]]\nsite = \"www.test\"\naction = \"reset\"\n";
    let site = "[[site]]\nhosts = [\"shop.example\", \"*.example.org\"]\nroot = \"site\"\n";
    let expected = [
        "DIR/forebay.toml:5:25: rule.site: no site answers for \"shpo.example\", did you mean \
         \"shop.example\"?",
        "DIR/forebay.toml:8:8: rule.site: no site answers for \"www.test\"",
    ];
    assert_eq!(folder.remarks(&format!("{site}{rules}")), expected);
    // a site without hosts answers for all
    let default = "[[site]]\nroot = \"site\"\n";
    assert!(folder.remarks(&format!("{site}{default}{rules}")).is_empty());
    assert!(folder.remarks(&format!("root = \"site\"\n{rules}")).is_empty());
}

#[test]
fn what_is_said_about_tls_without_effect_is_remarked() {
    let folder = Folder::new();
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    fs::write(folder.0.join("a.crt"), cert.pem()).unwrap();
    let key =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.0.join("a.key"));
    key.unwrap().write_all(signing_key.serialize_pem().as_bytes()).unwrap();
    let text = |listen: &str, lines: &str| {
        let pair = "certificate = [\"a.crt\"]\nkey = [\"a.key\"]\n";
        format!("listen = [{listen}]\nroot = \"site\"\n[tls]\n{pair}{lines}")
    };
    let both = "\":80\", \"https://:443\"";
    let good = "redirect = 308\nhsts = \"365d\"\nhsts_subdomains = true\nhsts_preload = true\n";
    assert!(folder.remarks(&text(both, good)).is_empty());
    let in_vain = "it has no effect, because no address of listen begins with \"https://\"";
    let expected = ["4:15: tls.certificate", "6:12: tls.redirect", "7:8: tls.hsts"]
        .map(|place| format!("DIR/forebay.toml:{place}: {in_vain}"));
    assert_eq!(folder.remarks(&text("\":80\"", good)), expected);
    let without = "hsts_subdomains = true\n";
    assert_eq!(
        folder.remarks(&text(both, without)),
        ["DIR/forebay.toml:6:19: tls.hsts_subdomains: it has no effect without tls.hsts"]
    );
    let short = "hsts = \"30d\"\nhsts_subdomains = true\nhsts_preload = true\n";
    let said = folder.remarks(&text(both, short));
    assert!(said.len() == 1 && said[0].contains(":8:16: tls.hsts_preload: browsers"), "{said:?}");
    let rule = "hsts = \"30d\"\n[[header]]\nremove = [\"strict-transport-security\"]\n";
    let said = folder.remarks(&text(both, rule));
    assert!(said.len() == 1 && said[0].contains(":6:8: tls.hsts: it has no effect"), "{said:?}");
    let proxied = format!("trusted_proxies = [\"127.0.0.1\"]\n{}", text(both, "redirect = 301\n"));
    let said = folder.remarks(&proxied);
    assert!(said.len() == 1 && said[0].contains("tls.redirect: requests that trusted"), "{said:?}");
}

#[test]
fn rules_behind_one_that_decides_as_much_for_everything_are_remarked() {
    let folder = Folder::new();
    let remarks = |first: &str, then: &str| {
        folder.remarks(&format!("root = \"site\"\n[[rule]]\n{first}\n[[rule]]\n{then}\n"))
    };
    let each = "requests = { rate = \"5/s\", per = \"client\" }";
    let costly = "path = \"/costly\"\nrequests = { rate = \"1/s\" }";
    let expected = |by: &str, line: usize| {
        format!(
            "DIR/forebay.toml:{line}:1: rule: decides nothing: the rule {by:?} before it fits \
             everything, see 2:1; the first match per setting counts, put the special rule first"
        )
    };
    assert_eq!(remarks(each, costly), [expected("rule 1", 4)]);
    assert_eq!(remarks(&format!("name = \"each\"\n{each}"), costly), [expected("each", 5)]);
    let both = format!("{each}\naction = \"allow\"");
    assert_eq!(remarks(&both, costly), [expected("rule 1", 5)]);
    let classes = remarks("class = \"default\"", "client = \"::1\"\nclass = \"default\"");
    assert_eq!(classes, [expected("rule 1", 4)]);
    // after a rule that stops there is nothing
    let stops = format!("{each}\nstop = true");
    let rejects = "path = \"/costly\"\naction = \"reject\"";
    assert_eq!(remarks(&stops, rejects), [expected("rule 1", 5)]);
    let nothing: [&str; 0] = [];
    for (first, then) in [
        (costly, each),
        (each, rejects),
        (each, &format!("{costly}\nin_flight = {{ most = 5 }}")),
        (each, &format!("{costly}\nstop = true")),
        // a class by what is in a request goes before one by addresses alone
        ("class = \"default\"", "path = \"/costly\"\nclass = \"default\""),
        (&format!("client = \"10.0.0.0/8\"\n{each}"), costly),
        (&format!("local = \"*:80\"\n{each}"), costly),
        (&format!("method = \"GET\"\n{each}"), costly),
        (&format!("when = \"overload\"\n{each}"), costly),
        (&format!("{stops}\nwhen = \"overload\""), costly),
    ] {
        assert_eq!(remarks(first, then), nothing, "{first}\n{then}");
    }
}

#[test]
fn patterns_that_are_encoded_are_remarked() {
    let folder = Folder::new();
    let remarks = folder.remarks(
        "root = \"site\"\n[[rule]]\npath = [\"/a b\", \"/a%20b\"]\naction = \"reset\"\n\
         [[access]]\npath = \"/private%2Ffiles/*\"\nallow = [\"10.0.0.0/8\"]\n\
         [[redirect]]\nregex = \"^/a%20b$\"\nto = \"/c\"\n",
    );
    let expected = [
        "DIR/forebay.toml:3:17: rule.path: \"/a%20b\" fits only what a client has encoded twice: \
         paths are decoded before rules see them, write \"/a b\"",
        "DIR/forebay.toml:6:8: access.path: \"/private%2Ffiles/*\" fits only what a client has \
         encoded twice: paths are decoded before rules see them",
    ];
    assert_eq!(remarks, expected);
}

#[test]
fn error_pages_and_files_of_users_are_opened() {
    let folder = Folder::new();
    fs::write(folder.0.join("site/404.html"), "").unwrap();
    fs::create_dir(folder.0.join("site/500.html")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.0.join("site/410.html")).unwrap();
    // whoever opened it to read would wait for ever
    let fifo = folder.0.join("site/503.html");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let hash = "$2y$04$Ayqf8k2/9gHzdxxo46SsvO8l1s9GGupyEZ18Jcf3lO9QV5zPt70Xi";
    let lines = "bob\n".repeat(25);
    fs::write(folder.0.join("users"), format!("# staff\nalice:{hash}\n{lines}")).unwrap();
    let remarks = folder.remarks(
        "root = \"site\"\n[errors]\n404 = \"/404.html\"\n403 = \"/403.html\"\n\
         410 = \"/410.html\"\n500 = \"/500.html\"\n503 = \"/503.html\"\n\
         [[auth]]\npath = \"/in\"\nfile = \"users\"\n\
         [[site]]\nhosts = [\"a.example\"]\n[[site]]\nhosts = [\"b.example\"]\n",
    );
    let expected = [
        "DIR/forebay.toml:4:7: site.errors.403: cannot read the file \"DIR/site/403.html\": No such \
         file or directory (os error 2)",
        "DIR/forebay.toml:5:7: site.errors.410: cannot read the file \"DIR/site/410.html\": Invalid \
         cross-device link (os error 18)",
        "DIR/forebay.toml:6:7: site.errors.500: cannot read the file \"DIR/site/500.html\": it is no \
         regular file",
        "DIR/forebay.toml:7:7: site.errors.503: cannot read the file \"DIR/site/503.html\": it is no \
         regular file",
        "DIR/forebay.toml:10:8: auth.file: the file \"DIR/users\": line 3: it is not NAME:HASH",
    ];
    assert_eq!(remarks[..5], expected);
    assert_eq!(remarks.len(), 4 + 20 + 1);
    let last = "DIR/forebay.toml:10:8: auth.file: the file \"DIR/users\": and 5 other lines";
    assert_eq!(remarks[24], last);
}

#[test]
fn a_page_for_refused_clients_that_is_protected_is_told() {
    let folder = Folder::new();
    fs::write(folder.0.join("site/page.html"), "").unwrap();
    let remarks = folder.remarks(
        "root = \"site\"\n[errors]\n401 = \"/page.html\"\n404 = \"/page.html\"\n\
         [[access]]\npath = \"/page.html\"\ndeny = [\"192.0.2.7\"]\n",
    );
    let expected = "DIR/forebay.toml:3:7: errors.401: clients that are refused do not see \
                    \"/page.html\", because a rule of auth or access protects it, too: they get a \
                    short page of Forebay's own";
    assert_eq!(remarks, [expected]);
}

#[test]
fn what_several_sites_inherit_is_told_once() {
    let folder = Folder::new();
    let problems = folder.load(
        "root = \"nowhere\"\n[[auth]]\nfile = \"users\"\n\
         [[site]]\nhosts = [\"a.example\"]\n[[site]]\nhosts = [\"b.example\"]\n",
    );
    let expected = [
        "DIR/forebay.toml:1:8: root: cannot use the directory \"DIR/nowhere\": No such file or \
         directory (os error 2)",
        "DIR/forebay.toml:3:8: auth.file: cannot read the file \"DIR/users\": No such file or \
         directory (os error 2)",
    ];
    assert_eq!(problems.unwrap_err(), expected);
}

#[test]
fn files_are_looked_for_only_when_all_else_is_good() {
    let folder = Folder::new();
    let problems = folder.load("root = \"nowhere\"\nworkers = 0\n").unwrap_err();
    let expected = "DIR/forebay.toml:2:11: workers: 0 is out of range, from 1 to 65536 is allowed";
    assert_eq!(problems, [expected]);
}

#[test]
fn the_sample_can_be_run_as_it_is() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/forebay.toml");
    let problems = load(&sample).err().unwrap_or_default();
    assert!(problems.is_empty(), "{}", problems[0]);
}

/// Fields, and requests without an answer, are told of in JSON only.
#[test]
fn what_only_json_lines_have_is_remarked() {
    let folder = Folder::new();
    let choice =
        "root = \"site\"\nlog.fields = [\"status\"]\nlog.if = [\"status=5xx\", \"status=none\"]\n";
    let said = |place| {
        format!("DIR/forebay.toml:{place}: only JSON lines have that: write log.format = \"json\"")
    };
    assert_eq!(folder.remarks(choice), [said("2:14: log.fields"), said("3:25: log.if")]);
    let good = format!("{choice}log.format = \"json\"\n");
    assert!(folder.remarks(&good).is_empty());
    let inherited = format!(
        "{choice}[[site]]\nhosts = [\"a.example\"]\nlog.format = \"json\"\n[[site]]\nhosts = [\"b.example\"]\n"
    );
    assert!(folder.remarks(&inherited).is_empty());
    let own = "root = \"site\"\nlog.format = \"json\"\n[[site]]\nhosts = [\"a.example\"]\n\
               log.format = \"common\"\nlog.fields = [\"status\"]\n[[site]]\nhosts = [\"b.example\"]\n";
    assert_eq!(folder.remarks(own), [said("6:14: site.log.fields")]);
    assert!(folder.remarks("root = \"site\"\nlog.if = [\"status!=none\"]\n").is_empty());
}

/// A socket that cannot be made is an error of `check`; where a service manager has made it, it is
/// none.
#[test]
fn sockets_that_cannot_be_made_are_told() {
    let folder = Folder::new();
    let text = "root = \"site\"\nlisten = [\"unix:none/a.sock\"]\nadmin.listen = \"unix:site/file/b\"\n\
                control.socket = \"none/made/c\"\n";
    fs::write(folder.0.join("site/file"), "").unwrap();
    let file = folder.0.join("forebay.toml");
    fs::write(&file, text).unwrap();
    let directory = folder.0.display().to_string();
    let said = |problems: Vec<forebay_server::config::Problem>| {
        let lines = problems.iter().map(|p| p.to_string().replace(&directory, "DIR"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let none = "No such file or directory (os error 2)";
    assert_eq!(
        said(check(&file).unwrap_err()),
        format!(
            "DIR/forebay.toml:2:11: listen: a socket cannot be made in the directory \"DIR/none\": {none}\n\
             DIR/forebay.toml:3:16: admin.listen: a socket cannot be made in the directory \
             \"DIR/site/file\": not a directory"
        )
    );
    // the server finds out by itself, and may have been given the sockets
    assert!(load(&file).is_ok());
    fs::create_dir(folder.0.join("none")).unwrap();
    fs::remove_file(folder.0.join("site/file")).unwrap();
    fs::create_dir(folder.0.join("site/file")).unwrap();
    assert!(check(&file).is_ok());
}
