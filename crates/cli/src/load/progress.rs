//! The progress of a load, on standard error: a live line on a terminal; elsewhere, with `--progress`, a line
//! per second.

use forebay_load::RunProgress;
use forebay_load::units::{show_count, show_us};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

/// The time between printed lines.
const PERIOD: Duration = Duration::from_secs(1);

/// The form in which progress is shown.
pub(crate) enum ProgressDisplay {
    /// The line on a terminal.
    Line(ProgressBar),
    /// Printed lines; the next one at this time of the run.
    Lines(Duration),
    /// No progress is shown.
    Nothing,
}

impl ProgressDisplay {
    /// Chooses the form. With `is_wanted` there is progress also where standard error is not a terminal.
    pub(crate) fn new(is_wanted: bool) -> ProgressDisplay {
        if !stderr().is_terminal() {
            return if is_wanted {
                ProgressDisplay::Lines(PERIOD)
            } else {
                ProgressDisplay::Nothing
            };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        let style = ProgressStyle::with_template("{bar:12} {prefix}  {wide_msg}");
        style.map_or(ProgressDisplay::Nothing, |style| ProgressDisplay::Line(bar.with_style(style)))
    }

    /// Shows the progress, if it is time for that.
    pub(crate) fn show(&mut self, progress: &RunProgress) {
        match self {
            ProgressDisplay::Line(bar) => {
                if let Some(total) = progress.total {
                    bar.set_length(total.as_millis() as u64);
                    bar.set_position(progress.elapsed.as_millis() as u64);
                }
                bar.set_prefix(time(progress));
                bar.set_message(groups(progress));
            }
            ProgressDisplay::Lines(next) if progress.elapsed >= *next => {
                *next = progress.elapsed + PERIOD;
                // an error here cannot be reported anywhere
                let _ = writeln!(stderr(), "{}  {}", time(progress), groups(progress));
            }
            ProgressDisplay::Lines(_) | ProgressDisplay::Nothing => {}
        }
    }

    /// Removes the line, so that the result stands alone.
    pub(crate) fn end(&mut self) {
        if let ProgressDisplay::Line(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn time(progress: &RunProgress) -> String {
    let elapsed = progress.elapsed.as_secs_f64();
    match progress.total {
        Some(total) => format!("{elapsed:.0}/{:.0} s", total.as_secs_f64()),
        None => format!("{elapsed:.0} s"),
    }
}

fn groups(progress: &RunProgress) -> String {
    let groups = progress.groups.iter().map(|group| {
        let (rate, p99) = (show_count(group.rate), show_us(group.p99_us));
        format!("{} {rate}/s p99 {p99} failed {}", group.name, group.failed)
    });
    groups.collect::<Vec<_>>().join(" · ")
}
