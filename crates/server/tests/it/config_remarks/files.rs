//! Remarks on files and directories: pages, users, files that clients must not get, links.

use crate::config_files::Folder;
use std::fs;

#[test]
fn error_pages_and_files_of_users_are_opened() {
    let folder = Folder::new();
    fs::write(folder.0.join("site/404.html"), "").unwrap();
    fs::create_dir(folder.0.join("site/500.html")).unwrap();
    fs::create_dir(folder.0.join("site/in")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.0.join("site/410.html")).unwrap();
    // opening a FIFO to read would block for ever
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
fn an_error_page_that_is_a_script_is_told() {
    let folder = Folder::new();
    for name in ["403.php", "404.html"] {
        fs::write(folder.0.join("site").join(name), "").unwrap();
    }
    let remarks = folder.remarks(
        "root = \"site\"\n[errors]\n403 = \"/403.php\"\n404 = \"/404.html\"\n\
         [[fastcgi]]\nto = \"10.0.0.1:9\"\n",
    );
    let expected = "DIR/forebay.toml:3:7: errors.403: \"/403.php\" is a script, which is not run for \
                    an error: clients get a short page of Forebay's own; name a file that is sent as \
                    it is";
    assert_eq!(remarks, [expected]);
}

#[test]
fn files_that_are_not_for_clients_are_remarked_where_they_are_served() {
    let folder = Folder::new();
    for directory in ["site/.in", "out"] {
        fs::create_dir(folder.0.join(directory)).unwrap();
    }
    let hash = "$2y$04$Ayqf8k2/9gHzdxxo46SsvO8l1s9GGupyEZ18Jcf3lO9QV5zPt70Xi";
    for name in ["site/users", "site/.in/users", "site/.users", "users"] {
        fs::write(folder.0.join(name), format!("bob:{hash}\n")).unwrap();
    }
    std::os::unix::fs::symlink("site", folder.0.join("link")).unwrap();
    let users = |name: &str| format!("[[auth]]\nfile = \"{name}\"\n");
    let served = |place: &str, key: &str, name: &str, directory: &str, see: &str| {
        format!(
            "DIR/forebay.toml:{place}: {key}: clients could read \"DIR/{name}\", \"DIR{directory}\" \
             is served, see {see}"
        )
    };
    let with = |root: &str, more: &str| folder.remarks(&format!("root = \"{root}\"\n{more}"));
    let nothing: [&str; 0] = [];
    assert_eq!(with("site", &users("users")), nothing);
    let expected = served("3:8", "auth.file", "site/users", "/site", "1:8");
    assert_eq!(with("site", &users("site/users")), [expected]);
    // by other names of the same file
    let expected = served("3:8", "auth.file", "link/users", "/site", "1:8");
    assert_eq!(with("site", &users("link/users")), [expected]);
    let expected = served("3:8", "auth.file", "site/users", "/link", "1:8");
    assert_eq!(with("link", &users("site/users")), [expected]);
    // names that begin with a dot are not served, unless the configuration asks for it
    assert_eq!(with("site", &users("site/.users")), nothing);
    assert_eq!(with("site", &users("site/.in/users")), nothing);
    let hidden = format!("hidden = true\n{}", users("site/.users"));
    let expected = served("4:8", "auth.file", "site/.users", "/site", "1:8");
    assert_eq!(with("site", &hidden), [expected]);
    let alias = format!("{}[[alias]]\npath = \"/a\"\nto = \"site\"\n", users("site/users"));
    let expected = served("3:8", "auth.file", "site/users", "/site", "6:6");
    assert_eq!(with("out", &alias), [expected]);
    // the configuration file itself is remarked, too
    let itself = |place: &str, key: &str| {
        format!(
            "DIR/forebay.toml:{place}: {key}: clients could read \"DIR/forebay.toml\", which is this \
             configuration"
        )
    };
    assert_eq!(with(".", ""), [itself("1:8", "root")]);
    assert_eq!(with("/", "")[..1], [itself("1:8", "root")]);
    // an access rule may deny it
    let closed =
        |path: &str, more: &str| format!("[[access]]\npath = \"{path}\"\ndeny = [\"all\"]\n{more}");
    assert_eq!(with(".", &closed("*.toml", "")), nothing);
    for open in [
        closed("*.html", ""),
        closed("*.toml", "allow = [\"10.0.0.0/8\"]\n"),
        closed("*.toml", "except = [\"/forebay.toml\"]\n"),
        closed("*.toml", "method = \"HEAD\"\n"),
    ] {
        assert_eq!(with(".", &open), [itself("1:8", "root")], "{open}");
    }
    let alias = "[[alias]]\npath = \"/a\"\nto = \".\"\n";
    assert_eq!(with("site", &format!("{alias}{}", closed("/a/forebay.toml", ""))), nothing);
    // a root at the top that every site has replaced is not served
    let sites = "[[site]]\nhosts = [\"a.example\"]\nroot = \"site\"\n";
    assert_eq!(with(".", sites), nothing);
    let sites = "[[site]]\nhosts = [\"a.example\"]\n";
    let [remark] = &with(".", sites)[..] else { panic!("not one remark") };
    assert!(remark.ends_with("which is this configuration"), "{remark}");
}

#[test]
fn pages_that_paths_end_at_are_looked_for() {
    let folder = Folder::new();
    fs::create_dir(folder.0.join("docs")).unwrap();
    fs::write(folder.0.join("docs/here.html"), "").unwrap();
    fs::create_dir(folder.0.join("site/sub")).unwrap();
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}\n"));
    let no_file = |place: &str, file: &str| {
        format!(
            "DIR/forebay.toml:{place}: cannot read the file \"DIR/{file}\": No such file or directory (os \
             error 2)"
        )
    };
    let nothing: [&str; 0] = [];
    let spa = "try_files = [\"$path\", \"/index.html\"]";
    assert_eq!(remarks(spa), [no_file("2:23: try_files", "site/index.html")]);
    // earlier files may be missing, and a list with a status at its end expects that
    assert_eq!(remarks("try_files = [\"/maintenance.html\", \"$path\"]"), nothing);
    assert_eq!(remarks("try_files = [\"$path\", \"/index.html\", \"=404\"]"), nothing);
    // one remark for all sites that inherit the setting
    let two =
        format!("{spa}\n[[site]]\nhosts = [\"a.example\"]\n[[site]]\nhosts = [\"b.example\"]");
    assert_eq!(remarks(&two), [no_file("2:23: site.try_files", "site/index.html")]);
    let rewrite = |to: &str| format!("[[rewrite]]\npath = \"/a/*\"\nto = \"{to}\"");
    assert_eq!(remarks(&rewrite("/no.html")), [no_file("4:6: rewrite.to", "site/no.html")]);
    for good in ["/sub", "/sub/", "/", "/b/$1"] {
        assert_eq!(remarks(&rewrite(good)), nothing, "{good}");
    }
    // the file may be below an alias, or among those that are tried next
    let alias = "[[alias]]\npath = \"/docs\"\nto = \"docs\"";
    assert_eq!(remarks(&format!("{}\n{alias}", rewrite("/docs/here.html"))), nothing);
    assert_eq!(
        remarks(&format!("{}\n{alias}", rewrite("/docs/no.html"))),
        [no_file("4:6: rewrite.to", "docs/no.html")]
    );
    assert_eq!(
        remarks(&format!("try_files = [\"$path\", \"$path.html\"]\n{}", rewrite("/no"))),
        nothing
    );
    let inherited = format!("{}\n[[site]]\nhosts = [\"a.example\"]", rewrite("/no.html"));
    assert_eq!(remarks(&inherited), [no_file("4:6: rewrite.to", "site/no.html")]);
    fs::write(folder.0.join("site/index.html"), "").unwrap();
    assert_eq!(remarks(spa), nothing);
}

/// A rule protects paths, and a link in the root gives a protected file another path.
#[test]
fn links_past_the_rules_are_remarked() {
    let folder = Folder::new();
    for directory in ["site/in/deep", "site/pub/a/b", "site/open"] {
        fs::create_dir_all(folder.0.join(directory)).unwrap();
    }
    let link = |to: &str, at: &str| {
        std::os::unix::fs::symlink(to, folder.0.join("site").join(at)).unwrap();
    };
    let text = |path: &str, more: &str| {
        format!("root = \"site\"\n{more}[[access]]\npath = \"{path}\"\ndeny = [\"all\"]\n")
    };
    let nothing: [&str; 0] = [];
    // links that lead out of the root, to an open file, or from a path that is protected, hidden or
    // too deep
    link("/etc", "etc");
    link("open", "other");
    link("deep", "in/other");
    link("in", ".hidden");
    link("../../../in", "pub/a/b/far");
    assert_eq!(folder.remarks(&text("/in", "")), nothing);
    let of = |open: &str| {
        format!(
            "DIR/forebay.toml:3:8: access.path: {open:?} leads to the same by a symbolic link, and no rule \
             is for that path: protect it, too, or remove the link; \"/in\" is for paths, not for what \
             links lead to"
        )
    };
    link("../../in/deep", "pub/a/door");
    assert_eq!(folder.remarks(&text("/in", "")), [of("/pub/a/door")]);
    assert_eq!(folder.remarks(&text("*", "")), nothing);
    let both = format!("{}[[access]]\npath = \"/pub\"\ndeny = [\"all\"]\n", text("/in", ""));
    assert_eq!(folder.remarks(&both), nothing);
    fs::remove_file(folder.0.join("site/pub/a/door")).unwrap();
    // a link to the directory above
    link("..", "open/up");
    assert_eq!(folder.remarks(&text("/in", "")), [of("/open/up/in")]);
}

#[test]
fn a_directory_for_bodies_is_tried_out() {
    let folder = Folder::new();
    fs::create_dir(folder.0.join("spool")).unwrap();
    let script = "[[fastcgi]]\nto = \"unix:@php\"\n";
    let remarks = |top: &str| folder.remarks(&format!("root = \"site\"\n{top}\n{script}"));
    let of_spool = |top: &str| {
        let all = remarks(top);
        all.into_iter().filter(|said| said.contains("spool_dir")).collect::<Vec<_>>()
    };
    assert!(of_spool("spool_dir = \"spool\"").is_empty());
    let memory = "DIR/forebay.toml:2:13: spool_dir: what is in \"/dev/shm\" is in memory (tmpfs), up to \
                  spool_dir_bytes of it: name a directory on a disk";
    assert_eq!(of_spool("spool_dir = \"/dev/shm\""), [memory]);
    let alone = "DIR/forebay.toml:2:19: spool_dir_bytes: means nothing without spool_dir";
    assert_eq!(of_spool("spool_dir_bytes = \"1GiB\""), [alone]);
    let unused = "DIR/forebay.toml:2:13: spool_dir: means nothing without [[fastcgi]] or [[cgi]]";
    assert_eq!(folder.remarks("root = \"site\"\nspool_dir = \"spool\"\n"), [unused]);
}
