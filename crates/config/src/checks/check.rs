//! Checks that settings fit together. Where two places are at odds, the message names both.

use crate::checks::text::Text;
use crate::problems::path::Path as At;
use crate::problems::problem::Wrong;
use crate::reading::draft::ConfigDraft;
use crate::table::ConfigReader;

impl ConfigDraft {
    /// The faults between the settings, each with its place. `text` is the text that the settings were read
    /// from, if there is one. No file is touched.
    pub fn problems(&self, text: Option<&ConfigReader<'_>>) -> Vec<(At, Wrong)> {
        let mut wrong = Vec::new();
        self.check_hosts(Text(text), &mut wrong);
        self.check_addresses(Text(text), &mut wrong);
        self.check_proxies(&mut wrong);
        self.check_built(&mut wrong);
        self.check_tls(text, &mut wrong);
        self.check_acme(text, &mut wrong);
        self.check_admin(text, &mut wrong);
        self.check_trusted_header(&mut wrong);
        self.check_roots(&mut wrong);
        self.check_aliases(&mut wrong);
        self.check_routes(Text(text), &mut wrong);
        self.check_logs(Text(text), &mut wrong);
        self.check_log_names(&mut wrong);
        self.check_redirects(&mut wrong);
        self.check_conditions(&mut wrong);
        self.check_reserves(&mut wrong);
        self.check_policy(text, &mut wrong);
        self.check_protected(&mut wrong);
        self.check_isolated(&mut wrong);
        self.check_machines(&mut wrong);
        self.check_handed(&mut wrong);
        self.check_passed_on(text, &mut wrong);
        wrong
    }
}
