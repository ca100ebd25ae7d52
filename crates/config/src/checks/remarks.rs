//! Remarks about a configuration that is valid and probably not what is meant: `forebay check` and a server
//! warn of them.

use crate::problems::problem::Remarks;
use crate::reading::draft::ConfigDraft;
use crate::table::ConfigReader;

impl ConfigDraft {
    /// Remarks on settings that have no effect, or not the one that is probably meant, as far as the text
    /// shows.
    pub fn remarks_of_text(&self, text: &ConfigReader<'_>) -> Remarks {
        let mut all = Vec::new();
        let remarks = &mut all;
        self.remark_admin(text, remarks);
        self.remark_hosts(text, remarks);
        self.remark_order(text, remarks);
        self.remark_paths(text, remarks);
        self.remark_unused(text, remarks);
        self.remark_exceptions(text, remarks);
        self.remark_held(remarks);
        self.remark_unseen(remarks);
        self.remark_applications(text, remarks);
        self.remark_reserves(remarks);
        self.remark_handed(remarks);
        self.remark_passed_on(remarks);
        self.remark_caching(remarks);
        self.remark_tls(remarks);
        self.remark_acme(text, remarks);
        self.remark_logs(remarks);
        self.remark_gate(remarks);
        self.remark_firewall(remarks);
        self.remark_dollars(remarks);
        self.remark_literals(remarks);
        self.remark_copied_fields(remarks);
        self.remark_stopping(remarks);
        self.remark_traces(text, remarks);
        all
    }
}
