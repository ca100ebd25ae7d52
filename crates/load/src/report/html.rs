//! The report as one page for browsers.

use super::Report;

impl Report {
    /// The page.
    pub fn to_html(&self, _baseline: Option<&Report>) -> String {
        String::new()
    }
}
