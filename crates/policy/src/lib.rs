//! Which requests are served first, and which are refused: classes, and the rules that give them.
//!
//! A rule has conditions (which client, where, for what) and settings (a class, limits, an action). Rules are
//! applied twice in a request's journey: those that ask for addresses only when a connection comes, and all
//! of them for each request, when its head is there. For each setting the first rule that names it decides,
//! unless one with `stop` stands before it; a class given by a rule that asks for more than addresses goes
//! before a class given by a rule for addresses.
//!
//! A caller asks [`Policy`] for the decisions, which depend on the facts alone, and then charges them to the
//! [`State`] that all loops share: buckets, counts, the agent's rates. Neither call takes a lock or
//! allocates. An admitted request has a class and perhaps a time to wait, and keeps an [`InFlightGuard`]
//! until its answer is sent.
//!
//! | module | what it holds |
//! |---|---|
//! | `policy` | [`Policy`]: classes and rules compiled; which rule decides |
//! | `search`, `index`, `networks`, `trie` | which rules may match, found by network and by the beginning of a text, and the first that does |
//! | `explain` | why a decision was taken: for each rule what it decides, or what keeps it from deciding |
//! | `check`, `error` | whether classes and rules make sense together, and why they are no policy |
//! | `state` | [`State`]: what is used of the limits; what the kernel or another process has charged |
//! | `meter`, `clients` | what is charged for each rule or client, and [`InFlightGuard`]s for what is counted |
//! | `per_connection` | after how many requests a connection ends |
//! | `trace` | the effect of each rule so far: matches, refusals, the clients refused most |
//! | [`bans`] | clients that an operator keeps out for a time |
//! | [`bucket`] | a token bucket in one word |
//! | [`class`] | classes: their order, their share of worker time, their target delay |
//! | [`rule`] | rules: conditions, limits, actions |
//! | [`endpoint`] | addresses and ports as conditions: `10.1.0.0/16:1024-2047` |
//! | [`pattern`] | hosts, paths, methods and file types as conditions: `/cgi-bin/*` |
//! | [`certificate`] | certificates of clients as conditions: `subject=CN=worker-*` |
//! | [`identity`] | identities of clients as conditions: `buyer-*` |
//! | [`field`] | header fields and cookies as conditions: `tier=gold` |
//! | [`query`] | parameters of the query as conditions: `sort=price` |
//! | `glob`, `matcher` | patterns for a text: one with stars ([`Glob`]), or a regular expression |
//! | `text` | what a rule says, as people write it |
//! | [`rate`] | rates as people write them: `10/m` |
//! | [`condition`] | the kinds of conditions, and which of them hold |
//! | [`facts`] | what is known of a connection or a request when it is judged |
//! | [`spared`] | clients that are never ignored, and that no firewall drops |
//! | [`syn`] | what can be decided where only a SYN is seen |
//! | [`first`] | what can be decided where only the first segment of data is seen |
//! | [`given_up`] | requests that clients give up, over all connections of each |
//! | [`near`] | "did you mean": the known name closest to a mistyped one |
//! | [`decision`] | what was decided: which rule decides what, and why a request was refused |
//!
//! The crate deliberately has no socket, no file, no thread and no clock: time is an argument. It keeps no
//! queue, orders nothing (`forebay_control::ranked` does) and exports no metrics.
//!
//! ```
//! use forebay_policy::{ChargeOutcome, Policy, State};
//! use forebay_policy::class::Class;
//! use forebay_policy::endpoint::Endpoint;
//! use forebay_policy::facts::ConnectionFacts;
//! use forebay_policy::rate::Rate;
//! use forebay_policy::condition::Conditions;
//! use forebay_policy::rule::{Limit, Rule};
//!
//! let partner = Rule {
//!     name: "partner network".to_owned(),
//!     conditions: Conditions {
//!         client: vec![Endpoint::parse("10.1.1.0/24").unwrap()],
//!         ..Conditions::default()
//!     },
//!     class: Some("gold".to_owned()),
//!     connections: Some(Limit::new(Rate::parse("300/s").unwrap(), 5)),
//!     ..Rule::default()
//! };
//! let classes = [Class::new("gold", 0), Class::new("bulk", 1)];
//! let state = State::new(Policy::new(&classes, vec![partner]).unwrap().into(), None, 0);
//!
//! let client = |text: &str| ConnectionFacts {
//!     client: text.parse().unwrap(),
//!     local: "192.0.2.1:80".parse().unwrap(),
//! };
//! let (partner, stranger) = (client("10.1.1.9:4711"), client("10.1.2.9:4711"));
//! assert_eq!(state.policy().connection(&stranger, false).rank, 1);
//! let decisions = state.policy().connection(&partner, false);
//! assert_eq!(decisions.rank, 0);
//! // a burst of five, all at the time 0
//! let charge = || state.charge_connection(&decisions, partner.client.ip(), 0);
//! assert!((0..5).all(|_| matches!(charge(), ChargeOutcome::Admit(_))));
//! assert!(matches!(charge(), ChargeOutcome::Refuse(_)));
//! ```
#![forbid(unsafe_code)]

pub mod bans;
pub mod bucket;
pub mod certificate;
mod check;
pub mod class;
mod clients;
pub mod condition;
pub mod decision;
pub mod endpoint;
mod error;
mod explain;
pub mod facts;
pub mod field;
pub mod first;
pub mod given_up;
mod glob;
pub mod identity;
mod index;
mod matcher;
mod meter;
pub mod near;
mod networks;
pub mod pattern;
mod per_connection;
mod policy;
pub mod query;
pub mod rate;
pub mod rule;
mod search;
pub mod spared;
mod state;
pub mod syn;
mod text;
mod trace;
mod trie;

pub use error::{At, PolicyError, PolicyFault};
pub use explain::{Brief, Explanation, RuleOutcome, RuleSetting};
pub use glob::Glob;
pub use matcher::RegexError;
pub use meter::{GivenWord, InFlightGuard};
pub use per_connection::ConnectionCounts;
pub use policy::{FactsNeeded, Policy};
pub use rule::JudgePhase;

pub use state::{
    ArrivedCharge, ChargeOutcome, ChargedBucket, ChargedWork, ClientsReport, Paces, State,
};
pub use trace::MostRefused;

/// The position of a byte in a text, as an editor shows it: in characters, from 1.
fn place(text: &str, at: usize) -> usize {
    text.char_indices().take_while(|(start, _)| *start < at).count() + 1
}
