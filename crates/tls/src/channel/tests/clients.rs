//! Tests of client certificates: which are accepted, and when a session with one is resumed.

use super::*;
use crate::clients::{Authorities, ClientAuth, ClientVerification, ClientsError, Revoked};
use forebay_conn::transport::Unproven;
use rcgen::{CertificateParams, DnType, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;
use rustls::version::{TLS12, TLS13};

const BOTH_VERSIONS: [&rustls::SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

impl Ca {
    /// A client with a certificate, which `change` may make a bad one.
    fn client_with(
        &self,
        servers: &Ca,
        version: &'static rustls::SupportedProtocolVersion,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Arc<ClientConfig> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
        params.distinguished_name.push(DnType::CommonName, "worker 7");
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        params.serial_number = Some(vec![7].into());
        change(&mut params);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = servers.builder(version);
        Arc::new(config.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap())
    }

    /// A client without a certificate.
    fn bare_client(&self, version: &'static rustls::SupportedProtocolVersion) -> Arc<ClientConfig> {
        Arc::new(self.builder(version).with_no_client_auth())
    }

    fn builder(
        &self,
        version: &'static rustls::SupportedProtocolVersion,
    ) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_protocol_versions(&[version]).unwrap();
        config.with_root_certificates(self.roots.clone())
    }

    /// A list that revokes the certificate with this serial number.
    fn list(&self, serial: u8, next_year: i32) -> Revoked {
        let params = rcgen::CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(next_year, 1, 1),
            crl_number: vec![1].into(),
            issuing_distribution_point: None,
            revoked_certs: vec![rcgen::RevokedCertParams {
                serial_number: vec![serial].into(),
                revocation_time: date_time_ymd(2020, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).unwrap();
        Revoked::read(list.pem().unwrap().as_bytes()).unwrap()
    }

    fn authorities(&self) -> Authorities {
        Authorities::read(self.pem.as_bytes()).unwrap()
    }

    /// An identity for these names that asks clients for certificates of this authority.
    fn asking(
        &self,
        names: &[&str],
        tickets: Arc<TicketSealer>,
        clients: Option<ClientVerification>,
    ) -> Arc<Identity> {
        let pair = self.pair(names, ECDSA);
        Arc::new(Identity::new(vec![pair], tickets, true, clients.map(Arc::new)).unwrap())
    }
}

fn alone(identity: Arc<Identity>) -> Arc<Identities> {
    Arc::new(Identities::new(Some(identity)))
}

/// The outcome of a client's handshake.
fn outcome(
    client: &Arc<ClientConfig>,
    identities: &Arc<Identities>,
) -> Result<Secured, TransportFailure> {
    let mut both = Both::new(client, "a.example", identities);
    let _ = both.talk();
    match Transport::<Work>::failure(&both.server) {
        Some(failure) => Err(failure),
        None => Ok(both.secured()),
    }
}

#[test]
fn clients_are_taken_by_their_certificates() {
    let (ca, other) = (Ca::named("one"), Ca::named("other"));
    for version in BOTH_VERSIONS {
        for asked in [ClientAuth::Optional, ClientAuth::Required] {
            let clients = |revoked: &[Revoked]| {
                let clients = ClientVerification::new(asked, &[ca.authorities()], revoked).unwrap();
                alone(ca.asking(&["a.example"], tickets(), Some(clients)))
            };
            let good = ca.client_with(&ca, version, |_| {});
            let secured = outcome(&good, &clients(&[])).unwrap();
            let shown = secured.client.unwrap();
            assert_eq!(&*shown.subject, "CN=worker 7,O=Example\\, Inc.");
            assert_eq!(shown.fingerprint.len(), 64);
            assert!(secured.policy.is_some());

            let without = outcome(&ca.bare_client(version), &clients(&[]));
            match asked {
                ClientAuth::Optional => assert_eq!(without.unwrap().client, None),
                ClientAuth::Required => {
                    assert_eq!(without, Err(TransportFailure::Unproven(Unproven::Missing)));
                }
            }
            let bad = |client: &Arc<ClientConfig>, revoked: &[Revoked]| {
                outcome(client, &clients(revoked)).unwrap_err()
            };
            let stranger = other.client_with(&ca, version, |_| {});
            let old = ca.client_with(&ca, version, |params| {
                params.not_after = date_time_ymd(2020, 1, 1);
            });
            let early = ca.client_with(&ca, version, |params| {
                params.not_before = date_time_ymd(2999, 1, 1);
            });
            let server = ca.client_with(&ca, version, |params| {
                params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
            });
            for (client, revoked, expected) in [
                (&stranger, &[][..], Unproven::Untrusted),
                (&old, &[], Unproven::Expired),
                (&early, &[], Unproven::Expired),
                (&server, &[], Unproven::Wrong),
                (&good, &[ca.list(7, 2999)], Unproven::Revoked),
                // an expired list cannot vouch for certificates that were revoked since
                (&good, &[ca.list(8, 2021)], Unproven::Unlisted),
                (&good, &[other.list(8, 2999)], Unproven::Unlisted),
            ] {
                assert_eq!(
                    bad(client, revoked),
                    TransportFailure::Unproven(expected),
                    "{expected:?}"
                );
            }
            assert!(outcome(&good, &clients(&[ca.list(8, 2999)])).is_ok());
        }
    }
}

#[test]
fn clients_are_taken_by_their_name_where_it_is_asked_for() {
    let ca = Ca::named("one");
    for version in BOTH_VERSIONS {
        let all = ClientVerification::new(ClientAuth::Required, &[ca.authorities()], &[]).unwrap();
        let stamp = all.stamp();
        let named = all.of_name("receive.example").unwrap();
        assert_ne!(named.stamp(), stamp);
        let asking = alone(ca.asking(&["a.example"], tickets(), Some(named)));
        let client = |name: &str| {
            let name = rcgen::SanType::DnsName(name.try_into().unwrap());
            ca.client_with(&ca, version, |params| params.subject_alt_names = vec![name])
        };
        assert!(outcome(&client("receive.example"), &asking).is_ok());
        for other in [client("alice.example"), ca.client_with(&ca, version, |_| {})] {
            let failure = outcome(&other, &asking).unwrap_err();
            assert_eq!(failure, TransportFailure::Unproven(Unproven::Wrong));
        }
    }
}

/// CVE-2025-23419: a client that has a session with a site that asks for no certificate does not resume
/// it with one that does.
#[test]
fn a_session_is_resumed_where_the_same_is_asked() {
    let ca = Ca::named("one");
    for version in BOTH_VERSIONS {
        let asking =
            || ClientVerification::new(ClientAuth::Required, &[ca.authorities()], &[]).unwrap();
        let open = ca.asking(&["open.example", "shut.example"], tickets(), None);
        let shut = ca.asking(&["open.example", "shut.example"], tickets(), Some(asking()));
        let mut identities = Identities::new(None);
        identities.add("open.example", &open);
        identities.add("shut.example", &shut);
        let identities = Arc::new(identities);
        let talk = |client: &Arc<ClientConfig>, name: &str, identities: &Arc<Identities>| {
            let mut both = Both::new(client, name, identities);
            let _ = both.talk();
            (both.is_open, Transport::<Work>::failure(&both.server), both)
        };
        let client = ca.bare_client(version);
        for resumed in [false, true] {
            let (is_open, _, both) = talk(&client, "open.example", &identities);
            assert!(is_open && both.secured().resumed == resumed);
        }
        // the same client brings its session to the other site, by name, and by a name that both
        // have
        let mut turned = Identities::new(None);
        turned.add("open.example", &shut);
        for (name, identities) in
            [("shut.example", &identities), ("open.example", &Arc::new(turned))]
        {
            let (is_open, failure, _) = talk(&client, name, identities);
            assert!(!is_open, "{name}");
            assert_eq!(failure, Some(TransportFailure::Unproven(Unproven::Missing)), "{name}");
        }
        // a client that has shown a certificate resumes, and is still known by it
        let client = ca.client_with(&ca, version, |_| {});
        let subjects = [false, true].map(|resumed| {
            let (_, _, both) = talk(&client, "shut.example", &identities);
            let secured = both.secured();
            assert_eq!(secured.resumed, resumed);
            secured.client.unwrap()
        });
        assert_eq!(subjects[0], subjects[1]);
    }
}

#[test]
fn a_session_does_not_outlive_the_certificate_it_began_with() {
    let ca = Ca::named("one");
    let clients =
        ClientVerification::new(ClientAuth::Required, &[ca.authorities()], &[ca.list(8, 2999)])
            .unwrap();
    let of = |year| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        params.signed_by(&key, &ca.issuer).unwrap().der().to_vec()
    };
    assert!(!clients.is_over(&of(2998)) && clients.is_over(&of(2021)));
    let clients =
        ClientVerification::new(ClientAuth::Required, &[ca.authorities()], &[ca.list(8, 2021)])
            .unwrap();
    assert!(clients.is_over(&of(2998)), "the list has expired");
}

#[test]
fn what_is_asked_is_the_same_or_another() {
    let (one, other) = (Ca::named("one"), Ca::named("other"));
    let new = |asked, ca: &[&Ca], revoked: &[Revoked]| {
        let authorities: Vec<_> = ca.iter().map(|ca| ca.authorities()).collect();
        ClientVerification::new(asked, &authorities, revoked).unwrap()
    };
    let first = new(ClientAuth::Required, &[&one], &[]);
    let same = new(ClientAuth::Required, &[&one], &[]);
    assert_eq!((first.policy(), first.stamp()), (same.policy(), same.stamp()));
    for another in [
        new(ClientAuth::Optional, &[&one], &[]),
        new(ClientAuth::Required, &[&other], &[]),
        new(ClientAuth::Required, &[&one, &other], &[]),
    ] {
        assert!(first.policy() != another.policy() && first.stamp() != another.stamp());
    }
    // a connected client stays when its certificate is revoked, and does not resume
    let revoking = new(ClientAuth::Required, &[&one], &[one.list(7, 2999)]);
    assert!(first.policy() == revoking.policy() && first.stamp() != revoking.stamp());
}

#[test]
fn files_say_what_is_wrong_with_them() {
    let ca = Ca::named("one");
    let key = rcgen::KeyPair::generate().unwrap();
    let server = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    let server = server.signed_by(&key, &ca.issuer).unwrap().pem();
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let list = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
    let authorities = |text: &str| Authorities::read(text.as_bytes()).unwrap_err();
    let revoked = |text: &str| Revoked::read(text.as_bytes()).unwrap_err();
    assert!(matches!(authorities(""), ClientsError::NoCertificate));
    assert!(matches!(authorities(broken), ClientsError::Broken(_)));
    assert!(matches!(authorities(&(ca.pem.clone() + &server)), ClientsError::NoAuthority(_)));
    assert!(matches!(revoked(&ca.pem), ClientsError::NoList));
    assert!(matches!(revoked(list), ClientsError::BrokenList(_)));
    let none = ClientVerification::new(ClientAuth::Required, &[], &[]).unwrap_err();
    assert!(matches!(none, ClientsError::Unfit(_)));
}
