//! What the operator is told on standard error.

use std::fmt;
use std::io::{self, Write};

/// Tells the operator; standard error may be closed, which is no reason to stop.
pub fn say(what: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "forebay: {what}");
}
