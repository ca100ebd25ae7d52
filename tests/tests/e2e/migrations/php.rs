//! Scripts by a real php-fpm.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::migration::{APPLICATIONS, Migration, Reached};
use forebay_tests::php::Fpm;

/// A script that prints the variables it gets, and the body that it was sent.
const TELL: &str = "<?php
    header('Content-Type: text/plain');
    header('X-Script: ' . basename(__FILE__));
    foreach (['REQUEST_METHOD', 'REQUEST_URI', 'QUERY_STRING', 'SCRIPT_NAME', 'PATH_INFO', 'PHP_SELF',
              'HTTP_HOST', 'HTTPS', 'CONTENT_TYPE', 'CONTENT_LENGTH', 'HTTP_COOKIE', 'HTTP_PROXY', 'HTTP_X_A',
              'REMOTE_USER', 'AUTH_TYPE', 'SERVER_PROTOCOL'] as $name)
        if (($_SERVER[$name] ?? '') !== '') echo $name, '=', $_SERVER[$name], \"\\n\";
    $body = file_get_contents('php://input');
    if ($body !== '') echo 'body=', strlen($body), ' ', substr(md5($body), 0, 8), \"\\n\";";

/// Files below the root of the case with plain PHP.
const FILES: [(&str, &str); 14] = [
    ("root/index.php", TELL),
    ("root/shop/index.php", TELL),
    ("root/tell.php", TELL),
    ("root/404.php", "<?php http_response_code(404); echo 'no such thing';"),
    ("root/moved.php", "<?php header('Location: /elsewhere');"),
    (
        "root/cookie.php",
        "<?php setcookie('a', '1'); setcookie('b', '2', 0, '/shop'); echo 'cookies';",
    ),
    ("root/empty.php", "<?php http_response_code(204);"),
    ("root/fatal.php", "<?php none();"),
    (
        "root/json.php",
        "<?php header('Content-Type: application/json'); header('Cache-Control: max-age=5'); echo '{}';",
    ),
    ("root/static/page.html", "a page"),
    ("root/static/app.js", "1"),
    ("root/picture.png", "<?php echo 'run';"),
    ("root/old.php.bak", "<?php secret();"),
    ("root/.hidden.php", "<?php echo 'hidden';"),
];

#[test]
fn scripts() {
    let test = "migrations::scripts";
    let folder = Folder::new();
    for (name, content) in FILES {
        folder.write(name, content);
    }
    folder.age();
    let Some(fpm) = Fpm::start(folder, 2, test) else { return };
    let case = Migration::read(APPLICATIONS, "## PHP")
        .with_folder("/run/php/php-fpm.sock", &fpm.socket())
        .with_folder("/srv/www", &fpm.root());
    case.compare(test, |Reached { addr, .. }, seen| {
        for line in [
            "GET /",
            "GET /?a=1&b=%20",
            "GET /index.php",
            "GET /tell.php",
            "GET /tell.php?x=y",
            "GET /tell.php/",
            "GET /tell.php/more/of%20it?x=y",
            "GET /te%6cl.php",
            "GET //tell.php",
            "GET /./tell.php",
            "GET /shop",
            "GET /shop/",
            "GET /shop?a=1",
            "GET /shop/index.php/7",
            "GET /none.php",
            "GET /none.php/x",
            "GET /none",
            "GET /404.php",
            "GET /moved.php",
            "GET /cookie.php",
            "GET /empty.php",
            "GET /fatal.php",
            "GET /json.php",
            "GET /static/page.html",
            "GET /static/page.html/x.php",
            "GET /static/app.js",
            "GET /static/",
            "GET /static",
            "GET /picture.png",
            "GET /picture.png/x.php",
            "GET /old.php.bak",
            "GET /.hidden.php",
            "GET /tell.PHP",
            "GET /tell.php%00.png",
            "GET /tell.php.",
            "HEAD /tell.php",
            "DELETE /tell.php",
            "OPTIONS /tell.php",
            "PROPFIND /tell.php",
            "POST /static/page.html",
        ] {
            seen.ask(addr, line, &[], b"");
        }
        for field in [
            "Cookie: a=1; b=2",
            "Proxy: http://evil.example/",
            "X-A: b",
            "X_A: under",
            "Authorization: Basic YTpi",
            "Host: EXAMPLE.com:80",
            "Range: bytes=0-3",
        ] {
            seen.ask(addr, "GET /tell.php", &[field], b"");
        }
        let form = "Content-Type: application/x-www-form-urlencoded";
        seen.ask(addr, "POST /tell.php", &[form], b"a=1&b=%20c");
        seen.ask(
            addr,
            "PUT /tell.php/a",
            &["Transfer-Encoding: chunked"],
            b"3\r\nabc\r\n0\r\n\r\n",
        );
        for (what, length) in [("1 MiB", 1usize << 20), ("1 MiB and a byte", (1 << 20) + 1)] {
            let body = vec![b'x'; length];
            seen.ask_as(&format!("POST of {what}"), addr, "POST /tell.php", &[], &body);
        }
    });
}
