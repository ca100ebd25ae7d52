//! Constants that were measured on another machine.

use super::LintSubject;
use crate::machine::{is_other, processor};
use forebay_config::Remarks;
use forebay_config::path::Path as At;
use forebay_config::problem::{Finding, Wrong};
use forebay_sys::process;
use std::fmt;

/// Constants that were measured on a machine with another processor.
#[derive(Debug)]
struct ForeignConstants {
    /// A description of that machine.
    machine: String,
}

impl Finding for ForeignConstants {}

impl fmt::Display for ForeignConstants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ForeignConstants { machine } = self;
        write!(
            f,
            "these constants were found on another machine, {machine:?}: what is cheaper there may be \
                 dearer here; run forebay calibrate on this one"
        )
    }
}

/// Finds constants of another machine. The file that holds them was read with the text.
pub(super) fn calibration(of: &LintSubject<'_>, remarks: &mut Remarks) {
    let Some(machine) = of.draft.calibrated_on.clone() else { return };
    if is_other(&machine, processor(), process::usable_cores()) {
        let at = At::default().child("pipeline.calibration");
        remarks.push((at, Wrong::said(ForeignConstants { machine })));
    }
}
