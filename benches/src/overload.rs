//! Overload: what is still answered in time when more comes than a server can do, and who gets it.
//!
//! Requests cost a known processor time, so one core of clients can ask a server for many times what
//! it can do. A measurement is one start of a server and one run of the load generator, and makes a
//! row for each group of clients. The parts are those of BENCHMARKING.md.

pub mod bench;
pub mod cost;
pub mod gate;
pub mod gold;
pub mod goodput;
pub mod processes;
pub mod row;
pub mod scripts;
pub mod server;
pub mod shares;
pub mod step;
pub mod voigt;
pub mod watch;

/// The address of clients that are to be served first.
pub const GOLD: &str = "127.0.2.1";
/// Addresses of many other clients.
pub const CROWD: &str = "127.0.1.1-127.0.1.64";
/// A page of 1 KB of the site's own for what is refused: begins the lines of a policy.
pub const SITE_PAGES: &str = "errors = { 429 = \"/1k.html\", 503 = \"/1k.html\" }\n";
/// Header rules of the site, for errors too: end the lines of a policy.
pub const SITE_HEADERS: &str = "[[header]]\nset = { X-Frame-Options = \"DENY\", Referrer-Policy = \"no-referrer\" }\n\
     [[header]]\npath = \"/work*\"\nset = { X-Path = \"work\" }\n";

#[cfg(test)]
mod tests {
    use super::server::Server;
    use super::{cost, gold, goodput, processes, shares, voigt};

    #[test]
    fn forebay_takes_every_policy() {
        let ours = Server::Forebay { engine: "event", policy: true };
        let mut all = vec![goodput::POLICY.to_owned(), cost::POLICY.to_owned()];
        all.extend([goodput::with_pages(), cost::with_pages()]);
        all.extend(gold::variants(ours).into_iter().map(|(_, lines)| lines));
        all.extend(shares::VARIANTS.map(|(_, floors)| shares::policy(floors)));
        all.extend(processes::SHARES.map(|shares| voigt::figures_7_and_8(5, shares).lines()));
        all.extend(voigt::scenes(385.0, 63.0).iter().map(voigt::Scene::lines));
        for lines in all {
            let text = format!("root = \"/\"\n{}", lines.replace("@PORT@", "8080"));
            let problems = forebay_server::config::parse(&text, "policy").err();
            assert!(problems.is_none(), "{lines}\n{problems:?}");
        }
    }
}
