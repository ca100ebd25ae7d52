//! Measures how long a cache hit takes, beside the work it cannot do without.
//!
//! ```text
//! cargo run --release -p forebay-site --example hit [REQUESTS [FILES [SETUP]]]
//! ```
//!
//! Serves files of 1 KiB from a temporary directory and prints nanoseconds per request: for
//! reading the head and writing an answer of the same length from one buffer, for reading the head and
//! [`Site::process`], and for turning the request away with an error page of 1 KiB. They are measured in
//! turns; medians of the rounds are printed. A
//! setup is one of `one` (one site), `hosts` (a hundred sites, asked in turn), `rules` (one site
//! with twenty rules of each kind that do not match) and `fallback` (a page for all paths).

mod answering;

use answering::{Failure, ask, process};
use forebay_conn::{Out, Peer, Refusal, Reply, Request, TurnTime};
use forebay_http::head::Head;
use forebay_http::path::NormalPath;
use forebay_site::rules::{
    ErrorPage, FieldName, FieldValue, HeaderRule, Host, Pattern, Redirect, Rewrite, SiteName,
    Template, TryFiles,
};
use forebay_site::{
    Body, Content, ContentSettings, RequestContext, RequestScheme, Site, SiteSettings,
};
use std::hint::black_box;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const FILES: usize = 1000;
const ROUNDS: usize = 9;
const SITES: usize = 100;
const RULES: usize = 20;

fn main() -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("forebay-hit-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().map_or(Ok(400_000), |text| text.parse())?;
    let files = arguments.next().map(|text| text.parse()).transpose()?;
    let only = arguments.next();
    let outcome = serve(&folder, count, files, only.as_deref());
    std::fs::remove_dir_all(&folder)?;
    outcome
}

fn serve(
    folder: &Path,
    count: usize,
    files: Option<usize>,
    only: Option<&str>,
) -> Result<(), Failure> {
    for number in 0..FILES {
        std::fs::write(folder.join(format!("{number}.html")), vec![b'x'; 1024])?;
    }
    // Young files are loaded again when their tags can be strong; let them grow old first.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let setups = ["one", "hosts", "rules", "fallback"];
    for name in setups.into_iter().filter(|name| only.is_none_or(|only| only == *name)) {
        let content = Content::open(settings(name, folder)?, |notice| eprintln!("{notice}"))?;
        let now = TurnTime { monotonic_ms: 1, unix_ms: 1 };
        let mut site = Site::new(content, Arc::default(), now, 4096);
        for few in [1, 16, FILES].into_iter().filter(|few| files.is_none_or(|only| only == *few)) {
            measure(name, &mut site, few, count)?;
        }
    }
    Ok(())
}

fn settings(name: &str, folder: &Path) -> Result<ContentSettings, Failure> {
    // files must be sent whole, and these texts would be compressed
    let errors = vec![ErrorPage::parse("503", "/0.html")?];
    let site = SiteSettings { compress: Vec::new(), errors, ..SiteSettings::new(folder) };
    let sites = match name {
        "hosts" => {
            let site = |number| -> Result<SiteSettings, Failure> {
                let hosts = vec![Host::parse(&format!("site-{number}.example"))?];
                Ok(SiteSettings { name: SiteName::of(&hosts), hosts, ..site.clone() })
            };
            (0..SITES).map(site).collect::<Result<_, _>>()?
        }
        "rules" => vec![with_rules(site)?],
        "fallback" => {
            let try_files = TryFiles::parse(&["$path", "/0.html"])?;
            vec![SiteSettings { try_files, ..site }]
        }
        _ => vec![site],
    };
    Ok(ContentSettings { sites, ..ContentSettings::new("") })
}

fn with_rules(mut site: SiteSettings) -> Result<SiteSettings, Failure> {
    for number in 0..RULES {
        let pattern = Pattern::parse(&format!("/none-{number}/*"))?;
        let to = Template::parse("/other/$1")?;
        site.redirects.push(Redirect::new(pattern.clone(), to.clone(), 301)?);
        site.rewrites.push(Rewrite::new(pattern.clone(), to)?);
        let set = vec![(FieldName::parse("X-None")?, FieldValue::parse("none")?)];
        site.headers.push(HeaderRule::new(Some(pattern), None, set, Vec::new())?);
    }
    site.try_files = TryFiles::parse(&["$path", "/none.html"])?;
    Ok(site)
}

fn measure(name: &str, site: &mut Site, few: usize, count: usize) -> Result<(), Failure> {
    let request = |number: usize| {
        let host = match name {
            "hosts" => format!("site-{}.example", number % SITES),
            _ => "127.0.0.1".to_owned(),
        };
        let ending = if name == "fallback" { "none" } else { "html" };
        format!("GET /{number}.{ending} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: gzip\r\n\r\n")
    };
    let requests: Vec<_> = (0..few).map(request).collect();
    let answer = vec![b'x'; ask(&requests, |head, out| process(site, head, out))?];
    let answer = &answer[..answer.len() / few];
    let again = || requests.iter().cycle().take(count);
    let (mut copies, mut hits, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        ask(again(), |_, out| out.bytes.extend_from_slice(black_box(answer)))?;
        copies.push(start.elapsed().as_nanos() as f64 / count as f64);
        let start = Instant::now();
        ask(again(), |head, out| process(site, head, out))?;
        hits.push(start.elapsed().as_nanos() as f64 / count as f64);
        let start = Instant::now();
        ask(again(), |head, out| turn_away(site, head, out))?;
        refusals.push(start.elapsed().as_nanos() as f64 / count as f64);
    }
    let [copied, hit, refused] = [copies, hits, refusals].map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2]
    });
    println!(
        "{name:8} {few:5} files, answers of {} bytes: read and copy {copied:.1} ns, read and process \
         {hit:.1} ns, difference {:.1} ns; refused {refused:.1} ns",
        answer.len(),
        hit - copied
    );
    Ok(())
}

/// Answers one that policy does not admit.
#[inline(never)]
fn turn_away(site: &mut Site, head: &Head<'_>, out: &mut Out<Body>) {
    let (peer, path) = (Peer::new(Peer::UNIX, Peer::UNIX), NormalPath::default());
    let date = [b'x'; 29];
    let mut reply = Reply::new(out, &date, true);
    let refusal = Refusal { status: 503, retry_after_s: 1 };
    site.turn_away(refusal, &Request::new(head, &peer, &path), &Program, &mut reply);
}

/// One that comes through a Unix socket.
struct Program;

impl RequestContext for Program {
    fn client(&self) -> SocketAddr {
        Peer::UNIX
    }

    fn scheme(&self) -> RequestScheme {
        RequestScheme::Http
    }

    fn class(&self) -> &str {
        ""
    }

    fn request_id(&self, _: &mut Vec<u8>) {}
}
