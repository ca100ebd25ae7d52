//! The progress of a calibration: a bar on standard error if that is a terminal, nothing elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::time::Duration;

/// The bar; its length is the time that all steps take together.
#[derive(Debug)]
pub(super) struct Bar(Option<ProgressBar>);

impl Bar {
    pub(super) fn new(total: Duration) -> Bar {
        if !stderr().is_terminal() {
            return Bar(None);
        }
        let target = ProgressDrawTarget::stderr_with_hz(5);
        let bar = ProgressBar::with_draw_target(Some(total.as_millis() as u64), target);
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {wide_msg}");
        Bar(style.ok().map(|style| bar.with_style(style)))
    }

    /// Shows the current step.
    pub(super) fn say(&self, what: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(what.to_owned());
        }
    }

    /// Advances the bar by a finished step, which took this time.
    pub(super) fn done(&self, took: Duration) {
        if let Some(bar) = &self.0 {
            bar.inc(took.as_millis() as u64);
        }
    }

    /// Removes the bar, so that the result stands alone.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
