//! `forebay serve` as a person types it to see a directory in a browser.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::copy_program;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server};
use std::fs;
use std::process::Command;

fn serve(folder: &Folder, args: &[&str]) -> Server {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    Server::start(&Options { args, ..Options::new(folder.join("site")) })
}

fn get(server: &Server, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.0\r\nHost: a\r\nAccept: text/html\r\n\r\n");
    String::from_utf8(server.exchange(request.as_bytes())).unwrap()
}

fn status(server: &Server, path: &str) -> String {
    get(server, path).split(' ').nth(1).unwrap_or("").to_owned()
}

/// A directory with files and without an index says on the page and on the terminal what to do.
#[test]
fn a_directory_without_an_index_says_how_it_is_shown() {
    let folder = Folder::new();
    folder.write("site/sub/a.txt", "a");
    let server = serve(&folder, &[]);
    for path in ["/", "/sub/"] {
        let page = get(&server, path);
        assert!(page.starts_with("HTTP/1.1 404 ") && page.contains("(listing)"), "{page}");
    }
    assert!(!get(&server, "/nothing/").contains("(listing)"));
    assert!(!get(&server, "/nothing").contains("(listing)"));
    server.says("site has no index.html; --listing shows what is in it");
    let server = serve(&folder, &["--listing"]);
    assert!(get(&server, "/").contains("sub/"));
    assert!(get(&server, "/sub/").contains("a.txt"));
    assert!(!server.stderr().contains("--listing"), "{}", server.stderr());
}

#[test]
fn an_application_of_one_page_answers_everywhere() {
    let folder = Folder::new();
    folder.write("site/index.html", "the page");
    folder.write("site/app.js", "code");
    let server = serve(&folder, &["--spa"]);
    for path in ["/", "/users/7", "/users/7/"] {
        let page = get(&server, path);
        assert!(page.starts_with("HTTP/1.1 200 ") && page.ends_with("the page"), "{path}: {page}");
    }
    assert!(get(&server, "/app.js").ends_with("code"));
    assert!(!server.stderr().contains("index.html"), "{}", server.stderr());
    let plain = serve(&folder, &[]);
    assert_eq!(status(&plain, "/users/7"), "404");
}

/// Directories of such an application that have a page of their own are served with and without their
/// slash; the application gets all others.
#[test]
fn directories_beside_the_one_page_are_as_without_it() {
    let folder = Folder::new();
    folder.write("site/index.html", "the page");
    folder.write("site/docs/index.html", "the docs");
    folder.write("site/files/a.txt", "a file");
    let is_moved = |server: &Server, path: &str| {
        let page = get(server, path);
        page.starts_with("HTTP/1.1 301 ") && page.contains(&format!("\r\nLocation: {path}/\r\n"))
    };
    let server = serve(&folder, &["--spa"]);
    assert!(is_moved(&server, "/docs"), "{}", get(&server, "/docs"));
    assert!(get(&server, "/docs/").ends_with("the docs"));
    for path in ["/files", "/files/", "/files/none", "/docs/none"] {
        assert!(get(&server, path).ends_with("the page"), "{path}");
    }
    assert!(get(&server, "/files/a.txt").ends_with("a file"));
    let server = serve(&folder, &["--spa", "--listing"]);
    assert!(is_moved(&server, "/files"), "{}", get(&server, "/files"));
    assert!(get(&server, "/files/").contains("a.txt"));
    assert!(get(&server, "/none/").ends_with("the page"));
}

#[test]
fn an_application_without_its_page_says_so() {
    let folder = Folder::new();
    folder.write("site/a.txt", "a");
    let server = serve(&folder, &["--spa"]);
    server.says("has no index.html, the page that --spa answers with");
    assert_eq!(status(&server, "/users/7"), "404");
}

/// One option serves the site through TLS, with a certificate that stays the same.
#[test]
fn a_certificate_of_this_machine_is_made_and_kept() {
    let folder = Folder::new();
    folder.write("site/index.html", "hello");
    let mut options = Options::new(folder.join("site"));
    options.args = vec!["--tls".to_owned()];
    let home = folder.join("home");
    options.wrapper = ["env", "-u", "XDG_DATA_HOME"].map(str::to_owned).to_vec();
    options.wrapper.push(format!("HOME={}", home.display()));
    let certificate = home.join(".local/share/forebay/local.crt");
    let fetch = |server: &Server| {
        let (ip, port) = (server.addr().ip(), server.addr().port());
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "60", "--cacert"]).arg(&certificate);
        curl.args(["--connect-to", &format!("localhost:{port}:{ip}:{port}")]);
        let output = curl.arg(format!("https://localhost:{port}/")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        String::from_utf8(output.stdout).unwrap()
    };
    let server = Server::start(&options);
    assert_eq!(fetch(&server), "hello");
    server.says("made a certificate for localhost, 127.0.0.1, ::1");
    let text = fs::read(&certificate).unwrap();
    drop(server);
    let server = Server::start(&options);
    assert_eq!(fetch(&server), "hello");
    server.says("forebay serve: the certificate is /");
    assert_eq!(fs::read(&certificate).unwrap(), text);
}

/// Without a browser, one line says so, whatever the other output.
#[test]
fn a_machine_without_a_browser_is_told_in_one_line() {
    let folder = Folder::new();
    folder.write("site/index.html", "hello");
    let failing = folder.join("xdg-open");
    fs::write(&failing, "#!/bin/sh\necho 'xdg-open: no method available' >&2\nexit 3\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&failing, mode).unwrap();
    for browser in [failing, folder.join("none")] {
        let mut options = Options::new(folder.join("site"));
        options.args = vec!["--open".to_owned()];
        options.wrapper = vec!["env".to_owned(), format!("BROWSER={}", browser.display())];
        let server = Server::start(&options);
        let expected = format!(
            "forebay serve: no browser can be opened here; the site is at http://{}/\n",
            server.addr()
        );
        assert!(soon(PATIENCE, || server.stderr().contains(&expected)), "{}", server.stderr());
        let others = server.stderr().replace(&expected, "");
        assert!(!others.contains("xdg-open") && !others.contains("not found"), "{others}");
    }
}

/// The browser is started when there is a page to see, and outside of the server's sandbox.
#[test]
fn the_site_is_opened_in_a_browser() {
    let folder = Folder::new();
    folder.write("site/index.html", "hello");
    let (script, browser) = (folder.join("script"), folder.join("browser"));
    let opened = folder.join("opened");
    fs::write(&script, format!("#!/bin/sh\necho \"$1\" > {}\n", opened.display())).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).unwrap();
    copy_program(&script, &browser);
    let mut options = Options::new(folder.join("site"));
    options.args = vec!["--open".to_owned()];
    options.wrapper = vec!["env".to_owned(), format!("BROWSER={}", browser.display())];
    let server = Server::start(&options);
    let expected = format!("http://{}/\n", server.addr());
    let is_opened = || fs::read_to_string(&opened).is_ok_and(|text| text == expected);
    assert!(soon(PATIENCE, is_opened), "{}", server.stderr());
}
