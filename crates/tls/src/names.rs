//! Matching of hosts with the names in certificates.

/// Whether one of these names is this host, or is a wildcard for it.
pub fn covers(names: &[String], host: &str) -> bool {
    let below = host.split_once('.').map(|(_, domain)| domain);
    names.iter().any(|name| match name.strip_prefix("*.") {
        None => name == host,
        Some(domain) => below == Some(domain),
    })
}
