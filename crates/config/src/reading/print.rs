//! Writes a [`Config`] as TOML that reads back to the same configuration.

use crate::table::{Printer, Section};
use crate::texts::origin::Shown;
use crate::{Config, LogConfig, SiteConfig};
use std::mem;

impl Config {
    /// Writes all settings as TOML that [`parse`](crate::parse()) reads back to the same configuration,
    /// each under a comment with its meaning. A setting without a value is an example in a comment.
    pub fn to_toml(&self) -> String {
        self.printed(Shown::All)
    }

    /// Writes the same for people: values with secrets in them are as they are in the file.
    pub fn to_shown_toml(&self) -> String {
        self.printed(Shown::WithoutSecrets)
    }

    fn printed(&self, shown: Shown) -> String {
        let mut config = self.clone();
        let origin = mem::take(&mut config.origin);
        let mut listeners = std::mem::take(&mut config.listeners);
        let mut sites = std::mem::take(&mut config.sites);
        let mut printer = Printer::of(origin, shown);
        // the only listener, and the only site, stand at the top level
        let mut listener = if listeners.len() == 1 { listeners.pop() } else { None };
        // unless requests of no site have another log, or another server header
        let is_top = matches!(&sites[..], [only] if only.log == config.log
            && only.server_header == config.server_header);
        let mut site = if is_top { sites.pop() } else { None };
        if let Some(listener) = &mut listener {
            printer.settings(listener, "");
        }
        match &mut site {
            Some(site) => printer.settings(site, ""),
            None => printer.top_server_header(config.server_header),
        }
        printer.settings(&mut config, "");
        if let Some(site) = &mut site {
            printer.subsections(site);
        }
        let begin = printer.text.len();
        printer.subsections(&mut config);
        if config.isolated.is_asked {
            let subsections = printer.text.split_off(begin);
            let named = subsections.replacen("\n# [isolated]\n", "\n[isolated]\n", 1);
            printer.text += &named.replacen("\n[isolated]\n", "\n[stages]\n", 1);
        }
        if site.is_none() {
            printer.top_log(config.log);
        }
        config.classes.into_iter().for_each(|class| printer.item("class", class));
        config.rules.into_iter().for_each(|rule| printer.item("rule", rule));
        config.tcp.into_iter().for_each(|tcp| printer.item("tcp", tcp));
        config.protects.into_iter().for_each(|other| printer.item("protect", other));
        for listener in listeners {
            printer.item("listener", listener);
        }
        match site {
            Some(site) => printer.lists(site),
            None => sites.into_iter().for_each(|site| printer.item("site", site)),
        }
        printer.text
    }
}

impl Printer {
    /// Prints whether the `Server` field goes to requests that belong to no site. The first site explains
    /// the setting.
    fn top_server_header(&mut self, server_header: bool) {
        let mut top = SiteConfig { server_header, ..SiteConfig::blank() };
        self.terse = true;
        self.only(&mut top, "server_header");
        self.terse = false;
    }

    /// Prints the log of requests that belong to no site. The first site explains its settings.
    fn top_log(&mut self, log: LogConfig) {
        let mut top = SiteConfig { log, ..SiteConfig::blank() };
        self.line("[log]");
        self.terse = true;
        self.settings(&mut top, "log");
        self.terse = false;
    }
}
