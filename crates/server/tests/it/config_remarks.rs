//! What `forebay check` warns of: what is right and yet hardly meant.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::config_files::Folder;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

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
    fs::create_dir(folder.0.join("site/in")).unwrap();
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

/// Who reads `admin.listen` may come from where: a warning is for lists that name nobody of them.
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
        ("10.0.0.1:9090", "\"0.0.0.0/0\""),
    ] {
        let nothing: [&str; 0] = [];
        assert_eq!(remarks(listen, &allow(names)), nothing, "{listen} {names}");
    }
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
    mode("site/tokens", 0o600);
    let told = remarks("admin = { listen = \"127.0.0.1:9090\", token_file = \"site/tokens\" }");
    assert!(told[0].contains("clients could read \"DIR/site/tokens\""), "{told:?}");
    let told = remarks("admin.token_file = \"tokens\"");
    assert!(told[0].ends_with("admin.token_file: means nothing without admin.listen"), "{told:?}");
}

/// Root, who may read everything, checks what another user must read later.
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
    // where the tests are built strangers may not come everywhere
    let others = |told: Vec<String>| -> Vec<String> {
        told.into_iter().filter(|line| !line.contains("which is on the way")).collect()
    };
    let text = |who: &str| {
        format!(
            "root = \"site\"\n{who}\nlog.access = \"logs/a.log\"\nerrors = {{ 404 = \"/404.html\" }}\n\
             [[auth]]\npath = \"/in\"\nfile = \"users\"\n"
        )
    };
    // a number that nobody has
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
    // without another user, and for root, nothing is closed
    for who in ["", "user = \"root\""] {
        assert_eq!(folder.remarks(&text(who)), Vec::<String>::new(), "{who}");
    }
}

#[test]
fn what_another_setting_leaves_without_effect_is_remarked() {
    let folder = Folder::new();
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}\n"));
    let idle = |place: &str, needs: &str| {
        format!("DIR/forebay.toml:{place}: means nothing without {needs}")
    };
    let exceeds = |place: &str, other: &str, effect: &str| {
        format!("DIR/forebay.toml:{place}: is more than {other}: {effect}")
    };
    let nothing: [&str; 0] = [];
    assert_eq!(remarks("group = \"root\""), [idle("2:9: group", "user")]);
    assert_eq!(remarks("user = \"root\"\ngroup = \"root\""), nothing);
    assert_eq!(
        remarks("admin.allow = [\"10.0.0.7\"]"),
        [idle("2:15: admin.allow", "admin.listen")]
    );
    assert_eq!(
        remarks("[limits]\nconnections = 10\nconnections_per_client = 11"),
        [exceeds(
            "4:26: limits.connections_per_client",
            "limits.connections",
            "no client reaches it"
        )]
    );
    for good in ["connections = 10\nconnections_per_client = 10", "connections_per_client = 100000"]
    {
        assert_eq!(remarks(&format!("[limits]\n{good}")), nothing);
    }
    let not_kept = "files of that size are not kept";
    assert_eq!(
        remarks("cache.bytes = \"1MiB\"\ncache.file_bytes = \"2MiB\""),
        [exceeds("3:20: cache.file_bytes", "cache.bytes", not_kept)]
    );
    // the default of the one is beyond the other
    assert_eq!(
        remarks("[cache]\nbytes = \"256KiB\""),
        [exceeds("2:2: cache.file_bytes", "cache.bytes", not_kept)]
    );
    assert_eq!(remarks("cache.bytes = \"0B\""), nothing);
    assert_eq!(
        remarks("timeouts.idle = \"1s\"\nkeep_alive.floor = \"2s\""),
        [exceeds("3:20: keep_alive.floor", "timeouts.idle", "the time does not shrink under load")]
    );
    let constant =
        "timeouts.idle = \"1s\"\nkeep_alive.floor = \"2s\"\nkeep_alive.law = \"constant\"";
    assert_eq!(
        remarks(constant),
        [
            "DIR/forebay.toml:3:20: keep_alive.floor: means nothing without keep_alive.law = \"linear\" or \"exponential\""
        ]
    );
}

#[test]
fn the_order_of_those_who_wait_for_a_thread_needs_threads_and_classes() {
    let folder = Folder::new();
    let classes =
        "[[class]]\nname = \"gold\"\npriority = 0\n[[class]]\nname = \"bulk\"\npriority = 1\n";
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}\n{classes}"));
    let needs = "means nothing without engine = \"pool\" or \"threads\"";
    let expected = [
        format!("DIR/forebay.toml:2:13: answering: {needs}"),
        format!("DIR/forebay.toml:3:16: accept_ahead: {needs}"),
    ];
    assert_eq!(remarks("answering = 5\naccept_ahead = 9"), expected);
    let nothing: [&str; 0] = [];
    assert_eq!(remarks("answering = 5\naccept_ahead = 9\nengine = \"threads\""), nothing);
    let more =
        "DIR/forebay.toml:2:13: answering: is more than workers: no more than those may answer";
    assert_eq!(remarks("answering = 5\nworkers = 4\nengine = \"pool\""), [more]);
    assert_eq!(remarks("answering = 4\nworkers = 4\nengine = \"pool\""), nothing);
    // what is left to the server is known, too
    let more = more.replace("2:13", "3:13");
    assert_eq!(remarks("engine = \"pool\"\nanswering = 65"), [&*more]);
    assert_eq!(remarks("engine = \"pool\"\nanswering = 64"), nothing);
    assert_eq!(remarks("engine = \"threads\"\nanswering = 65"), nothing);
    assert_eq!(remarks("engine = \"threads\"\nanswering = 1025"), [&*more]);
    // how many applications may have needs no classes
    let alone = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}\n"));
    let expected = [
        format!("DIR/forebay.toml:2:20: upstream_threads: {needs}"),
        format!("DIR/forebay.toml:3:18: tunnel_threads: {needs}"),
    ];
    let both = "upstream_threads = 5\ntunnel_threads = 2";
    assert_eq!(alone(both), expected);
    assert_eq!(alone(&format!("{both}\nengine = \"pool\"")), nothing);
    let pool = "[[listener]]\nlisten = [\"127.0.0.1:81\"]\nengine = \"pool\"";
    assert_eq!(remarks(&format!("answering = 5\n{pool}")), nothing);
    let event = "[[listener]]\nlisten = [\"127.0.0.1:82\"]\nanswering = 5";
    let expected = [format!("DIR/forebay.toml:7:13: listener.answering: {needs}")];
    assert_eq!(remarks(&format!("{pool}\n{event}")), expected);
    assert_eq!(
        folder.remarks("root = \"site\"\nengine = \"pool\"\nanswering = 5\n"),
        ["DIR/forebay.toml:3:13: answering: means nothing without two classes"]
    );
}

#[test]
fn a_law_of_a_class_without_effect_is_remarked() {
    let folder = Folder::new();
    let class = "[[class]]\nname = \"gold\"\npriority = 0\n";
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{class}{text}\n"));
    let needs = "means nothing without keep_alive.law = \"linear\" or \"exponential\"";
    let constant = "keep_alive = { law = \"constant\", threshold = 5, floor = \"2s\" }";
    let expected = [
        format!("DIR/forebay.toml:5:46: class.keep_alive.threshold: {needs}"),
        format!("DIR/forebay.toml:5:57: class.keep_alive.floor: {needs}"),
    ];
    assert_eq!(remarks(constant), expected);
    // what it does not say is that of all
    let inherited = "keep_alive.floor = \"2s\"\n[keep_alive]\nlaw = \"constant\"";
    assert_eq!(
        remarks(inherited),
        [format!("DIR/forebay.toml:5:20: class.keep_alive.floor: {needs}")]
    );
    let above = remarks("keep_alive = { idle = \"1s\", floor = \"2s\" }");
    assert_eq!(above.len(), 1, "{above:?}");
    assert!(above[0].contains("class.keep_alive.floor") && above[0].contains("keep_alive.idle"));
    for good in ["keep_alive.floor = \"1s\"", "keep_alive = { idle = \"10m\", law = \"constant\" }"]
    {
        assert!(remarks(good).is_empty(), "{good}");
    }
}

#[test]
fn a_law_without_effect_is_remarked() {
    let folder = Folder::new();
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}\n"));
    let needs = "means nothing without keep_alive.law = \"linear\" or \"exponential\"";
    let constant = "[keep_alive]\nlaw = \"constant\"\nthreshold = 5\nfloor = \"2s\"\n";
    let threshold = format!("DIR/forebay.toml:4:13: keep_alive.threshold: {needs}");
    let floor = format!("DIR/forebay.toml:5:9: keep_alive.floor: {needs}");
    assert_eq!(remarks(constant), [&*threshold, &floor]);
    // a class with another law has them, unless it says its own
    let class = "[[class]]\nname = \"gold\"\npriority = 0\nkeep_alive.law = \"linear\"\n";
    let nothing: [&str; 0] = [];
    assert_eq!(remarks(&format!("{constant}{class}")), nothing);
    let own = "keep_alive.floor = \"1s\"";
    assert_eq!(remarks(&format!("{constant}{class}{own}")), [&*floor]);
    assert_eq!(remarks("[keep_alive]\nlaw = \"constant\"\nannounce = true"), nothing);
}

#[test]
fn the_order_of_sends_needs_a_loop() {
    let folder = Folder::new();
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}\n"));
    let wrong = "DIR/forebay.toml:2:14: send_order: means nothing without an engine with loops, such as \
                 \"event\"";
    let order = "send_order = \"shortest\"\nengine";
    assert_eq!(remarks(&format!("{order} = \"pool\"")), [wrong]);
    let never = "pipeline.fuse = \"never\"";
    assert_eq!(remarks(&format!("{order} = \"pipeline\"\n{never}")), [wrong]);
    let nothing: [&str; 0] = [];
    for engine in ["event", "fibers", "pipeline"] {
        assert_eq!(remarks(&format!("{order} = {engine:?}")), nothing, "{engine}");
    }
    let event = "[[listener]]\nlisten = [\"127.0.0.1:81\"]\nengine = \"event\"";
    assert_eq!(remarks(&format!("{order} = \"threads\"\n{event}")), nothing);
}

#[test]
fn settings_of_the_pipeline_need_it() {
    let folder = Folder::new();
    let text = "root = \"site\"\n[pipeline]\nfuse = \"never\"\nby = \"delay\"\n";
    let expected = [
        "DIR/forebay.toml:3:8: pipeline.fuse: means nothing without engine = \"pipeline\"",
        "DIR/forebay.toml:4:6: pipeline.by: means nothing without engine = \"pipeline\"",
    ];
    assert_eq!(folder.remarks(text), expected);
    assert!(folder.remarks(&format!("engine = \"pipeline\"\n{text}")).is_empty());
    let one = "[[listener]]\nlisten = [\":81\"]\nengine = \"pipeline\"\n";
    assert!(folder.remarks(&format!("listen = [\":80\"]\n{text}{one}")).is_empty());
    let fused = |key: &str, value: &str, more: &str| {
        folder.remarks(&format!(
            "root = \"site\"\nengine = \"pipeline\"\npipeline.{key} = {value}\n{more}\n"
        ))
    };
    for (key, value, needs) in [
        ("accept", "2", "pipeline.fuse = \"never\""),
        ("receive", "2", "pipeline.fuse = \"never\""),
        ("send_wait", "\"1s\"", "pipeline.fuse = \"never\""),
        ("delay", "\"5ms\"", "pipeline.by = \"delay\""),
    ] {
        let column = "pipeline. = ".len() + key.len() + 1;
        let wrong =
            format!("DIR/forebay.toml:3:{column}: pipeline.{key}: means nothing without {needs}");
        assert_eq!(fused(key, value, ""), [wrong]);
    }
    let law = "means nothing without pipeline.by = \"queue\" or \"delay\"";
    let wrong = format!("DIR/forebay.toml:3:21: pipeline.transfer: {law}");
    assert_eq!(fused("transfer", "4", "pipeline.by = \"fixed\""), [wrong]);
    assert!(fused("transfer", "4", "").is_empty());
    assert!(fused("accept", "2", "pipeline.fuse = \"never\"").is_empty());
    assert!(fused("delay", "\"5ms\"", "pipeline.by = \"delay\"").is_empty());
}

#[test]
fn settings_of_stages_need_them() {
    let folder = Folder::new();
    let text = "root = \"site\"\n[isolated]\nprocess = 3\n";
    assert_eq!(
        folder.remarks(text),
        ["DIR/forebay.toml:3:11: isolated.process: means nothing without engine = \"isolated\""]
    );
    assert!(folder.remarks(&format!("engine = \"isolated\"\n{text}")).is_empty());
}

#[test]
fn threads_that_slow_clients_hold_are_remarked() {
    let folder = Folder::new();
    let held = "as many clients as there are workers, who send or read slowly, keep all others \
        waiting; before strangers use event, fibers or pipeline";
    let of = |engine: &str, listen: &str| {
        folder.remarks(&format!("root = \"site\"\nlisten = [{listen}]\nengine = \"{engine}\"\n"))
    };
    let expected = [format!("DIR/forebay.toml:3:10: engine: {held}")];
    for engine in ["pool", "threads"] {
        assert_eq!(of(engine, "\":80\""), expected);
        assert_eq!(of(engine, "\"127.0.0.1:80\", \"192.0.2.1:80\""), expected);
        assert!(of(engine, "\"127.0.0.1:80\", \"[::1]:80\", \"unix:/run/a.sock\"").is_empty());
    }
    assert!(of("event", "\":80\"").is_empty());
    let stays = |fuse: &str, ms: u32| {
        folder.remarks(&format!(
            "root = \"site\"\nengine = \"pipeline\"\npipeline.fuse = \"{fuse}\"\n\
             pipeline.send_wait = \"{ms}ms\"\n"
        ))
    };
    let expected = "DIR/forebay.toml:4:22: pipeline.send_wait: each client that takes nothing holds a \
        thread of send for so long; as many as pipeline.threads allows keep all others waiting";
    assert_eq!(stays("never", 101), [expected]);
    assert!(stays("never", 100).is_empty());
}

#[test]
fn a_size_for_what_is_not_compressed_is_remarked() {
    let folder = Folder::new();
    let said = |place: &str| {
        format!("DIR/forebay.toml:{place}compress_bytes: means nothing without compress")
    };
    let (size, none) = ("compress_bytes = \"1MiB\"\n", "compress = []\n");
    let nothing: [&str; 0] = [];
    assert_eq!(folder.remarks(&format!("root = \"site\"\n{none}{size}")), [said("3:18: ")]);
    assert_eq!(folder.remarks(&format!("root = \"site\"\n{none}")), nothing);
    let sites = |a: &str, b: &str| {
        format!("[[site]]\nhosts = [\"a.example\"]\n{a}[[site]]\nhosts = [\"b.example\"]\n{b}")
    };
    let top = format!("root = \"site\"\n{size}");
    assert_eq!(folder.remarks(&format!("{top}{}", sites(none, none))), [said("2:18: ")]);
    assert_eq!(folder.remarks(&format!("{top}{}", sites(none, ""))), nothing);
    let own = format!("root = \"site\"\n{none}{}", sites(size, ""));
    assert_eq!(folder.remarks(&own), [said("5:18: site.")]);
    let own =
        format!("root = \"site\"\n{none}{}", sites(&format!("{size}compress = [\"gzip\"]\n"), ""));
    assert_eq!(folder.remarks(&own), nothing);
}

#[test]
fn rules_about_passwords_that_decide_nothing_are_remarked() {
    let folder = Folder::new();
    fs::create_dir(folder.0.join("site/in")).unwrap();
    fs::write(folder.0.join("site/in/a.txt"), "").unwrap();
    let auth = |list: &str, path: &str| {
        let hash = "$2y$04$Ayqf8k2/9gHzdxxo46SsvO8l1s9GGupyEZ18Jcf3lO9QV5zPt70Xi";
        format!("[[{list}]]\nusers = {{ bob = \"{hash}\" }}\n{path}\n")
    };
    let two = |one: &str, two: &str| {
        folder.remarks(&format!("root = \"site\"\n{}{}", auth("auth", one), auth("auth", two)))
    };
    let expected = "DIR/forebay.toml:5:1: auth: decides nothing: one before it is for all its paths, \
                    see 2:1; the first match counts, put the special rule first";
    assert_eq!(two("", "path = \"/in\""), [expected]);
    assert_eq!(two("path = \"/in\"", "path = \"=/in/a.txt\""), [expected]);
    let nothing: [&str; 0] = [];
    assert_eq!(two("path = \"/in\"", ""), nothing);
    assert_eq!(two("path = \"=/in\"", "path = \"/in\""), nothing);
    // a site's own go before what it inherits
    let (top, own) = (auth("auth", ""), auth("site.auth", "path = \"/in\""));
    let site = "[[site]]\nhosts = [\"a.example\"]\n";
    assert_eq!(folder.remarks(&format!("root = \"site\"\n{top}{site}{own}")), nothing);
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
    // by whatever name
    let expected = served("3:8", "auth.file", "link/users", "/site", "1:8");
    assert_eq!(with("site", &users("link/users")), [expected]);
    let expected = served("3:8", "auth.file", "site/users", "/link", "1:8");
    assert_eq!(with("link", &users("site/users")), [expected]);
    // what begins with a dot is not served, unless that is asked for
    assert_eq!(with("site", &users("site/.users")), nothing);
    assert_eq!(with("site", &users("site/.in/users")), nothing);
    let hidden = format!("hidden = true\n{}", users("site/.users"));
    let expected = served("4:8", "auth.file", "site/.users", "/site", "1:8");
    assert_eq!(with("site", &hidden), [expected]);
    let alias = format!("{}[[alias]]\npath = \"/a\"\nto = \"site\"\n", users("site/users"));
    let expected = served("3:8", "auth.file", "site/users", "/site", "6:6");
    assert_eq!(with("out", &alias), [expected]);
    // the configuration, too
    let itself = |place: &str, key: &str| {
        format!(
            "DIR/forebay.toml:{place}: {key}: clients could read \"DIR/forebay.toml\", which is this \
             configuration"
        )
    };
    assert_eq!(with(".", ""), [itself("1:8", "root")]);
    assert_eq!(with("/", "")[..1], [itself("1:8", "root")]);
    // a root at the top that every site has replaced is not served
    let sites = "[[site]]\nhosts = [\"a.example\"]\nroot = \"site\"\n";
    assert_eq!(with(".", sites), nothing);
    let sites = "[[site]]\nhosts = [\"a.example\"]\n";
    let [remark] = &with(".", sites)[..] else { panic!("not one remark") };
    assert!(remark.ends_with("which is this configuration"), "{remark}");
}

#[test]
fn rules_for_the_same_paths_are_remarked() {
    let folder = Folder::new();
    fs::write(folder.0.join("site/b"), "").unwrap();
    fs::write(folder.0.join("site/c"), "").unwrap();
    let list = |list: &str, path: &str, to: &str| format!("[[{list}]]\n{path}\nto = \"{to}\"\n");
    let said = |place: &str, first: &str| {
        format!(
            "DIR/forebay.toml:{place}: decides nothing: one before it is for the same paths, see {first}"
        )
    };
    let two = |name: &str, one: &str, two: &str| {
        folder.remarks(&format!(
            "root = \"site\"\n{}{}",
            list(name, one, "/b"),
            list(name, two, "/c")
        ))
    };
    let nothing: [&str; 0] = [];
    let (a, regex) = ("path = \"/a/*\"", "regex = \"^/a/.*$\"");
    assert_eq!(two("redirect", a, a), [said("6:8: redirect.path", "3:8")]);
    assert_eq!(two("redirect", regex, regex), [said("6:9: redirect.regex", "3:9")]);
    assert_eq!(two("redirect", a, regex), nothing);
    assert_eq!(two("redirect", a, "path = \"/A/*\""), nothing);
    fs::write(folder.0.join("site/b"), "").unwrap();
    fs::write(folder.0.join("site/c"), "").unwrap();
    assert_eq!(two("rewrite", a, a), [said("6:8: rewrite.path", "3:8")]);
    // a site may say it otherwise than the top level
    let site = format!("[[site]]\nhosts = [\"a.example\"]\n{}", list("site.redirect", a, "/c"));
    let text = format!("root = \"site\"\n{}{site}", list("redirect", a, "/b"));
    assert_eq!(folder.remarks(&text), nothing);
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
    // what comes before may be missing, and who says what is then has thought of it
    assert_eq!(remarks("try_files = [\"/maintenance.html\", \"$path\"]"), nothing);
    assert_eq!(remarks("try_files = [\"$path\", \"/index.html\", \"=404\"]"), nothing);
    // one for all who inherit it
    let two =
        format!("{spa}\n[[site]]\nhosts = [\"a.example\"]\n[[site]]\nhosts = [\"b.example\"]");
    assert_eq!(remarks(&two), [no_file("2:23: site.try_files", "site/index.html")]);
    let rewrite = |to: &str| format!("[[rewrite]]\npath = \"/a/*\"\nto = \"{to}\"");
    assert_eq!(remarks(&rewrite("/no.html")), [no_file("4:6: rewrite.to", "site/no.html")]);
    for good in ["/sub", "/sub/", "/", "/b/$1"] {
        assert_eq!(remarks(&rewrite(good)), nothing, "{good}");
    }
    // it may be that of an alias, or of what is tried next
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

/// Writes a certificate for these hosts to NAME.pem, and its key to NAME.key.
fn certify(folder: &Folder, name: &str, hosts: &[&str]) -> String {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let pair = rcgen::generate_simple_self_signed(hosts).unwrap();
    fs::write(folder.0.join(format!("{name}.pem")), pair.cert.pem()).unwrap();
    let key = folder.0.join(format!("{name}.key"));
    fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(key, mode).unwrap();
    format!("tls.certificate = [\"{name}.pem\"]\ntls.key = [\"{name}.key\"]\n")
}

#[test]
fn a_certificate_where_no_tls_is_spoken_is_remarked() {
    let folder = Folder::new();
    let tls = certify(&folder, "a", &["a.example"]);
    let site = format!("[[site]]\nhosts = [\"a.example\"]\nroot = \"site\"\n{tls}");
    let expected = "DIR/forebay.toml:5:19: site.tls.certificate: it has no effect, because no address of \
                    listen begins with \"https://\"";
    assert_eq!(folder.remarks(&format!("listen = [\":80\"]\n{site}")), [expected]);
    let nothing: [&str; 0] = [];
    assert_eq!(folder.remarks(&format!("listen = [\":80\", \"https://:443\"]\n{site}")), nothing);
    // one listener of several is enough
    let listener = "listen = [\":80\"]\n[[listener]]\nlisten = [\"https://:443\"]\n";
    assert_eq!(folder.remarks(&format!("{listener}{site}")), nothing);
}

#[test]
fn a_site_that_no_certificate_is_for_is_remarked() {
    let folder = Folder::new();
    let tls = certify(&folder, "a", &["a.example", "*.shop.example"]);
    let with = |listen: &str, hosts: &str| {
        folder.remarks(&format!(
            "listen = [{listen}]\n[[site]]\nhosts = [\"a.example\"]\nroot = \"site\"\n{tls}\
             [[site]]\nhosts = [{hosts}]\nroot = \"site\"\n"
        ))
    };
    let all = "\"https://:443\"";
    let expected = "DIR/forebay.toml:8:7: site.hosts: all addresses speak TLS, and no certificate is for \
                    \"b.example\": its clients are refused, or refuse what they are shown";
    let said = with(all, "\"b.example\"");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].ends_with(expected.split_once(": ").unwrap().1), "{said:?}");
    assert!(said[0].starts_with("DIR/forebay.toml:8:"), "{said:?}");
    let nothing: [&str; 0] = [];
    // the certificate of another site may be for it; a star is for one label
    for covered in ["\"www.shop.example\"", "\"*.shop.example\""] {
        assert_eq!(with(all, covered), nothing, "{covered}");
    }
    assert_eq!(with(all, "\"www.shop.example\", \"a.www.shop.example\"").len(), 1);
    // it is reached without TLS, but not everybody comes so
    let said = with("\"https://:443\", \":80\"", "\"b.example\"");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].ends_with("what they are shown; it is served without TLS alone"), "{said:?}");
    assert_eq!(with("\":80\"", "\"b.example\"").len(), 1, "the certificate that nobody sees");
    // clients that ask for any name get the certificate of the default site, if it has one
    let default = "listen = [\"https://:443\"]\n[[site]]\nroot = \"site\"\n";
    let said = folder
        .remarks(&format!("{default}[[site]]\nhosts = [\"a.example\"]\nroot = \"site\"\n{tls}"));
    assert_eq!(said, nothing);
}

#[test]
fn certificates_and_keys_are_looked_at() {
    let folder = Folder::new();
    let tls = certify(&folder, "a", &["a.example"]);
    certify(&folder, "b", &["a.example"]);
    let text = |tls: &str| {
        format!(
            "listen = [\"https://:443\"]\n[[site]]\nhosts = [\"a.example\", \"b.example\"]\nroot = \"site\"\n{tls}"
        )
    };
    let not_covered = "DIR/forebay.toml:5:20: site.tls.certificate: the certificate is not for \"b.example\": \
                       clients will refuse it";
    assert_eq!(folder.remarks(&text(&tls)), [not_covered]);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(folder.0.join("a.key"), mode).unwrap();
    let open = "DIR/forebay.toml:6:12: site.tls.key: everybody on this machine may read the private key \
                \"DIR/a.key\": \"chmod o-rwx\"";
    assert_eq!(folder.remarks(&text(&tls)), [not_covered, open]);
    let expected = "DIR/forebay.toml:5:19: site.tls.certificate: the certificate \"DIR/a.pem\" with the key \
                    \"DIR/b.key\": the key is not that of the certificate";
    assert_eq!(folder.load(&text(&tls.replace("a.key", "b.key"))).unwrap_err(), [expected]);
    // what cannot be read is told by itself
    let one = folder.load(&text("tls.certificate = \"a.pem\"\n")).unwrap_err();
    assert!(one.iter().all(|line| !line.contains("no site has tls.certificate")), "{one:?}");
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

/// Rules of the policy see the path that is asked for, and an index file has two.
#[test]
fn rules_for_one_path_of_an_index_file_are_remarked() {
    let folder = Folder::new();
    let site = folder.0.join("site");
    fs::create_dir_all(site.join("x")).unwrap();
    fs::create_dir_all(site.join("empty")).unwrap();
    fs::write(site.join("x/index.html"), "").unwrap();
    fs::write(site.join("x/index.htm"), "").unwrap();
    let top = "root = \"site\"\nindex = [\"index.htm\", \"index.html\"]\n";
    let rule = |path: &str| format!("[[rule]]\npath = {path}\naction = \"reset\"\n");
    let remarks = |text: &str| folder.remarks(&format!("{top}{text}"));
    let nothing: [&str; 0] = [];
    for (path, place, shown, other) in [
        ("\"/x/\"", "4:8", "/x/", "/x/index.htm"),
        ("\"/x/index.html\"", "4:8", "/x/index.html", "/x/"),
        ("[\"/a\", \"/x/\"]", "4:15", "/x/", "/x/index.htm"),
    ] {
        let told = remarks(&rule(path));
        let expected = format!(
            "DIR/forebay.toml:{place}: rule.path: what answers at {shown:?} is had at {other:?}"
        );
        assert!(told.len() == 1 && told[0].starts_with(&expected), "{path}: {told:?}");
    }
    for path in [
        "[\"/x/\", \"/x/index.htm\"]",
        "\"/x/*\"",
        "\"/empty/\"",
        "\"/y/index.html\"",
        "\"/x/other.html\"",
        "\"~^/x/$\"",
    ] {
        assert_eq!(remarks(&rule(path)), nothing, "{path}");
    }
    let both = format!("{}{}", rule("\"/x/\""), rule("\"/x/ind*\""));
    assert_eq!(remarks(&both), nothing);
}

/// Paths that name nothing are often misspelt, and a rule that is to protect something protects nothing.
#[test]
fn rules_that_lead_nowhere_are_remarked() {
    let folder = Folder::new();
    let site = folder.0.join("site");
    fs::create_dir_all(site.join("admin/deep")).unwrap();
    fs::create_dir_all(folder.0.join("docs/api")).unwrap();
    fs::write(site.join("a.txt"), "").unwrap();
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}"));
    let access = |path: &str| format!("[[access]]\npath = \"{path}\"\nallow = [\"::1\"]\n");
    let header = |path: &str| format!("[[header]]\npath = \"{path}\"\nset = {{ A = \"b\" }}\n");
    let redirect = |to: &str| format!("[[redirect]]\npath = \"/old\"\nto = \"{to}\"\n");
    let nothing: [&str; 0] = [];
    let at = |place: &str, path: &str| {
        let file = path.trim_end_matches('/');
        format!(
            "DIR/forebay.toml:{place}: nothing answers at {path:?}: \"DIR/site{file}\" is not there"
        )
    };
    for path in ["/admni", "/admni/", "=/admni", "/admin/depe", "/a.txt/b"] {
        let shown = path.trim_start_matches('=');
        assert_eq!(remarks(&access(path)), [at("3:8: access.path", shown)], "{path}");
    }
    assert_eq!(remarks(&header("/nothing")), [at("3:8: header.path", "/nothing")]);
    assert_eq!(remarks(&redirect("/nothing?a=b")), [at("4:6: redirect.to", "/nothing")]);
    for path in ["/", "/admin", "/admin/", "=/admin", "/a.txt", "*", "*.php", "/nothing/*"] {
        assert_eq!(remarks(&access(path)), nothing, "{path}");
    }
    for to in ["/a.txt", "/", "https://a.example/x", "//a.example/x", "/x$path"] {
        assert_eq!(remarks(&redirect(to)), nothing, "{to}");
    }
    // what answers there is no file of that name
    let route = |list: &str, line: &str| format!("{}[[{list}]]\n{line}\n", access("/api"));
    for (list, line) in [
        ("redirect", "path = \"/api/*\"\nto = \"https://a.example/$1\""),
        ("rewrite", "path = \"/api\"\nto = \"/a.txt\""),
        ("rewrite", "path = \"/api/v1\"\nto = \"/a.txt\""),
        ("rewrite", "path = \"*.json\"\nto = \"/a.txt\""),
        ("rewrite", "regex = \"^/[a-z]+$\"\nto = \"/a.txt\""),
        ("work", "path = \"/api\""),
        ("alias", "path = \"/api/v2\"\nto = \"docs\""),
        ("proxy", "path = \"/api/v2\"\nto = \"http://192.0.2.1\""),
        ("proxy", "path = \"/\"\nto = \"http://192.0.2.1\""),
        ("proxy", "path = \"*.json\"\nto = \"http://192.0.2.1\""),
    ] {
        assert_eq!(remarks(&route(list, line)), nothing, "{list} {line}");
    }
    let beside = "path = \"/apis/*\"\nto = \"https://a.example/\"";
    assert_eq!(remarks(&route("redirect", beside)), [at("3:8: access.path", "/api")]);
    let page = format!("try_files = [\"$path\", \"/a.txt\"]\n{}", access("/api"));
    assert_eq!(remarks(&page), nothing);
    // beneath an alias its directory counts
    let docs = |path: &str| format!("{}[[alias]]\npath = \"/docs\"\nto = \"docs\"\n", access(path));
    assert_eq!(remarks(&docs("/docs/api")), nothing);
    let told = remarks(&docs("/docs/apo"));
    let expected = "nothing answers at \"/docs/apo\": \"DIR/docs/apo\" is not there";
    assert!(told[0].ends_with(expected), "{told:?}");
    // a rule of the top level is good for something if one site has the path
    let sites =
        "[[site]]\nhosts = [\"a.example\"]\n[[site]]\nhosts = [\"b.example\"]\nroot = \"docs\"\n";
    assert_eq!(remarks(&format!("{}{sites}", access("/api"))), nothing);
    assert_eq!(remarks(&format!("{}{sites}", access("/apo"))).len(), 1);
}

/// The path of a header rule is that path alone, as that of a redirect is; of a directory that is hardly
/// what is meant.
#[test]
fn header_rules_for_a_directory_alone_are_remarked() {
    let folder = Folder::new();
    fs::create_dir(folder.0.join("site/assets")).unwrap();
    fs::write(folder.0.join("site/a.txt"), "").unwrap();
    let remarks = |key: &str, path: &str| {
        folder.remarks(&format!(
            "root = \"site\"\n[[header]]\n{key} = '{path}'\nset = {{ A = \"b\" }}\n"
        ))
    };
    let expected = "DIR/forebay.toml:3:8: header.path: \"/assets\" is a directory, and a header rule is not \
                    for what is below its path: write \"/assets/*\" for all of it, regex = '^/assets/$' for \
                    its index page alone";
    for path in ["/assets", "/assets/"] {
        assert_eq!(remarks("path", path), [expected], "{path}");
    }
    let nothing: [&str; 0] = [];
    for path in ["/", "/assets/*", "/a.txt", "*"] {
        assert_eq!(remarks("path", path), nothing, "{path}");
    }
    assert_eq!(remarks("regex", "^/assets/$"), nothing);
}

#[test]
fn applications_that_cannot_be_asked_are_remarked() {
    let folder = Folder::new();
    let socket = folder.0.join("app.sock");
    let held = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    fs::write(folder.0.join("file"), "").unwrap();
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}\n"));
    assert_eq!(
        remarks("[[proxy]]\npath = \"/\"\nto = [\"unix:app.sock\", \"http://10.0.0.1\"]"),
        [""; 0]
    );
    let text = "[[proxy]]\npath = \"/a\"\nto = [\"unix:app.sock\", \"unix:none.sock\"]\n\
                [[proxy]]\npath = \"/b\"\nto = \"unix:none.sock\"\n\
                [[fastcgi]]\nto = \"unix:file\"\ntry = \"/index.php\"";
    assert_eq!(
        remarks(text),
        [
            "DIR/forebay.toml:4:24: proxy.to: the socket \"DIR/none.sock\" cannot be used: No such file or \
             directory (os error 2); until it can, requests get 502",
            "DIR/forebay.toml:9:6: fastcgi.to: the socket \"DIR/file\" cannot be used: it is no socket; until \
             it can, requests get 502",
            "DIR/forebay.toml:10:7: fastcgi.try: cannot read the file \"DIR/site/index.php\": No such file or \
             directory (os error 2)",
        ]
    );
    drop(held);
    for (listen, to, is_itself) in [
        ("127.0.0.1:8080", "http://127.0.0.1:8080", true),
        (":8080", "http://127.0.0.1:8080", true),
        (":8080", "http://[::1]:8080", true),
        (":8080", "http://localhost:8080", true),
        ("0.0.0.0:8080", "http://127.0.0.2:8080", true),
        ("127.0.0.1:8080", "http://127.0.0.1:8081", false),
        (":8080", "http://192.0.2.1:8080", false),
        ("192.0.2.1:8080", "http://127.0.0.1:8080", false),
    ] {
        let text = format!("[[proxy]]\npath = \"/\"\nto = \"{to}\"");
        let remarks =
            folder.remarks(&format!("listen = [\"{listen}\"]\nroot = \"site\"\n{text}\n"));
        let found = to.strip_prefix("http://").unwrap();
        let expected = format!(
            "DIR/forebay.toml:5:6: proxy.to: this server listens at {found}, and would ask itself for ever"
        );
        let expected = if is_itself { vec![expected] } else { Vec::new() };
        assert_eq!(remarks, expected, "{listen} {to}");
    }
}

#[test]
fn tunnels_that_keep_threads_are_remarked() {
    let folder = Folder::new();
    let remarks = |engine: &str, upgrade: bool| {
        folder.remarks(&format!(
            "engine = \"{engine}\"\nroot = \"site\"\n[[proxy]]\npath = \"/a%20b\"\nto = \"http://10.0.0.1\"\n\
             upgrade = {upgrade}\n"
        ))
    };
    let encoded = "DIR/forebay.toml:4:8: proxy.path: ";
    for engine in ["threads", "pool"] {
        let found = remarks(engine, true);
        assert!(found[0].starts_with(encoded), "{found:?}");
        let expected = format!(
            "DIR/forebay.toml:6:11: proxy.upgrade: with engine = \"{engine}\" each WebSocket keeps a thread for \
             itself, and those beyond tunnel_threads get 503; the engine event keeps none, and upgrade = false \
             refuses them"
        );
        assert_eq!(found[1..], [expected]);
        assert_eq!(remarks(engine, false).len(), 1);
    }
    for engine in ["event", "fibers", "pipeline"] {
        assert_eq!(remarks(engine, true).len(), 1);
    }
}

#[test]
fn requests_that_wait_for_others_of_their_rule_may_keep_all_threads() {
    let folder = Folder::new();
    let remarks = |engine: &str, more: &str| {
        folder.remarks(&format!(
            "engine = \"{engine}\"\n{more}\nroot = \"site\"\n[[rule]]\npath = \"/a\"\n\
             in_flight.most = 2\nin_flight.over = \"queue\"\n"
        ))
    };
    for engine in ["threads", "pool"] {
        let expected = |requests: u32| {
            format!(
                "DIR/forebay.toml:7:18: rule.in_flight.over: with engine = \"{engine}\" each request that waits \
                 keeps a thread, of which {requests} and those under way may take all there are; the engine \
                 event keeps none, and a smaller in_flight.queue leaves some for others"
            )
        };
        assert_eq!(remarks(engine, ""), [expected(100)]);
        assert_eq!(remarks(engine, "workers = 102"), [expected(100)]);
        assert_eq!(remarks(engine, "workers = 103"), [""; 0]);
    }
    for engine in ["event", "fibers", "pipeline"] {
        assert_eq!(remarks(engine, ""), [""; 0]);
    }
}

/// Writes the certificate of an authority to NAME.pem, and a list of nothing it has revoked, to be renewed in
/// this year, to NAME.crl.
fn authority(folder: &Folder, name: &str, year: i32) {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    fs::write(folder.0.join(format!("{name}.pem")), certificate.pem()).unwrap();
    let list = rcgen::CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2019, 1, 1),
        next_update: rcgen::date_time_ymd(year, 1, 1),
        crl_number: vec![1].into(),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&rcgen::Issuer::new(params, key)).unwrap();
    fs::write(folder.0.join(format!("{name}.crl")), list.pem().unwrap()).unwrap();
}

#[test]
fn files_about_clients_are_looked_at() {
    let folder = Folder::new();
    let tls = certify(&folder, "a", &["a.example"]);
    fs::set_permissions(folder.0.join("a.key"), fs::Permissions::from_mode(0o600)).unwrap();
    authority(&folder, "ca", 2999);
    authority(&folder, "old", 2020);
    let text =
        |listen: &str, lines: &str| format!("listen = [{listen}]\nroot = \"site\"\n{tls}{lines}\n");
    let https = |lines: &str| text("\"https://:443\"", lines);
    let good =
        "tls.client = \"required\"\ntls.client_ca = [\"ca.pem\"]\ntls.client_crl = [\"ca.crl\"]";
    assert_eq!(folder.remarks(&https(good)), [""; 0]);
    // without TLS nobody has a certificate
    let clear = text("\":80\", \"https://:443\"", good);
    let said = folder.remarks(&clear);
    assert!(said.len() == 1 && said[0].contains(":5:14: tls.client: requests that"), "{said:?}");
    assert_eq!(folder.remarks(&(clear.clone() + "tls.redirect = 308\n")), [""; 0]);
    assert_eq!(folder.remarks(&clear.replace("required", "optional")), [""; 0]);
    let said = folder.remarks(&text("\":80\"", good));
    assert!(
        said.iter().any(|line| line.contains(":5:14: tls.client: it has no effect")),
        "{said:?}"
    );
    // what nobody asks for
    let said =
        folder.remarks(&https("tls.client_ca = [\"ca.pem\"]\ntls.client_crl = [\"ca.crl\"]"));
    assert!(
        said.len() == 2 && said[0].contains(":5:17: tls.client_ca: it has no effect"),
        "{said:?}"
    );
    let said = folder.remarks(&https(&good.replace("ca.crl", "old.crl")));
    assert!(said.len() == 1 && said[0].contains(":7:19: tls.client_crl: the list of"), "{said:?}");
    assert!(said[0].contains("has expired") && said[0].contains("are refused"), "{said:?}");
    for (lines, at, reason) in [
        ("tls.client = \"required\"", ":5:14: tls.client:", "tls.client_ca is missing"),
        (&*good.replace("ca.pem", "none.pem"), ":6:18: tls.client_ca:", "No such file"),
        (&*good.replace("ca.pem", "a.pem"), ":6:18: tls.client_ca:", "not that of an authority"),
        (&*good.replace("ca.pem", "a.key"), ":6:18: tls.client_ca:", "holds no certificate"),
        (&*good.replace("ca.crl", "ca.pem"), ":7:19: tls.client_crl:", "holds no list"),
        (&*good.replace("ca.crl", "none"), ":7:19: tls.client_crl:", "No such file"),
    ] {
        let wrong = folder.load(&https(lines)).unwrap_err();
        assert!(wrong.len() == 1 && wrong[0].contains(at), "{lines}: {wrong:?}");
        assert!(wrong[0].contains(reason), "{lines}: {wrong:?}");
    }
    let without = format!("listen = [\":80\"]\nroot = \"site\"\n{good}\n");
    let wrong = folder.load(&without).unwrap_err();
    assert!(wrong.len() == 1 && wrong[0].contains("tls.key are missing"), "{wrong:?}");
}

/// A rule is for paths, and a link in the root gives what it protects another one.
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
    // out of the root, to what is open, under a path that is protected, hidden, too deep
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
    // a link to what is above
    link("..", "open/up");
    assert_eq!(folder.remarks(&text("/in", "")), [of("/open/up/in")]);
}

#[test]
fn what_is_no_cache_control_is_remarked() {
    let folder = Folder::new();
    let told = folder.remarks(
        "root = \"site\"\ncache_control = \"1h\"\n[[header]]\nset = { Cache-Control = \"public max-age=60\" }\n\
         [[site]]\nhosts = [\"a.example\"]\n[[site]]\ncache_control = \"max-age=60\"\n",
    );
    let expected = [
        "DIR/forebay.toml:2:17: cache_control: browsers do not understand \"1h\", did you mean \
         \"max-age=3600\"?",
        "DIR/forebay.toml:4:7: header.set: browsers do not understand \"public max-age=60\", did you mean \
         \"public, max-age=60\"?",
    ];
    assert_eq!(told, expected);
    assert!(folder.remarks("root = \"site\"\ncache_control = \"off\"\n").is_empty());
}

/// An authority that gives certificates comes from anywhere, and is refused as everybody is.
#[test]
fn rules_that_keep_an_authority_out_are_remarked() {
    let folder = Folder::new();
    let remarks = |listen: &str, rules: &str| {
        let site = "[[site]]\nhosts = [\"shop.example\"]\nroot = \"site\"\ntls.acme = true\n";
        let top = "acme.agree = true\nacme.storage = \"acme\"\nroot = \"site\"\n";
        let all = folder.remarks(&format!("listen = [{listen}]\n{top}{site}{rules}"));
        all.iter().filter(|remark| remark.contains("rule.action")).count()
    };
    let both = "\":80\", \"https://:443\"";
    let here = "[[rule]]\nclient = \"10.0.0.0/8\"\naction = \"allow\"\nstop = true\n";
    let not_here = &format!("{here}[[rule]]\naction = \"reject\"\n");
    let not_there = "[[rule]]\npath = \"/.well-known/*\"\naction = \"reject\"\n";
    let lets =
        "[[rule]]\npath = \"/.well-known/acme-challenge/*\"\naction = \"allow\"\nstop = true\n";
    let reset = &format!("{here}[[rule]]\naction = \"reset\"\n");
    for (listen, rules, count) in [
        (both, "", 0),
        (both, not_there, 0),
        ("\":80\"", not_there, 1),
        ("\":80\", \"127.0.0.1:81\"", not_here, 1),
        // what needs no request is decided before there is one
        ("\":80\"", &format!("{lets}{not_here}"), 1),
        ("\":80\"", &format!("{lets}{not_here}path = \"/*\"\n"), 0),
        ("\":80\"", "[[rule]]\nsite = \"other.example\"\naction = \"reject\"\n", 0),
        ("\":80\"", "[[rule]]\nwhen = \"overload\"\naction = \"reject\"\n", 0),
        ("\":80\"", "[[rule]]\nmethod = \"POST\"\naction = \"reject\"\n", 0),
        (both, reset, 1),
    ] {
        assert_eq!(remarks(listen, rules), count, "{listen} {rules}");
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
    let own = forebay_server::config::calibration::processor().unwrap();
    assert!(remarks(own).is_empty());
    assert_eq!(remarks(&format!("{own}1")).len(), 1);
    let other = "DIR/forebay.toml:2:24: pipeline.calibration: these constants were found on another \
                 machine, \"Abacus 3, cores: 2, Linux 6.18\": what is cheaper there may be dearer here; run \
                 forebay calibrate on this one";
    assert_eq!(remarks("Abacus 3"), [other]);
}

#[test]
fn what_means_nothing_in_a_route_is_remarked() {
    let folder = Folder::new();
    let route = |keys: &str| {
        folder.remarks(&format!(
            "root = \"site\"\n[[proxy]]\npath = \"/app\"\nto = \"http://10.0.0.1:9\"\n{keys}\n"
        ))
    };
    for (keys, expected) in [
        ("retries = 0\nretry_budget = \"10%\"", "retry_budget: means nothing beside retries = 0"),
        (
            "proxy_protocol = \"v1\"\nkeep_alive.connections = 4",
            "keep_alive.connections: means nothing beside proxy_protocol",
        ),
        (
            "accel_redirect = [\"/app\"]",
            "accel_redirect: has the path of its own route in it: clients get 404 for all that the \
             application has",
        ),
    ] {
        let remarks = route(keys);
        let is_said = remarks.len() == 1 && remarks[0].ends_with(expected);
        assert!(is_said, "{keys}: {remarks:?}");
    }
    let scripts = folder.remarks(
        "root = \"site\"\n[[fastcgi]]\nto = \"10.0.0.1:9\"\nset = { CONTENT_LENGTH = \"1\" }\n",
    );
    assert!(scripts.len() == 1 && scripts[0].contains("sets CONTENT_LENGTH"), "{scripts:?}");
    for keys in [
        "retries = 0",
        "retry_budget = \"10%\"",
        "proxy_protocol = \"v1\"",
        "accel_redirect = [\"/app/x\"]",
    ] {
        assert!(route(keys).is_empty(), "{keys}");
    }
}
