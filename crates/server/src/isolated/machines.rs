//! Stages on several machines: the addresses of this machine's stages, how those of others are
//! asked, and the files of keys.
//!
//! Each stage reads its own keys before it gives up its rights. The supervisor, which may read the
//! files, notices when they change: it starts the stages anew, as a reload does.

use forebay_config::{Config, ListenEndpoint, Role, StageKeyFiles, stage_name};
use forebay_handler::certificates::{self, Expiry, FileStamp, Owner, Stamps};
use forebay_sys::clock;
use forebay_tls::{Pair, Roots};
use forebay_upstream::upstreams::UpstreamTlsFiles;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// The key files at looks of the supervisor, where they differ from those that the serving stages
/// have read.
#[derive(Default)]
pub(super) struct KeyLook {
    /// The files at the last look.
    pub(super) last: Stamps,
    /// The files with which stages were last started anew.
    pub(super) tried: Stamps,
    /// When those stages were started.
    pub(super) tried_at: Option<Instant>,
}

/// The addresses at which other machines ask a stage of this one.
pub(super) fn asked_at(config: &Config, role: Role) -> Vec<ListenEndpoint> {
    let isolated = &config.isolated;
    let is_started = isolated.instances(role) > 0;
    let listen = isolated.listen(role).iter().filter(|_| is_started);
    let endpoint = |listen| ListenEndpoint { listen, tls: !isolated.unencrypted, raw: false };
    listen.cloned().map(endpoint).collect()
}

/// The TLS files with which `role` asks the stage behind it on other machines; `None` if it does
/// not use TLS.
///
/// # Errors
/// What is wrong with the files.
pub(super) fn files_to(config: &Config, role: Role) -> Result<Option<UpstreamTlsFiles>, String> {
    let Some(settings) = config.isolated.tls_to(role) else { return Ok(None) };
    let (roots, pair) = certificates::of_upstreams(&settings).map_err(|error| error.to_string())?;
    Ok(Some(UpstreamTlsFiles::new(&settings, roots, pair)))
}

/// The key files of all stages that show their certificates.
fn key_files(config: &Config) -> impl Iterator<Item = StageKeyFiles> + '_ {
    let isolated = &config.isolated;
    let shown = Role::ALL.into_iter().filter(|role| isolated.shows_keys(*role));
    shown.filter_map(|role| isolated.key_files(role))
}

/// The current stamps of these files.
pub(super) fn stamps(config: &Config) -> Stamps {
    let files = key_files(config);
    let files = files.flat_map(|files| [files.authority, files.certificate, files.key]);
    files.map(|file| FileStamp::of(&file)).collect()
}

/// Checks that other machines would trust the keys that have changed since `before`.
///
/// # Errors
/// Why they would not trust them.
pub(super) fn check_new(config: &Config, before: &[Option<FileStamp>]) -> Result<(), String> {
    let isolated = &config.isolated;
    let read = |path: &Path| fs::read(path).map_err(|error| format!("{path:?}: {error}"));
    let shown = Role::ALL.into_iter().filter(|role| isolated.shows_keys(*role));
    // three stamps for each stage, as `stamps` takes them
    for (role, before) in shown.zip(before.chunks(3)) {
        let Some(files) = isolated.key_files(role) else { continue };
        let StageKeyFiles { authority, certificate, key } = &files;
        let now = [authority, certificate, key].map(|file| FileStamp::of(file));
        if now[..] == *before {
            continue;
        }
        let roots = Roots::of_pem(&read(authority)?);
        let roots = roots.ok_or_else(|| format!("there is no certificate in {authority:?}"))?;
        let pair = Pair::read(&read(certificate)?, &read(key)?);
        let pair = pair.map_err(|error| format!("{certificate:?}: {error}"))?;
        let name = stage_name(role);
        if !pair.covers(&name) {
            return Err(format!("{certificate:?} is not for {name}"));
        }
        let (is_asked, asks) = (!isolated.listen(role).is_empty(), isolated.tls_to(role).is_some());
        for (is_server, is_used) in [(true, is_asked), (false, asks)] {
            if is_used && let Err(why) = roots.believe(&pair, is_server) {
                return Err(format!("{certificate:?}, by {authority:?}: {why}"));
            }
        }
    }
    Ok(())
}

/// Warnings about certificates of stages that have expired, or are about to.
pub(super) fn warnings(config: &Config) -> Vec<String> {
    let now_s = (clock::unix_us() / 1_000_000).cast_signed();
    let warning = |files: StageKeyFiles| {
        let read = fs::read(&files.certificate).and_then(|text| Ok((text, fs::read(&files.key)?)));
        let pair = match read {
            Ok((certificate, key)) => Pair::read(&certificate, &key).ok()?,
            Err(error) => return Some(format!("{:?}: {error}", files.certificate)),
        };
        let expiry = Expiry {
            owner: Owner::Stages,
            certificate: files.certificate,
            not_after_s: pair.not_after_s,
            is_temporary: false,
        };
        expiry.warning(now_s)
    };
    key_files(config).filter_map(warning).collect()
}
