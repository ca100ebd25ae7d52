//! Effects of rules on a path, before any file is looked for.
//!
//! | module | what it holds |
//! |---|---|
//! | `hosts` | the sites of hosts |
//! | `route` | what the rules make of a path: redirect, alias, application, or a file to look for |
//! | `ambiguity` | paths that applications may read in more than one way |
//! | `redirection`, `location` | a redirect without the values of a request, and the address it leads to |
//! | `known` | values of variables of redirects and header rules, for one request |
//! | `names`, `inverse` | the paths under which a file can be asked for, with templates followed backwards |

pub(crate) mod ambiguity;
pub(crate) mod hosts;
pub(crate) mod inverse;
pub(crate) mod known;
pub(crate) mod location;
pub(crate) mod names;
pub(crate) mod redirection;
pub(crate) mod route;
