//! Who may ask for a path, and for the file that answers: addresses and passwords.
//!
//! | module | what it holds |
//! |---|---|
//! | `guard` | which rules about clients concern an answer, and whether a request passes them |
//! | `auth` | names and passwords: realms, verdicts, how many may be verified at a time |

pub(crate) mod auth;
pub(crate) mod guard;
