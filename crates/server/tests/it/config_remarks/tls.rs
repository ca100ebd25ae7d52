//! Remarks on TLS: certificates, keys, client certificates, ACME.

use crate::config_files::Folder;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

/// Writes a certificate for these hosts to NAME.pem, and its key to NAME.key.
fn certify(folder: &Folder, name: &str, hosts: &[&str]) -> String {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let pair = rcgen::generate_simple_self_signed(hosts).unwrap();
    fs::write(folder.0.join(format!("{name}.pem")), pair.cert.pem()).unwrap();
    let key = folder.0.join(format!("{name}.key"));
    fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(key, mode).unwrap();
    format!("tls.certificate = [\"{name}.pem\"]\ntls.key = [\"{name}.key\"]\n")
}

#[test]
fn a_certificate_where_no_tls_is_spoken_is_remarked() {
    let folder = Folder::new();
    let tls = certify(&folder, "a", &["a.example"]);
    let site = format!("[[site]]\nhosts = [\"a.example\"]\nroot = \"site\"\n{tls}");
    let expected = "DIR/forebay.toml:5:19: site.tls.certificate: it has no effect, because no address of \
                    listen begins with \"https://\"";
    assert_eq!(folder.remarks(&format!("listen = [\":80\"]\n{site}")), [expected]);
    let nothing: [&str; 0] = [];
    assert_eq!(folder.remarks(&format!("listen = [\":80\", \"https://:443\"]\n{site}")), nothing);
    // one listener of several is enough
    let listener = "listen = [\":80\"]\n[[listener]]\nlisten = [\"https://:443\"]\n";
    assert_eq!(folder.remarks(&format!("{listener}{site}")), nothing);
}

#[test]
fn a_site_that_no_certificate_is_for_is_remarked() {
    let folder = Folder::new();
    let tls = certify(&folder, "a", &["a.example", "*.shop.example"]);
    let with = |listen: &str, hosts: &str| {
        folder.remarks(&format!(
            "listen = [{listen}]\n[[site]]\nhosts = [\"a.example\"]\nroot = \"site\"\n{tls}\
             [[site]]\nhosts = [{hosts}]\nroot = \"site\"\n"
        ))
    };
    let all = "\"https://:443\"";
    let expected = "DIR/forebay.toml:8:7: site.hosts: all addresses speak TLS, and no certificate is for \
                    \"b.example\": its clients are refused, or refuse what they are shown";
    let said = with(all, "\"b.example\"");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].ends_with(expected.split_once(": ").unwrap().1), "{said:?}");
    assert!(said[0].starts_with("DIR/forebay.toml:8:"), "{said:?}");
    let nothing: [&str; 0] = [];
    // the certificate of another site may cover a host; a star stands for one label
    for covered in ["\"www.shop.example\"", "\"*.shop.example\""] {
        assert_eq!(with(all, covered), nothing, "{covered}");
    }
    assert_eq!(with(all, "\"www.shop.example\", \"a.www.shop.example\"").len(), 1);
    // the site can be reached without TLS, but not all clients use that
    let said = with("\"https://:443\", \":80\"", "\"b.example\"");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].ends_with("what they are shown; it is served without TLS alone"), "{said:?}");
    assert_eq!(with("\":80\"", "\"b.example\"").len(), 1, "the certificate that nobody sees");
    // clients that ask for any name get the certificate of the default site, if it has one
    let default = "listen = [\"https://:443\"]\n[[site]]\nroot = \"site\"\n";
    let said = folder
        .remarks(&format!("{default}[[site]]\nhosts = [\"a.example\"]\nroot = \"site\"\n{tls}"));
    assert_eq!(said, nothing);
}

#[test]
fn certificates_and_keys_are_looked_at() {
    let folder = Folder::new();
    let tls = certify(&folder, "a", &["a.example"]);
    certify(&folder, "b", &["a.example"]);
    let text = |tls: &str| {
        format!(
            "listen = [\"https://:443\"]\n[[site]]\nhosts = [\"a.example\", \"b.example\"]\nroot = \"site\"\n{tls}"
        )
    };
    let not_covered = "DIR/forebay.toml:5:20: site.tls.certificate: the certificate is not for \"b.example\": \
                       clients will refuse it";
    assert_eq!(folder.remarks(&text(&tls)), [not_covered]);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(folder.0.join("a.key"), mode).unwrap();
    let open = "DIR/forebay.toml:6:12: site.tls.key: everybody on this machine may read the private key \
                \"DIR/a.key\": \"chmod o-rwx\"";
    assert_eq!(folder.remarks(&text(&tls)), [not_covered, open]);
    let expected = "DIR/forebay.toml:5:19: site.tls.certificate: the certificate \"DIR/a.pem\" with the key \
                    \"DIR/b.key\": the key is not that of the certificate";
    assert_eq!(folder.load(&text(&tls.replace("a.key", "b.key"))).unwrap_err(), [expected]);
    // a file that cannot be read is reported alone
    let one = folder.load(&text("tls.certificate = \"a.pem\"\n")).unwrap_err();
    assert!(one.iter().all(|line| !line.contains("no site has tls.certificate")), "{one:?}");
}

#[test]
fn what_is_said_about_tls_without_effect_is_remarked() {
    let folder = Folder::new();
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    fs::write(folder.0.join("a.crt"), cert.pem()).unwrap();
    let key =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.0.join("a.key"));
    key.unwrap().write_all(signing_key.serialize_pem().as_bytes()).unwrap();
    let text = |listen: &str, lines: &str| {
        let pair = "certificate = [\"a.crt\"]\nkey = [\"a.key\"]\n";
        format!("listen = [{listen}]\nroot = \"site\"\n[tls]\n{pair}{lines}")
    };
    let both = "\":80\", \"https://:443\"";
    let good = "redirect = 308\nhsts = \"365d\"\nhsts_subdomains = true\nhsts_preload = true\n";
    assert!(folder.remarks(&text(both, good)).is_empty());
    let in_vain = |place: &str, more: &str| {
        let why = "because no address of listen begins with \"https://\"";
        format!("DIR/forebay.toml:{place}: it has no effect, {why}{more}")
    };
    let no_proxy = ", and trusted_proxies names no proxy that could speak TLS";
    let expected = [
        in_vain("4:15: tls.certificate", ""),
        in_vain("6:12: tls.redirect", no_proxy),
        in_vain("7:8: tls.hsts", no_proxy),
    ];
    assert_eq!(folder.remarks(&text("\":80\"", good)), expected);
    let without = "hsts_subdomains = true\n";
    assert_eq!(
        folder.remarks(&text(both, without)),
        ["DIR/forebay.toml:6:19: tls.hsts_subdomains: it has no effect without tls.hsts"]
    );
    let short = "hsts = \"30d\"\nhsts_subdomains = true\nhsts_preload = true\n";
    let said = folder.remarks(&text(both, short));
    assert!(said.len() == 1 && said[0].contains(":8:16: tls.hsts_preload: browsers"), "{said:?}");
    let rule = "hsts = \"30d\"\n[[header]]\nremove = [\"strict-transport-security\"]\n";
    let said = folder.remarks(&text(both, rule));
    assert!(said.len() == 1 && said[0].contains(":6:8: tls.hsts: it has no effect"), "{said:?}");
    // a trusted proxy may state that its clients have used TLS
    let proxied = |listen, lines| {
        folder.remarks(&format!("trusted_proxies = [\"127.0.0.1\"]\n{}", text(listen, lines)))
    };
    assert_eq!(proxied(both, good), [""; 0]);
    let said = proxied("\":80\"", good);
    assert!(said.len() == 1 && said[0].contains(":5:15: tls.certificate: it has"), "{said:?}");
    let said = proxied("\":80\"", without);
    assert!(said.len() == 2 && said[1].contains("it has no effect without tls.hsts"), "{said:?}");
}

/// Writes the certificate of an authority to NAME.pem, and to NAME.crl its empty revocation list,
/// whose next update is due in this year.
fn authority(folder: &Folder, name: &str, year: i32) {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    fs::write(folder.0.join(format!("{name}.pem")), certificate.pem()).unwrap();
    let list = rcgen::CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2019, 1, 1),
        next_update: rcgen::date_time_ymd(year, 1, 1),
        crl_number: vec![1].into(),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&rcgen::Issuer::new(params, key)).unwrap();
    fs::write(folder.0.join(format!("{name}.crl")), list.pem().unwrap()).unwrap();
}

#[test]
fn files_about_clients_are_looked_at() {
    let folder = Folder::new();
    let tls = certify(&folder, "a", &["a.example"]);
    fs::set_permissions(folder.0.join("a.key"), fs::Permissions::from_mode(0o600)).unwrap();
    authority(&folder, "ca", 2999);
    authority(&folder, "old", 2020);
    let text =
        |listen: &str, lines: &str| format!("listen = [{listen}]\nroot = \"site\"\n{tls}{lines}\n");
    let https = |lines: &str| text("\"https://:443\"", lines);
    let good =
        "tls.client = \"required\"\ntls.client_ca = [\"ca.pem\"]\ntls.client_crl = [\"ca.crl\"]";
    assert_eq!(folder.remarks(&https(good)), [""; 0]);
    // without TLS no client shows a certificate
    let clear = text("\":80\", \"https://:443\"", good);
    let said = folder.remarks(&clear);
    assert!(said.len() == 1 && said[0].contains(":5:14: tls.client: requests that"), "{said:?}");
    assert_eq!(folder.remarks(&(clear.clone() + "tls.redirect = 308\n")), [""; 0]);
    assert_eq!(folder.remarks(&clear.replace("required", "optional")), [""; 0]);
    let said = folder.remarks(&text("\":80\"", good));
    assert!(
        said.iter().any(|line| line.contains(":5:14: tls.client: it has no effect")),
        "{said:?}"
    );
    // an authority and a list without a request for client certificates
    let said =
        folder.remarks(&https("tls.client_ca = [\"ca.pem\"]\ntls.client_crl = [\"ca.crl\"]"));
    assert!(
        said.len() == 2 && said[0].contains(":5:17: tls.client_ca: it has no effect"),
        "{said:?}"
    );
    let said = folder.remarks(&https(&good.replace("ca.crl", "old.crl")));
    assert!(said.len() == 1 && said[0].contains(":7:19: tls.client_crl: the list of"), "{said:?}");
    assert!(said[0].contains("has expired") && said[0].contains("are refused"), "{said:?}");
    for (lines, at, reason) in [
        ("tls.client = \"required\"", ":5:14: tls.client:", "tls.client_ca is missing"),
        (&*good.replace("ca.pem", "none.pem"), ":6:18: tls.client_ca:", "No such file"),
        (&*good.replace("ca.pem", "a.pem"), ":6:18: tls.client_ca:", "not that of an authority"),
        (&*good.replace("ca.pem", "a.key"), ":6:18: tls.client_ca:", "holds no certificate"),
        (&*good.replace("ca.crl", "ca.pem"), ":7:19: tls.client_crl:", "holds no list"),
        (&*good.replace("ca.crl", "none"), ":7:19: tls.client_crl:", "No such file"),
    ] {
        let wrong = folder.load(&https(lines)).unwrap_err();
        assert!(wrong.len() == 1 && wrong[0].contains(at), "{lines}: {wrong:?}");
        assert!(wrong[0].contains(reason), "{lines}: {wrong:?}");
    }
    let without = format!("listen = [\":80\"]\nroot = \"site\"\n{good}\n");
    let wrong = folder.load(&without).unwrap_err();
    assert!(wrong.len() == 1 && wrong[0].contains("tls.key are missing"), "{wrong:?}");
}

/// A certificate authority validates from any address, and rules refuse it like any client.
#[test]
fn rules_that_keep_an_authority_out_are_remarked() {
    let folder = Folder::new();
    let remarks = |listen: &str, rules: &str| {
        let site = "[[site]]\nhosts = [\"shop.example\"]\nroot = \"site\"\ntls.acme = true\n";
        let top = "acme.agree = true\nacme.storage = \"acme\"\nroot = \"site\"\n";
        let all = folder.remarks(&format!("listen = [{listen}]\n{top}{site}{rules}"));
        all.iter().filter(|remark| remark.contains("rule.action")).count()
    };
    let both = "\":80\", \"https://:443\"";
    let here = "[[rule]]\nclient = \"10.0.0.0/8\"\naction = \"allow\"\nstop = true\n";
    let not_here = &format!("{here}[[rule]]\naction = \"reject\"\n");
    let not_there = "[[rule]]\npath = \"/.well-known/*\"\naction = \"reject\"\n";
    let lets =
        "[[rule]]\npath = \"/.well-known/acme-challenge/*\"\naction = \"allow\"\nstop = true\n";
    let reset = &format!("{here}[[rule]]\naction = \"reset\"\n");
    for (listen, rules, count) in [
        (both, "", 0),
        (both, not_there, 0),
        ("\":80\"", not_there, 1),
        ("\":80\", \"127.0.0.1:81\"", not_here, 1),
        // a rule without conditions on requests decides before the request is read
        ("\":80\"", &format!("{lets}{not_here}"), 1),
        ("\":80\"", &format!("{lets}{not_here}path = \"/*\"\n"), 0),
        ("\":80\"", "[[rule]]\nsite = \"other.example\"\naction = \"reject\"\n", 0),
        ("\":80\"", "[[rule]]\nwhen = \"overload\"\naction = \"reject\"\n", 0),
        ("\":80\"", "[[rule]]\nmethod = \"POST\"\naction = \"reject\"\n", 0),
        (both, reset, 1),
    ] {
        assert_eq!(remarks(listen, rules), count, "{listen} {rules}");
    }
}

/// Remarks on a command that cannot be run, that other users may change, or that no site needs.
#[test]
fn commands_for_records_are_remarked() {
    let folder = Folder::new();
    let remarks = |hosts: &str, lines: &str| -> Vec<String> {
        let site = format!("[[site]]\nhosts = [{hosts}]\nroot = \"site\"\ntls.acme = true\n");
        let top =
            "listen = [\":80\"]\nacme.agree = true\nacme.storage = \"acme\"\nroot = \"site\"\n";
        let all = folder.remarks(&format!("{top}acme.dns_user = \"nobody\"\n{lines}{site}"));
        all.into_iter().filter(|remark| remark.contains("acme.dns_")).collect()
    };
    let (star, plain) = ("\"*.shop.example\"", "\"shop.example\"");
    let needs = remarks(plain, "acme.dns_wait = \"1s\"\n");
    assert_eq!(needs.len(), 2, "{needs:?}");
    assert!(needs.iter().all(|remark| remark.contains("acme.dns_hook")), "{needs:?}");
    let hook = folder.0.join("hook");
    let lines = format!("acme.dns_hook = [{hook:?}]\n");
    let only = |words: &str| {
        let all = remarks(star, &lines);
        assert!(all.len() == 1 && all[0].contains(words), "{words}: {all:?}");
    };
    only("cannot be run here: No such file");
    fs::create_dir(&hook).unwrap();
    only("it is no regular file");
    fs::remove_dir(&hook).unwrap();
    fs::write(&hook, "").unwrap();
    let mode = |mode| fs::set_permissions(&hook, Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    only("it is not executable");
    mode(0o757);
    only("everybody may write to");
    mode(0o755);
    assert!(remarks(star, &lines).is_empty());
    let idle = remarks(plain, &lines);
    assert!(idle.len() == 1 && idle[0].contains("is never run"), "{idle:?}");
    let all = format!("{lines}acme.challenges = [\"dns-01\"]\n");
    assert!(remarks(plain, &all).is_empty());
    let unknown = lines.replace("acme.dns_hook", "acme.dns_timeout = \"1m\"\nacme.dns_hook");
    assert!(remarks(star, &unknown).is_empty());
}
