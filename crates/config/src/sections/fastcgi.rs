//! The routes of a site to applications that speak FastCGI and run files of the site.

use crate::problems::problem::Wrong;
use crate::sections::upstreams::{
    CheckPath, ClassReserves, FastCgiAddress, HasUpstreams, UpstreamsConfig, Variables,
    backups_fit, rows_with_upstreams, told,
};
use crate::table::{Item, Preset, Section, Setting};
use crate::values::optional::{OneOrMore, OptionalList};
use crate::values::units::Size;
use forebay_site::rules::{MountPath, Route, Scope, ScriptSuffix, Scripts};
use forebay_upstream::target::Ambiguous;
use forebay_upstream::{fastcgi, settings};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A `[[fastcgi]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct FastCgiSection {
    /// `path`
    pub path: Option<Scope>,
    /// `to`
    pub to: OneOrMore<FastCgiAddress>,
    /// `backup`
    pub backup: OneOrMore<FastCgiAddress>,
    /// `root`
    pub root: Option<PathBuf>,
    /// `extension`
    pub extension: Option<ScriptSuffix>,
    /// `index`
    pub index: Option<String>,
    /// `try`
    pub fallback: Option<MountPath>,
    /// `scripts`
    pub only: OptionalList<Scope>,
    /// `check_local`
    pub check_local: bool,
    /// `ambiguous`
    pub ambiguous: Ambiguous,
    /// `spool_bytes`
    pub spool: Size,
    /// `status`
    pub status: Option<CheckPath>,
    /// `set`
    pub set: Variables,
    /// Settings that all routes have.
    pub upstreams: UpstreamsConfig,
}

/// A route to applications that speak FastCGI whose settings are valid.
#[derive(Clone, Debug, PartialEq)]
pub struct FastCgiConfig(FastCgiSection);

impl FastCgiConfig {
    /// The places that classes keep.
    pub(crate) fn reserve(&self) -> &ClassReserves {
        &self.0.upstreams.reserve
    }

    /// The paths beneath which the applications run files.
    pub fn path(&self) -> Scope {
        self.0.path.clone().unwrap_or_else(Scope::any)
    }

    /// The addresses of the applications, each list with its key: backups come last.
    pub fn to(&self) -> [(&'static str, &[FastCgiAddress]); 2] {
        [("to", &self.0.to.0), ("backup", &self.0.backup.0)]
    }

    /// Makes relative paths relative to the directory that `join` adds.
    pub(crate) fn rebase(&mut self, join: &impl Fn(&mut PathBuf)) {
        let FastCgiSection { to, backup, upstreams, .. } = &mut self.0;
        let before = to.0.clone();
        let all = to.0.iter_mut().chain(&mut backup.0);
        all.for_each(|to| crate::sections::upstreams::rebase(&mut to.0, join));
        upstreams.weights.rename(&before, &to.0);
        // the application has a file system of its own, but a relative path can only mean this directory
        self.0.root.iter_mut().for_each(join);
    }

    /// The route as the site takes it.
    pub fn route(&self) -> Route {
        let FastCgiSection { extension, index, fallback, set, upstreams, .. } = &self.0;
        let ending = extension.clone().filter(|_| self.0.check_local);
        let scripts = ending.map(|ending| Scripts {
            ending,
            index: index.as_deref().unwrap_or_default().into(),
            fallback: fallback.clone(),
            only: self.0.only.0.clone(),
        });
        let UpstreamsConfig { sends, compress, .. } = upstreams;
        Route {
            scripts,
            sends: sends.clone(),
            compress: compress.0.clone(),
            passes: self.0.ambiguous == Ambiguous::Pass,
            told: told::templates(set.0.iter().map(|(_, value)| &**value)),
            ..Route::all(self.path())
        }
    }

    /// Variables of requests to the application.
    pub(crate) fn set(&self) -> &[(Box<str>, Box<str>)] {
        &self.0.set.0
    }

    /// Whether the applications run files of the site.
    pub(crate) fn runs_files(&self) -> bool {
        self.0.check_local
    }

    /// The path of an application that runs no files, without a slash at its end.
    fn program(&self) -> Option<Box<[u8]>> {
        let path = self.path().path().unwrap_or_default().to_owned();
        let path = path.strip_suffix('/').unwrap_or(&path).as_bytes().into();
        Some(path).filter(|_| !self.runs_files())
    }

    /// The directory where the application finds its scripts, as the text has it. `root` is that of the
    /// site.
    pub fn root<'r>(&'r self, root: Option<&'r Path>) -> &'r Path {
        self.0.root.as_deref().or(root).unwrap_or(Path::new("/"))
    }

    /// The settings of the application as the proxy takes them, with `root` as the directory of its
    /// scripts.
    pub fn settings(&self, root: &Path) -> settings::FastCgiSettings {
        let FastCgiSection { to, backup, ambiguous, set, upstreams, .. } = &self.0;
        let addresses = |of: &[FastCgiAddress]| of.iter().map(|to| to.0.clone()).collect();
        let (to, backup) = (addresses(&to.0), addresses(&backup.0));
        let root = root.as_os_str().as_bytes();
        settings::FastCgiSettings {
            group: upstreams.group(to, backup, None),
            request: fastcgi::ScriptSettings {
                root: root.strip_suffix(b"/").unwrap_or(root).into(),
                ambiguous: *ambiguous,
                keep: upstreams.keep_alive.connections > 0,
                set: told::set_values(&set.0),
                program: self.program(),
            },
            bodies: upstreams.bodies(self.0.spool.0),
            limits: Default::default(),
            errors: upstreams.errors,
            buffer_bytes: upstreams.buffer_bytes.0,
            status: self.0.status.as_ref().map(|path| path.0.clone()),
        }
    }
}

impl Item for FastCgiConfig {
    type Section = FastCgiSection;

    fn new(mut section: FastCgiSection) -> Result<FastCgiConfig, (&'static str, Wrong)> {
        let ending = section.extension.as_ref().map_or("", ScriptSuffix::as_str);
        let is_script = |name: &str| name.len() > ending.len() && name.ends_with(ending);
        let wrong = |found: &str| Wrong::Unfit {
            found: format!("{found:?}"),
            reason: format!("a script ends in {ending:?}, as extension says"),
        };
        if let Some(index) = section.index.as_deref().filter(|name| !is_script(name)) {
            return Err(("index", wrong(index)));
        }
        if let Some(path) = section.fallback.as_ref().filter(|path| !is_script(path.as_str())) {
            return Err(("try", wrong(path.as_str())));
        }
        if let (Some(only), Some(path)) = (&section.only.0, &section.fallback)
            && !only.iter().any(|scope| scope.contains(path.as_str().as_bytes()))
        {
            let found = format!("{:?}", path.as_str());
            let reason = "it is none of those that may run, as scripts says".to_owned();
            return Err(("try", Wrong::Unfit { found, reason }));
        }
        for (_, value) in &section.set.0 {
            told::template(value).map_err(|error| {
                ("set", Wrong::Unfit { found: String::new(), reason: error.to_string() })
            })?;
        }
        if section.status.as_ref().is_some_and(|path| path.0.contains('?')) {
            let reason = "a path alone: pools are asked without a query".to_owned();
            return Err(("status", Wrong::Unfit { found: String::new(), reason }));
        }
        if section.status.is_some() && !section.upstreams.is_learnt() {
            return Err(("status", Wrong::Idle { needs: "in_flight = \"auto\"" }));
        }
        if let Some((key, needs)) = section.upstreams.idle(false) {
            return Err((key, Wrong::Idle { needs }));
        }
        if let Some(wrong) = section.upstreams.unfit() {
            return Err(wrong);
        }
        backups_fit(&section.to.0, &section.backup.0)?;
        let FastCgiSection { upstreams, to, .. } = &mut section;
        upstreams.weights.put_in_order(&to.0).map_err(|wrong| ("weights", wrong))?;
        Ok(FastCgiConfig(section))
    }

    fn section(&self) -> FastCgiSection {
        self.0.clone()
    }
}

impl HasUpstreams for FastCgiSection {
    fn upstreams(&mut self) -> &mut UpstreamsConfig {
        &mut self.upstreams
    }
}

impl Section for FastCgiSection {
    fn blank() -> FastCgiSection {
        FastCgiSection {
            path: None,
            to: OneOrMore::default(),
            backup: OneOrMore::default(),
            root: None,
            extension: None,
            index: None,
            fallback: None,
            only: OptionalList::default(),
            check_local: false,
            ambiguous: Ambiguous::default(),
            spool: Size::default(),
            status: None,
            set: Variables::default(),
            upstreams: UpstreamsConfig::default(),
        }
    }

    const SETTINGS: &'static [Setting<FastCgiSection>] = rows_with_upstreams!(
        [
            Setting {
                key: "path",
                preset: Preset::Value("/"),
                range: None,
                meaning: "Beneath which paths they run files. Everything else there is sent as any other \
                          file. Routes are weighed as for proxy.",
                example: "\"/blog\"",
                at: |f| &mut f.path,
            },
            Setting {
                key: "to",
                preset: Preset::Required,
                range: None,
                meaning: "Where they are: one, or several that do the same. \"srv://_php._tcp.app.internal\" is all \
                          servers that the records of a service (SRV) name, as for proxy.",
                example: "[\"unix:/run/php/php-fpm.sock\", \"10.0.0.2:9000\"]",
                at: |f| &mut f.to,
            },
            Setting {
                key: "backup",
                preset: Preset::Unset("there is none"),
                range: None,
                meaning: "Those that are asked only while none of to is well, as for proxy.",
                example: "\"10.0.1.1:9000\"",
                at: |f| &mut f.backup,
            },
            Setting {
                key: "weights",
                preset: Preset::Unset("all are equal"),
                range: Some(("1", "100")),
                meaning: "What each of several gets beside the others, by its address as to has it, as for proxy.",
                example: "{ \"10.0.0.2:9000\" = 9 }",
                at: |f| &mut f.upstreams.weights,
            },
            Setting {
                key: "root",
                preset: Preset::Unset("the root of the site"),
                range: None,
                meaning: "Where they find the files of the site's root, if that is elsewhere for them, as in \
                          a container. Whether a script is there is seen in the root of the site.",
                example: "\"/var/www/html\"",
                at: |f| &mut f.root,
            },
            Setting {
                key: "extension",
                preset: Preset::Value(".php"),
                range: None,
                meaning: "What the names of scripts end with. What follows a script in a path is told it \
                          as PATH_INFO. A script must be there, or the answer is 404.",
                example: "\".cgi\"",
                at: |f| &mut f.extension,
            },
            Setting {
                key: "index",
                preset: Preset::Value("index.php"),
                range: None,
                meaning: "The script that answers for a directory where index names no file of it.",
                example: "\"main.php\"",
                at: |f| &mut f.index,
            },
            Setting {
                key: "try",
                preset: Preset::Unset("404"),
                range: None,
                meaning: "The script that answers where there is neither a script nor a file: the front \
                          controller that WordPress, Laravel or Symfony want.",
                example: "\"/index.php\"",
                at: |f| &mut f.fallback,
            },
            Setting {
                key: "scripts",
                preset: Preset::Unset("all that end so"),
                range: None,
                meaning: "The paths of the scripts that may run: \"/index.php\", \"/wp-admin\" for all beneath it, \
                          \"/wp-admin/*.php\". Every other path with the extension is 404, whether a file is \
                          there or not, and try does not answer for it.",
                example: "[\"/index.php\", \"/wp-admin\"]",
                at: |f| &mut f.only,
            },
            Setting {
                key: "check_local",
                preset: Preset::Value("true"),
                range: None,
                meaning: "Whether they run files of the site. false: they are programs that answer for every path \
                          of the route, such as those of Go's net/http/fcgi, and no file is looked for. \
                          SCRIPT_NAME is the path of the route, PATH_INFO what follows it.",
                example: "false",
                at: |f| &mut f.check_local,
            },
            Setting {
                key: "ambiguous",
                preset: Preset::Value("refuse"),
                range: None,
                meaning: "What becomes of paths with //, /./ or /../, encoded or not, or with an encoded slash \
                          or backslash. \"refuse\": 400. \"normalise\": REQUEST_URI is what the rules have \
                          seen; an encoded slash or backslash is 400. \"pass\": REQUEST_URI is what was sent, \
                          if the rules allow every reading and choose the same for each; the script is that \
                          of the reading with all separators.",
                example: "\"pass\"",
                at: |f| &mut f.ambiguous,
            },
            Setting {
                key: "spool_bytes",
                preset: Preset::Value("64KiB"),
                range: Some(("0B", "1GiB")),
                meaning: "A request body of at most this size is collected in memory before a script is \
                          asked, so that none waits for a slow client; a larger one goes to it as it \
                          comes. A script is told how long the body is, so one whose length is not known \
                          (Transfer-Encoding: chunked) is collected whatever its size: what is larger is in \
                          spool_dir, and without that it is 413.",
                example: "\"1MiB\"",
                at: |f| &mut f.spool,
            },
            Setting {
                key: "status",
                preset: Preset::Unset("they are not asked"),
                range: None,
                meaning: "With in_flight = \"auto\": the path at which php-fpm says how many workers it has \
                          (pm.status_path), of which each pool is asked every 2 s. No more requests than that are under \
                          way then.",
                example: "\"/fpm-status\"",
                at: |f| &mut f.status,
            },
            Setting {
                key: "set",
                preset: Preset::Unset("nothing is set"),
                range: None,
                meaning: "Variables to set, each instead of what the request says. Their names are free, but for \
                          HTTP_PROXY. Values may name what those of set of a [[proxy]] may, as $host or \
                          $header.Remote-User; then $$ is a dollar sign, and one that comes out empty is not told.",
                example: "{ APP_ENV = \"production\", REMOTE_USER = \"$header.Remote-User\" }",
                at: |f| &mut f.set,
            },
        ],
        [],
        "0",
        "Idle connections that are kept to each of them; 0 opens one for each request. Each keeps one \
         worker of php-fpm to itself: less in all loops together than it has.",
        "4"
    );
}
