//! Remarks on settings that another setting leaves without effect: `forebay check` warns of them.

use crate::checks::isolated::STAGES;
use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Remarks, Wrong, see};
use crate::problems::text_place::TextPlace;
use crate::reading::draft::{ConfigDraft, numbered};
use crate::sections::class::ClassKeepAlive;
use crate::table::{ConfigReader, Section, Setting};
use crate::{AllocateBy, AutoCount, Config, KeepAliveLaw, ListenerConfig, SiteConfig, Size};
use forebay_engine::Engine;
use forebay_engine::pipeline::Fuse;
use forebay_site::rules::{Auth, Pattern, RequestConditions};
use std::fmt;

/// A reason why a setting has no effect.
#[derive(Debug)]
enum UnusedSetting {
    /// A bound that another bound makes unreachable.
    Exceeds {
        /// The other bound.
        other: &'static str,
        /// The effect of the two together.
        effect: &'static str,
    },
    /// A rule for the same paths as one before it.
    Shadowed {
        /// The line and column of the earlier rule.
        place: Option<TextPlace>,
    },
    /// A rule for clients behind one that decides about all its paths.
    Covered {
        /// The line and column of the earlier rule.
        place: Option<TextPlace>,
    },
    /// A route of the top level that each site has for itself.
    NeverInherited,
}

impl Finding for UnusedSetting {}

impl fmt::Display for UnusedSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnusedSetting::Exceeds { other, effect } => write!(f, "is more than {other}: {effect}"),
            UnusedSetting::Shadowed { place } => {
                write!(f, "decides nothing: one before it is for the same paths")?;
                see(f, place)
            }
            UnusedSetting::Covered { place } => {
                write!(f, "decides nothing: one before it is for all its paths")?;
                see(f, place)?;
                write!(f, "; the first match counts, put the special rule first")
            }
            UnusedSetting::NeverInherited => f.write_str(
                "it is never asked: a route of the top level is for sites that have none for the same path, and \
                 each [[site]] has one",
            ),
        }
    }
}

/// The settings that a threshold and a floor of keep-alive times need.
const SHRINKING: &str = "keep_alive.law = \"linear\" or \"exponential\"";

impl ConfigDraft {
    /// Remarks on settings that have no effect beside others.
    pub(crate) fn remark_unused(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        self.remark_alone(text, remarks);
        self.remark_isolated(text, remarks);
        self.remark_machines(remarks);
        self.remark_try_files_exceptions(remarks);
        self.remark_exceeding(text, remarks);
        self.remark_compress_bytes(text, remarks);
        self.remark_twice(text, remarks);
        self.remark_covered(text, remarks);
        self.remark_never_inherited(remarks);
    }

    /// Remarks on settings that need another one beside them.
    fn remark_alone(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        let top = At::default();
        let mut remark = |key: &str, needs| remarks.push((top.child(key), Wrong::Idle { needs }));
        if self.process.group.is_some() && self.process.user.is_none() {
            remark("group", "user");
        }
        if self.process.trusted_proxies.is_empty() && text.says(&top.child("forwarded")) {
            remark("forwarded", "trusted_proxies");
        }
        if self.process.trusted_proxies.is_empty() && self.process.trusted_header.is_some() {
            remark("trusted_header", "trusted_proxies");
        }
        let runs = |site: &SiteConfig| !site.fastcgi.is_empty() || !site.cgi.is_empty();
        let runs_scripts = self.every_site().iter().any(|(_, site)| runs(site));
        if self.process.spool_dir.is_some() && !runs_scripts {
            remark("spool_dir", "[[fastcgi]] or [[cgi]]");
        }
        if self.process.spool_dir.is_none() && text.says(&top.child("spool_dir_bytes")) {
            remark("spool_dir_bytes", "spool_dir");
        }
        for key in ["admin.allow", "admin.token_file", "admin.page"] {
            if self.process.admin.listen.0.is_empty() && text.says(&top.child(key)) {
                remark(key, "admin.listen");
            }
        }
        if !self.process.admin.page && text.says(&top.child("admin.page_addresses")) {
            remark("admin.page_addresses", "admin.page");
        }
        if !self.is_isolated() {
            let of_isolated = |setting: &&Setting<Config>| {
                setting.subsection() == "isolated" || setting.key == "sandbox.seccomp"
            };
            for setting in Config::SETTINGS.iter().filter(of_isolated) {
                if text.says(&top.child(setting.key)) {
                    remark(setting.key, STAGES);
                }
            }
        }
        let has_loops = |(_, listener): &(At, ListenerConfig)| match listener.engine {
            Engine::Pipeline => self.process.pipeline.fuse == Fuse::Auto,
            engine => !engine.has_thread_each(),
        };
        if !self.all_listeners().iter().any(has_loops) && text.says(&top.child("send_order")) {
            remark("send_order", "an engine with loops, such as \"event\"");
        }
        self.remark_threads(text, remarks);
        let mut remark = |key: &str, needs| remarks.push((top.child(key), Wrong::Idle { needs }));
        let is_pipeline = |engine: Engine| matches!(engine, Engine::Pipeline);
        if self.all_listeners().iter().any(|(_, listener)| is_pipeline(listener.engine)) {
            let pipeline = &self.process.pipeline;
            let never = pipeline.fuse == Fuse::Never;
            let moves = pipeline.by != AllocateBy::Fixed;
            for (key, has_use, needs) in [
                ("pipeline.accept", never, "pipeline.fuse = \"never\""),
                ("pipeline.receive", never, "pipeline.fuse = \"never\""),
                ("pipeline.send_wait", never, "pipeline.fuse = \"never\""),
                ("pipeline.delay", pipeline.by == AllocateBy::Delay, "pipeline.by = \"delay\""),
                ("pipeline.transfer", moves, "pipeline.by = \"queue\" or \"delay\""),
            ] {
                if !has_use && text.says(&top.child(key)) {
                    remark(key, needs);
                }
            }
            return;
        }
        // the data cache uses a calibration with every engine
        let is_of_pipeline = |setting: &&Setting<Config>| {
            setting.subsection() == "pipeline" && setting.key != "pipeline.calibration"
        };
        for setting in Config::SETTINGS.iter().filter(is_of_pipeline) {
            if text.says(&top.child(setting.key)) {
                remark(setting.key, "engine = \"pipeline\"");
            }
        }
    }

    /// Remarks on limits of threads where no connection keeps a thread, and on the order in which requests
    /// wait for a thread where there is one class.
    fn remark_threads(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        let listeners = self.all_listeners();
        let top = (At::default(), &self.listener);
        let own = numbered("listener", &self.listeners).chain([top]);
        const ORDERED: [&str; 2] = ["answering", "accept_ahead"];
        let keys = ["answering", "accept_ahead", "upstream_threads", "tunnel_threads"];
        for ((at, _), key) in own.flat_map(|own| keys.map(|key| (own.clone(), key))) {
            if !text.says(&at.child(key)) {
                continue;
            }
            // a setting of the top level is the default of all listeners
            let heirs =
                listeners.iter().filter(|(heir, _)| at.exact.is_empty() || heir.exact == at.exact);
            if !heirs.clone().any(|(_, heir)| heir.engine.has_thread_each()) {
                remarks.push((
                    at.child(key),
                    Wrong::Idle { needs: "engine = \"pool\" or \"threads\"" },
                ));
            } else if self.classes.len() < 2 && ORDERED.contains(&key) {
                remarks.push((at.child(key), Wrong::Idle { needs: "two classes" }));
            } else if key == "answering" && !heirs.clone().any(|(_, heir)| heir.has_all_answering())
            {
                let effect = "no more than those may answer";
                remarks.push((
                    at.child(key),
                    Wrong::said(UnusedSetting::Exceeds { other: "workers", effect }),
                ));
            }
        }
    }

    /// Remarks on exceptions from `try_files` where that is not set.
    fn remark_try_files_exceptions(&self, remarks: &mut Remarks) {
        let top = &self.site.try_files_except;
        let sites = self.all_sites();
        for (at, site) in self.every_site() {
            let is_top = at.exact.is_empty();
            // an inherited setting is remarked at the top, if no site can use it
            let mut sites = sites.iter().map(|(_, site)| site);
            let is_used = match is_top {
                true => sites.any(|site| {
                    site.try_files_except == *top && !site.try_files.candidates().is_empty()
                }),
                false => site.try_files_except == *top || !site.try_files.candidates().is_empty(),
            };
            if !site.try_files_except.is_empty() && !is_used {
                remarks.push((at.child("try_files_except"), Wrong::Idle { needs: "try_files" }));
            }
        }
    }

    /// Remarks on bounds that other bounds make unreachable.
    fn remark_exceeding(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        let mut remark = |key: &str, other, effect| {
            remarks.push((
                At::default().child(key),
                Wrong::said(UnusedSetting::Exceeds { other, effect }),
            ));
        };
        let limits = &self.process.limits;
        if let (AutoCount::Fixed(all), AutoCount::Fixed(each)) =
            (limits.connections, limits.connections_per_client)
            && each > all
        {
            remark("limits.connections_per_client", "limits.connections", "no client reaches it");
        }
        let cache = &self.process.cache;
        let is_less = |bytes: Size| bytes.0 > 0 && bytes.0 / 16 < cache.file_bytes.0;
        // the default shrinks with cache.bytes
        let is_said = text.says(&At::default().child("cache.file_bytes"));
        if is_said && cache.bytes.0.is_some_and(is_less) {
            let sixteenth = "a sixteenth of cache.bytes";
            remark("cache.file_bytes", sixteenth, "files of that size are not kept");
        }
        self.remark_keep_alive(text, remarks);
        self.remark_class_keep_alive(remarks);
    }

    /// Remarks on a keep-alive law that would shrink times under load and does not, and on settings of such
    /// a law without it.
    fn remark_keep_alive(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        let keep_alive = &self.process.keep_alive;
        let shrinks = |law| law != KeepAliveLaw::Constant;
        // classes have it unless they set another
        let is_used = |says: fn(&ClassKeepAlive) -> bool| {
            let mut own = self.classes.iter().map(|class| &class.keep_alive);
            shrinks(keep_alive.law) || own.any(|own| own.law.0.is_some_and(shrinks) && !says(own))
        };
        let (threshold, floor) =
            (is_used(|own| own.threshold.0.is_some()), is_used(|own| own.floor.0.is_some()));
        for (key, is_used) in [("keep_alive.threshold", threshold), ("keep_alive.floor", floor)] {
            let at = At::default().child(key);
            if text.says(&at) && !is_used {
                remarks.push((at, Wrong::Idle { needs: SHRINKING }));
            }
        }
        let floor = At::default().child("keep_alive.floor");
        if shrinks(keep_alive.law) && keep_alive.floor > self.process.timeouts.idle {
            let effect = "the time does not shrink under load";
            remarks.push((
                floor,
                Wrong::said(UnusedSetting::Exceeds { other: "timeouts.idle", effect }),
            ));
        }
    }

    /// Remarks on the same for classes.
    fn remark_class_keep_alive(&self, remarks: &mut Remarks) {
        let (law, idle) = (self.process.keep_alive.law, self.process.timeouts.idle);
        for (at, class) in numbered("class", &self.classes) {
            let own = &class.keep_alive;
            if own.law.0.unwrap_or(law) == KeepAliveLaw::Constant {
                for (key, is_said) in [
                    ("keep_alive.threshold", own.threshold.0.is_some()),
                    ("keep_alive.floor", own.floor.0.is_some()),
                ] {
                    if is_said {
                        remarks.push((at.child(key), Wrong::Idle { needs: SHRINKING }));
                    }
                }
            } else if own.floor.0.is_some_and(|floor| floor > own.idle.0.unwrap_or(idle)) {
                let (of_class, effect) =
                    (own.idle.0.is_some(), "the time does not shrink under load");
                let other = if of_class { "keep_alive.idle" } else { "timeouts.idle" };
                remarks.push((
                    at.child("keep_alive.floor"),
                    Wrong::said(UnusedSetting::Exceeds { other, effect }),
                ));
            }
        }
    }

    /// Remarks on a size for compressed files where nothing is compressed.
    fn remark_compress_bytes(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        let sites = self.all_sites();
        for (at, site) in self.every_site() {
            let key = at.child("compress_bytes");
            if !text.says(&key) {
                continue;
            }
            let heirs = sites.iter().filter(|(heir, _)| !text.says(&heir.child("compress_bytes")));
            let is_used = match at.exact.is_empty() && !self.sites.is_empty() {
                true => heirs.clone().any(|(_, heir)| !heir.compress.is_empty()),
                false => !site.compress.is_empty(),
            };
            if !is_used {
                remarks.push((key, Wrong::Idle { needs: "compress" }));
            }
        }
    }

    /// Remarks on redirects and rewrites behind one of the same section for the same paths. A site may
    /// repeat what it inherits: its own rule goes first.
    fn remark_twice(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        for (at, site) in self.every_site() {
            let redirects = site.redirects.iter();
            let redirects: Vec<_> =
                redirects.map(|rule| (rule.pattern(), rule.conditions())).collect();
            let rewrites = site.rewrites.iter();
            let rewrites: Vec<_> =
                rewrites.map(|rule| (rule.pattern(), rule.conditions())).collect();
            for (list, patterns) in [("redirect", redirects), ("rewrite", rewrites)] {
                for (index, (pattern, conditions)) in patterns.iter().enumerate() {
                    let is_before = |(other, asked): &(&Pattern, &RequestConditions)| {
                        other == pattern && (asked.is_empty() || asked == conditions)
                    };
                    let Some(first) = patterns[..index].iter().position(is_before) else {
                        continue;
                    };
                    let key = |index| at.child(list).item(index).child(key_of(pattern));
                    let place = text.place(&key(first).exact);
                    remarks.push((key(index), Wrong::said(UnusedSetting::Shadowed { place })));
                }
            }
        }
    }

    /// Remarks on aliases and routes of the top level, where each site has one for the same path.
    fn remark_never_inherited(&self, remarks: &mut Remarks) {
        let plain = |path: &str| path.strip_suffix('/').unwrap_or(path).to_owned();
        let proxies = |site: &SiteConfig| -> Vec<String> {
            site.proxies.iter().map(|proxy| plain(proxy.path().as_str())).collect()
        };
        let fastcgi = |site: &SiteConfig| -> Vec<String> {
            site.fastcgi.iter().map(|one| plain(one.path().as_str())).collect()
        };
        let hand_overs = |site: &SiteConfig| -> Vec<String> {
            site.hand_overs.iter().map(|one| plain(one.path().as_str())).collect()
        };
        let cgi = |site: &SiteConfig| -> Vec<String> {
            site.cgi.iter().map(|one| plain(one.path().as_str())).collect()
        };
        let aliases = |site: &SiteConfig| -> Vec<String> {
            site.aliases.iter().map(|alias| plain(alias.path().as_str())).collect()
        };
        type Paths<'f> = &'f dyn Fn(&SiteConfig) -> Vec<String>;
        let lists: [(&str, Paths<'_>); 5] = [
            ("proxy", &proxies),
            ("fastcgi", &fastcgi),
            ("hand_over", &hand_overs),
            ("cgi", &cgi),
            ("alias", &aliases),
        ];
        for (list, paths) in lists {
            let own: Vec<Vec<String>> = self.sites.iter().map(paths).collect();
            for (index, path) in paths(&self.site).iter().enumerate() {
                if !own.is_empty() && own.iter().all(|paths| paths.contains(path)) {
                    let at = At::default().child(list).item(index).child("path");
                    remarks.push((at, Wrong::said(UnusedSetting::NeverInherited)));
                }
            }
        }
    }

    /// Remarks on rules about passwords behind one of the same section that decides about all their paths.
    fn remark_covered(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        for (at, site) in self.every_site() {
            let item = |index| at.child("auth").item(index);
            for (index, rule) in site.auth.iter().enumerate() {
                let covers = |other: &Auth| other.paths.covers(&rule.paths);
                if let Some(first) = site.auth[..index].iter().position(covers) {
                    let place = text.place(&item(first).exact);
                    remarks.push((item(index), Wrong::said(UnusedSetting::Covered { place })));
                }
            }
        }
    }
}

fn key_of(pattern: &Pattern) -> &'static str {
    if pattern.is_regex() { "regex" } else { "path" }
}
