//! The lists of a site: aliases, redirects, rewrites, header rules, authentication, access, work. Each is a
//! kind of section, which is read with all its keys and then checked as a whole.

use crate::problems::problem::Wrong;
use crate::sections::conditions::{ConditionKeys, rows_with_conditions};
use crate::table::{Item, Preset, Section, Setting};
use crate::values::value::TableOf;
use crate::values::written::{HeaderFields, RedirectStatus, Regex, ScopeRegex, UserList};
use forebay_site::rules::{
    AccessRule, Alias, Auth, FieldName, GuardedPaths, HeaderError, HeaderRule, MediaPattern,
    MountPath, Network, Pattern, Realm, Redirect, RedirectError, Rewrite, Scope, Template,
    WorkHandler,
};
use std::fmt::Display;
use std::path::PathBuf;

/// What `regex` means beside the `path` of a rule about clients.
const PATH_REGEX: &str = "The same as a regular expression; (?i) takes upper and lower case for the same. \
                          It is found anywhere in the path unless it has anchors.";

/// What `except` means in a rule about clients.
pub(crate) const PATHS_EXCEPT: &str = "Paths that it leaves open, written as in path. A request passes only if every reading of its path and the \
     file that answers are among them: name an index file, or the target of a rewrite, too.";

/// A rule's key, and the fault in its value.
type KeyFault = (&'static str, Wrong);

fn unfit(found: impl Display, reason: impl Display) -> Wrong {
    Wrong::Unfit { found: format!("{:?}", found.to_string()), reason: reason.to_string() }
}

fn missing(key: &'static str, example: &str) -> KeyFault {
    (key, Wrong::Missing { example: format!("{key} = {example}") })
}

/// The pattern of a rule that may have `path` or `regex`.
fn pattern(path: Option<Pattern>, regex: Option<Regex>) -> Result<Option<Pattern>, KeyFault> {
    match (path, regex) {
        (Some(_), Some(_)) => Err(("regex", Wrong::Both { other: "path" })),
        (path, regex) => Ok(path.or(regex.map(|regex| regex.0))),
    }
}

/// A pattern as `path` or as `regex`.
fn two_ways(pattern: Option<&Pattern>) -> (Option<Pattern>, Option<Regex>) {
    match pattern {
        Some(pattern) if pattern.is_regex() => (None, Some(Regex(pattern.clone()))),
        pattern => (pattern.cloned(), None),
    }
}

/// The paths of a rule about clients, which may have `path` or `regex`; all paths if it has neither.
fn scope(path: Option<Scope>, regex: Option<ScopeRegex>) -> Result<Scope, KeyFault> {
    match (path, regex) {
        (Some(_), Some(_)) => Err(("regex", Wrong::Both { other: "path" })),
        (path, regex) => Ok(path.or(regex.map(|regex| regex.0)).unwrap_or_else(Scope::any)),
    }
}

/// The paths of a rule about clients, with its exceptions.
pub(crate) fn guarded(
    path: Option<Scope>,
    regex: Option<ScopeRegex>,
    except: Vec<Scope>,
) -> Result<GuardedPaths, KeyFault> {
    let path = scope(path, regex)?;
    match except.iter().find(|open| open.is_all() || open.covers(&path)) {
        Some(open) => Err((
            "except",
            unfit(open, "it leaves all paths of the rule open, which then closes nothing"),
        )),
        None => Ok(GuardedPaths { path, except }),
    }
}

/// The paths as `path` or as `regex`.
fn two_ways_of(scope: &Scope) -> (Option<Scope>, Option<ScopeRegex>) {
    match scope.as_regex() {
        Some(_) => (None, Some(ScopeRegex(scope.clone()))),
        None => (Some(scope.clone()), None),
    }
}

/// A `[[redirect]]`.
pub struct RedirectSection {
    path: Option<Pattern>,
    regex: Option<Regex>,
    to: Option<Template>,
    status: RedirectStatus,
    conditions: ConditionKeys,
}

impl Item for Redirect {
    type Section = RedirectSection;

    fn new(section: RedirectSection) -> Result<Redirect, KeyFault> {
        let RedirectSection { path, regex, to, status, conditions } = section;
        let pattern = pattern(path, regex)?.ok_or_else(|| missing("path", "\"/old/*\""))?;
        let to = to.ok_or_else(|| missing("to", "\"/new/$1\""))?;
        let text = to.to_string();
        let rule = Redirect::new(pattern, to, status.0).map_err(|error| match error {
            RedirectError::Status { status } => ("status", unfit(status, error)),
            error => ("to", unfit(text, error)),
        })?;
        Ok(rule.under(conditions.conditions()?))
    }

    fn section(&self) -> RedirectSection {
        let (path, regex) = two_ways(Some(self.pattern()));
        RedirectSection {
            path,
            regex,
            to: Some(self.to().clone()),
            status: RedirectStatus(self.status()),
            conditions: ConditionKeys::of(self.conditions()),
        }
    }
}

impl Section for RedirectSection {
    fn blank() -> RedirectSection {
        RedirectSection {
            path: None,
            regex: None,
            to: None,
            status: RedirectStatus::default(),
            conditions: ConditionKeys::default(),
        }
    }

    const SETTINGS: &'static [Setting<RedirectSection>] = rows_with_conditions![
        Setting {
            key: "path",
            preset: Preset::Unset("none; path or regex is needed"),
            range: None,
            meaning: "Which paths are redirected: \"/exact\", \"/dir/*\", \"*.ext\". A star stands \
                      for any run of characters, there are at most nine, and $1 to $9 are what they \
                      stood for. Paths are decoded: write \"/a b\", not \"/a%20b\".",
            example: "\"/old/*\"",
            at: |r| &mut r.path,
        },
        Setting {
            key: "regex",
            preset: Preset::Unset("none; path or regex is needed"),
            range: None,
            meaning: "The same as a regular expression; $1 to $9 are its groups.",
            example: "'^/blog/(\\d+)$'",
            at: |r| &mut r.regex,
        },
        Setting {
            key: "to",
            preset: Preset::Required,
            range: None,
            meaning: "Where to: an address or a path, with $1 to $9, $path, $host and $query, and \
                      with $scheme, $client, $class, $request_id, $header.NAME, $cookie.NAME and \
                      $query.NAME, each encoded for where it stands; $$ is a dollar sign. \
                      Without $query and ? in it, the client's query is appended; \"/about?\" leads to \
                      /about without any query.",
            example: "\"https://$host/new/$1\"",
            at: |r| &mut r.to,
        },
        Setting {
            key: "status",
            preset: Preset::Value("301"),
            range: None,
            meaning: "301 and 308 are for ever, 302, 303 and 307 for now; 307 and 308 keep the \
                      method.",
            example: "302",
            at: |r| &mut r.status,
        },
    ];
}

/// A `[[rewrite]]`.
pub struct RewriteSection {
    path: Option<Pattern>,
    regex: Option<Regex>,
    to: Option<Template>,
    conditions: ConditionKeys,
}

impl Item for Rewrite {
    type Section = RewriteSection;

    fn new(section: RewriteSection) -> Result<Rewrite, KeyFault> {
        let RewriteSection { path, regex, to, conditions } = section;
        let pattern = pattern(path, regex)?.ok_or_else(|| missing("path", "\"/old/*\""))?;
        let to = to.ok_or_else(|| missing("to", "\"/new/$1\""))?;
        let text = to.to_string();
        let rule = Rewrite::new(pattern, to).map_err(|error| ("to", unfit(text, error)))?;
        Ok(rule.under(conditions.conditions()?))
    }

    fn section(&self) -> RewriteSection {
        let (path, regex) = two_ways(Some(self.pattern()));
        let conditions = ConditionKeys::of(self.conditions());
        RewriteSection { path, regex, to: Some(self.to().clone()), conditions }
    }
}

impl Section for RewriteSection {
    fn blank() -> RewriteSection {
        RewriteSection { path: None, regex: None, to: None, conditions: ConditionKeys::default() }
    }

    const SETTINGS: &'static [Setting<RewriteSection>] = rows_with_conditions![
        Setting {
            key: "path",
            preset: Preset::Unset("none; path or regex is needed"),
            range: None,
            meaning: "Which paths are rewritten, as for a redirect.",
            example: "\"/v1/*\"",
            at: |r| &mut r.path,
        },
        Setting {
            key: "regex",
            preset: Preset::Unset("none; path or regex is needed"),
            range: None,
            meaning: "The same as a regular expression.",
            example: "'^/user/(\\w+)$'",
            at: |r| &mut r.regex,
        },
        Setting {
            key: "to",
            preset: Preset::Required,
            range: None,
            meaning: "The path whose file answers instead, with $1 to $9 and $path.",
            example: "\"/app/$1\"",
            at: |r| &mut r.to,
        },
    ];
}

/// A `[[header]]`.
pub struct HeaderSection {
    path: Option<Pattern>,
    regex: Option<Regex>,
    media_type: Option<MediaPattern>,
    set: HeaderFields,
    remove: Vec<FieldName>,
    conditions: ConditionKeys,
}

impl Item for HeaderRule {
    type Section = HeaderSection;

    fn new(section: HeaderSection) -> Result<HeaderRule, KeyFault> {
        let HeaderSection { path, regex, media_type, set, remove, conditions } = section;
        let pattern = pattern(path, regex)?;
        let is_removed = |name: &str| remove.iter().any(|field| field.is(name));
        let rule = HeaderRule::new(pattern, media_type, set.0, remove.clone());
        let rule = rule.map_err(|error| match &error {
            HeaderError::Nothing => missing("set", "{ \"X-Frame-Options\" = \"DENY\" }"),
            // the reason names the field
            HeaderError::Own { .. } | HeaderError::Twice { .. } => {
                let key = match &error {
                    HeaderError::Own { name } if is_removed(name) => "remove",
                    _ => "set",
                };
                (key, Wrong::Unfit { found: String::new(), reason: error.to_string() })
            }
            // and so does this reason
            _ => ("set", Wrong::Unfit { found: String::new(), reason: error.to_string() }),
        })?;
        Ok(rule.under(conditions.conditions()?))
    }

    fn section(&self) -> HeaderSection {
        let (path, regex) = two_ways(self.path());
        HeaderSection {
            path,
            regex,
            media_type: self.media_type().cloned(),
            set: TableOf(self.set().to_vec()),
            remove: self.remove().to_vec(),
            conditions: ConditionKeys::of(self.conditions()),
        }
    }
}

impl Section for HeaderSection {
    fn blank() -> HeaderSection {
        HeaderSection {
            path: None,
            regex: None,
            media_type: None,
            set: HeaderFields::default(),
            remove: Vec::new(),
            conditions: ConditionKeys::default(),
        }
    }

    const SETTINGS: &'static [Setting<HeaderSection>] = rows_with_conditions![
        Setting {
            key: "path",
            preset: Preset::Unset("every path"),
            range: None,
            meaning: "Answers to which paths it changes. As for a redirect, a path without a star is that \
                      path alone, not what is below it: \"/assets/*\" is for all files in /assets.",
            example: "\"/assets/*\"",
            at: |h| &mut h.path,
        },
        Setting {
            key: "regex",
            preset: Preset::Unset("every path"),
            range: None,
            meaning: "The same as a regular expression.",
            example: "'\\.[0-9a-f]{8}\\.(js|css)$'",
            at: |h| &mut h.regex,
        },
        Setting {
            key: "type",
            preset: Preset::Unset("every type"),
            range: None,
            meaning: "Answers of which media type it changes.",
            example: "\"image/*\"",
            at: |h| &mut h.media_type,
        },
        Setting {
            key: "set",
            preset: Preset::Unset("nothing is set"),
            range: None,
            meaning: "Fields to set, each instead of what the answer would have. Values may name $host, \
                      $path, $query, $scheme, $client, $class, $request_id, $header.NAME, $cookie.NAME and \
                      $query.NAME of the request; then $$ is a dollar sign, and one that comes out empty \
                      is not sent.",
            example: "{ \"Cache-Control\" = \"public, max-age=31536000, immutable\" }",
            at: |h| &mut h.set,
        },
        Setting {
            key: "remove",
            preset: Preset::Items(&[]),
            range: None,
            meaning: "Fields to leave out.",
            example: "[\"Server\"]",
            at: |h| &mut h.remove,
        },
    ];
}

/// An `[[auth]]`.
pub struct AuthSection {
    path: Option<Scope>,
    regex: Option<ScopeRegex>,
    except: Vec<Scope>,
    realm: Option<Realm>,
    users: UserList,
    file: Option<PathBuf>,
}

impl Item for Auth {
    type Section = AuthSection;

    fn new(section: AuthSection) -> Result<Auth, KeyFault> {
        let AuthSection { path, regex, except, realm, users, file } = section;
        if users.0.is_empty() && file.is_none() {
            return Err(missing("file", "\"users\", or users"));
        }
        let (paths, realm) = (guarded(path, regex, except)?, realm.unwrap_or_default());
        Ok(Auth { paths, realm, users: users.0, file })
    }

    fn section(&self) -> AuthSection {
        let (path, regex) = two_ways_of(&self.paths.path);
        AuthSection {
            path,
            regex,
            except: self.paths.except.clone(),
            realm: Some(self.realm.clone()),
            users: TableOf(self.users.clone()),
            file: self.file.clone(),
        }
    }
}

impl Section for AuthSection {
    fn blank() -> AuthSection {
        AuthSection {
            path: None,
            regex: None,
            except: Vec::new(),
            realm: None,
            users: UserList::default(),
            file: None,
        }
    }

    const SETTINGS: &'static [Setting<AuthSection>] = &[
        Setting {
            key: "path",
            preset: Preset::Unset("every path"),
            range: None,
            meaning: "Which paths ask for a name and a password. A path without a star is meant with \
                      all below it: \"/private\" is for /private, /private/ and /private/a.txt, not \
                      for /privateer. \"=/private\" is that path alone. With stars, as in \
                      \"/private*\" or \"*.pdf\", the whole path must fit.",
            example: "\"/private\"",
            at: |a| &mut a.path,
        },
        Setting {
            key: "regex",
            preset: Preset::Unset("every path"),
            range: None,
            meaning: PATH_REGEX,
            example: "'(?i)^/(private|staff)/'",
            at: |a| &mut a.regex,
        },
        Setting {
            key: "except",
            preset: Preset::Items(&[]),
            range: None,
            meaning: PATHS_EXCEPT,
            example: "[\"/private/logo.png\"]",
            at: |a| &mut a.except,
        },
        Setting {
            key: "realm",
            preset: Preset::Value("private"),
            range: None,
            meaning: "What a browser shows when it asks.",
            example: "\"staff only\"",
            at: |a| &mut a.realm,
        },
        Setting {
            key: "users",
            preset: Preset::Unset("nobody but those in file"),
            range: None,
            meaning: "Names, and hashes of their passwords (argon2id or bcrypt) as `forebay \
                      hash-password` prints them.",
            example: "{ alice = \"$argon2id$v=19$m=19456,t=2,p=1$mLBEpCQ5uXGsZLaBbo/gVQ$YSTYY8W1ZlA/1yDH21arf3eEKzPbctQLlbqYSG9yL2A\" }",
            at: |a| &mut a.users,
        },
        Setting {
            key: "file",
            preset: Preset::Unset("nobody but those in users"),
            range: None,
            meaning: "A file with a line NAME:HASH for each user; relative to the configuration \
                      file.",
            example: "\"users\"",
            at: |a| &mut a.file,
        },
    ];
}

/// An `[[access]]`.
pub struct AccessSection {
    path: Option<Scope>,
    regex: Option<ScopeRegex>,
    except: Vec<Scope>,
    allow: Vec<Network>,
    deny: Vec<Network>,
    conditions: ConditionKeys,
}

impl Item for AccessRule {
    type Section = AccessSection;

    fn new(section: AccessSection) -> Result<AccessRule, KeyFault> {
        let AccessSection { path, regex, except, allow, deny, conditions } = section;
        if allow.is_empty() && deny.is_empty() {
            return Err(missing("allow", "[\"10.0.0.0/8\"], or deny"));
        }
        let conditions = conditions.conditions()?;
        let paths = guarded(path, regex, except)?;
        Ok(AccessRule { paths, allow, deny, conditions, refusal: None })
    }

    fn section(&self) -> AccessSection {
        let (path, regex) = two_ways_of(&self.paths.path);
        AccessSection {
            path,
            regex,
            except: self.paths.except.clone(),
            allow: self.allow.clone(),
            deny: self.deny.clone(),
            conditions: ConditionKeys::of(&self.conditions),
        }
    }
}

impl Section for AccessSection {
    fn blank() -> AccessSection {
        AccessSection {
            path: None,
            regex: None,
            except: Vec::new(),
            allow: Vec::new(),
            deny: Vec::new(),
            conditions: ConditionKeys::default(),
        }
    }

    const SETTINGS: &'static [Setting<AccessSection>] = rows_with_conditions![
        Setting {
            key: "path",
            preset: Preset::Unset("every path"),
            range: None,
            meaning: "Which paths are guarded. A path without a star is meant with all below it: \
                      \"/admin\" is for /admin, /admin/ and /admin/a.txt, not for /administrators. \
                      \"=/admin\" is that path alone. With stars, as in \"/admin*\" or \"*.php\", the \
                      whole path must fit.",
            example: "\"/admin\"",
            at: |a| &mut a.path,
        },
        Setting {
            key: "regex",
            preset: Preset::Unset("every path"),
            range: None,
            meaning: PATH_REGEX,
            example: "'(?i)\\.(bak|sql|old)$'",
            at: |a| &mut a.regex,
        },
        Setting {
            key: "except",
            preset: Preset::Items(&[]),
            range: None,
            meaning: PATHS_EXCEPT,
            example: "[\"=/admin/health\"]",
            at: |a| &mut a.except,
        },
        Setting {
            key: "allow",
            preset: Preset::Items(&[]),
            range: None,
            meaning: "Who is admitted, even if denied too. With no deny beside it, everybody else \
                      gets 403.",
            example: "[\"10.0.0.0/8\", \"::1\"]",
            at: |a| &mut a.allow,
        },
        Setting {
            key: "deny",
            preset: Preset::Items(&[]),
            range: None,
            meaning: "Who gets 403, unless allowed; \"all\" is everybody.",
            example: "[\"192.0.2.0/24\"]",
            at: |a| &mut a.deny,
        },
    ];
}

/// An `[[alias]]`.
pub struct AliasSection {
    path: Option<MountPath>,
    to: Option<PathBuf>,
    file: Option<PathBuf>,
}

impl Item for Alias {
    type Section = AliasSection;

    fn new(section: AliasSection) -> Result<Alias, KeyFault> {
        let path = section.path.ok_or_else(|| missing("path", "\"/docs\""))?;
        match (section.to, section.file) {
            (Some(to), None) => Ok(Alias::new(path, to)),
            (None, Some(file)) => {
                let found = file.display().to_string();
                let reason = "the path of a file is expected".to_owned();
                Alias::of_file(path, &file).ok_or(("file", Wrong::Unfit { found, reason }))
            }
            (Some(_), Some(_)) => Err(("file", Wrong::Both { other: "to" })),
            (None, None) => Err(missing("to", "\"/srv/docs\"")),
        }
    }

    fn section(&self) -> AliasSection {
        let (path, file) = (Some(self.path().clone()), self.file());
        let to = file.is_none().then(|| self.to.clone());
        AliasSection { path, to, file }
    }
}

impl Section for AliasSection {
    fn blank() -> AliasSection {
        AliasSection { path: None, to: None, file: None }
    }

    const SETTINGS: &'static [Setting<AliasSection>] = &[
        Setting {
            key: "path",
            preset: Preset::Required,
            range: None,
            meaning: "The path beneath which the directory is: \"/docs\" is for /docs/ and all below \
                      it; or the path of the file. What the root has there is not served.",
            example: "\"/docs\"",
            at: |a| &mut a.path,
        },
        Setting {
            key: "to",
            preset: Preset::Unset("none; it has this or file"),
            range: None,
            meaning: "The directory that is served there; relative to the configuration file. Links on \
                      the way to it are followed, links within it as within a root.",
            example: "\"/srv/docs\"",
            at: |a| &mut a.to,
        },
        Setting {
            key: "file",
            preset: Preset::Unset("none; it has this or to"),
            range: None,
            meaning: "One file that is served at the path, with its compressed forms; relative to the configuration \
                      file. Nothing else of its directory is served. Its type goes by the path.",
            example: "\"/srv/shared/favicon.ico\"",
            at: |a| &mut a.file,
        },
    ];
}

/// A `[[work]]`.
pub struct WorkSection {
    path: Option<Pattern>,
}

impl Item for WorkHandler {
    type Section = WorkSection;

    const LACKS: Option<&'static str> = if cfg!(feature = "work") { None } else { Some("work") };

    fn new(section: WorkSection) -> Result<WorkHandler, KeyFault> {
        Ok(WorkHandler { path: section.path.ok_or_else(|| missing("path", "\"/work\""))? })
    }

    fn section(&self) -> WorkSection {
        WorkSection { path: Some(self.path.clone()) }
    }
}

impl Section for WorkSection {
    fn blank() -> WorkSection {
        WorkSection { path: None }
    }

    const SETTINGS: &'static [Setting<WorkSection>] = &[Setting {
        key: "path",
        preset: Preset::Required,
        range: None,
        meaning: "Which paths take CPU time, memory and bytes as the query says (cpu, mem, out): for \
                  tests and demonstrations, not for the internet.",
        example: "\"/work\"",
        at: |w| &mut w.path,
    }];
}
