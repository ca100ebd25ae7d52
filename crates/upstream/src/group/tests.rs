//! Which upstream of a group is asked, by what is known of all of them.

use super::*;
use crate::settings::{
    Balance, BalanceKey, HealthCheckSettings, KeepAliveSettings, QueueSettings, UpstreamAddress,
    UpstreamTimeouts,
};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;

const S: u64 = 1000;

pub(crate) fn settings(
    count: usize,
    balance: Balance,
    in_flight: Option<u32>,
) -> settings::GroupSettings {
    let second = Duration::from_secs(1);
    settings::GroupSettings {
        to: (1..=count)
            .map(|number| UpstreamAddress::http(&format!("http://10.0.0.{number}")).unwrap())
            .collect(),
        backups: 0,
        weights: Vec::new(),
        balance,
        key: BalanceKey::Client,
        in_flight,
        in_flight_from: None,
        reserve: Vec::new(),
        queue: QueueSettings { requests: 0, time: second, down: Default::default() },
        keep_alive: KeepAliveSettings { connections: 1, idle: second },
        timeouts: UpstreamTimeouts { connect: second, head: second, body: second, silence: second },
        retries: 1,
        retry_permille: 200,
        max_fails: 1,
        fail_time: 10 * second,
        slow_start: Duration::ZERO,
        check: None,
        abort_on_close: false,
        tls: None,
        http2: false,
        http2_connections: None,
    }
}

fn group(count: usize, balance: Balance, in_flight: Option<u32>) -> UpstreamGroup {
    UpstreamGroup::new(&settings(count, balance, in_flight), 1, 0)
}

const ALL: [Balance; 4] = [Balance::Hash, Balance::Least, Balance::RoundRobin, Balance::TwoChoices];

/// The upstreams that get 60 requests of different keys, which show nothing of their health.
fn asked(group: &mut UpstreamGroup, now_ms: u64) -> Vec<MemberIndex> {
    let ask = |key| {
        let member = group.begin(crate::group::balance::hash(&[key]), &[], now_ms).unwrap();
        group.end(member, HealthSign::Nothing, now_ms);
        member
    };
    (0..60).map(ask).collect()
}

#[test]
fn one_that_is_well_is_asked_alone_and_all_if_none_is() {
    for balance in ALL {
        let mut group = group(4, balance, None);
        for out in 0..3 {
            group.members[out].health.told(HealthSign::Failed, 0);
            let asked = asked(&mut group, S);
            assert!(asked.iter().all(|member| *member > out), "{balance:?}: {asked:?}");
            assert!(matches!(group.condition(out), Some(UpstreamCondition::Out { .. })));
        }
        group.members[3].health.told(HealthSign::Failed, 0);
        let asked = asked(&mut group, S);
        assert!((0..4).all(|at| asked.contains(&at)), "{balance:?}: {asked:?}");
        assert_eq!(group.condition(0), Some(UpstreamCondition::Failing { since_ms: 0 }));
        // the first upstream that answers is asked alone
        group.members[2].health.told(HealthSign::Well, 2 * S);
        assert!(self::asked(&mut group, 2 * S).iter().all(|member| *member == 2));
        assert_eq!(group.condition(0), Some(UpstreamCondition::Out { since_ms: 0 }));
        group.drain(2, true, 3 * S);
        assert!(!self::asked(&mut group, 3 * S).contains(&2));
    }
}

#[test]
fn one_request_tries_who_is_out_and_goes_to_one_that_is_well_then() {
    for balance in ALL {
        let mut group = group(3, balance, None);
        for out in [0, 1] {
            group.members[out].health.told(HealthSign::Failed, 0);
        }
        let mut tried = [0; 3];
        for key in 0..60 {
            let key = crate::group::balance::hash(&[key]);
            let member = group.begin(key, &[], 10 * S).unwrap();
            tried[member] += 1;
            if member < 2 {
                assert_eq!(group.begin(key, &[member], 10 * S), Ok(2), "{balance:?}");
                group.end(2, HealthSign::Well, 10 * S);
                group.end(member, HealthSign::Failed, 10 * S);
            } else {
                group.end(member, HealthSign::Well, 10 * S);
            }
        }
        assert!(tried[0] <= 1 && tried[1] <= 1, "{balance:?}: {tried:?}");
    }
}

#[test]
fn whose_checks_fail_are_asked_last() {
    let check = HealthCheckSettings {
        path: "/".into(),
        interval: Duration::from_secs(5),
        statuses: Vec::new(),
    };
    let settings =
        settings::GroupSettings { check: Some(check), ..settings(3, Balance::Least, None) };
    let mut group = UpstreamGroup::new(&settings, 1, 0);
    for _ in 0..3 {
        for at in [0, 1] {
            group.checked(at, false, 0);
        }
    }
    assert!(asked(&mut group, S).iter().all(|member| *member == 2));
    assert_eq!(group.condition(0), Some(UpstreamCondition::Unwell { since_ms: 0 }));
    group.members[2].health.told(HealthSign::Failed, 0);
    assert!(asked(&mut group, S).iter().all(|member| *member == 2));
    assert_eq!(group.condition(2), Some(UpstreamCondition::Failing { since_ms: 0 }));
    let other = group.begin(0, &[2], S).unwrap();
    assert_ne!(other, 2, "who has failed the request already");
    group.end(other, HealthSign::Nothing, S);
    for _ in 0..3 {
        group.checked(2, false, S);
    }
    let asked = asked(&mut group, S);
    assert!((0..3).all(|at| asked.contains(&at)), "{asked:?}");
    assert_eq!(group.condition(0), Some(UpstreamCondition::Failing { since_ms: 0 }));
}

#[test]
fn backups_are_asked_while_none_of_the_others_is_well() {
    for balance in ALL {
        let settings = settings::GroupSettings { backups: 2, ..settings(4, balance, Some(30)) };
        let mut group = UpstreamGroup::new(&settings, 1, 0);
        let all_of = |asked: Vec<MemberIndex>, of: [MemberIndex; 2], why: &str| {
            assert!(asked.iter().all(|at| of.contains(at)), "{why}, {balance:?}: {asked:?}");
            assert!(of.iter().all(|at| asked.contains(at)), "{why}, {balance:?}: {asked:?}");
        };
        all_of(asked(&mut group, 0), [0, 1], "all are well");
        assert_eq!(group.places(), Some(60), "{balance:?}");
        assert_eq!(group.condition(2), Some(UpstreamCondition::Backup));
        // a request that has failed once goes to one of the others, then to a backup
        let second = group.begin(7, &[0], 0).unwrap();
        let third = group.begin(7, &[0, 1], 0).unwrap();
        assert!(second == 1 && third >= 2, "{balance:?}: {second}, {third}");
        for at in [second, third] {
            group.end(at, HealthSign::Nothing, 0);
        }
        group.drain(0, true, 0);
        group.members[1].health.told(HealthSign::Failed, 0);
        all_of(asked(&mut group, S), [2, 3], "none of the others is well");
        assert_eq!(group.condition(1), Some(UpstreamCondition::Out { since_ms: 0 }));
        assert_eq!(group.condition(2), Some(UpstreamCondition::Well));
        assert_eq!(group.places(), Some(60), "{balance:?}");
        // now and then one request tries whether an upstream is back
        let is_back = asked(&mut group, 10 * S).contains(&1);
        assert!(is_back, "{balance:?}");
        group.members[1].health.told(HealthSign::Well, 10 * S);
        assert!(asked(&mut group, 10 * S).iter().all(|at| *at == 1), "{balance:?}");
        // where no upstream is well, the others are better than backups
        for at in 1..4 {
            group.members[at].health.told(HealthSign::Failed, 11 * S);
        }
        assert!(asked(&mut group, 12 * S).iter().all(|at| *at == 1), "{balance:?}");
    }
}

#[test]
fn a_backup_takes_nothing_because_others_are_full() {
    let settings = settings::GroupSettings { backups: 1, ..settings(2, Balance::Least, Some(1)) };
    let mut group = UpstreamGroup::new(&settings, 1, 0);
    assert_eq!(group.begin(0, &[], 0), Ok(0));
    assert_eq!(group.begin(0, &[], 0), Err(Unavailable::Full));
    group.members[0].health.told(HealthSign::Failed, 0);
    assert_eq!(group.begin(0, &[], 0), Ok(1));
}

#[test]
fn another_one_is_tried_if_there_is_one() {
    for balance in ALL {
        let mut two = group(2, balance, None);
        let first = two.begin(7, &[], 0).unwrap();
        assert_eq!(two.begin(7, &[first], 0), Ok(1 - first));
        let mut one = group(1, balance, None);
        assert_eq!(one.begin(7, &[0], 0), Ok(0));
    }
}

#[test]
fn what_was_asked_in_vain_goes_to_one_that_is_out_if_no_other_is_left() {
    for balance in ALL {
        let mut group = group(2, balance, None);
        group.members[0].health.told(HealthSign::Failed, 0);
        // the other upstream has just gone, and is well as far as is known
        assert_eq!(group.begin(7, &[1], S), Ok(0), "{balance:?}");
        group.drain(0, true, S);
        assert_eq!(group.begin(7, &[1], S), Ok(1), "{balance:?}");
    }
}

#[test]
fn what_is_full_waits_and_what_is_drained_is_not_asked() {
    let mut group = group(2, Balance::Least, Some(2));
    let members: Vec<_> = (0..4).map(|_| group.begin(0, &[], 0).unwrap()).collect();
    assert_eq!(group.begin(0, &[], 0), Err(Unavailable::Full));
    group.end(members[0], HealthSign::Well, 0);
    assert_eq!(group.begin(0, &[], 0), Ok(members[0]));
    group.drain(0, true, 0);
    group.end(0, HealthSign::Well, 0);
    assert_eq!(group.begin(0, &[], 0), Err(Unavailable::Full));
    group.drain(1, true, 0);
    assert_eq!(group.begin(0, &[], 0), Err(Unavailable::Down));
    assert_eq!((group.in_flight(0), group.in_flight(1)), (1, 2));
}

#[test]
fn each_is_checked_when_its_time_has_come() {
    let check = HealthCheckSettings {
        path: "/".into(),
        interval: Duration::from_secs(5),
        statuses: Vec::new(),
    };
    let settings =
        settings::GroupSettings { check: Some(check), ..settings(2, Balance::Least, None) };
    let mut group = UpstreamGroup::new(&settings, 1, 0);
    assert_eq!(group.next_check_ms(), Some(0));
    for turn in 0..3 {
        let now_ms = turn * 5 * S;
        assert_eq!(group.begin_check(now_ms), Some(0));
        assert_eq!(group.begin_check(now_ms), Some(1));
        assert_eq!((group.begin_check(now_ms), group.next_check_ms()), (None, None));
        group.checked(0, false, now_ms + 1);
        group.checked(1, true, now_ms + 2);
        assert_eq!(group.next_check_ms(), Some(now_ms + 5 * S));
    }
    for _ in 0..4 {
        assert_eq!(group.begin(0, &[], 20 * S), Ok(1));
    }
    assert_eq!(group.condition(0), Some(UpstreamCondition::Unwell { since_ms: 10 * S + 1 }));
}

proptest! {
    /// For all sequences of failures: no upstream has more under way than it may, what ends was
    /// begun, and an upstream that may be asked is found whenever there is room.
    #[test]
    fn every_request_finds_room_where_there_is_some(
        steps in prop::collection::vec((0u8..5, 0u64..3000, any::<u64>()), 1..200),
        count in 1usize..5, most in 1u32..4, balance in 0usize..4,
    ) {
        let balance = ALL[balance];
        let mut group = group(count, balance, Some(most));
        let mut under_way: VecDeque<MemberIndex> = VecDeque::new();
        let mut now_ms = 0;
        for (what, pass_ms, key) in steps {
            now_ms += pass_ms;
            match what {
                0 | 1 => match group.begin(key, &[], now_ms) {
                    Ok(member) => under_way.push_back(member),
                    // the upstreams that are well have no room, or all of them if none is well
                    Err(error) => {
                        prop_assert_eq!(error, Unavailable::Full);
                        let has_room = |at: &MemberIndex| {
                            let condition = group.condition(*at);
                            let is_asked = matches!(
                                condition, Some(UpstreamCondition::Well | UpstreamCondition::Failing { .. })
                            );
                            is_asked && group.in_flight(*at) < most
                        };
                        prop_assert!((0..count).find(has_room).is_none());
                    }
                },
                what => {
                    let told = [HealthSign::Well, HealthSign::Failed, HealthSign::Nothing][usize::from(what) - 2];
                    if let Some(member) = under_way.pop_front() {
                        group.end(member, told, now_ms);
                    }
                }
            }
            for at in 0..count {
                let known = under_way.iter().filter(|member| **member == at).count();
                prop_assert_eq!(group.in_flight(at) as usize, known);
                prop_assert!(group.in_flight(at) <= most);
            }
        }
    }
}

/// An upstream that failed is tried now and then while backups are asked; a place without a server is
/// not.
#[test]
fn a_place_without_a_server_is_not_tried_beside_backups() {
    let terms = |is_backup| Some(ServerTerms { weight: 1, is_backup, key: 7 });
    for balance in ALL {
        let mut group = group(3, balance, None);
        group.is_said(1, terms(false));
        group.is_said(2, terms(true));
        group.becomes(0, None, 0);
        assert_eq!(asked(&mut group, 0), [1; 60], "{balance:?}");
        group.becomes(1, None, 0);
        assert_eq!(asked(&mut group, 60 * S), [2; 60], "{balance:?}");
    }
}
