//! What rules make of a path, before any file is looked for.
//!
//! | module | what it holds |
//! |---|---|
//! | `hosts` | which site a host belongs to |
//! | `route` | what the rules make of a path: redirect, alias, application, or a file to look for |
//! | `ambiguity` | what becomes of a path that applications may read in more than one way |
//! | `redirection`, `location` | a redirect, ready but for what the request says, and the address it leads to |
//! | `known` | what variables of redirects and header rules stand for, of one request |
//! | `names`, `inverse` | under which paths the file at a path can be asked for, with templates followed backwards |

pub(crate) mod ambiguity;
pub(crate) mod hosts;
pub(crate) mod inverse;
pub(crate) mod known;
pub(crate) mod location;
pub(crate) mod names;
pub(crate) mod redirection;
pub(crate) mod route;
