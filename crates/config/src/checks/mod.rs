//! Checks between settings: faults, and remarks about what is valid but probably not meant, as far as the
//! text shows. Lints of the server ask the machine.
//!
//! | module | what it looks at |
//! |---|---|
//! | `check` | all faults: it calls the others |
//! | `remarks` | all remarks, likewise |
//! | `text` | the text that is checked, if there is one |
//! | `sites` | hosts, names, roots and paths of sites |
//! | `addresses` | sockets that want the same address, and listeners for proxies |
//! | `admin` | the admin listener: how it is secured, and which clients can read it |
//! | [`answers`] | what keeps the kernel from giving answers |
//! | `secured` | certificates that are missing, where clients are led for TLS, and TLS without effect |
//! | `acme` | sites that want certificates by ACME, and rules that keep the authority out |
//! | `logs` | logs that clients could read, with two formats, or that ask for what does not exist |
//! | `redirects` | redirects that lead back to themselves |
//! | `conditions` | conditions of a site's rules: classes that exist, and what stages know |
//! | `protected` | servers besides this one that the kernel protects |
//! | `policy` | classes and rules, and whether they fit together |
//! | [`idle_rules`] | rules that decide nothing |
//! | `encoded` | patterns for paths that are written as in a URL |
//! | `applications` | applications that cannot work as they are set |
//! | `reserves` | classes that keep places of applications |
//! | `handed` | requests that leave with their sockets: where that is impossible, what no longer holds |
//! | `passed_on` | connections that are passed on as they are |
//! | `held` | threads that slow clients hold, and requests that wait |
//! | `built` | what a program was built without |
//! | `caching`, `literal` | fields that browsers misunderstand, and text that only looks like a variable |
//! | `guarded` | exceptions of rules about clients that open nothing, or that are missing |
//! | `firewalled`, `gated` | what keeps clients out of the firewall, and rules out of the kernel |
//! | [`spared`] | addresses that are never ignored or banned, and rules that would ban them |
//! | `stopping` | how long a server takes to stop |
//! | `isolated` | settings that stages do not support yet, and those that mean nothing with them |
//! | `machines` | stages that are asked at addresses, and what crosses networks in clear |
//! | [`pages`] | error pages that no client would see, and where paths of a site lie |
//! | `traced` | spans of requests that do not arrive, or not alone |
//! | `trusted_header` | the field in which proxies name their clients, which must mean nothing else |
//! | `unused` | settings that another one leaves without effect |

pub(crate) mod acme;
pub(crate) mod addresses;
pub(crate) mod admin;
pub mod answers;
pub mod applications;
pub(crate) mod built;
pub(crate) mod caching;
pub(crate) mod check;
pub(crate) mod conditions;
pub(crate) mod encoded;
pub(crate) mod firewalled;
pub(crate) mod gated;
pub(crate) mod guarded;
pub(crate) mod handed;
pub(crate) mod held;
pub mod idle_rules;
pub(crate) mod isolated;
pub(crate) mod literal;
pub(crate) mod logs;
pub(crate) mod machines;
pub mod pages;
pub(crate) mod passed_on;
pub(crate) mod policy;
pub(crate) mod protected;
pub(crate) mod redirects;
pub(crate) mod remarks;
pub(crate) mod reserves;
pub(crate) mod secured;
pub(crate) mod sites;
pub mod spared;
pub(crate) mod stopping;
pub(crate) mod text;
pub(crate) mod traced;
pub(crate) mod trusted_header;
pub(crate) mod unused;
