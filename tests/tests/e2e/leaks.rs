//! Ways around rules: whatever the request, no part of a protected file comes back, not even its length.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::faults::site::Folder;
use forebay_tests::http2::Client;
use forebay_tests::{ENGINES, Options, Server, is_full_matrix};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::symlink;

/// The hash of "secret", with the least cost of bcrypt.
const CHEAP: &str = "$2y$04$rE6UMvOf68UamHlkbZKD.ONJLEmHsZmnyoRir2CfmvCtpBEdvxw3u";
/// The credentials of alice:secret.
const ALICE: &str = "Authorization: Basic YWxpY2U6c2VjcmV0\r\n";
/// The beginning of each protected file.
const MARK: &str = "protected:";

forebay_tests::on_each_engine! {
    nothing_gets_past_the_rules,
}

/// Files that rules protect; nothing else has the length of one.
const PROTECTED: &[&str] = &[
    "root/adm/index.html",
    "root/adm/s.txt",
    "root/adm/s.txt.gz",
    "root/adm/s.txt.br",
    "root/adm/s.txt.zst",
    "root/adm/sorry.html",
    "root/adm/big.js",
    "root/priv/index.html",
    "root/priv/index.html.gz",
    "root/one.html",
    "root/one.html.br",
    "root/two.html",
    "root/x.bak",
    "root/z.SQL",
    "root/idx/index.html",
    "root/idx/index.html.zst",
    "root/lst/veiled.txt",
    "root/lst/closed/veiled.txt",
    "root/.dot/s.txt",
    "root/app/a.php",
    "root/app/a.php.gz",
    "root/app/index.php",
    "root/ruled/s.txt",
    "root/ruled.css",
    "root/ruled.css.gz",
    "other/priv/s.txt",
    "other/x.bak",
    "outside.txt",
    "b/index.html",
    "b/s.txt",
];

struct Files {
    folder: Folder,
    lens: Vec<usize>,
}

fn files() -> Files {
    let folder = Folder::new();
    let mut lens = Vec::new();
    for (number, name) in PROTECTED.iter().enumerate() {
        let mut text = format!("{MARK} {name} ");
        text.extend(std::iter::repeat_n('z', 7001 + 13 * number - text.len()));
        lens.push(text.len());
        folder.write(name, &text);
    }
    for name in ["root/index.html", "root/lst/open.txt", "root/app/open.txt", "other/open.txt"] {
        folder.write(name, "open to all");
    }
    fs::create_dir_all(folder.join("media")).unwrap();
    symlink("../media", folder.join("root/media")).unwrap();
    symlink("../outside.txt", folder.join("root/out")).unwrap();
    symlink("../../outside.txt", folder.join("other/priv/out")).unwrap();
    Files { folder, lens }
}

fn config(folder: &Folder) -> String {
    let [root, other, app, b] =
        ["root", "other", "root/app", "b"].map(|name| folder.join(name).display().to_string());
    format!(
        r#"
[[rule]]
path = ["/ruled/*", "/ruled.css"]
action = "reject"
[[site]]
listing = ["/lst", "/adm", "/al", "/up/lst"]
links = ["/media"]
try_files = ["$path", "$path.html", "$path/", "/index.html"]
try_files_except = ["/lst", "/al", "/adm", "/app", "/idx", "*.txt", "*.bak"]
errors = {{ 400 = "/adm/sorry.html", 403 = "/adm/sorry.html", 404 = "/adm/sorry.html" }}
access = [
    {{ path = "/adm", deny = ["all"] }},
    {{ path = "=/one.html", deny = ["all"] }},
    {{ path = "=/two", allow = ["10.0.0.0/8"] }},
    {{ path = "*.bak", deny = ["all"] }},
    {{ regex = '(?i)\.(sql|old)$', deny = ["all"] }},
    {{ path = "=/idx/index.html", deny = ["all"] }},
    {{ path = "=/lst/veiled.txt", deny = ["all"] }},
    {{ path = "/lst/closed", deny = ["all"] }},
    {{ path = "/al/priv", deny = ["all"] }},
]
auth = [{{ path = "/priv", users = {{ alice = "{CHEAP}" }} }}]
alias = [
    {{ path = "/al", to = "{other}" }},
    {{ path = "/in", to = "{root}/adm" }},
    {{ path = "/scripts", to = "{app}" }},
    {{ path = "/up/lst", to = "{root}/lst" }},
    {{ path = "/up/priv", to = "{root}/priv" }},
    {{ path = "/up/idx", to = "{root}/idx" }},
]
rewrite = [
    {{ path = "/rw/*", to = "/adm/$1" }},
    {{ path = "/rwx/*", to = "/$1" }},
    {{ regex = '^/rr/(.*)$', to = "/$1" }},
]
# nobody is there: whoever gets to it is answered with 502
fastcgi = [{{ path = "/app", to = "unix:{other}/none.sock" }}]

[[site]]
hosts = ["b.example"]
root = "{b}"
access = [{{ deny = ["all"] }}]
"#
    )
}

/// Paths of protected files and of links to them.
const TARGETS: &[&str] = &[
    "/adm",
    "/adm/",
    "/adm/s.txt",
    "/adm/big.js",
    "/priv",
    "/priv/",
    "/priv/index.html",
    "/one",
    "/one.html",
    "/two",
    "/two.html",
    "/x.bak",
    "/z.SQL",
    "/idx/",
    "/idx/index.html",
    "/lst/",
    "/lst/veiled.txt",
    "/lst/closed/",
    "/lst/closed/veiled.txt",
    "/.dot/s.txt",
    "/app/",
    "/app/a.php",
    "/ruled/s.txt",
    "/ruled.css",
    "/al/priv/s.txt",
    "/al/x.bak",
    "/al/priv/out",
    "/out",
    "/in",
    "/in/",
    "/in/s.txt",
    "/scripts/",
    "/scripts/a.php",
    "/up/lst/",
    "/up/lst/veiled.txt",
    "/up/priv/",
    "/up/idx/",
    "/rw/",
    "/rw/s.txt",
    "/rwx/adm/s.txt",
    "/rwx/priv/",
    "/rwx/one",
    "/rwx/x.bak",
    "/rwx/idx/",
    "/rwx/in/s.txt",
    "/rwx/scripts/a.php",
    "/rr/adm/s.txt",
    "/rr/one",
    "/rr/priv/",
    "/rr/al/priv/s.txt",
    "/../outside.txt",
    "/media/../../outside.txt",
    "/in/../adm/s.txt",
    "/none/../priv/",
];

/// Fields that choose another form, a part, only the head, or that claim something about the client.
const FIELDS: &[&str] = &[
    "",
    "Accept-Encoding: gzip\r\n",
    "Accept-Encoding: br\r\n",
    "Accept-Encoding: zstd\r\n",
    "Accept-Encoding: *, identity;q=0\r\n",
    "Accept: application/json\r\n",
    "Range: bytes=0-9\r\n",
    "Range: bytes=-9\r\n",
    "Range: bytes=0-0,5-9\r\n",
    "Range: bytes=999999-\r\n",
    "If-None-Match: *\r\n",
    "If-Match: \"x\"\r\n",
    "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n",
    "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n",
    "Authorization: Basic YWxpY2U6d3Jvbmc=\r\n",
    "Authorization: Basic\r\n",
    "X-Forwarded-For: 10.0.0.1\r\nX-Real-IP: 10.0.0.1\r\nForwarded: for=10.0.0.1\r\n",
    "X-Original-URL: /adm/s.txt\r\nX-Rewrite-URL: /adm/s.txt\r\n",
];

const METHODS: &[&str] = &["HEAD", "OPTIONS", "TRACE", "POST", "PUT", "PROPFIND", "get"];

/// Other ways to write a path.
fn spellings(path: &str) -> Vec<String> {
    let mut all = vec![path.to_owned()];
    let last = path.len() - 1;
    let places = if is_full_matrix() { (1..path.len()).collect() } else { vec![1, last.max(1)] };
    for at in places {
        if let Some(byte) = path.as_bytes().get(at) {
            all.push(format!("{}%{byte:02x}{}", &path[..at], &path[at + 1..]));
        }
    }
    let encoded = |open: &str| path[1..].bytes().map(|byte| format!("{open}{byte:02X}")).collect();
    let (once, twice): (String, String) = (encoded("%"), encoded("%25"));
    all.extend([format!("/{once}"), format!("/{twice}")]);
    for slash in [
        "//",
        "/./",
        "/%2e/",
        "/x/../",
        "/x/%2e%2E/",
        "%2f",
        "\\",
        "%5c",
        ";/",
        "/;/",
        "/..;/",
        "%c0%af",
        "%e0%80%af",
        "/%00/",
        "%20/",
        "./",
    ] {
        all.push(format!("/{}", path[1..].replace('/', slash)));
        all.push(format!("{slash}{}", &path[1..]));
        if let Some((before, after)) =
            path.rsplit_once('/').filter(|(before, _)| !before.is_empty())
        {
            all.push(format!("{before}{slash}{after}"));
        }
    }
    for end in [
        "/",
        "//",
        "/.",
        "/..",
        ".",
        "..",
        "%20",
        "%00",
        "%00.txt",
        "%2f",
        "%5c",
        ";",
        ";x",
        "?x",
        "#",
        "%23",
        "~",
        ".gz",
        ".br",
        ".zst",
        ".GZ",
        ".gz.gz",
        "%2egz",
        ".gz/",
        ".html",
        "/index.html",
        "/index.html.br",
        "/s.txt",
        "/x.php",
        "/../s.txt",
        "%0a",
        "%ff",
        "%",
        "%zz",
        "*",
    ] {
        all.push(format!("{path}{end}"));
    }
    all.extend([path.to_uppercase(), path[1..].to_owned(), format!("//h{path}")]);
    for origin in ["http://h", "https://h", "http://b.example", "http://u@h", "http://b.example:80"]
    {
        all.push(format!("{origin}{path}"));
    }
    all
}

/// All requests, each sent on a connection of its own.
fn requests() -> Vec<String> {
    let mut all = Vec::new();
    let close = "Connection: close\r\n";
    for target in TARGETS {
        for spelling in spellings(target) {
            all.push(format!("GET {spelling} HTTP/1.1\r\nHost: h\r\n{close}\r\n"));
        }
        for fields in FIELDS {
            for method in ["GET", "HEAD"] {
                all.push(format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{fields}{close}\r\n"));
            }
        }
        for method in METHODS {
            let line = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n");
            all.push(format!("{line}Content-Length: 0\r\n{close}\r\n"));
        }
        for host in ["b.example.", "B.EXAMPLE:81", "b.example h", "h, b.example", "u@b.example", ""]
        {
            all.push(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{close}\r\n"));
        }
        all.push(format!("GET {target} HTTP/1.1\r\nHost: h\r\nHost: b.example\r\n{close}\r\n"));
        all.push(format!("GET http://b.example{target} HTTP/1.1\r\nHost: h\r\n{close}\r\n"));
        all.push(format!("GET {target} HTTP/1.0\r\n\r\n"));
        all.push(format!("GET {target}\r\n"));
        let first = "GET /lst/open.txt HTTP/1.1\r\nHost: h\r\n\r\n";
        all.push(format!("{first}GET {target} HTTP/1.1\r\nHost: h\r\n{close}\r\n"));
    }
    for target in ["/", "/index.html", "/s.txt", "/index", "/%73.txt", "/none"] {
        for fields in FIELDS {
            all.push(format!("GET {target} HTTP/1.1\r\nHost: b.example\r\n{fields}{close}\r\n"));
        }
    }
    all
}

/// The lengths of protected files as text: as they are, and in the forms in which an answer would show
/// them.
struct Signs {
    numbers: HashSet<String>,
    signs: Vec<String>,
}

impl Signs {
    fn new(lens: &[usize]) -> Signs {
        let numbers = lens.iter().flat_map(|len| [len.to_string(), format!("{len:x}")]).collect();
        let signs = lens.iter().flat_map(|len| {
            [
                format!("\r\ncontent-length: {len}\r\n"),
                format!("/{len}\r\n"),
                format!("-{len:x}-"),
                format!("\"size\":{len},"),
            ]
        });
        Signs { numbers, signs: signs.collect() }
    }

    /// The lengths in a text in lower case. Few texts contain one of the numbers.
    fn of<'s>(&'s self, lower: &'s str) -> impl Iterator<Item = String> + 's {
        let mut words = lower.split(|letter: char| !letter.is_ascii_alphanumeric());
        let signs = match words.any(|word| self.numbers.contains(word)) {
            true => &self.signs[..],
            false => &[],
        };
        let shown = signs.iter().filter(|sign| lower.contains(sign.as_str()));
        shown.map(|sign| format!("a length: {}", sign.trim()))
    }
}

/// The traces of protected files in an answer: bytes, a length, a tag, an entry of a list.
fn shown(answer: &str, signs: &Signs) -> Vec<String> {
    let lower = answer.to_ascii_lowercase();
    let mut shown: Vec<String> = Vec::new();
    shown.extend(answer.contains(MARK).then(|| "bytes".to_owned()));
    shown.extend(lower.contains("veiled").then(|| "an entry of a list".to_owned()));
    // nothing that is open is worth compressing, but for lists
    let is_packed = lower.contains("\r\ncontent-encoding:") && !lower.contains("vary: accept,");
    shown.extend(is_packed.then(|| "a compressed form".to_owned()));
    shown.extend(signs.of(&lower));
    shown
}

fn nothing_gets_past_the_rules(engine: &str) {
    let Files { folder, lens } = files();
    let signs = Signs::new(&lens);
    let options = Options::new(folder.join("root")).engine(engine).config(&config(&folder));
    let server = Server::start(&options);
    let exchange =
        |request: &str| String::from_utf8_lossy(&server.exchange(request.as_bytes())).into_owned();
    // the check itself sees what would be shown
    let with = format!("GET /priv/ HTTP/1.1\r\nHost: h\r\n{ALICE}Connection: close\r\n\r\n");
    let answer = exchange(&with);
    assert_eq!(shown(&answer, &signs).len(), 2, "{answer}");
    let packed = exchange(&with.replace("\r\nConn", "\r\nAccept-Encoding: gzip\r\nConn"));
    assert_eq!(shown(&packed, &signs).len(), 3, "{packed}");

    // rules do not know of engines: all of it on one, and on the others, together, once more
    let number = ENGINES.iter().position(|it| *it == engine).unwrap();
    let (first, step) = match number {
        1.. if !is_full_matrix() => (number - 1, ENGINES.len() - 1),
        _ => (0, 1),
    };
    let mut statuses = std::collections::BTreeMap::<String, u32>::new();
    for request in requests().into_iter().skip(first).step_by(step) {
        let answer = exchange(&request);
        assert_eq!(shown(&answer, &signs), [""; 0], "{engine}: {request}{answer}");
        let status = answer.get(9..12).unwrap_or("none").to_owned();
        assert!(status != "500" && status != "503", "{engine}: {request}{answer}");
        *statuses.entry(status).or_default() += 1;
    }
    for status in ["200", "400", "401", "403", "404", "502"] {
        assert!(statuses.contains_key(status), "{engine}: no {status}: {statuses:?}");
    }

    for target in TARGETS {
        for more in [&[][..], &[("host", "b.example")], &[("accept-encoding", "gzip, br")]] {
            let mut client = Client::connect(server.addr());
            let stream = client.begin("GET", target, more, true);
            let answer = client.answer(stream);
            let fields = answer.fields.iter().map(|(name, value)| format!("\r\n{name}: {value}"));
            let body = String::from_utf8_lossy(&answer.body);
            let text = format!("{}\r\n\r\n{body}", fields.collect::<String>());
            assert_eq!(shown(&text, &signs), [""; 0], "{engine}: HTTP/2 {target} {more:?}");
        }
    }
}
