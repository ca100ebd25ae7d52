//! The rules of a site, each parsed from the operator's text.
//!
//! Every type here keeps the text it was made from and shows it again, so that a configuration can
//! be printed as it was written. An error names the mistake and the character.

mod access;
mod alias;
mod auth;
mod guarded_paths;
mod header;
mod host;
mod network;
mod page;
mod password;
mod pattern;
mod redirect;
mod request_conditions;
mod rewrite;
mod scope;
mod scripts;
mod template;
mod try_files;
mod types;
mod variable;
mod work;

pub use access::AccessRule;
pub use alias::{Alias, MountPath, MountPathError};
pub(crate) use alias::{AliasFile, inside, place_in};
pub use auth::{Auth, AuthError, Realm, User};
pub use forebay_http::field::{FieldName, FieldValue};
pub use guarded_paths::GuardedPaths;
pub use header::{HeaderError, HeaderRule, MediaPattern};
pub(crate) use host::MOST_HOST_BYTES;
pub use host::{Host, HostError, SiteName};
pub use network::{Network, NetworkError};
pub use page::{ErrorPage, ErrorPageError};
pub use password::{HashError, HashingError, PasswordHash, Scheme};
pub use pattern::{Captures, MOST_CAPTURES, Pattern, PatternError};
pub use redirect::{Redirect, RedirectError};
pub(crate) use request_conditions::ConditionBits;
pub use request_conditions::RequestConditions;
pub use rewrite::{Rewrite, RewriteError};
pub(crate) use scope::Reach;
pub use scope::{Scope, ScopeError};
pub use scripts::{EndingError, Route, ScriptSuffix, Scripts};
pub use template::{Template, TemplateError, TemplatePart};
pub use try_files::{CandidateError, TryFile, TryFiles, TryFilesError};
pub use types::{FileMediaType, FileMediaTypeError};
pub use variable::RequestVariable;
pub use work::WorkHandler;

/// The place of a byte in a text, as a person counts it: characters, the first is 1.
fn place(text: &str, at: usize) -> usize {
    text.char_indices().take_while(|(start, _)| *start < at).count() + 1
}
