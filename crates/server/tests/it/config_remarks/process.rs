//! Remarks on the process: its user, its admin listener, its log, its machine.

use crate::config_files::Folder;
use std::fs;
use std::os::unix::fs::PermissionsExt;

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
    ] {
        assert_eq!(remarks(good), nothing, "{good}");
    }
}

/// Chosen fields, and requests without an answer, appear in JSON lines only.
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

/// The address of `admin.listen` limits where clients can come from; the warning is for lists that
/// allow none of them.
#[test]
fn an_admin_listener_that_nobody_can_read_is_remarked() {
    let folder = Folder::new();
    let remarks = |listen: &str, allow: &str| {
        folder.remarks(&format!("root = \"site\"\nadmin.listen = \"{listen}\"\n{allow}"))
    };
    let allow = |names: &str| format!("admin.allow = [{names}]\n");
    for (listen, names) in [
        ("127.0.0.1:9090", "\"127.0.0.1\""),
        ("127.0.0.2:9090", "\"127.0.0.2\""),
        ("127.0.0.2:9090", "\"127.0.0.0/16\", \"10.0.0.7\""),
        ("[::1]:9090", "\"::1\""),
        ("unix:admin.sock", "\"unix\""),
        ("unix:admin.sock", "\"all\""),
        (":9090", "\"127.0.0.1\""),
        (":9090", "\"::1\""),
        ("0.0.0.0:9090", "\"127.0.0.0/8\""),
        ("[::]:9090", "\"fd00::/8\""),
        ("10.0.0.1:9090", "\"10.0.0.7\""),
    ] {
        let nothing: [&str; 0] = [];
        assert_eq!(remarks(listen, &allow(names)), nothing, "{listen} {names}");
    }
    let open = remarks("10.0.0.1:9090", &allow("\"0.0.0.0/0\""));
    assert!(open.len() == 1 && open[0].contains("no token is asked for"), "{open:?}");
    for listen in ["127.0.0.1:9090", "127.0.0.2:9090", "[::1]:9090", "unix:admin.sock"] {
        assert!(remarks(listen, "").is_empty(), "{listen}");
    }
    for (listen, names) in [
        ("127.0.0.2:9090", "\"10.0.0.7\""),
        ("127.0.0.2:9090", "\"::1\""),
        ("[::1]:9090", "\"127.0.0.1\""),
        ("unix:admin.sock", "\"127.0.0.1\""),
        (":9090", "\"unix\""),
        ("0.0.0.0:9090", "\"::1\""),
        ("10.0.0.1:9090", "\"127.0.0.0/8\""),
        ("10.0.0.1:9090", "\"fd00::/8\""),
    ] {
        let told = remarks(listen, &allow(names));
        assert!(told[0].contains(":3:15: admin.allow: names nobody who can come"), "{told:?}");
    }
    // the default names this machine alone
    assert!(remarks("10.0.0.1:9090", "")[0].contains("names nobody who can come"));
    let expected = "DIR/forebay.toml:2:16: admin.listen: \":9090\" is all addresses, and only clients of \
                    this machine are answered there: name others in admin.allow, or listen at 127.0.0.1";
    assert_eq!(remarks(":9090", ""), [expected]);
}

/// Tokens and keys of the admin listener are secrets, as those of sites are.
#[test]
fn secrets_of_the_admin_listener_are_remarked() {
    let folder = Folder::new();
    fs::write(folder.0.join("site/tokens"), "a\n").unwrap();
    fs::write(folder.0.join("tokens"), "a\n").unwrap();
    let mode = |file: &str, mode| {
        fs::set_permissions(folder.0.join(file), fs::Permissions::from_mode(mode)).unwrap();
    };
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}\n"));
    let own = "admin = { listen = \"127.0.0.1:9090\", token_file = \"tokens\" }";
    mode("tokens", 0o644);
    let expected = "DIR/forebay.toml:2:51: admin.token_file: everybody on this machine may read the file \
                    of tokens \"DIR/tokens\": \"chmod o-rwx\"";
    assert_eq!(remarks(own), [expected]);
    mode("tokens", 0o600);
    assert!(remarks(own).is_empty(), "{:?}", remarks(own));
    let told = remarks(&format!("user = \"nobody\"\n{own}"));
    assert!(told[0].contains("the user \"nobody\" may not read the file of tokens"), "{told:?}");
    // with stages root reads the file at a reload, too
    let told = remarks(&format!("user = \"nobody\"\nengine = \"isolated\"\n{own}"));
    assert!(!told.iter().any(|one| one.contains("may not read the file of tokens")), "{told:?}");
    mode("site/tokens", 0o600);
    let told = remarks("admin = { listen = \"127.0.0.1:9090\", token_file = \"site/tokens\" }");
    assert!(told[0].contains("clients could read \"DIR/site/tokens\""), "{told:?}");
    let told = remarks("admin.token_file = \"tokens\"");
    assert!(told[0].ends_with("admin.token_file: means nothing without admin.listen"), "{told:?}");
}

/// A check by root, which may read everything, finds what the server's user may not use.
#[test]
fn what_the_user_of_the_server_may_not_use_is_remarked() {
    let folder = Folder::new();
    let mode = |file: &str, mode| {
        fs::set_permissions(folder.0.join(file), fs::Permissions::from_mode(mode)).unwrap();
    };
    let hash = "$2y$04$Ayqf8k2/9gHzdxxo46SsvO8l1s9GGupyEZ18Jcf3lO9QV5zPt70Xi";
    for directory in ["site/in", "logs", "closed"] {
        fs::create_dir(folder.0.join(directory)).unwrap();
    }
    for users in ["users", "closed/users"] {
        fs::write(folder.0.join(users), format!("alice:{hash}\n")).unwrap();
    }
    fs::write(folder.0.join("site/404.html"), "").unwrap();
    fs::write(folder.0.join("logs/a.log"), "").unwrap();
    // other users may not enter all directories on the way to where tests are built
    let others = |told: Vec<String>| -> Vec<String> {
        told.into_iter().filter(|line| !line.contains("which is on the way")).collect()
    };
    let text = |who: &str| {
        format!(
            "root = \"site\"\n{who}\nlog.access = \"logs/a.log\"\nerrors = {{ 404 = \"/404.html\" }}\n\
             [[auth]]\npath = \"/in\"\nfile = \"users\"\n"
        )
    };
    // a number of no account
    let stranger = "user = \"3999999999\"\ngroup = \"3999999998\"";
    let remarks = || folder.remarks(&text(stranger));
    let parents_are_open = folder
        .0
        .ancestors()
        .skip(1)
        .all(|directory| fs::metadata(directory).unwrap().permissions().mode() & 0o001 != 0);
    mode("users", 0o600);
    mode("site/404.html", 0o600);
    mode("logs", 0o755);
    mode("logs/a.log", 0o640);
    if parents_are_open {
        let expected = [
            "DIR/forebay.toml:4:14: log.access: the user \"3999999999\" may not write to the log \
             \"DIR/logs/a.log\": the server does not start; give it to that user: \"chown\"",
            "DIR/forebay.toml:4:14: log.access: the user \"3999999999\" may not write to the directory \
             \"DIR/logs\": a log that is moved away cannot be made again; give it to that user: \"chown\"",
            "DIR/forebay.toml:5:18: errors.404: the user \"3999999999\" may not read the error page \
             \"DIR/site/404.html\": clients get a short page of Forebay's own; give it to a group of that \
             user: \"chgrp\", \"chmod g+r\"",
            "DIR/forebay.toml:8:8: auth.file: the user \"3999999999\" may not read the file of users \
             \"DIR/users\": what it protects is answered with 500 for everybody; give it to a group of that \
             user: \"chgrp\", \"chmod g+r\"",
        ];
        assert_eq!(others(remarks()), expected);
        mode("users", 0o644);
        mode("site/404.html", 0o644);
        mode("logs", 0o777);
        mode("logs/a.log", 0o666);
        assert_eq!(remarks(), Vec::<String>::new());
        mode("site", 0o700);
        let told = remarks();
        assert!(told[0].contains("may not enter the directory \"DIR/site\""), "{told:?}");
        assert_eq!(told.len(), 1, "its error page is no news: {told:?}");
        mode("site", 0o755);
    }
    mode("closed", 0o700);
    let told = folder.remarks(&text(stranger).replace("\"users\"", "\"closed/users\""));
    let is_told =
        |line: &&String| line.contains("\"DIR/closed/users\"") && line.contains("on the way");
    assert!(told.iter().any(|line| is_told(&line)), "{told:?}");
    // without another user, and for root, every file can be used
    for who in ["", "user = \"root\""] {
        assert_eq!(folder.remarks(&text(who)), Vec::<String>::new(), "{who}");
    }
}

#[test]
fn constants_of_another_machine_are_remarked() {
    let folder = Folder::new();
    let remarks = |processor: &str| {
        let each = "{ accept = 0.1, receive = 0.1, process = 0.1, send = 0.1 }";
        let found = format!(
            "c1 = 1e-5\nc2 = 1e-9\nfile_bytes = \"64KiB\"\na = {each}\nb = {each}\n[found]\n\
             machine = \"{processor}, cores: 2, Linux 6.18\"\n"
        );
        fs::write(folder.0.join("calibration.toml"), found).unwrap();
        folder.remarks("root = \"site\"\npipeline.calibration = \"calibration.toml\"\n")
    };
    let own = forebay_server::machine::processor().unwrap();
    assert!(remarks(own).is_empty());
    assert_eq!(remarks(&format!("{own}1")).len(), 1);
    let other = "DIR/forebay.toml:2:24: pipeline.calibration: these constants were found on another \
                 machine, \"Abacus 3, cores: 2, Linux 6.18\": what is cheaper there may be dearer here; run \
                 forebay calibrate on this one";
    assert_eq!(remarks("Abacus 3"), [other]);
}

#[test]
fn spans_that_do_not_arrive_or_not_alone_are_remarked() {
    let folder = Folder::new();
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}\n"));
    let nothing: [&str; 0] = [];
    for (text, expected) in [
        ("traces.rate = \"5%\"", "2:15: traces.rate: means nothing without traces.to"),
        ("traces.service = \"shop\"", "2:18: traces.service: means nothing without traces.to"),
        (
            "traces.to = \"http://127.0.0.1:4318\"\ntraces.parent = \"rate\"",
            "3:17: traces.parent: means nothing without trusted_proxies",
        ),
        (
            "traces.to = \"http://10.0.0.7:4318\"",
            "2:13: traces.to: spans go there in clear, with paths and the addresses of clients; keep the way \
             there private, or run a collector on this machine, which sends them on through TLS",
        ),
        (
            "engine = \"isolated\"\nuser = \"root\"\ntraces.to = \"http://localhost:4318\"",
            "4:13: traces.to: with isolated the processes of process look no name up, so their spans are lost: \
             write an address, or a Unix socket",
        ),
    ] {
        let said = remarks(text);
        assert!(said.contains(&format!("DIR/forebay.toml:{expected}")), "{text}: {said:?}");
    }
    for good in ["http://127.0.0.1:4318", "http://localhost:4318", "unix:/run/otel.sock"] {
        assert_eq!(remarks(&format!("traces.to = \"{good}\"")), nothing, "{good}");
    }
}
