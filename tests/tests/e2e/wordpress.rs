//! A tree as WordPress has it, run by a real php-fpm: which file answers for a path, what it gets of
//! that, and what WordPress makes of it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::php::Fpm;
use forebay_tests::{Options, Server, on_each_engine};

on_each_engine!(
    each_path_is_answered_by_what_wordpress_wants,
    one_in_a_folder_is_found_there,
    addresses_through_index_php_work,
);

/// A script that answers with its own path, with the variables it got, and with the page for which
/// WordPress would take the request: WordPress goes by the address and not by what rules have made of it
/// (`WP::parse_request`).
const SCRIPT: &str = "<?php
    $uri = explode('?', $_SERVER['REQUEST_URI'])[0];
    $info = $_SERVER['PATH_INFO'] ?? '';
    $home = rtrim(dirname($_SERVER['SCRIPT_NAME']), '/');
    $page = $info !== '' ? $info : substr($uri, strlen($home));
    header('X-Script: ' . __FILE__);
    header('Content-Type: text/plain');
    foreach (['SCRIPT_FILENAME', 'SCRIPT_NAME', 'PATH_INFO', 'REQUEST_URI', 'QUERY_STRING', 'PHP_SELF',
              'DOCUMENT_ROOT', 'REQUEST_METHOD'] as $name)
        echo $name, '=', $_SERVER[$name] ?? '(none)', \"\\n\";
    echo 'page=', trim($page, '/'), \"\\n\", 'posted=', http_build_query($_POST), \"\\n\";";

/// The files below the root of a WordPress, except for scripts.
const FILES: [(&str, &str); 6] = [
    ("wp-includes/js/jquery.js", "jquery"),
    ("wp-content/themes/x/style.css", "style"),
    ("wp-content/uploads/2026/11/p.jpg", "picture"),
    ("wp-content/uploads/2026/11/shell.php", "<?php echo 'run';"),
    ("wp-content/uploads/shell.php", "<?php echo 'run';"),
    ("readme.html", "readme"),
];

const SCRIPTS: [&str; 8] = [
    "index.php",
    "wp-login.php",
    "wp-cron.php",
    "xmlrpc.php",
    "wp-admin/index.php",
    "wp-admin/admin-ajax.php",
    "wp-admin/network/index.php",
    "wp-content/plugins/shop/endpoint.php",
];

/// A php-fpm and a folder with a tree of WordPress below `root/HOME`.
fn install(home: &str) -> Option<Fpm> {
    let folder = Folder::new();
    for name in SCRIPTS {
        folder.write(&format!("root/{home}{name}"), SCRIPT);
    }
    for (name, content) in FILES {
        folder.write(&format!("root/{home}{name}"), content);
    }
    Fpm::start(folder, 2, "wordpress.rs")
}

/// Starts a server with the manual's configuration.
fn serve(fpm: &Fpm, engine: &str, lines: &str) -> Server {
    Server::start(&Options::new(fpm.root()).engine(engine).config(&fpm.lines(lines)))
}

const RULES: &str = "[[access]]\npath = \"/wp-content/uploads/*.php\"\ndeny = [\"0.0.0.0/0\", \"::/0\"]\n\
                     [[access]]\npath = \"/xmlrpc.php\"\nallow = [\"192.0.2.0/24\"]\n";

/// The status, head and body of an answer.
fn ask(server: &Server, method: &str, target: &str, body: &str) -> (u16, String, String) {
    let length = match body {
        "" => String::new(),
        body => format!(
            "Content-Length: {}\r\nContent-Type: application/x-www-form-urlencoded\r\n",
            body.len()
        ),
    };
    let request = format!("{method} {target} HTTP/1.0\r\nHost: blog.example\r\n{length}\r\n{body}");
    let answer = String::from_utf8(server.exchange(request.as_bytes())).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), head.to_owned(), body.to_owned())
}

/// Checks which script has run, and the variables that it got, line by line.
#[track_caller]
fn is_run(server: &Server, fpm: &Fpm, target: &str, script: &str, told: &[(&str, &str)]) {
    let (status, _, body) = ask(server, "GET", target, "");
    assert_eq!(status, 200, "{target}: {body}");
    let root = fpm.root();
    let file = format!("{}{script}", root.display());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let always = [
        ("SCRIPT_FILENAME", &*file),
        ("SCRIPT_NAME", script),
        ("REQUEST_URI", target),
        ("QUERY_STRING", query),
        ("DOCUMENT_ROOT", root.to_str().unwrap()),
    ];
    assert!(!path.is_empty());
    for (name, value) in always.iter().chain(told) {
        let line = format!("{name}={value}");
        assert!(body.lines().any(|told| told == line), "{target}: {line} in\n{body}");
    }
}

fn each_path_is_answered_by_what_wordpress_wants(engine: &str) {
    let Some(fpm) = install("") else { return };
    let server = serve(&fpm, engine, &format!("try = \"/index.php\"\n{RULES}"));
    const NONE: (&str, &str) = ("PATH_INFO", "(none)");
    // a path that is neither a file nor a script is a page
    for (target, page) in [
        ("/2026/11/hello/", "2026/11/hello"),
        ("/2026/11/hello/?replytocom=7", "2026/11/hello"),
        ("/foo/bar", "foo/bar"),
        ("/wp-json/wp/v2/posts?per_page=1", "wp-json/wp/v2/posts"),
        ("/category/a%20b/page/2/", "category/a%20b/page/2"),
        ("/feed/", "feed"),
        ("/sitemap.xml", "sitemap.xml"),
        ("/robots.txt", "robots.txt"),
        ("/wp-content/uploads/2026/11/none.jpg", "wp-content/uploads/2026/11/none.jpg"),
        ("/wp-content/none.php", "wp-content/none.php"),
        ("/readme.html/more", "readme.html/more"),
        ("/?p=7", ""),
        ("/", ""),
        ("/?s=a%26b&x[]=1", ""),
    ] {
        let told = [NONE, ("page", page), ("PHP_SELF", "/index.php")];
        is_run(&server, &fpm, target, "/index.php", &told);
    }
    // a folder without an index is not listed
    is_run(&server, &fpm, "/wp-includes/", "/index.php", &[("page", "wp-includes"), NONE]);
    // scripts are run where they are, and folders by their index
    for (target, script) in [
        ("/wp-login.php?action=lostpassword", "/wp-login.php"),
        ("/wp-cron.php?doing_wp_cron", "/wp-cron.php"),
        ("/wp-admin/", "/wp-admin/index.php"),
        ("/wp-admin/?page=x", "/wp-admin/index.php"),
        ("/wp-admin/index.php", "/wp-admin/index.php"),
        ("/wp-admin/network/", "/wp-admin/network/index.php"),
        ("/wp-admin/admin-ajax.php?action=heartbeat", "/wp-admin/admin-ajax.php"),
        ("/wp-content/plugins/shop/endpoint.php", "/wp-content/plugins/shop/endpoint.php"),
    ] {
        is_run(&server, &fpm, target, script, &[NONE, ("PHP_SELF", script)]);
    }
    let info =
        [("PATH_INFO", "/order/7"), ("PHP_SELF", "/wp-content/plugins/shop/endpoint.php/order/7")];
    let target = "/wp-content/plugins/shop/endpoint.php/order/7?a=1";
    is_run(&server, &fpm, target, "/wp-content/plugins/shop/endpoint.php", &info);
    // without its slash a folder is another address
    for (target, location) in [
        ("/wp-admin", "Location: /wp-admin/\r\n"),
        ("/wp-admin?page=x", "Location: /wp-admin/?page=x\r\n"),
        ("/wp-admin/network", "Location: /wp-admin/network/\r\n"),
    ] {
        let (status, head, _) = ask(&server, "GET", target, "");
        assert!(matches!(status, 301 | 308), "{engine} {target}: {head}");
        assert!(format!("{head}\r\n").contains(location), "{engine} {target}: {head}");
    }
    // files are sent, and not by PHP
    for (target, content) in [
        ("/wp-includes/js/jquery.js?ver=3.7", "jquery"),
        ("/wp-content/themes/x/style.css", "style"),
        ("/wp-content/uploads/2026/11/p.jpg", "picture"),
        ("/readme.html", "readme"),
    ] {
        let (status, head, body) = ask(&server, "GET", target, "");
        assert_eq!((status, &*body), (200, content), "{engine} {target}");
        assert!(head.contains("ETag: ") && !head.contains("X-Script"), "{engine} {head}");
    }
    // an uploaded file is never run, however it is asked for
    for target in [
        "/wp-content/uploads/shell.php",
        "/wp-content/uploads/2026/11/shell.php",
        "/wp-content/uploads/shell.php/x.jpg",
        "/wp-content/uploads/shell%2ephp",
        "/wp-content/./uploads/shell.php",
        "/wp-content/uploads/2026/11/p.jpg/x.php",
        "/xmlrpc.php",
    ] {
        let (status, _, body) = ask(&server, "GET", target, "");
        assert!(!body.contains("run") && !body.contains("picture"), "{engine} {target}: {body}");
        let is_refused = matches!(status, 400 | 403 | 404);
        // a script that is not there is a page that is not there
        assert!(
            is_refused || body.contains("SCRIPT_NAME=/index.php"),
            "{engine} {target}: {status}"
        );
    }
    // forms, to pages and to scripts
    for (target, script) in [("/wp-login.php", "/wp-login.php"), ("/2026/11/hello/", "/index.php")]
    {
        let (status, _, body) = ask(&server, "POST", target, "log=ada&pwd=x%20y");
        let all =
            ["posted=log=ada&pwd=x+y", "REQUEST_METHOD=POST", &format!("SCRIPT_NAME={script}")];
        let has = |line: &&str| body.lines().any(|told| told == *line);
        assert!(status == 200 && all.iter().all(has), "{engine} {target}: {body}");
    }
    let (status, head, body) = ask(&server, "HEAD", "/2026/11/hello/", "");
    assert!(status == 200 && body.is_empty() && head.contains("X-Script"), "{engine}: {head}");
}

/// WordPress is at `/blog`, and the rest of the site is something else.
fn one_in_a_folder_is_found_there(engine: &str) {
    let Some(fpm) = install("blog/") else { return };
    fpm.folder().write("root/index.html", "home");
    let server = serve(&fpm, engine, "path = \"/blog\"\ntry = \"/blog/index.php\"");
    for (target, page) in
        [("/blog/", ""), ("/blog/2026/11/hello/", "2026/11/hello"), ("/blog/feed", "feed")]
    {
        let told = [("page", page), ("PATH_INFO", "(none)")];
        is_run(&server, &fpm, target, "/blog/index.php", &told);
    }
    is_run(&server, &fpm, "/blog/wp-admin/", "/blog/wp-admin/index.php", &[]);
    let (status, _, body) = ask(&server, "GET", "/", "");
    assert_eq!((status, &*body), (200, "home"), "{engine}");
    assert_eq!(ask(&server, "GET", "/2026/11/hello/", "").0, 404, "{engine}");
    let (status, head, _) = ask(&server, "GET", "/blog", "");
    assert!(matches!(status, 301 | 308) && head.contains("Location: /blog/"), "{engine}: {head}");
}

/// Addresses as WordPress makes them for servers without rewrites work: `/index.php/2026/11/hello/`.
fn addresses_through_index_php_work(engine: &str) {
    let Some(fpm) = install("") else { return };
    let server = serve(&fpm, engine, "");
    let told = [
        ("PATH_INFO", "/2026/11/hello/"),
        ("page", "2026/11/hello"),
        ("PHP_SELF", "/index.php/2026/11/hello/"),
    ];
    is_run(&server, &fpm, "/index.php/2026/11/hello/", "/index.php", &told);
    is_run(&server, &fpm, "/index.php/2026/11/hello/?p=1", "/index.php", &told);
    assert_eq!(ask(&server, "GET", "/2026/11/hello/", "").0, 404, "{engine}");
}
