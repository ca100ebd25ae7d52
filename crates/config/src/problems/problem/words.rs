//! What is wrong, in words: one sentence for each, with what to do.

use super::Wrong;
use forebay_policy::near::nearest;
use std::fmt;

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Unreadable(error) => write!(f, "cannot be read: {error}"),
            Wrong::TooLong { limit } => write!(f, "is longer than {limit} bytes"),
            Wrong::NotUtf8 => write!(f, "is not UTF-8 from here on"),
            Wrong::Syntax(message) => write!(f, "{message}"),
            Wrong::Unknown { near } => {
                write!(f, "unknown key")?;
                did_you_mean(f, near.as_deref())
            }
            Wrong::Foreign { answer, .. } => write!(f, "unknown key: {answer}"),
            Wrong::Endless { from } => write!(
                f,
                "whoever asks for {from:?} is redirected for ever; let the pattern of the path leave \
                 out where it leads to"
            ),
            Wrong::NotBuilt { feature } => {
                write!(f, "this program was built without it (the Cargo feature {feature})")
            }
            Wrong::Misplaced { home } => write!(f, "unknown key here, it belongs in {home}"),
            Wrong::Form { expected, found, near } => {
                write!(f, "expected {expected}, found {found}")?;
                near.iter().try_for_each(|near| write!(f, ", did you mean {near}?"))
            }
            Wrong::NoSection { found, example } => write!(
                f,
                "expected a section with settings of its own such as {example}, found {found}"
            ),
            Wrong::Range { found, least, most } => {
                write!(f, "{found} is out of range, from {least} to {most} is allowed")
            }
            Wrong::Choice { found, choices } => {
                let quoted: Vec<_> = choices.iter().map(|word| format!("{word:?}")).collect();
                write!(f, "expected {}, found {found:?}", quoted.join(" or "))?;
                did_you_mean(f, nearest(found, choices.iter().copied()))
            }
            Wrong::OtherChoice { found, choices } => {
                write!(f, "{found:?} is none of them either")?;
                did_you_mean(f, nearest(found, choices.iter().copied()))
            }
            Wrong::Repeated { found } => write!(f, "{found:?} is there twice"),
            Wrong::Empty => write!(f, "the list is empty, at least one item is needed"),
            Wrong::Nobody { listen } => write!(
                f,
                "names nobody who can come to {listen:?}; add the address of the machine that reads \
                 it, such as \"10.0.0.7\""
            ),
            Wrong::ThisMachineOnly { listen } => write!(
                f,
                "{listen:?} is all addresses, and only clients of this machine are answered there: name \
                 others in admin.allow, or listen at 127.0.0.1"
            ),
            Wrong::Missing { example } => write!(f, "missing, set it, for example {example}"),
            // the key names it
            Wrong::Unfit { found, reason } if found.is_empty() => f.write_str(reason),
            Wrong::Unfit { found, reason } => write!(f, "{found}: {reason}"),
            Wrong::Both { other } => {
                write!(f, "cannot stand beside {other}, one of them is enough")
            }
            Wrong::Beside { other, reason } => write!(f, "cannot stand beside {other}: {reason}"),
            Wrong::Idle { needs } => write!(f, "means nothing without {needs}"),
            Wrong::Useless { beside } => write!(f, "means nothing beside {beside}"),
            Wrong::NoSignIn { beside } => write!(
                f,
                "beside {beside} each request has a connection of its own: a sign-in that takes several, such as \
                 NTLM, never comes to its end"
            ),
            Wrong::OfEachRequest { name } => write!(
                f,
                "sets {name}, which says of each request what it is: scripts misread all others"
            ),
            Wrong::HidesRoute => f.write_str(
                "has the path of its own route in it: clients get 404 for all that the application has",
            ),
            Wrong::Exceeds { other, effect } => write!(f, "is more than {other}: {effect}"),
            Wrong::Shadowed { place } => {
                write!(f, "decides nothing: one before it is for the same paths")?;
                at(f, *place)
            }
            Wrong::Covered { place } => {
                write!(f, "decides nothing: one before it is for all its paths")?;
                at(f, *place)?;
                write!(f, "; the first match counts, put the special rule first")
            }
            Wrong::NoClass { found, known } => {
                write!(f, "there is no class {found:?}")?;
                let near = nearest(found, known.iter().map(String::as_str));
                let quoted: Vec<_> = known.iter().map(|name| format!("{name:?}")).collect();
                match near {
                    Some(_) => did_you_mean(f, near),
                    None if known.is_empty() => Ok(()),
                    None => write!(f, ", only {}", quoted.join(", ")),
                }
            }
            Wrong::NoSite { found, near } => {
                write!(f, "there is no site {found:?}")?;
                did_you_mean(f, near.as_deref())
            }
            Wrong::JsonOnly => write!(f, "only JSON lines have that: write log.format = \"json\""),
            Wrong::Shares { sum } => {
                write!(f, "the shares up to this one are {sum}, more than 100%")
            }
            Wrong::Policy(fault) => write!(f, "{fault}"),
            Wrong::TooMany { found, limit } => {
                write!(f, "there are {found}, at most {limit} are allowed")
            }
            Wrong::Taken { found, by, place } => {
                write!(f, "{found} is taken by {by}")?;
                at(f, *place)
            }
            Wrong::SecondDefault { first, place } => {
                write!(
                    f,
                    "a site without hosts is the default site, and the site {first:?} is that \
                     already"
                )?;
                at(f, *place)?;
                write!(f, "; give one of them hosts")
            }
            Wrong::Overlap { found, other, place } => {
                write!(f, "{found:?} overlaps with {other:?}")?;
                at(f, *place)
            }
            Wrong::BelongsToSite => {
                write!(f, "cannot be inherited, set it in the [[site]] that it is for")
            }
            Wrong::NotIsolated { what } => write!(f, "not with engine = \"isolated\": {what}"),
            Wrong::IdleIsolated { what } => {
                write!(f, "means nothing with engine = \"isolated\": {what}")
            }
            Wrong::NoProxy => {
                write!(f, "nobody could connect: set trusted_proxies to the proxies that may")
            }
            Wrong::Served { path, directory, place } => {
                write!(f, "clients could read {path:?}, {directory:?} is served")?;
                at(f, *place)
            }
            Wrong::TwoFormats { path, place } => {
                write!(f, "{path:?} is written in another format by another site")?;
                at(f, *place)
            }
            Wrong::Unpaired { certificates, keys } => write!(
                f,
                "each certificate needs its key: tls.certificate names {certificates}, tls.key {keys}"
            ),
            Wrong::NoCertificate => {
                f.write_str(
                    "TLS is to be spoken here, and no site has tls.certificate and tls.key, or tls.acme",
                )
            }
            Wrong::AcmeWithoutHosts => f.write_str(
                "an authority makes certificates for names, and this site has none: say them in hosts",
            ),
            Wrong::AcmeHost { host, is_wildcard: true } => write!(
                f,
                "no certificate for {host} is got by ACME: an authority would have to see a change at the \
                 name servers (dns-01), which is not offered here; name the hosts one by one, or let \
                 certbot or lego get it and name its files in tls.certificate"
            ),
            Wrong::AcmeHost { host, is_wildcard: false } => {
                write!(f, "no certificate for {host} is got by ACME: it is for names only")
            }
            Wrong::AcmeTerms { url } => write!(
                f,
                "must be true for tls.acme: you agree to the terms of the authority at {url}, to which \
                 that leads (termsOfService)"
            ),
            Wrong::AcmeNoWay => f.write_str(
                "there is no listener for it: http-01 needs one without TLS, which the authority finds at \
                 port 80, and tls-alpn-01 one with https://, at port 443",
            ),
            Wrong::AcmeRefused { host, is_early } => {
                let early = if *is_early { "say path = \"/*\" here, and " } else { "" };
                write!(
                    f,
                    "also refuses the authority that is to give a certificate for {host}: {early}let a rule \
                     before it have path = \"/.well-known/acme-challenge/*\", action = \"allow\" and stop = true"
                )
            }
            Wrong::NoClientAuthority => f.write_str(
                "tls.client_ca is missing: the certificates of the authorities that have signed those of \
                 the clients",
            ),
            Wrong::ClientsWithoutCertificate => f.write_str(
                "clients are asked by a site that shows a certificate itself: tls.certificate and tls.key \
                 are missing",
            ),
            Wrong::WithoutClients => {
                f.write_str("it has no effect without tls.client = \"optional\" or \"required\"")
            }
            Wrong::ClientsInClear => f.write_str(
                "requests that come without TLS are answered with 403; tls.redirect would send their \
                 clients to https",
            ),
            Wrong::NoAdminCertificate => f.write_str(
                "TLS is to be spoken here, and there is no admin.tls.certificate and admin.tls.key",
            ),
            Wrong::TokenInClear { listen } => write!(
                f,
                "the tokens of admin.token_file would go to {listen:?} in clear, for everybody on the way \
                 to read; write \"https://{listen}\", or listen at loopback or a Unix socket"
            ),
            Wrong::Said(finding) => finding.fmt(f),
            Wrong::NoTlsAddress { list } => write!(
                f,
                "it has no effect, because no address of {list} begins with \"https://\""
            ),
            Wrong::NoHttps => f.write_str(
                "it has no effect, because no address of listen begins with \"https://\", and \
                 trusted_proxies names no proxy that could speak TLS",
            ),
            Wrong::HstsByRule => f.write_str(
                "it has no effect, because a header rule of this site is about \
                 Strict-Transport-Security",
            ),
            Wrong::WithoutHsts => f.write_str("it has no effect without tls.hsts"),
            Wrong::NotPreloaded => f.write_str(
                "browsers take no host into their lists that says less than tls.hsts = \"365d\" and \
                 tls.hsts_subdomains = true",
            ),
            Wrong::Certificate(error) => f.write_str(error),
            Wrong::NeverInherited => f.write_str(
                "it is never asked: a route of the top level is for sites that have none for the same path, and \
                 each [[site]] has one",
            ),
            Wrong::Itself { found } => {
                write!(f, "this server listens at {found}, and would ask itself for ever")
            }
            Wrong::KeepsThread { engine } => write!(
                f,
                "with engine = \"{engine}\" each WebSocket keeps a thread for itself, and those beyond \
                 tunnel_threads get 503; the engine event keeps \
                 none, and upgrade = false refuses them"
            ),
            Wrong::WaitKeepsThread { engine, requests, key } => write!(
                f,
                "with engine = \"{engine}\" each request that waits keeps a thread, of which {requests} and \
                 those under way may take all there are; the engine event keeps none, and a smaller {key} \
                 leaves some for others"
            ),
            Wrong::QueueKeepsThreads { engine, requests } => write!(
                f,
                "with engine = \"{engine}\" each request that waits keeps a thread: {requests} may wait, but \
                 those beyond upstream_threads get 503; the engine event keeps none"
            ),
            Wrong::CountsAlone { upstream } => write!(
                f,
                "other routes to {upstream} say something else of it (to, balance, in_flight, queue, \
                 retry_budget, max_fails, fail_time, slow_start or check), so what is under way is counted \
                 for each of them alone; say the same of it everywhere"
            ),
            Wrong::NoFile { path, error } => write!(f, "cannot read the file {path:?}: {error}"),
            Wrong::CacheControl { found, meant } => {
                write!(f, "browsers do not understand {found:?}")?;
                match meant {
                    Some(meant) => write!(f, ", did you mean {meant:?}?"),
                    None => f.write_str("; an age is a number of seconds, such as \"max-age=3600\""),
                }
            }
            Wrong::Unseen { path } => write!(
                f,
                "clients that are refused do not see {path:?}, because a rule of auth or access \
                 protects it, too: they get a short page of Forebay's own"
            ),
            Wrong::PageIsScript { path } => write!(
                f,
                "{path:?} is a script, which is not run for an error: clients get a short page of \
                 Forebay's own; name a file that is sent as it is"
            ),
            Wrong::NoDirectory { path, error } => {
                write!(f, "cannot use the directory {path:?}: {error}")
            }
            Wrong::Unserved { found, near } => {
                write!(f, "no site answers for {found:?}")?;
                did_you_mean(f, near.as_deref())
            }
            Wrong::Encoded { found, decoded } => {
                write!(
                    f,
                    "{found:?} fits only what a client has encoded twice: paths are decoded \
                     before rules see them"
                )?;
                decoded.iter().try_for_each(|text| write!(f, ", write {text:?}"))
            }
            Wrong::NothingForFirewall => f.write_str(
                "it has no effect: no limit says ignore, and no rule that asks for client only has \
                 action = \"drop\"",
            ),
            Wrong::NowhereForFirewall => f.write_str(
                "it has no effect: SYNs of clients come to no listener, only those of proxies, or none at \
                 all to Unix sockets",
            ),
            Wrong::TooShortForFirewall => f.write_str(
                "the firewall is told of no client for less than 2s: the server alone ignores these",
            ),
            Wrong::NothingForGate { is_full } => {
                f.write_str(
                    "it has no effect: no rule that asks for client and local only refuses by \"reset\" or \
                     \"drop\"",
                )?;
                match is_full {
                    true => f.write_str(", and no rule gives one of two classes to queue by"),
                    false => Ok(()),
                }
            }
            Wrong::NotInGate => f.write_str(
                "the kernel leaves it to the server: it keeps no limit for each client",
            ),
            Wrong::NoVariable { found } => write!(
                f,
                "{found:?} is sent as it stands: there are no variables in values of fields; a later version may \
                 give it a meaning"
            ),
            Wrong::AdminForAll { listen } => write!(
                f,
                "everybody who reaches {listen} reads metrics and status, as no token is asked for: write \
                 admin.token_file, or allow fewer networks"
            ),
            Wrong::HeldBySlowClients => write!(
                f,
                "as many clients as there are workers, who send or read slowly, keep all others \
                 waiting; before strangers use event, fibers or pipeline"
            ),
            Wrong::HeldBySlowReaders => write!(
                f,
                "each client that takes nothing holds a thread of send for so long; as many as \
                 pipeline.threads allows keep all others waiting"
            ),
            Wrong::Outdone { by, place } => {
                write!(f, "decides nothing: the rule {by:?} before it fits everything")?;
                at(f, *place)?;
                write!(f, "; the first match per setting counts, put the special rule first")
            }
        }
    }
}

/// Where the other one stands.
fn at(f: &mut fmt::Formatter<'_>, place: Option<(usize, usize)>) -> fmt::Result {
    place.iter().try_for_each(|(line, column)| write!(f, ", see {line}:{column}"))
}

fn did_you_mean(f: &mut fmt::Formatter<'_>, near: Option<&str>) -> fmt::Result {
    match near {
        Some(near) => write!(f, ", did you mean {near:?}?"),
        None => Ok(()),
    }
}
