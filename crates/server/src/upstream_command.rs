//! `forebay upstream`: the list of upstreams with their state, and draining and resuming
//! one while the server runs.

mod learnt;

use crate::command::CommandAnswer;
use forebay_config::{Config, Role, TcpConfig};
use forebay_handler::applications::Applications;
use forebay_upstream::health::UpstreamCondition;
use forebay_upstream::settings::{HttpUpstream, UpstreamAddress};
use forebay_upstream::upstreams::{UpstreamReport, Upstreams};
use std::sync::Arc;

/// The largest number of routes that are named for an upstream.
const MOST_ROUTES: usize = 3;

/// Answers `list`, `drain NAME` or `resume NAME` for the applications of this configuration.
/// `now_ms` is the time on the clock of upstreams.
pub fn answer(
    question: &str,
    config: &Config,
    applications: &Applications,
    now_ms: u64,
) -> CommandAnswer {
    match question.split_once(' ') {
        None if question == "list" => {
            CommandAnswer { code: 0, text: list(config, applications, now_ms) }
        }
        Some(("drain", name)) => set(name, true, config, applications),
        Some(("resume", name)) => set(name, false, config, applications),
        _ => CommandAnswer::unknown(&format!("upstream {question}")),
    }
}

/// The upstreams that this process asks. Receive knows all applications and leaves them to respond:
/// it asks only the servers of connections that it passes on.
fn asked<'a>(
    config: &'a Config,
    applications: &'a Applications,
) -> impl Iterator<Item = &'a Arc<Upstreams>> {
    let is_receive = config.place.as_ref().is_some_and(|place| place.role == Role::Receive);
    let first_passed = config.sites.len();
    let is_asked = move |upstreams: &Arc<Upstreams>| {
        !is_receive || applications.routes_to(upstreams).any(|(site, _)| site >= first_passed)
    };
    applications.upstreams().filter(move |upstreams| is_asked(upstreams))
}

/// A line for each upstream of each application. An upstream of several applications has counts in
/// each; the routes show which line belongs to which.
fn list(config: &Config, applications: &Applications, now_ms: u64) -> String {
    let mut learnt = String::new();
    let mut rows = vec![["UPSTREAM", "STATE", "UNDER WAY", "WAITING", "FOR"].map(str::to_owned)];
    for upstreams in asked(config, applications) {
        let waiting = upstreams.waiting();
        let routes = routes(config, applications, upstreams);
        for seen in upstreams.seen() {
            let under_way = match seen.most {
                Some(most) => format!("{} of {most}", seen.in_flight),
                None => seen.in_flight.to_string(),
            };
            let mut state = state(seen.condition, now_ms);
            if let Some(server) = &seen.server {
                state += &format!(" ({server})");
            }
            if let Some(report) = &seen.learnt {
                learnt += &format!("{}: {}\n", seen.label, learnt::words(report, now_ms));
            }
            rows.push([seen.label, state, under_way, waiting.to_string(), routes.clone()]);
        }
    }
    if rows.len() == 1 {
        return "no applications\n".to_owned();
    }
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let [first, second, third, fourth] = [width(0), width(1), width(2), width(3)];
    let line = |[a, b, c, d, e]: &[String; 5]| {
        format!("{a:first$}  {b:second$}  {c:third$}  {d:fourth$}  {e}\n")
    };
    let lines: String = rows.iter().map(line).collect();
    lines + &learnt
}

/// The routes that use these upstreams; with the name of the site, if there are several sites.
fn routes(config: &Config, applications: &Applications, upstreams: &Arc<Upstreams>) -> String {
    let Config { sites, tcp, .. } = config;
    let mut names: Vec<String> = Vec::new();
    for (site, route) in applications.routes_to(upstreams) {
        let Some(site) = sites.get(site) else {
            // the routes behind those of the last site get connections that are passed on as they are
            names.extend(tcp.get(route).map(TcpConfig::name));
            continue;
        };
        let Some(route) = site.route_names().into_iter().nth(route) else { continue };
        names.push(if sites.len() > 1 { format!("{}: {route}", site.name()) } else { route });
    }
    let more = names.len().saturating_sub(MOST_ROUTES);
    names.truncate(MOST_ROUTES);
    let mut text = names.join(", ");
    if more > 0 {
        text += &format!(", and {more} more");
    }
    text
}

fn state(condition: UpstreamCondition, now_ms: u64) -> String {
    let for_s = |since_ms: u64| now_ms.saturating_sub(since_ms) / 1000;
    match condition {
        UpstreamCondition::Well => "asked".to_owned(),
        UpstreamCondition::Backup => "backup".to_owned(),
        UpstreamCondition::Out { since_ms } => format!("left alone for {} s", for_s(since_ms)),
        UpstreamCondition::Unwell { since_ms } => format!("checks fail for {} s", for_s(since_ms)),
        UpstreamCondition::Failing { since_ms } => {
            format!("fails for {} s, asked: none is well", for_s(since_ms))
        }
        UpstreamCondition::Draining => "drained".to_owned(),
    }
}

/// Whether a name means this upstream: as logs call it, or as the configuration writes it.
fn is_meant(seen: &UpstreamReport, name: &str) -> bool {
    // browsers and shells put a slash behind an address
    let address = name.strip_suffix('/').unwrap_or(name);
    let written = || {
        HttpUpstream::parse(address)
            .map(|found| found.address)
            .or_else(|_| UpstreamAddress::fastcgi(name))
    };
    seen.label == name
        || seen.server.as_deref() == Some(name)
        || seen.label.strip_prefix("unix:") == Some(name)
        || written().is_ok_and(|address| address.to_string() == seen.label)
}

/// Drains or resumes an upstream, in every application that has it.
fn set(
    name: &str,
    is_draining: bool,
    config: &Config,
    applications: &Applications,
) -> CommandAnswer {
    let mut found: Vec<(&Arc<Upstreams>, UpstreamReport)> = Vec::new();
    for upstreams in asked(config, applications) {
        for seen in upstreams.seen() {
            if is_meant(&seen, name) {
                upstreams.drain(seen.member, is_draining);
                found.push((upstreams, seen));
            }
        }
    }
    let Some((_, first)) = found.first() else {
        let mut known: Vec<_> =
            asked(config, applications).flat_map(|one| one.seen()).map(|seen| seen.label).collect();
        known.sort();
        known.dedup();
        let known = match known.is_empty() {
            true => "there are none".to_owned(),
            false => format!("there are {}", known.join(", ")),
        };
        return CommandAnswer {
            code: 1,
            text: format!("no upstream is called {name:?}; {known}\n"),
        };
    };
    // not the place of a server: in another process, or later, another server may have it
    let label = first.name();
    let under_way: u32 = found.iter().map(|(_, seen)| seen.in_flight).sum();
    let mut text = match is_draining {
        true => format!(
            "{label} is drained: it gets no more requests, and {under_way} under way come to their end\n"
        ),
        false => format!("{label} is asked again\n"),
    };
    let is_alone = |upstreams: &&Arc<Upstreams>| {
        upstreams.seen().iter().all(|seen| seen.condition == UpstreamCondition::Draining)
    };
    if is_draining && found.iter().map(|(upstreams, _)| *upstreams).any(|one| is_alone(&one)) {
        text.push_str("nobody else answers for it: clients get 503 until it is resumed\n");
    }
    CommandAnswer { code: 0, text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{MachineResources, Plan};
    use forebay_config::{Config, StageProcess, parse};

    fn applications(text: &str) -> (Config, Applications) {
        let config = parse(text, "/etc/forebay.toml").unwrap();
        let machine =
            MachineResources { cores: 1, memory_bytes: 1 << 30, descriptors: 1024, threads: 1000 };
        let plan = Plan::new(&config, &machine).unwrap();
        let applications = Applications::new(&plan.applications, &plan.ranks.shares, None, 0);
        applications.take_effect(None, &Default::default());
        (config, applications)
    }

    /// Routes with different limits have separate counts, even for the same upstream.
    #[test]
    fn lines_of_one_upstream_are_told_apart() {
        let text = "root = \"/site\"\n[[site]]\n[[site.proxy]]\npath = \"/a\"\nto = \"http://10.0.0.1\"\n\
             in_flight = 8\n[[site.proxy]]\npath = \"/b\"\nto = \"http://10.0.0.1\"\nin_flight = 8\n\
             [[site]]\nhosts = [\"shop.example\"]\n[[site.proxy]]\npath = \"/\"\n\
             to = \"http://10.0.0.1\"\nin_flight = 2\n\
             [[site.forward_auth]]\npath = \"/in\"\nto = \"http://10.0.0.1\"\n";
        let (config, applications) = applications(text);
        let CommandAnswer { text, .. } = answer("list", &config, &applications, 5_000);
        let lines: Vec<_> = text.lines().skip(1).map(|line| line.split_whitespace()).collect();
        let lines: Vec<_> =
            lines.into_iter().map(|line| line.collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "10.0.0.1:80 asked 0 of 8 0 default: proxy /a, default: proxy /b",
                "10.0.0.1:80 asked 0 of 2 0 shop.example: proxy /",
                "10.0.0.1:80 asked 0 0 shop.example: forward_auth /in",
            ],
            "{text}"
        );
    }

    #[test]
    fn upstreams_are_listed_and_taken_out() {
        let text = "root = \"/site\"\n[[proxy]]\npath = \"/a\"\n\
             to = [\"http://10.0.0.1:9000\", \"http://10.0.0.2:9000\"]\nin_flight = 8\n\
             [[fastcgi]]\nto = \"unix:/run/php.sock\"\n";
        let (config, applications) = applications(text);
        let ask = |question: &str| {
            let CommandAnswer { code, text } = answer(question, &config, &applications, 5_000);
            (code, text)
        };
        assert_eq!(
            ask("list").1,
            "UPSTREAM            STATE  UNDER WAY  WAITING  FOR\n\
             10.0.0.1:9000       asked  0 of 8     0        proxy /a\n\
             10.0.0.2:9000       asked  0 of 8     0        proxy /a\n\
             unix:/run/php.sock  asked  0          0        fastcgi /\n"
        );
        let (code, said) = ask("drain http://10.0.0.2:9000");
        assert_eq!((code, said.lines().count()), (0, 1), "{said}");
        assert!(ask("list").1.contains("10.0.0.2:9000       drained"));
        let (code, said) = ask("drain /run/php.sock");
        assert!(code == 0 && said.contains("clients get 503"), "{said}");
        let again = (0, "10.0.0.2:9000 is asked again\n".to_owned());
        assert_eq!(ask("resume http://10.0.0.2:9000/"), again);
        assert_eq!(ask("resume 10.0.0.2:9000"), again);
        assert_eq!(
            ask("drain 10.0.0.3:9000"),
            (
                1,
                "no upstream is called \"10.0.0.3:9000\"; there are 10.0.0.1:9000, \
                 10.0.0.2:9000, unix:/run/php.sock\n"
                    .to_owned()
            )
        );
        assert_eq!(ask("remove x").0, 2);
    }

    /// Receive knows the applications of respond, too, and asks none of them.
    #[test]
    fn receive_leaves_applications_to_respond() {
        let text = "root = \"/site\"\n[[proxy]]\npath = \"/\"\nto = \"http://10.0.0.1:9000\"\n";
        let (mut config, applications) = applications(text);
        config.place = Some(StageProcess {
            role: Role::Receive,
            instance: 1,
            file: "/etc/forebay.toml".into(),
            links: "/run".into(),
        });
        let ask = |question: &str| answer(question, &config, &applications, 5_000).text;
        assert_eq!(ask("list"), "no applications\n");
        assert!(ask("drain 10.0.0.1:9000").starts_with("no upstream is called"));
    }
}
