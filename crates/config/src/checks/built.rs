//! Checks a configuration against the features that the program was built with: TLS, certificates by ACME.

use crate::AskClients;
use crate::problems::path::Path as At;
use crate::problems::problem::Wrong;
use crate::reading::draft::ConfigDraft;
use crate::table::NotBuilt;

/// The Cargo features that a configuration may want.
#[derive(Clone, Copy)]
struct BuiltFeatures {
    tls: bool,
    acme: bool,
}

/// The features of this program.
const BUILT: BuiltFeatures =
    BuiltFeatures { tls: forebay_tls::IS_BUILT, acme: cfg!(feature = "acme") };

impl ConfigDraft {
    /// Checks that the configuration wants nothing that this program was built without.
    pub(crate) fn check_built(&self, wrong: &mut Vec<(At, Wrong)>) {
        self.check_features(BUILT, wrong);
    }

    fn check_features(&self, built: BuiltFeatures, wrong: &mut Vec<(At, Wrong)>) {
        let not_built = |feature| Wrong::said(NotBuilt { feature });
        for (path, site) in self.every_site().into_iter().filter(|_| !built.acme) {
            if site.tls.acme {
                wrong.push((path.child("tls.acme"), not_built("acme")));
            }
        }
        if built.tls {
            return;
        }
        for (path, listener) in self.all_listeners() {
            let sealed = listener.listen.iter().enumerate().filter(|(_, endpoint)| endpoint.tls);
            let sealed = sealed.map(|(index, _)| path.child("listen").item(index));
            wrong.extend(sealed.map(|at| (at, not_built("tls"))));
        }
        for (path, site) in self.every_site() {
            if !site.tls.pairs.is_empty() {
                wrong.push((path.child("tls.certificate"), not_built("tls")));
            }
            if site.tls.clients.asked != AskClients::Off {
                wrong.push((path.child("tls.client"), not_built("tls")));
            }
            for (list, index, _) in site.upstream_tls() {
                wrong.push((path.child(list).item(index), not_built("tls")));
            }
        }
        if !self.process.admin.pairs.is_empty() {
            wrong.push((
                At::default().child("admin").child("tls").child("certificate"),
                not_built("tls"),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::ConfigReader;

    /// The messages about a text in a program with these features.
    fn said(text: &str, tls: bool, acme: bool) -> Vec<String> {
        let draft = ConfigReader::new(text, "").draft();
        let mut wrong = Vec::new();
        draft.check_features(BuiltFeatures { tls, acme }, &mut wrong);
        wrong.iter().map(|(at, wrong)| format!("{}: {wrong}", at.exact)).collect()
    }

    #[test]
    fn what_is_not_built_is_refused_where_it_is_wanted() {
        let text = "listen = [\"127.0.0.1:80\", \"https://127.0.0.1:443\"]\nroot = \"/\"\n\
                    [[site]]\nhosts = [\"a.test\"]\nroot = \"/\"\n\
                    tls = { certificate = [\"a.crt\"], key = [\"a.key\"] }\n\
                    [[site.proxy]]\npath = \"/app\"\nto = [\"https://10.0.0.1\"]\n\
                    [[site]]\nhosts = [\"b.test\"]\nroot = \"/\"\ntls.acme = true\n";
        let none = "this program was built without it (the Cargo feature tls)";
        let expected = [
            format!("site[1].tls.acme: {}", none.replace("tls)", "acme)")),
            format!("listen[1]: {none}"),
            format!("site[0].tls.certificate: {none}"),
            format!("site[0].proxy[0]: {none}"),
        ];
        assert_eq!(said(text, false, false), expected);
        assert_eq!(said(text, true, false), expected[..1]);
        assert!(said(text, true, true).is_empty());
    }
}
