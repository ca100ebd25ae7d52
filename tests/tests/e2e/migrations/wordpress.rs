//! A real WordPress: its pages, its administration, its interfaces for programs, and files that must not
//! be run.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::answer::Answer;
use forebay_tests::faults::soon;
use forebay_tests::migration::{APPLICATIONS, Migration, Reached, Seen, request, whole};
use forebay_tests::wire;
use forebay_tests::wordpress::{ADA, WordPress};
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

/// A picture of one pixel.
const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\nIDATx\x9cc\0\x01\0\0\x05\0\x01\r\n-\xb4\0\0\0\0IEND\xaeB`\x82";

/// A visitor of the blog, with cookies.
struct Visitor {
    addr: SocketAddr,
    cookies: Vec<String>,
}

impl Visitor {
    /// Asks, and keeps the cookies of the answer.
    fn ask(&mut self, line: &str, fields: &[&str], body: &[u8]) -> Answer {
        let cookies = format!("Cookie: {}", self.cookies.join("; "));
        let mut fields = fields.to_vec();
        if !self.cookies.is_empty() {
            fields.push(&cookies);
        }
        let bytes = wire::exchange(self.addr, &request(line, &fields, body));
        let answer = whole(&bytes, line.starts_with("HEAD "))
            .unwrap_or_else(|error| panic!("{line}: {error}"));
        for cookie in answer.values("Set-Cookie") {
            let pair = cookie.split(';').next().unwrap().to_owned();
            let name = pair.split('=').next().unwrap();
            self.cookies.retain(|other| other.split('=').next() != Some(name));
            self.cookies.push(pair);
        }
        answer
    }

    /// Asks, keeps the cookies, and notes the parts of the answer that do not change from one time to the
    /// next.
    fn look(&mut self, seen: &mut Seen, line: &str, fields: &[&str], body: &[u8]) -> Answer {
        let answer = self.ask(line, fields, body);
        note(seen, line, &answer, line.starts_with("HEAD "));
        answer
    }
}

/// Notes the titles of pages and the names of cookies: the rest holds times and numbers that are used
/// once.
fn note(seen: &mut Seen, asked: &str, answer: &Answer, is_head: bool) {
    let mut answer = answer.clone();
    for (name, value) in &mut answer.fields {
        if name.eq_ignore_ascii_case("Set-Cookie") {
            *value = value.split('=').next().unwrap_or_default().to_owned();
        }
        // the dates of scripts; those of files are compared elsewhere
        if ["Last-Modified", "Expires"].iter().any(|other| name.eq_ignore_ascii_case(other)) {
            "a date".clone_into(value);
        }
    }
    let kind = answer.value("Content-Type").unwrap_or_default();
    if ["text/html", "application/rss", "application/xml"].iter().any(|it| kind.starts_with(it)) {
        let text = String::from_utf8_lossy(&answer.body);
        let title = text.split_once("<title>").and_then(|(_, rest)| rest.split("</title>").next());
        // a page of the server's own has one, too
        if !text.contains("<center>nginx") && !text.ends_with("</main>\n</body>\n</html>\n") {
            let title = title.unwrap_or(if text.is_empty() { "" } else { "no title" });
            answer.body = title.trim().as_bytes().to_vec();
        }
    } else if kind.starts_with("application/json") {
        answer.body = "JSON".into();
    }
    seen.note_answer(asked, &answer, is_head);
}

/// A value in a text of JSON, by the text before it.
fn between<'a>(text: &'a str, begin: &str, end: char) -> &'a str {
    text.split_once(begin).and_then(|(_, rest)| rest.split(end).next()).unwrap_or_default()
}

#[test]
fn wordpress() {
    let test = "migrations::wordpress";
    let Some(blog) = WordPress::start(test) else { return };
    let folder = blog.fpm.folder();
    for file in ["uploads/shell.php", "uploads/2020/01/shell.PHP", "files/shell.php"] {
        folder.write(&format!("root/wp-content/{file}"), "<?php echo 'run';");
    }
    folder.write("root/wp-content/uploads/paper.pdf", "a paper");
    let case = Migration::read(APPLICATIONS, "## WordPress")
        .with_folder("/run/php/php-fpm.sock", &blog.fpm.socket())
        .with_folder("/srv/wordpress", &blog.fpm.root());
    let runs = AtomicU32::new(0);
    case.compare(test, |Reached { addr, .. }, seen| {
        let run = runs.fetch_add(1, Ordering::Relaxed);
        visit(seen, &mut Visitor { addr, cookies: Vec::new() });
        write_and_administer(seen, &mut Visitor { addr, cookies: Vec::new() }, run);
    });
    assert!(fs::exists(blog.fpm.root().join("wp-config.php")).unwrap());
}

/// Visits the blog as a reader.
fn visit(seen: &mut Seen, reader: &mut Visitor) {
    let front = reader.look(seen, "GET /", &[], b"");
    let front = String::from_utf8(front.body).unwrap();
    let post = between(&front, "href=\"http://example.com/2", '"');
    assert!(post.contains("/hello-world/"), "{post} of {front}");
    let post = format!("/2{post}");
    for (asked, line) in [
        ("a post", format!("GET {post}")),
        ("a post without the last slash", format!("GET {}", post.trim_end_matches('/'))),
        ("a post and more", format!("GET {post}?replytocom=1")),
        ("the feed of a post", format!("GET {post}feed/")),
        ("the head of a post", format!("HEAD {post}")),
    ] {
        let answer = reader.ask(&line, &[], b"");
        note(seen, asked, &answer, line.starts_with("HEAD"));
    }
    for line in [
        "GET /?p=1",
        "GET /sample-page/",
        "GET /sample-page",
        "GET /none/at/all/",
        "GET /?s=hello%20world",
        "GET /author/ada/",
        "GET /feed/",
        "GET /comments/feed/",
        "GET /robots.txt",
        "GET /wp-sitemap.xml",
        "GET /favicon.ico",
        "GET /index.php",
        "GET /index.php?p=1",
        "GET /index.php/sample-page/",
        "GET /wp-json/",
        "GET /wp-json/wp/v2/posts?per_page=1",
        "GET /wp-json/wp/v2/users/me",
        "GET /wp-login.php",
        "GET /wp-login.php?action=lostpassword",
        "GET /wp-admin",
        "GET /wp-admin/",
        "GET /wp-admin/options-general.php",
        "GET /wp-admin/css/about.css",
        "GET /wp-admin/css/",
        "GET /wp-includes/js/wp-util.js?ver=6",
        "GET /wp-includes/js/wp-util.min.js",
        "GET /wp-includes/images/blank.gif",
        "GET /wp-includes/none.js",
        "GET /wp-includes/",
        "GET /wp-includes/version.php",
        "GET /wp-content/uploads/paper.pdf",
        "GET /wp-content/uploads/none.pdf",
        "GET /wp-content/uploads/none.jpg",
        "GET /wp-content/uploads/",
        "GET /wp-content/themes/twentytwentythree/style.css",
        "GET /wp-content/none.php",
        "GET /wp-cron.php?doing_wp_cron",
        "GET /xmlrpc.php",
        "GET /wp-comments-post.php",
        "GET /wp-trackback.php",
        "GET /wp-config.php",
        "GET /.htaccess",
        "GET /.git/config",
        "GET /readme.html",
        "OPTIONS /wp-json/wp/v2/posts",
    ] {
        reader.look(seen, line, &[], b"");
    }
    for line in [
        "GET /wp-content/uploads/shell.php",
        "GET /wp-content/uploads/shell.php/x.jpg",
        "GET /wp-content/uploads/shell%2ephp",
        "GET /wp-content/uploads//shell.php",
        "GET /wp-content/./uploads/shell.php",
        "GET /wp-content/uploads/2020/01/shell.PHP",
        "GET /wp-content/files/shell.php",
        "GET /wp-content/uploads/paper.pdf/x.php",
    ] {
        let answer = reader.look(seen, line, &[], b"");
        assert!(answer.body != b"run", "{line}");
    }
    let call = b"<methodCall><methodName>system.listMethods</methodName></methodCall>";
    reader.look(seen, "POST /xmlrpc.php", &["Content-Type: text/xml"], call);
    let body = vec![b'x'; (13 << 20) + 1];
    let form = "Content-Type: application/x-www-form-urlencoded";
    let answer = reader.ask("POST /wp-login.php", &[form], &body);
    note(seen, "POST of 13 MiB and a byte", &answer, false);
}

/// Writes and administers as an author.
fn write_and_administer(seen: &mut Seen, ada: &mut Visitor, run: u32) {
    const FORM: &str = "Content-Type: application/x-www-form-urlencoded";
    const JSON: &str = "Content-Type: application/json";
    ada.ask("GET /wp-login.php", &[], b"");
    let wrong = format!("log={}&pwd=wrong&testcookie=1", ADA.0);
    let answer = ada.ask("POST /wp-login.php", &[FORM], wrong.as_bytes());
    note(seen, "a wrong password", &answer, false);
    let right = format!("log={}&pwd={}&testcookie=1", ADA.0, ADA.1.replace(' ', "+"));
    let answer = ada.ask("POST /wp-login.php", &[FORM], right.as_bytes());
    note(seen, "the right password", &answer, false);
    assert_eq!(answer.status, 302, "{answer:?}");
    for line in [
        "GET /wp-admin/",
        "GET /wp-admin/edit.php",
        "GET /wp-admin/post-new.php",
        "GET /wp-admin/upload.php",
        "GET /wp-admin/options-general.php",
        "GET /wp-admin/load-styles.php?c=1&dir=ltr&load[]=common",
    ] {
        let answer = ada.ask(line, &[], b"");
        note(seen, &format!("{line} as ada"), &answer, false);
    }
    let page = ada.ask("GET /wp-admin/options-permalink.php", &[], b"");
    let offers = String::from_utf8_lossy(&page.body).contains("example.com/index.php/");
    let value = if offers { "with /index.php" } else { "without /index.php" };
    seen.note("GET /wp-admin/options-permalink.php", "addresses that are offered", value);
    // by the REST interface, as the editor does it
    let nonce = ada.ask("GET /wp-admin/admin-ajax.php?action=rest-nonce", &[], b"");
    let nonce = format!("X-WP-Nonce: {}", String::from_utf8_lossy(&nonce.body));
    let text =
        format!("{{\"title\":\"Another {run}\",\"status\":\"publish\",\"content\":\"text\"}}");
    let answer = ada.ask("POST /wp-json/wp/v2/posts", &[&nonce, JSON], text.as_bytes());
    let said = String::from_utf8_lossy(&answer.body).into_owned();
    seen.note("a new post", "status", answer.status.to_string());
    let id = between(&said, "\"id\":", ',').to_owned();
    let deleted = ada.ask(&format!("DELETE /wp-json/wp/v2/posts/{id}?force=true"), &[&nonce], b"");
    seen.note("a post that is deleted", "status", deleted.status.to_string());
    let fields =
        [&*nonce, "Content-Type: image/png", "Content-Disposition: attachment; filename=p.png"];
    let answer = ada.ask("POST /wp-json/wp/v2/media", &fields, PICTURE);
    let said = String::from_utf8_lossy(&answer.body).replace("\\/", "/");
    seen.note("a picture that is uploaded", "status", answer.status.to_string());
    assert_eq!(answer.status, 201, "{said}");
    let place = between(&said, "\"source_url\":\"http://example.com", '"').to_owned();
    let mut picture = ada.ask(&format!("GET {place}"), &[], b"");
    // the tag depends on the age of the file
    picture.fields.retain(|(name, _)| !name.eq_ignore_ascii_case("ETag"));
    note(seen, "a picture", &picture, false);
    assert_eq!(picture.body, PICTURE);
    let id = between(&said, "\"id\":", ',');
    let deleted = ada.ask(&format!("DELETE /wp-json/wp/v2/media/{id}?force=true"), &[&nonce], b"");
    seen.note("a picture that is deleted", "status", deleted.status.to_string());
    // a file that is gone is in the cache until that is noticed
    let mut gone = ada.ask(&format!("GET {place}"), &[], b"");
    soon(wire::PATIENCE, || {
        gone = ada.ask(&format!("GET {place}"), &[], b"");
        gone.status != 200
    });
    note(seen, "a picture that is gone", &gone, false);
    let comment = format!("comment=well+said+{run}&comment_post_ID=1&comment_parent=0");
    let answer = ada.ask("POST /wp-comments-post.php", &[FORM], comment.as_bytes());
    seen.note("a comment", "status", answer.status.to_string());
}
