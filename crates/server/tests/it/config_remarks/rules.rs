//! Remarks on rules and hosts: those that no request matches, that lead nowhere, or that decide
//! nothing.

use crate::config_files::Folder;
use std::fs;
use std::os::unix::fs::symlink;

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
    // a rule after one that stops has no effect
    let stops = format!("{each}\nstop = true");
    let rejects = "path = \"/costly\"\naction = \"reject\"";
    assert_eq!(remarks(&stops, rejects), [expected("rule 1", 5)]);
    let nothing: [&str; 0] = [];
    for (first, then) in [
        (costly, each),
        (each, rejects),
        (each, &format!("{costly}\nin_flight = {{ most = 5 }}")),
        (each, &format!("{costly}\nstop = true")),
        // a class chosen by a request's contents precedes one chosen by addresses alone
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
    // a site's own rules precede those it inherits
    let (top, own) = (auth("auth", ""), auth("site.auth", "path = \"/in\""));
    let site = "[[site]]\nhosts = [\"a.example\"]\n";
    assert_eq!(folder.remarks(&format!("root = \"site\"\n{top}{site}{own}")), nothing);
}

#[test]
fn exceptions_that_open_nothing_or_too_much_are_remarked() {
    let folder = Folder::new();
    let site = folder.0.join("site");
    fs::create_dir_all(site.join("in/open")).unwrap();
    fs::create_dir_all(site.join("pub")).unwrap();
    fs::write(site.join("index.html"), "").unwrap();
    fs::write(site.join("pub/a.txt"), "").unwrap();
    fs::write(site.join("in/secret.txt"), "").unwrap();
    let remarks = |path: &str, except: &str| {
        let text = format!("[[access]]\n{path}\nallow = [\"10.0.0.0/8\"]\nexcept = {except}\n");
        folder.remarks(&format!("root = \"site\"\n{text}"))
    };
    let nothing: [&str; 0] = [];
    for (path, except) in [
        ("", "[\"/pub\", \"*.png\", \"=/pub/a.txt\"]"),
        ("path = \"/in\"", "[\"/in/open\", \"*.png\"]"),
        ("", "[\"=/\", \"=/index.html\"]"),
        ("", "[\"=/\", \"*.html\"]"),
    ] {
        assert_eq!(remarks(path, except), nothing, "{path} {except}");
    }
    let outside = "opens nothing: the rule is for \"/in\", which has no such path; an exception is written whole, \
                   as path is";
    assert_eq!(
        remarks("path = \"/in\"", "[\"/in/open\", \"/open\"]"),
        [format!("DIR/forebay.toml:5:23: access.except: \"/open\" {outside}")]
    );
    assert_eq!(
        remarks("", "[\"/pub\", \"/nowhere\"]"),
        ["DIR/forebay.toml:5:19: access.except: nothing answers at \"/nowhere\": \
             \"DIR/site/nowhere\" is not there"]
    );
    assert_eq!(
        remarks("", "[\"=/\"]"),
        [
            "DIR/forebay.toml:5:11: access.except: \"=/\" stays closed where the index of the folder answers, which \
          is a path of its own: add \"=/index.html\""
        ]
    );
    assert_eq!(
        remarks("", "[\"/p%75b\"]"),
        [
            "DIR/forebay.toml:5:11: access.except: \"/p%75b\" fits only what a client has encoded twice: paths are \
          decoded before rules see them, write \"/pub\""
        ]
    );
    symlink("../in", site.join("pub/link")).unwrap();
    symlink("a.txt", site.join("pub/same")).unwrap();
    assert_eq!(
        remarks("", "[\"/pub\"]"),
        [
            "DIR/forebay.toml:5:10: access.except: \"/pub/link\" is left open, and is a symbolic link to \"/in\", \
          which is closed: rules are for paths, not for what links lead to; remove the link, or leave less open"
        ]
    );
    assert_eq!(remarks("", "[\"/pub\", \"/in\"]"), nothing);
}

#[test]
fn a_page_for_signing_in_that_is_closed_is_remarked() {
    let folder = Folder::new();
    let remarks = |lines: &str| {
        let rule = "[[forward_auth]]\nto = \"http://127.0.0.1:9\"\n";
        let route = "[[proxy]]\npath = \"/oauth2\"\nto = \"http://127.0.0.1:9\"\n";
        folder.remarks(&format!("root = \"site\"\n{route}{rule}{lines}\n"))
    };
    let sign_in = "sign_in = \"/oauth2/sign_in?rd=$path\"";
    let expected = "DIR/forebay.toml:7:11: forward_auth.sign_in: \"/oauth2/sign_in\" is closed by this rule itself, \
                    which leads people there again and again: add it to except";
    assert_eq!(remarks(sign_in), [expected]);
    for lines in [
        &format!("{sign_in}\nexcept = [\"/oauth2\"]"),
        &format!("{sign_in}\npath = \"/in\""),
        "sign_in = \"https://login.example/?rd=$path\"",
    ] {
        assert_eq!(remarks(lines), [""; 0], "{lines}");
    }
}

/// A narrower rule decides what the exceptions of an earlier one leave open.
#[test]
fn a_rule_behind_one_with_exceptions_may_decide() {
    let folder = Folder::new();
    fs::create_dir_all(folder.0.join("site/in/open")).unwrap();
    let rule = |path: &str| {
        let hash = "$2y$04$Ayqf8k2/9gHzdxxo46SsvO8l1s9GGupyEZ18Jcf3lO9QV5zPt70Xi";
        format!("[[auth]]\nusers = {{ bob = \"{hash}\" }}\n{path}\n")
    };
    for (first, then, is_covered) in [
        ("except = [\"/in\"]", "path = \"/in\"", false),
        ("except = [\"/in/open\"]", "path = \"/in\"", false),
        ("except = [\"/in/open\"]", "path = \"/in\"\nexcept = [\"/in/open\"]", true),
    ] {
        let told = folder.remarks(&format!("root = \"site\"\n{}{}", rule(first), rule(then)));
        let is_told = told.iter().any(|told| told.contains("decides nothing"));
        assert_eq!((is_told, told.len()), (is_covered, usize::from(is_covered)), "{told:?}");
    }
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
    // a site's rule may differ from that of the top level
    let site = format!("[[site]]\nhosts = [\"a.example\"]\n{}", list("site.redirect", a, "/c"));
    let text = format!("root = \"site\"\n{}{site}", list("redirect", a, "/b"));
    assert_eq!(folder.remarks(&text), nothing);
}

/// Rules of the policy compare the requested path, and an index file has two paths.
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

/// A path that names nothing is often misspelt, and then a protecting rule protects nothing.
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
    // these paths have answers without a file of that name
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
    // below an alias the path is looked up in the alias's directory
    let docs = |path: &str| format!("{}[[alias]]\npath = \"/docs\"\nto = \"docs\"\n", access(path));
    assert_eq!(remarks(&docs("/docs/api")), nothing);
    let told = remarks(&docs("/docs/apo"));
    let expected = "nothing answers at \"/docs/apo\": \"DIR/docs/apo\" is not there";
    assert!(told[0].ends_with(expected), "{told:?}");
    // a rule of the top level has an effect if one site has the path
    let sites =
        "[[site]]\nhosts = [\"a.example\"]\n[[site]]\nhosts = [\"b.example\"]\nroot = \"docs\"\n";
    assert_eq!(remarks(&format!("{}{sites}", access("/api"))), nothing);
    assert_eq!(remarks(&format!("{}{sites}", access("/apo"))).len(), 1);
}

/// The path of a header rule matches that path alone, like that of a redirect; for a directory that
/// is probably not intended.
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

#[test]
fn dollar_signs_that_name_nothing_are_remarked_with_both_spellings() {
    let folder = Folder::new();
    let remarks = |value: &str| {
        folder.remarks(&format!("root = \"site\"\n[[header]]\nset = {{ X-A = \"{value}\" }}\n"))
    };
    let variables = "Variables are $host, $client, $scheme, $path, $query, $request_id, $class, \
                     $overload, $upstream (in answers), $header.NAME, $cookie.NAME and $query.NAME";
    for (value, next) in [("$5", "$$5"), ("$$", "$$$$"), ("$uri x", "$$uri x")] {
        let expected = format!(
            "DIR/forebay.toml:3:7: header.set: {value:?} is sent as it stands in this version, because \
             it names no variable; in the next one a dollar sign is written $$, as in {next:?}. {variables}"
        );
        assert_eq!(remarks(value), [expected]);
    }
    let of_another = "DIR/forebay.toml:3:7: header.set: \"%{Host}\" is sent as it stands: variables are \
                      written $host, $header.NAME and so on";
    assert_eq!(remarks("%{Host}i"), [of_another]);
    for value in ["plain", "$host costs $$5", "$header.X-A"] {
        assert!(remarks(value).is_empty(), "{value}");
    }
    for route in [
        "[[proxy]]\npath = \"/\"\nto = \"http://127.0.0.1:1\"",
        "root = \"site\"\n[[fastcgi]]\nto = \"127.0.0.1:1\"",
    ] {
        let told =
            |value: &str| folder.remarks(&format!("{route}\nset = {{ X-A = \"{value}\" }}\n"));
        assert!(told("$host costs $$5").is_empty());
        assert!(told("$5")[0].contains("\"$5\" is sent as it stands in this version"));
        assert!(told("${host}")[0].contains("\"${host}\" is sent as it stands: variables"));
    }
}

#[test]
fn fields_that_a_server_gives_are_remarked_where_clients_are_believed() {
    let folder = Folder::new();
    let copy =
        "[[forward_auth]]\npath = \"/in\"\nto = \"http://127.0.0.1:1\"\ncopy = [\"Remote-User\"]\n";
    let remarks = |rule: &str| folder.remarks(&format!("root = \"site\"\n{copy}{rule}"));
    let proxy = "[[proxy]]\npath = \"/in\"\nto = \"http://127.0.0.1:1\"\n";
    for rule in [
        "[[header]]\nset = { \"X-A\" = \"$header.remote_user\" }\n",
        "[[access]]\nheader = \"Remote-User=root\"\nallow = [\"all\"]\n",
        &format!("{proxy}when.header = \"Remote-User=root\"\n"),
    ] {
        let said = remarks(rule);
        let words = "is a field that the server of a [[forward_auth]] gives, but here it is what the client says";
        assert!(said.iter().any(|remark| remark.contains(words)), "{rule}: {said:?}");
    }
    for rule in [
        "[[header]]\nset = { \"X-A\" = \"$header.Remote-Users\" }\n",
        &format!("{proxy}set = {{ \"X-A\" = \"$header.Remote-User\" }}\n"),
        "[[fastcgi]]\nto = \"127.0.0.1:1\"\nset = { REMOTE_USER = \"$header.Remote-User\" }\n",
    ] {
        assert!(!remarks(rule).iter().any(|remark| remark.contains("gives")), "{rule}");
    }
}
