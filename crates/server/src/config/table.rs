//! The table of settings. One row makes a setting: how it is parsed, its default, its range, and
//! what `forebay check --print` says about it.

use super::Config;
use super::problem::Wrong;
use super::value::Value;

/// One setting.
pub struct Setting {
    /// Its path in a configuration file: `name` or `section.name`.
    pub key: &'static str,
    /// What holds if it is not set.
    pub preset: Preset,
    /// The smallest and the largest value allowed.
    pub range: Option<(&'static str, &'static str)>,
    /// What it means, in one sentence for the operator.
    pub meaning: &'static str,
    /// Where it is kept.
    pub at: fn(&mut Config) -> &mut dyn Value,
}

/// What holds for a setting that is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// This default, as text; of a list, its only item.
    Value(&'static str),
    /// Nothing: it must be set, for example so.
    Required(&'static str),
}

impl Setting {
    /// The setting at `key`.
    pub fn find(key: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// The part of the key before the dot; empty at the top level.
    pub fn section(&self) -> &'static str {
        self.key.rsplit_once('.').map_or("", |(section, _)| section)
    }

    /// The part of the key after the dot.
    pub fn name(&self) -> &'static str {
        self.key.rsplit_once('.').map_or(self.key, |(_, name)| name)
    }

    /// Its meaning, default and range as comment lines of TOML.
    pub fn comment(&self) -> String {
        let preset = match self.preset {
            Preset::Value(default) => format!("Default: {default}"),
            Preset::Required(example) => format!("Must be set, for example {example}"),
        };
        let range = self.range.map(|(least, most)| format!("; from {least} to {most}"));
        format!("# {}\n# {preset}{}.", self.meaning, range.unwrap_or_default())
    }

    /// Sets it to what `text` says, if that is within the range. A list takes it as one more item.
    ///
    /// # Errors
    /// What is wrong with the text; then nothing is set.
    pub fn set(&self, config: &mut Config, text: &str) -> Result<(), Wrong> {
        let value = (self.at)(config);
        if let (Some(amount), Some((least, most))) = (value.amount(text), self.range) {
            let below = value.amount(least).is_some_and(|least| amount < least);
            let above = value.amount(most).is_some_and(|most| amount > most);
            if below || above {
                return Err(Wrong::Range { found: text.to_owned(), least, most });
            }
        }
        value.set(text)
    }
}

/// All settings, those of a section together.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "listen",
        preset: Preset::Value("127.0.0.1:8080"),
        range: None,
        meaning: "Addresses connections are accepted at; \":8080\" is port 8080 of all addresses.",
        at: |c| &mut c.listen,
    },
    Setting {
        key: "root",
        preset: Preset::Required("root = \"/srv/www\""),
        range: None,
        meaning: "The directory that is served; relative to the configuration file.",
        at: |c| &mut c.root,
    },
    Setting {
        key: "index",
        preset: Preset::Value("index.html"),
        range: None,
        meaning: "Names of the file that answers for a directory, the first that exists.",
        at: |c| &mut c.index,
    },
    Setting {
        key: "precompressed",
        preset: Preset::Value("true"),
        range: None,
        meaning: "Whether FILE.br, FILE.zst and FILE.gz are sent for FILE to clients that take them.",
        at: |c| &mut c.precompressed,
    },
    Setting {
        key: "server_header",
        preset: Preset::Value("true"),
        range: None,
        meaning: "Whether answers say `Server: Forebay`.",
        at: |c| &mut c.server_header,
    },
    Setting {
        key: "cache_control",
        preset: Preset::Value("no-cache"),
        range: None,
        meaning: "Cache-Control of files; \"off\" sends none, and browsers guess how long to keep them.",
        at: |c| &mut c.cache_control,
    },
    Setting {
        key: "engine",
        preset: Preset::Value("event"),
        range: None,
        meaning: "What performs the steps of the request path: event, pool or threads.",
        at: |c| &mut c.engine,
    },
    Setting {
        key: "workers",
        preset: Preset::Value("auto"),
        range: Some(("1", "65536")),
        meaning: "Loops (event: auto is one per core) or most threads (pool: auto is 64, threads: 1024).",
        at: |c| &mut c.workers,
    },
    Setting {
        key: "sample",
        preset: Preset::Value("512"),
        range: Some(("0", "1000000")),
        meaning: "One request in this many is timed, activity by activity; 0 times none.",
        at: |c| &mut c.sample,
    },
    Setting {
        key: "timeouts.head",
        preset: Preset::Value("10s"),
        range: Some(("100ms", "1h")),
        meaning: "Time for a whole request head, from its first byte or from accept.",
        at: |c| &mut c.timeouts.head,
    },
    Setting {
        key: "timeouts.body",
        preset: Preset::Value("30s"),
        range: Some(("100ms", "1h")),
        meaning: "Time for a whole request body that is read to be discarded.",
        at: |c| &mut c.timeouts.body,
    },
    Setting {
        key: "timeouts.idle",
        preset: Preset::Value("60s"),
        range: Some(("100ms", "1d")),
        meaning: "How long a kept connection may wait for its next request.",
        at: |c| &mut c.timeouts.idle,
    },
    Setting {
        key: "timeouts.job",
        preset: Preset::Value("60s"),
        range: Some(("100ms", "1d")),
        meaning: "How long a request may wait for work that blocks, such as a slow disk.",
        at: |c| &mut c.timeouts.job,
    },
    Setting {
        key: "timeouts.send_window",
        preset: Preset::Value("10s"),
        range: Some(("1s", "1h")),
        meaning: "The window over which limits.send_rate is measured.",
        at: |c| &mut c.timeouts.send_window,
    },
    Setting {
        key: "timeouts.drain",
        preset: Preset::Value("30s"),
        range: Some(("0s", "1d")),
        meaning: "How long open requests may take after the server was told to stop.",
        at: |c| &mut c.timeouts.drain,
    },
    Setting {
        key: "limits.head_bytes",
        preset: Preset::Value("16KiB"),
        range: Some(("1KiB", "64KiB")),
        meaning: "Size of a request head; more is answered with 431.",
        at: |c| &mut c.limits.head_bytes,
    },
    Setting {
        key: "limits.head_lines",
        preset: Preset::Value("100"),
        range: Some(("1", "128")),
        meaning: "Field lines of a request head; more are answered with 431.",
        at: |c| &mut c.limits.head_lines,
    },
    Setting {
        key: "limits.target_bytes",
        preset: Preset::Value("8KiB"),
        range: Some(("64B", "64KiB")),
        meaning: "Length of a request target; more is answered with 414.",
        at: |c| &mut c.limits.target_bytes,
    },
    Setting {
        key: "limits.body_bytes",
        preset: Preset::Value("1MiB"),
        range: Some(("0B", "1TiB")),
        meaning: "Size of a request body that is discarded; more is answered with 413.",
        at: |c| &mut c.limits.body_bytes,
    },
    Setting {
        key: "limits.connections",
        preset: Preset::Value("auto"),
        range: Some(("1", "10000000")),
        meaning: "Connections open at once; auto is what the descriptor limit allows.",
        at: |c| &mut c.limits.connections,
    },
    Setting {
        key: "limits.connections_per_client",
        preset: Preset::Value("auto"),
        range: Some(("1", "10000000")),
        meaning: "Connections of one client (an IPv4 address or an IPv6 /64); auto is half of all.",
        at: |c| &mut c.limits.connections_per_client,
    },
    Setting {
        key: "limits.requests_per_connection",
        preset: Preset::Value("10000"),
        range: Some(("0", "4000000000")),
        meaning: "Requests answered on one connection before it is closed; 0 is no limit.",
        at: |c| &mut c.limits.requests_per_connection,
    },
    Setting {
        key: "limits.send_rate",
        preset: Preset::Value("1KiB/s"),
        range: Some(("0B/s", "1GiB/s")),
        meaning: "A client that takes less than this over a send window is cut off; 0B/s allows all.",
        at: |c| &mut c.limits.send_rate,
    },
    Setting {
        key: "cache.bytes",
        preset: Preset::Value("256MiB"),
        range: Some(("0B", "1024TiB")),
        meaning: "Memory for whole answers; 0B switches the data cache off.",
        at: |c| &mut c.cache.bytes,
    },
    Setting {
        key: "cache.file_bytes",
        preset: Preset::Value("512KiB"),
        range: Some(("0B", "1GiB")),
        meaning: "The largest file that is kept in the data cache.",
        at: |c| &mut c.cache.file_bytes,
    },
    Setting {
        key: "cache.open_files",
        preset: Preset::Value("1024"),
        range: Some(("0", "1000000")),
        meaning: "Files too large for the data cache that are kept open.",
        at: |c| &mut c.cache.open_files,
    },
    Setting {
        key: "cache.check_interval",
        preset: Preset::Value("1s"),
        range: Some(("0s", "1h")),
        meaning: "Where changes cannot be watched, how often a cached file is compared with the disk.",
        at: |c| &mut c.cache.check_interval,
    },
    Setting {
        key: "log.access",
        preset: Preset::Value("-"),
        range: None,
        meaning: "Where the access log goes: \"off\", \"-\" for standard output, or a file.",
        at: |c| &mut c.log.access,
    },
    Setting {
        key: "log.format",
        preset: Preset::Value("combined"),
        range: None,
        meaning: "How its lines are written: combined or json.",
        at: |c| &mut c.log.format,
    },
    Setting {
        key: "admin.listen",
        preset: Preset::Value("off"),
        range: None,
        meaning: "The loopback address of the read-only admin listener (/metrics, /status), or \"off\".",
        at: |c| &mut c.admin.listen,
    },
    Setting {
        key: "helpers.threads",
        preset: Preset::Value("32"),
        range: Some(("1", "1024")),
        meaning: "Most threads for work that may block, all loops together.",
        at: |c| &mut c.helpers.threads,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_and_every_bound_is_accepted() {
        let mut config = Config::default();
        for setting in SETTINGS {
            let value = (setting.at)(&mut config);
            value.clear();
            let (least, most) = setting.range.unzip();
            let default = match setting.preset {
                Preset::Value(default) => Some(default),
                Preset::Required(_) => None,
            };
            for text in [default, least, most].into_iter().flatten() {
                assert!(setting.set(&mut config, text).is_ok(), "{} = {text}", setting.key);
            }
        }
    }

    #[test]
    fn keys_are_unique_and_sections_stand_together() {
        for (at, setting) in SETTINGS.iter().enumerate() {
            let find = |other: &Setting| other.key == setting.key;
            assert_eq!(SETTINGS.iter().position(find), Some(at), "{}", setting.key);
            let first = SETTINGS.iter().position(|other| other.section() == setting.section());
            let run = &SETTINGS[first.unwrap()..=at];
            assert!(run.iter().all(|o| o.section() == setting.section()), "{}", setting.key);
        }
    }

    #[test]
    fn a_meaning_is_one_sentence() {
        for setting in SETTINGS {
            assert!(setting.meaning.ends_with('.'), "{}", setting.key);
            assert!(setting.meaning.len() < 100, "{}", setting.key);
        }
    }
}
