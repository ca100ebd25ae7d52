//! The types that a setting can have: how each is read from text, checked and printed.
//!
//! | module | what it holds |
//! |---|---|
//! | [`value`] | what every type of setting can do, and the plain ones |
//! | `optional` | settings without a value, and with several |
//! | `units` | durations, sizes and rates as people write them |
//! | [`choice`] | one of a few words |
//! | `address`, `account` | addresses, users and groups |
//! | `firewall_set` | sets of the machine's firewall |
//! | [`include`] | which files belong to a configuration |
//! | `written` | types of `forebay_site` and `forebay_policy` |
//! | `limit` | the limits of a rule |
//! | [`member`], [`log_condition`], [`redacted`] | what lines of a log say of a request, which requests have one, what is hidden |
//! | `sign_in` | the sign-in page for users that a server of `forward_auth` does not know |
//! | `stage_process`, `per_stage` | which stage a process of isolated is, and values that each stage has for itself |
//! | `without_parents` | a path without `..`, for programs that take none |

pub(crate) mod account;
pub(crate) mod address;
pub mod choice;
pub(crate) mod firewall_set;
pub mod include;
pub(crate) mod limit;
pub mod log_condition;
pub mod member;
pub(crate) mod optional;
pub(crate) mod per_stage;
pub(crate) mod redacted;
pub(crate) mod sign_in;
pub(crate) mod stage_process;
pub(crate) mod units;
pub mod value;
pub(crate) mod without_parents;
pub(crate) mod written;
