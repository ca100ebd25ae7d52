//! Generates docs/manual/metrics.md.

use super::repository;
use std::collections::BTreeSet;
use std::fmt::Write;

const INTRODUCTION: &str = "\
# Metrics

The admin listener is off by default. It can be read, not written, and by this machine only unless
`allow` names others.

```toml
root = \"www\"

[admin]
listen = \"127.0.0.1:9090\"
```

| path | what it is |
|---|---|
| `/metrics` | counters in the text format of Prometheus |
| `/status` | the same as JSON, for people and scripts |
| `/healthz` | 200 while the process answers |
| `/readyz` | 200 while clients are accepted, 503 from the beginning of a drain on |
| `/page` | with `page = true` a [page](#the-page) for browsers |

```
curl -s http://127.0.0.1:9090/metrics
```

For Prometheus on the same machine:

```yaml
scrape_configs:
  - job_name: forebay
    static_configs:
      - targets: [\"127.0.0.1:9090\"]
```

## The page

```toml
root = \"www\"

[admin]
listen = \"127.0.0.1:9090\"
page = true
```

`http://127.0.0.1:9090/page` shows in a browser what happens now and what happened in the last hour, also if nobody
was looking:

- **Now**: in sentences, whether there is overload and why, what is refused, since when, by which rule and whose it is,
  which application does not answer.
- **The path** of requests from the SYN to the last byte: rate, queue and time of each step, and why requests left there.
- **Classes**: what they were offered and got, how long they waited beside their target, their share of worker time.
  Vertical marks are decisions of the agent, reloads, and upstreams that have changed their state.
- **Who asks most** by rule, address, network, user agent, path and class. Refused requests are counted one by one, of the
  others one in 128 is; what that leaves open is written beside each count. A name that is chosen shows the command that
  deals with it.
- **Applications, sites, cache, certificates, configuration.**
- **Why was I refused?** asks for the id of an error page, as [`forebay why`](policy.md#why-a-request-was-refused) does, or
  for a client and a part of the path.

Times are UTC. Everything is read-only, comes from the server itself, and works with a keyboard, on a phone and in the
dark. It costs a look a second at the counters, and at most 15 MB; without `page = true` nothing.

Where others than this machine reach the listener, the page wants TLS and a token, or the configuration is refused:

```toml
root = \"www\"

[admin]
listen = [\"127.0.0.1:9090\", \"https://:9443\"]
allow = [\"127.0.0.0/8\", \"10.0.0.7\"]
token_file = \"/etc/forebay/admin.tokens\"
page = true
page_addresses = \"networks\"

[admin.tls]
certificate = [\"/etc/forebay/admin.pem\"]
key = [\"/etc/forebay/admin.key\"]
```

A browser then asks for a token once and is signed in for 12 hours, or until the token leaves the file. With
`page_addresses = \"networks\"` it shows a client's /24, or its /48 of IPv6, in place of the address.

With the engine `isolated` it shows what the stage *receive* counts.

## From another machine

Over TLS, with a token that only Prometheus and the server know:

```toml
root = \"www\"

[admin]
listen = [\"127.0.0.1:9090\", \"https://:9443\"]
allow = [\"127.0.0.0/8\", \"10.0.0.7\"]
token_file = \"/etc/forebay/admin.tokens\"

[admin.tls]
certificate = [\"/etc/forebay/admin.pem\"]
key = [\"/etc/forebay/admin.key\"]
```

```
openssl rand -hex 32 > /etc/forebay/admin.tokens
chown root:forebay /etc/forebay/admin.tokens /etc/forebay/admin.key
chmod 640 /etc/forebay/admin.tokens /etc/forebay/admin.key
```

For Prometheus, with the same token in a file of its own, and the certificate of the authority that has signed
`admin.pem` (of a certificate that has signed itself, the certificate):

```yaml
scrape_configs:
  - job_name: forebay
    scheme: https
    authorization:
      credentials_file: /etc/prometheus/forebay.token
    tls_config:
      ca_file: /etc/prometheus/forebay-ca.pem
    static_configs:
      - targets: [\"web1.example:9443\"]
```

```
curl --cacert forebay-ca.pem -H \"Authorization: Bearer $(cat forebay.token)\" https://web1.example:9443/metrics
```

- `token_file` has one token in each line; each of them is good, so that a new one can be handed out before the
  old one goes. Empty lines and those that begin with `#` are passed over. A request without a token gets 401.
- `/healthz` and `/readyz` need no token: what probes a server, such as a load balancer, often cannot
  bring one, and learns nothing but up or down. `allow` holds for them, too.
- `allow` names those who may come. Others get 403 on every path; over TLS their connection is closed before
  the handshake.
- Over TCP without TLS a token is taken at loopback only; elsewhere `forebay check` and the server refuse
  the configuration, because everybody on the way could read it. Without a token, `listen = \"10.0.0.1:9090\"` beside
  `allow = [\"10.0.0.7\"]` is enough for a network that you trust.
- It is asked for by an address, as `localhost`, or over TLS by a name of the certificate. Other names get 421, because
  a web page could have such a name point here.
- Tokens and certificates that change are [taken over](tls.md#changing-certificates) without a restart, or what was
  there is kept and standard error says why. It speaks HTTP/1.1, and its handshakes are not among those that
  `forebay_tls_handshakes_total` counts.

On one machine a Unix socket serves as well, under any name: `listen = \"unix:/run/forebay/admin.sock\"`, and
`curl --unix-socket /run/forebay/admin.sock http://localhost/metrics`.

The listener has at most 64 connections, with descriptors of their own: whoever fills it takes nothing
from the sites.

## What to watch

- `forebay_responses_total{class=\"5xx\"}`: errors of the server. It should not rise.
- `forebay_connections_refused_total`: somebody was turned away. [Trouble](trouble.md) says why.
- `forebay_connections`: compare it with the limit you set.
- `forebay_log_dropped_lines_total`: the log cannot be written.
- `forebay_cache_evictions_total`: if it rises all the time, the cache is too small
  ([`cache.bytes`](configuration.md#cachebytes)).
- `forebay_bodies_crowded_total`: more answers were on their way than there is memory for
  ([`cache.in_flight`](configuration.md#cachein_flight)); files were sent from the disk instead.
- `forebay_uncompressed_total`: text went out as it is, because it is larger than
  [`compress_bytes`](configuration.md#compress_bytes).

- `forebay_policy_override`: what [`policy set`](policy.md#while-it-runs) has changed and the file does not say.
- `forebay_bans`, `forebay_banned_total`: how many are [banned](policy.md#bans), and what that refuses.
- `forebay_gate_syns_total{outcome=\"dropped\"}`: rules refuse connections in the kernel. [Rules in the
  kernel](gate.md#what-is-counted) explains each outcome; which rule, `forebay_gate_rule_total` says.

## Alerts and a dashboard

`/usr/share/forebay/prometheus/forebay.rules.yml` (in the source: `packaging/prometheus`) has alert rules for Prometheus:
the server or an upstream does not answer, errors, overload, a class that is refused or waits, connections that are
refused, a reload that has failed, certificates that expire. Each says what to look at next. The job is to be called
`forebay`.

```yaml
rule_files: [\"/usr/share/forebay/prometheus/forebay.rules.yml\"]
```

`/usr/share/forebay/grafana/forebay.json` is a dashboard for Grafana: *Dashboards, New, Import*.

## What becomes of requests

With classes or rules each class has a ledger. When nothing is under way,
`forebay_class_requests_total` is the sum of `forebay_class_answered_total`, `forebay_class_cut_total` and
`forebay_class_refused_total{place=\"request\"}`; until then the difference is `forebay_class_in_flight`.
A request whose client left is cut. If no worker had begun it, `forebay_requests_given_up_total` counts it
too, with and without classes ([who leaves](policy.md#how-it-is-decided)).
`forebay_class_unanswered_total` says of how many an application was to answer and has not, by the status that the
client got instead (502, 503, 504); these are answered or refused as well.
The reasons of refusals:

| reason | place | who is refused |
|---|---|---|
| `action` | accept, request | whom a rule rejects, resets or drops |
| `connections` | accept | who is over a limit on connections |
| `requests` | request | who is over a limit on requests |
| `queue` | request | who would wait too long for a turn under a limit on requests or on requests at once, or behind too many; or finds no room in the queue of an [application](applications.md#when-an-application-has-as-much-to-do-as-it-may) |
| `in_flight` | request | who is over a limit on requests at once |
| `ignored` | accept | whose client was refused a moment ago |
| `agent` | accept, request | who does not fit beside the others of the class |
| `banned` | accept, request | whom an operator has [banned](policy.md#bans) |
| `expired` | request | who was not done with after [`timeouts.job`](configuration.md#timeoutsjob), or found too many waiting for a worker; or has waited for an application for `queue.time` |

## What the pipeline decides

With the engine `pipeline`, all `forebay_pipeline_…` figures of one scrape belong to the same decision
([`pipeline.period`](configuration.md#pipelineperiod)), phase by phase:

- seen: tasks that wait, how long those that were taken had waited, threads with a task and the share of
  their time in which they were blocked, tasks that came and were finished; for all phases requests and
  bytes per second and the utilisation;
- since the start, all together: what tasks had waited, what threads had a task, what they ran on a core
- computed: the count the law asks for, and the count beyond which threads only compete for cores;
- decided: the threads the phase may use from now on, and by which reason the decision was counted.

## All metrics

Counters survive a reload. Labels have a fixed set of values; what a client sends is never one of them.

| metric | type | labels | meaning |
|---|---|---|---|
";

/// A metric as its golden file shows it.
struct Metric {
    name: String,
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

pub(crate) fn page() -> String {
    let golden = repository("crates/metrics/tests/golden/metrics.txt");
    let golden = std::fs::read_to_string(golden).unwrap();
    let mut metrics: Vec<Metric> = Vec::new();
    for line in golden.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            let (name, help) = (name.to_owned(), help.to_owned());
            metrics.push(Metric { name, kind: String::new(), help, labels: BTreeSet::new() });
        } else if let Some(metric) = metrics.last_mut() {
            match line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' ')) {
                Some((_, kind)) => metric.kind = kind.to_owned(),
                None => metric.labels.extend(labels(line)),
            }
        }
    }
    let mut page = INTRODUCTION.to_owned();
    for Metric { name, kind, help, labels } in metrics {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(page, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
    }
    page
}

/// The names of the labels in a line; `le` belongs to the type.
fn labels(line: &str) -> Vec<String> {
    let inside = line.split_once('{').map_or("", |(_, rest)| rest);
    let names = inside.split("=\"").filter_map(|part| {
        let name: Vec<char> =
            part.chars().rev().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let name: String = name.into_iter().rev().collect();
        (part.len() == name.len() || part.ends_with(&format!(",{name}"))).then_some(name)
    });
    names.filter(|name| !name.is_empty() && name != "le").collect()
}
