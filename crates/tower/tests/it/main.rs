//! Services of tower beside sites, as clients and as programs see them.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

#[macro_use]
#[path = "../../../forebay/tests/it/engines.rs"]
mod engines;
#[path = "../../../forebay/tests/it/client.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod client;
#[path = "../../examples/beside_sites.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program")]
mod example;
mod services;
mod streams;
mod upgrades;
