//! Stages on several machines: where those of this one are asked, how others are asked, and the files of keys.
//!
//! Keys are read by the stages, each its own, before they give their rights up. That files have changed the supervisor
//! notices, which may read them: it starts the stages anew, as a reload does.

use forebay_config::{Config, ListenEndpoint, Role, StageKeyFiles, stage_name};
use forebay_handler::certificates::{self, Expiry, FileStamp, Owner, Stamps};
use forebay_sys::clock;
use forebay_tls::{Pair, Roots};
use forebay_upstream::upstreams::UpstreamTlsFiles;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// What was seen of files of keys that those who serve have not read.
#[derive(Default)]
pub(super) struct KeyLook {
    /// At the last look.
    pub(super) last: Stamps,
    /// Those for which stages were started anew.
    pub(super) tried: Stamps,
    /// When that was.
    pub(super) tried_at: Option<Instant>,
}

/// Where other machines ask a stage of this one.
pub(super) fn asked_at(config: &Config, role: Role) -> Vec<ListenEndpoint> {
    let isolated = &config.isolated;
    let is_started = isolated.instances(role) > 0;
    let listen = isolated.listen(role).iter().filter(|_| is_started);
    let endpoint = |listen| ListenEndpoint { listen, tls: !isolated.unencrypted, raw: false };
    listen.cloned().map(endpoint).collect()
}

/// How the stage behind `role` is asked on other machines; `None` if not through TLS.
///
/// # Errors
/// What is wrong with the files.
pub(super) fn files_to(config: &Config, role: Role) -> Result<Option<UpstreamTlsFiles>, String> {
    let Some(settings) = config.isolated.tls_to(role) else { return Ok(None) };
    let (roots, pair) = certificates::of_upstreams(&settings).map_err(|error| error.to_string())?;
    Ok(Some(UpstreamTlsFiles::new(&settings, roots, pair)))
}

/// The files of all stages that show their certificates.
fn key_files(config: &Config) -> impl Iterator<Item = StageKeyFiles> + '_ {
    let isolated = &config.isolated;
    let shown = Role::ALL.into_iter().filter(|role| isolated.shows_keys(*role));
    shown.filter_map(|role| isolated.key_files(role))
}

/// What these files are now.
pub(super) fn stamps(config: &Config) -> Stamps {
    let files = key_files(config);
    let files = files.flat_map(|files| [files.authority, files.certificate, files.key]);
    files.map(|file| FileStamp::of(&file)).collect()
}

/// Whether other machines would believe keys that are other ones than `before`.
///
/// # Errors
/// Why they would not.
pub(super) fn check_new(config: &Config, before: &[Option<FileStamp>]) -> Result<(), String> {
    let isolated = &config.isolated;
    let read = |path: &Path| fs::read(path).map_err(|error| format!("{path:?}: {error}"));
    let shown = Role::ALL.into_iter().filter(|role| isolated.shows_keys(*role));
    // as many files of each as in stamps
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

/// What is to be said of certificates of stages: those that have expired, or are about to.
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
