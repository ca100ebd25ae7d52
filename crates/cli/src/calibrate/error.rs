//! The errors of a calibration.

use forebay_control::regression::FitError;
use forebay_load::LoadError;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The error that ends a calibration early. Nothing is written then.
#[derive(Debug)]
pub(crate) enum CalibrateError {
    /// A signal asked to stop.
    Interrupted,
    /// A file cannot be used, or a system call failed.
    Io {
        /// The operation that was tried.
        what: &'static str,
        /// The path of the operation.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The constants to begin with cannot be used.
    From {
        /// The file.
        path: PathBuf,
        /// The error in the file.
        wrong: String,
    },
    /// The server that is measured did not come up, or ended.
    Server {
        /// The server's last message.
        said: String,
    },
    /// The load could not be made.
    Load(LoadError),
    /// Requests failed that should not.
    Failed {
        /// The number of failed requests.
        count: u64,
        /// The measurement.
        what: String,
    },
    /// Nothing failed, and nothing was answered.
    Unanswered {
        /// The measurement.
        what: String,
        /// The time for which answers were awaited.
        within: Duration,
    },
    /// The measurements do not determine the costs.
    Fit(FitError),
}

impl CalibrateError {
    /// Makes a function for `map_err`, which adds the operation and its path to an error.
    pub(super) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> CalibrateError {
        let path = path.into();
        move |error| CalibrateError::Io { what, path, error }
    }
}

impl fmt::Display for CalibrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CalibrateError::Interrupted => f.write_str("interrupted, nothing was written"),
            CalibrateError::Io { what, path, error } => {
                write!(f, "{what} {}: {error}", path.display())
            }
            CalibrateError::From { path, wrong } => write!(f, "{}: {wrong}", path.display()),
            CalibrateError::Server { said } => {
                write!(f, "the server that is measured did not come up; it said:\n{said}")
            }
            CalibrateError::Load(error) => error.fmt(f),
            CalibrateError::Failed { count, what } => {
                write!(
                    f,
                    "{count} requests for {what} failed; is something in the way on loopback?"
                )
            }
            CalibrateError::Unanswered { what, within } => {
                write!(
                    f,
                    "no answer for {what} within {:.1} s; measure again on a quiet machine",
                    within.as_secs_f64()
                )
            }
            CalibrateError::Fit(error) => {
                write!(f, "the costs cannot be told: {error}; measure again on a quiet machine")
            }
        }
    }
}
