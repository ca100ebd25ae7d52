//! Access to a path, and to the file that answers: by addresses and passwords.
//!
//! | module | what it holds |
//! |---|---|
//! | `guard` | which rules about clients concern an answer, and whether a request passes them |
//! | `auth` | names and passwords: realms, verdicts, how many may be verified at a time |

pub(crate) mod auth;
pub(crate) mod guard;
