//! The live line while load is made: on a terminal only, on standard error.

use forebay_load::Progress;
use forebay_load::units::{show_count, show_us};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};

/// The line; nothing when standard error is no terminal.
pub(crate) struct Live(Option<ProgressBar>);

impl Live {
    pub(crate) fn new() -> Live {
        if !stderr().is_terminal() {
            return Live(None);
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        let style = ProgressStyle::with_template("{bar:12} {prefix}  {wide_msg}");
        Live(style.ok().map(|style| bar.with_style(style)))
    }

    /// Shows how things stand.
    pub(crate) fn show(&mut self, progress: &Progress) {
        let Some(bar) = &self.0 else { return };
        let (elapsed, total) = (progress.elapsed.as_secs_f64(), progress.total.as_secs_f64());
        bar.set_length(progress.total.as_millis() as u64);
        bar.set_position(progress.elapsed.as_millis() as u64);
        bar.set_prefix(format!("{elapsed:.0}/{total:.0} s"));
        let groups = progress.groups.iter().map(|group| {
            let (rate, p99) = (show_count(group.rate), show_us(group.p99_us));
            format!("{} {rate}/s p99 {p99} failed {}", group.name, group.failed)
        });
        bar.set_message(groups.collect::<Vec<_>>().join(" · "));
    }

    /// Removes the line, so that the result stands alone.
    pub(crate) fn end(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
