//! The tables of settings: a file for each kind of section, with the type that it fills.
//!
//! | module | the settings of |
//! |---|---|
//! | `process` | the process: the fields of [`Config`](crate::Config) |
//! | [`listener`], `site` | a listener and a site |
//! | `class`, `rule` | a class and a rule |
//! | `rules` | the lists of a site |
//! | `conditions` | the conditions of a site's rules on a request |
//! | `handler` | routes to handlers of the program |
//! | `proxy`, `fastcgi`, `hand_over`, `forward_auth`, `upstreams` | routes to applications, servers that decide, and what all of them have |
//! | `tcp` | connections that are passed on as they are |
//! | `cgi` | routes to programs that are run for each request |
//! | `protect` | servers besides this one that the kernel protects |
//! | `identity` | identities that clients prove by a cookie |
//! | `acme` | certificates by ACME |
//! | `firewall` | the firewall |
//! | `isolated` | the engine isolated |
//! | `traces` | spans of requests |

pub(crate) mod acme;
pub(crate) mod cgi;
pub(crate) mod class;
pub(crate) mod conditions;
pub(crate) mod fastcgi;
pub(crate) mod firewall;
pub(crate) mod forward_auth;
pub(crate) mod hand_over;
pub(crate) mod handler;
pub(crate) mod identity;
pub(crate) mod isolated;
pub mod listener;
pub(crate) mod process;
pub(crate) mod protect;
pub(crate) mod proxy;
pub(crate) mod rule;
pub(crate) mod rules;
pub(crate) mod site;
pub(crate) mod tcp;
pub(crate) mod traces;
pub(crate) mod upstreams;
