//! The rules of a link, one by one. `tests/it/link.rs` simulates how they work together.

use super::*;
use crate::group::balance::hash;

const RTO: u64 = 1000;
/// The time after the longer of that and the ceiling.
const CEILING: u64 = 2000;

fn link(count: u64) -> Link {
    let keys = (0..count).map(|number| hash(&number.to_le_bytes())).collect();
    Link::new(
        LinkSettings { choice: InstanceChoice::RoundRobin, ..LinkSettings::default() },
        keys,
        1,
        0,
    )
}

fn head(whole: Option<WholeAnswer>) -> LinkEvent<'static> {
    LinkEvent::Head { whole, delay_ms: None }
}

fn whole() -> Option<WholeAnswer> {
    Some(WholeAnswer { total_bytes: 100, tag: Box::from(*b"\"a\"") })
}

/// A request to which these events have happened.
fn begun(link: &mut Link, repeats: bool, events: &[LinkEvent<'_>]) -> Flight {
    let mut flight = link.begin(repeats, true, false, 0, 0).unwrap();
    for event in events {
        assert_eq!(link.event(&mut flight, 1, event, 0), LinkAction::Wait);
    }
    flight
}

const BROKEN: LinkEvent<'_> = LinkEvent::Broken { has_ended: false };

#[test]
fn what_may_run_twice_goes_to_another_and_the_rest_only_if_nothing_ran() {
    use LinkEvent::{Acknowledged, Late, Refused, Stale, Time, Written};
    for (before, then, is_certain) in [
        (&[][..], Refused, true),
        (&[], BROKEN, true),
        (&[], Time, true),
        (&[Written], Refused, true),
        (&[Written], BROKEN, false),
        (&[], Stale, true),
        (&[Written], Stale, false),
        // a missing acknowledgement does not show whether the request has run
        (&[Written], Time, false),
        (&[Written], Late, false),
        (&[Written, Acknowledged], BROKEN, false),
    ] {
        for repeats in [true, false] {
            let mut link = link(2);
            let mut flight = begun(&mut link, repeats, before);
            let first = flight.instance();
            let mut action = link.event(&mut flight, 1, &then, RTO);
            if then == Time && !(repeats || is_certain) {
                assert_eq!(action, LinkAction::Wait, "it may only be late");
                action = link.event(&mut flight, 1, &then, CEILING);
            }
            if repeats || is_certain {
                assert_eq!(action, LinkAction::Send(1 - first), "{before:?} {then:?}");
                assert_eq!((link.in_flight(first), link.in_flight(1 - first)), (0, 1));
                assert_eq!(flight.attempt(), 2);
            } else {
                assert_eq!(action, LinkAction::Fail(LinkFailure::Unknown), "{before:?} {then:?}");
                assert!(flight.is_over());
                assert_eq!((link.in_flight(0), link.in_flight(1)), (0, 0));
            }
        }
    }
    assert_eq!([LinkFailure::Unknown, LinkFailure::Exhausted].map(LinkFailure::status), [502, 503]);
}

#[test]
fn what_is_acknowledged_waits_for_as_long_as_its_instance_lives() {
    let mut link = link(2);
    let mut flight = begun(&mut link, false, &[LinkEvent::Written, LinkEvent::Acknowledged]);
    let at = flight.instance();
    let mut now_ms = 0;
    for _ in 0..20 {
        now_ms += RTO;
        assert_eq!(link.event(&mut flight, 1, &LinkEvent::Time, now_ms), LinkAction::Wait);
        let ping = std::iter::from_fn(|| link.ping(now_ms)).find(|ping| ping.instance == at);
        link.pong(ping.unwrap(), true, now_ms);
    }
    assert_eq!(link.condition(at), Some(UpstreamCondition::Well));
}

/// Neither a missing acknowledgement nor a missing pong shows that a request has not run. It cannot
/// go elsewhere, so it is waited for as long as the ceiling allows.
#[test]
fn one_that_must_not_run_twice_outlives_an_instance_that_is_late() {
    // when the acknowledgement comes, when the instance is back, and whether the request is waited
    // for
    for (acknowledged_ms, back_ms, is_waited_for) in [
        (Some(10), Some(1900), true),
        (Some(1900), Some(2500), true),
        (Some(10), None, false),
        (None, Some(1900), false),
        (None, None, false),
    ] {
        let mut link = link(2);
        let mut flight = begun(&mut link, false, &[LinkEvent::Written]);
        let mut other = begun(&mut link, true, &[LinkEvent::Written]);
        while other.instance() != flight.instance() {
            other = begun(&mut link, true, &[LinkEvent::Written]);
        }
        let is_early = acknowledged_ms == Some(10);
        if is_early {
            link.event(&mut flight, 1, &LinkEvent::Acknowledged, 10);
        }
        link.lost(flight.instance(), 1500);
        let action = link.event(&mut other, 1, &LinkEvent::Time, 1600);
        assert!(matches!(action, LinkAction::Send(_)), "{action:?}");
        assert_eq!(link.event(&mut flight, 1, &LinkEvent::Time, 1600), LinkAction::Wait);
        if let Some(at_ms) = acknowledged_ms.filter(|_| !is_early) {
            link.event(&mut flight, 1, &LinkEvent::Acknowledged, at_ms);
        }
        if let Some(back_ms) = back_ms {
            let ping = std::iter::from_fn(|| link.ping(back_ms));
            let ping = ping.into_iter().find(|ping| ping.instance == flight.instance());
            link.pong(ping.unwrap(), true, back_ms);
        }
        let last_ms = link.deadline_ms(&flight);
        assert_eq!(last_ms, acknowledged_ms.unwrap_or(0) + CEILING);
        let action = link.event(&mut flight, 1, &LinkEvent::Time, last_ms);
        let case = format!("{acknowledged_ms:?} {back_ms:?}");
        match is_waited_for {
            true => assert_eq!(action, LinkAction::Wait, "{case}"),
            false => assert_eq!(action, LinkAction::Fail(LinkFailure::Unknown), "{case}"),
        }
        link.cancel(&mut flight, last_ms);
        link.cancel(&mut other, last_ms);
    }
}

#[test]
fn who_does_not_acknowledge_is_waited_for() {
    let keys = (0..2u64).collect();
    let settings = LinkSettings { acknowledges: false, ..LinkSettings::default() };
    let mut link = Link::new(settings, keys, 1, 0);
    let mut flight = begun(&mut link, false, &[LinkEvent::Written]);
    assert_eq!(link.event(&mut flight, 1, &LinkEvent::Time, 10 * RTO), LinkAction::Wait);
    let other = 1 - flight.instance();
    link.lost(flight.instance(), 11 * RTO);
    let action = link.event(&mut flight, 1, &LinkEvent::Time, 12 * RTO);
    assert_eq!(action, LinkAction::Fail(LinkFailure::Unknown));
    let mut flight = link.begin(true, true, false, 0, 12 * RTO).unwrap();
    assert_eq!(flight.instance(), other);
    link.event(&mut flight, 1, &LinkEvent::Written, 12 * RTO);
    assert_eq!(link.event(&mut flight, 1, &BROKEN, 12 * RTO), LinkAction::Send(1 - other));
}

#[test]
fn who_answers_no_ping_is_lost_and_what_it_had_is_sent_elsewhere_at_once() {
    let mut link = link(2);
    let mut flights: Vec<Flight> = (0..1000)
        .map(|_| begun(&mut link, true, &[LinkEvent::Written, LinkEvent::Acknowledged]))
        .collect();
    let first = flights[0].instance();
    let silent = link.next_ping_ms();
    let pings: Vec<_> = std::iter::from_fn(|| link.ping(silent)).collect();
    assert_eq!(pings.len(), 2);
    let other = pings.iter().find(|ping| ping.instance != first).unwrap();
    link.pong(*other, true, silent);
    let lost_ms = silent + RTO;
    let again: Vec<_> = std::iter::from_fn(|| link.ping(lost_ms)).collect();
    assert!(matches!(again[..], [Ping { instance, .. }] if instance == 1 - first), "{again:?}");
    assert!(matches!(link.condition(first), Some(UpstreamCondition::Out { .. })));
    for flight in flights.iter_mut().filter(|flight| flight.instance() == first) {
        let action = link.event(flight, 1, &LinkEvent::Time, lost_ms + RTO);
        assert_eq!(action, LinkAction::Send(1 - first));
    }
    assert_eq!((link.in_flight(first), link.in_flight(1 - first)), (0, 1000));
    // a late answer is ignored
    link.pong(Ping { instance: first, number: 1 }, true, lost_ms);
    assert!(matches!(link.condition(first), Some(UpstreamCondition::Out { .. })));
}

#[test]
fn other_copies_have_a_budget() {
    let mut link = link(2);
    let (mut sent, mut resting) = (0, Vec::new());
    for _ in 0..100 {
        let mut flight = begun(&mut link, true, &[LinkEvent::Written]);
        match link.event(&mut flight, 1, &LinkEvent::Stale, 0) {
            LinkAction::Send(_) => {
                sent += 1;
                link.cancel(&mut flight, 0);
            }
            action => {
                assert_eq!(action, LinkAction::Rest);
                resting.push(flight);
            }
        }
    }
    assert!((20..40).contains(&sent), "{sent}");
    assert_eq!((link.in_flight(0), link.in_flight(1)), (0, 0));
    // a copy that is not admitted waits until it is, or is given up
    let mut fates = [0, 0];
    for mut flight in resting {
        let mut now_ms = 0;
        loop {
            now_ms = link.deadline_ms(&flight).max(now_ms);
            let attempt = flight.attempt();
            match link.event(&mut flight, attempt, &LinkEvent::Time, now_ms) {
                LinkAction::Rest => {}
                LinkAction::Send(_) => break fates[0] += 1,
                action => {
                    assert_eq!(action, LinkAction::Fail(LinkFailure::Exhausted));
                    assert!(now_ms >= 10_000);
                    break fates[1] += 1;
                }
            }
        }
        link.cancel(&mut flight, now_ms);
    }
    assert!(fates[0] > 5 && fates[1] > 5, "{fates:?}");
    assert_eq!((link.in_flight(0), link.in_flight(1)), (0, 0));
}

#[test]
fn what_one_instance_had_is_admitted_at_once_and_once() {
    for (loss, is_lost) in [(LinkEvent::Broken { has_ended: true }, false), (BROKEN, true)] {
        let mut link = link(2);
        let flights = (0..2000).map(|_| begun(&mut link, true, &[LinkEvent::Written]));
        let mut flights: Vec<_> = flights.filter(|flight| flight.instance() == 0).collect();
        assert_eq!(flights.len(), 1000);
        // the other instance is out, too, so this one gets requests although it is out
        (0..2).for_each(|at| link.lost(at, 0));
        while flights.len() < 1100 {
            let flight = begun(&mut link, true, &[LinkEvent::Written]);
            flights.extend(Some(flight).filter(|flight| flight.instance() == 0));
        }
        if is_lost {
            link.lost(0, 0);
        }
        for flight in &mut flights {
            assert_eq!(link.event(flight, 1, &loss, 0), LinkAction::Send(1));
        }
    }
}

#[test]
fn what_nobody_takes_rests_until_somebody_does() {
    for repeats in [true, false] {
        let mut link = link(2);
        let mut flight = begun(&mut link, repeats, &[]);
        let (mut now_ms, mut refused, mut rests) = (0, 0, Vec::new());
        while now_ms < 2000 {
            let (event, attempt) = match rests.len() == refused / 2 {
                true => (LinkEvent::Refused, flight.attempt()),
                false => (LinkEvent::Time, flight.attempt()),
            };
            refused += usize::from(event == LinkEvent::Refused);
            match link.event(&mut flight, attempt, &event, now_ms) {
                LinkAction::Send(_) => assert_eq!(flight.copy(), 1, "nothing was written"),
                LinkAction::Rest => {
                    assert_eq!((link.in_flight(0), link.in_flight(1)), (0, 0));
                    rests.push(link.deadline_ms(&flight) - now_ms);
                    now_ms = link.deadline_ms(&flight);
                    let attempt = flight.attempt();
                    let action = link.event(&mut flight, attempt, &LinkEvent::Time, now_ms);
                    assert!(matches!(action, LinkAction::Send(_)), "{action:?}");
                }
                action => panic!("{action:?}"),
            }
        }
        assert_eq!(rests[..6], [10, 20, 40, 80, 160, 200]);
        for event in [LinkEvent::Written, head(None), LinkEvent::End] {
            let attempt = flight.attempt();
            assert_eq!(link.event(&mut flight, attempt, &event, now_ms), LinkAction::Wait);
        }
        assert!(flight.is_over());
        assert_eq!((link.in_flight(0), link.in_flight(1)), (0, 0));
    }
}

#[test]
fn nobody_waits_for_ever() {
    let mut link = link(1);
    let mut flight = begun(&mut link, true, &[]);
    let (mut now_ms, mut event) = (0, LinkEvent::Refused);
    loop {
        let attempt = flight.attempt();
        event = match link.event(&mut flight, attempt, &event, now_ms) {
            LinkAction::Send(_) => LinkEvent::Refused,
            LinkAction::Rest => {
                now_ms = link.deadline_ms(&flight);
                LinkEvent::Time
            }
            action => {
                assert_eq!(action, LinkAction::Fail(LinkFailure::Exhausted));
                break;
            }
        };
    }
    assert!((10_000..10_500).contains(&now_ms), "{now_ms}");
}

#[test]
fn another_goes_on_with_a_body_if_it_is_the_same() {
    let tag = b"\"a\"".as_slice();
    let good = ResumePoint { from: 40, total_bytes: 100, tag };
    for (part, is_good) in [
        (Some(good), true),
        (Some(ResumePoint { from: 41, ..good }), false),
        (Some(ResumePoint { total_bytes: 101, ..good }), false),
        (Some(ResumePoint { tag: b"\"b\"", ..good }), false),
        (None, false),
    ] {
        let mut link = link(2);
        let events = [LinkEvent::Written, head(whole()), LinkEvent::Body(40)];
        let mut flight = begun(&mut link, true, &events);
        let other = 1 - flight.instance();
        assert_eq!(link.event(&mut flight, 1, &BROKEN, 0), LinkAction::Continue(other, 40));
        // late events of the attempt before are ignored
        assert_eq!(link.event(&mut flight, 1, &LinkEvent::Body(60), 0), LinkAction::Wait);
        link.event(&mut flight, 2, &LinkEvent::Written, 0);
        let action = link.event(&mut flight, 2, &LinkEvent::Part(part), 0);
        assert_eq!(action, if is_good { LinkAction::Wait } else { LinkAction::Break }, "{part:?}");
        if is_good {
            link.event(&mut flight, 2, &LinkEvent::Body(60), 0);
            link.event(&mut flight, 2, &LinkEvent::End, 0);
        }
        assert!(flight.is_over());
        assert_eq!((link.in_flight(0), link.in_flight(1)), (0, 0));
    }
    let mut link = link(2);
    let mut flight = begun(&mut link, true, &[LinkEvent::Written, head(None), LinkEvent::Body(40)]);
    assert_eq!(link.event(&mut flight, 1, &BROKEN, 0), LinkAction::Break);
}

#[test]
fn what_ends_two_processes_ends_no_third() {
    let mut link = link(4);
    let ended = LinkEvent::Broken { has_ended: true };
    let mut flight = begun(&mut link, true, &[LinkEvent::Written]);
    assert!(matches!(link.event(&mut flight, 1, &ended, 0), LinkAction::Send(_)));
    link.event(&mut flight, 2, &LinkEvent::Written, 0);
    assert_eq!(link.event(&mut flight, 2, &ended, 0), LinkAction::Fail(LinkFailure::Quarantined));
}

fn watched(count: u64) -> Link {
    let settings = LinkSettings {
        choice: InstanceChoice::RoundRobin,
        is_watched: true,
        ..LinkSettings::default()
    };
    Link::new(settings, (0..count).collect(), 1, 0)
}

#[test]
fn only_processes_that_end_by_themselves_count() {
    let ended = LinkEvent::Broken { has_ended: true };
    // how each of the processes has ended: by itself, stopped on purpose, or not at all
    for (fates, is_quarantined) in [
        ([Some(true), Some(true)], true),
        ([Some(true), Some(false)], false),
        ([Some(false), Some(true)], false),
        ([Some(false), Some(false)], false),
        ([None, Some(true)], false),
        ([None, None], false),
    ] {
        let mut link = watched(4);
        // ends of earlier processes do not count
        (0..4).for_each(|at| link.ended(at, true, 5));
        let mut now_ms = 10;
        let mut flight = link.begin(true, true, false, 0, now_ms).unwrap();
        for (at, fate) in fates.into_iter().enumerate() {
            let attempt = flight.attempt();
            link.event(&mut flight, attempt, &LinkEvent::Written, now_ms);
            now_ms += 10;
            let instance = flight.instance();
            let mut action = link.event(&mut flight, attempt, &ended, now_ms);
            // where one process may have been stopped on purpose, no verdict is waited for
            let waits = at == 1 && fates[0] != Some(false);
            assert_eq!(action == LinkAction::Rest, waits, "{fates:?} {action:?}");
            now_ms += 3;
            fate.into_iter().for_each(|by_itself| link.ended(instance, by_itself, now_ms));
            while action == LinkAction::Rest {
                now_ms = link.deadline_ms(&flight).max(now_ms);
                let attempt = flight.attempt();
                action = link.event(&mut flight, attempt, &LinkEvent::Time, now_ms);
            }
            let is_last = at == 1;
            assert_eq!(
                action == LinkAction::Fail(LinkFailure::Quarantined),
                is_last && is_quarantined,
                "{fates:?} {action:?}"
            );
        }
    }
}

#[test]
fn one_that_failed_gets_one_request_as_a_trial() {
    let mut link = link(2);
    let mut flight = begun(&mut link, true, &[]);
    let out = flight.instance();
    link.event(&mut flight, 1, &LinkEvent::Refused, 0);
    let asked = |link: &mut Link, now_ms| {
        (0..6)
            .map(|_| link.begin(true, true, false, 0, now_ms).unwrap().instance())
            .filter(|&at| at == out)
            .count()
    };
    assert_eq!(asked(&mut link, 499), 0);
    assert_eq!(asked(&mut link, 500), 1);
}

#[test]
fn backups_are_asked_while_none_of_the_others_is_well() {
    let settings = LinkSettings {
        choice: InstanceChoice::RoundRobin,
        backups: 1,
        is_watched: true,
        ..LinkSettings::default()
    };
    let mut link = Link::new(settings, (0..3).collect(), 1, 0);
    let asked = |link: &mut Link| {
        (0..6).map(|_| link.begin(true, true, false, 0, 1).unwrap().instance()).max()
    };
    assert_eq!(asked(&mut link), Some(1));
    let mut flight = begun(&mut link, true, &[]);
    let first = flight.instance();
    assert_eq!(link.event(&mut flight, 1, &LinkEvent::Refused, 0), LinkAction::Send(1 - first));
    assert_eq!(link.event(&mut flight, 2, &LinkEvent::Refused, 0), LinkAction::Send(2));
    assert_eq!(link.begin(true, true, false, 0, 1).unwrap().instance(), 2);
    // no supervisor reports how a process of another machine has ended: it counts at once
    link.event(&mut flight, 3, &LinkEvent::Written, 0);
    link.event(&mut flight, 3, &LinkEvent::Broken { has_ended: true }, 1);
    assert_eq!(flight.ended, 1);
}

#[test]
fn all_are_asked_where_none_may_be() {
    let mut link = link(3);
    (0..3).for_each(|at| link.lost(at, 0));
    let asked: Vec<_> =
        (0..3).map(|_| link.begin(true, true, false, 0, 1).unwrap().instance()).collect();
    assert!((0..3).all(|at| asked.contains(&at)), "{asked:?}");
}

#[test]
fn who_makes_requests_wait_gets_fewer() {
    let keys = (0..2u64).collect();
    let settings = LinkSettings { choice: InstanceChoice::Feedback, ..LinkSettings::default() };
    let mut link = Link::new(settings, keys, 1, 0);
    for _ in 0..20 {
        let mut flight = begun(&mut link, true, &[LinkEvent::Written]);
        let delay_ms = Some(if flight.instance() == 0 { 30 } else { 0 });
        link.event(&mut flight, 1, &LinkEvent::Head { whole: None, delay_ms }, 0);
        link.event(&mut flight, 1, &LinkEvent::End, 0);
    }
    (0..20).for_each(|_| _ = link.begin(true, true, false, 0, 0));
    assert!(link.in_flight(0) * 4 < link.in_flight(1), "{}", link.in_flight(0));
}

#[test]
fn who_has_caught_up_gets_requests_again() {
    let settings = LinkSettings { choice: InstanceChoice::Feedback, ..LinkSettings::default() };
    let mut link = Link::new(settings, (0..2u64).collect(), 1, 0);
    for _ in 0..20 {
        let mut flight = begun(&mut link, true, &[LinkEvent::Written]);
        let delay_ms = Some(if flight.instance() == 0 { 30 } else { 0 });
        link.event(&mut flight, 1, &LinkEvent::Head { whole: None, delay_ms }, 0);
        link.event(&mut flight, 1, &LinkEvent::End, 0);
    }
    let mut now_ms = 0;
    for _ in 0..20 {
        now_ms += 5_001;
        while let Some(ping) = link.ping(now_ms) {
            link.pong(ping, true, now_ms);
        }
    }
    (0..20).for_each(|_| _ = link.begin(true, true, false, 0, now_ms));
    assert!(link.in_flight(0) >= 8, "{}", link.in_flight(0));
}

/// Two equal instances have equal shares, even if a request has waited in one of them now and then.
#[test]
fn equal_instances_get_as_many_by_feedback() {
    let settings = LinkSettings { choice: InstanceChoice::Feedback, ..LinkSettings::default() };
    for waits_ms in [1, 5, 40] {
        let mut link = Link::new(settings, (0..2u64).collect(), 1, 0);
        let mut asked = [0_u32; 2];
        for number in 0..2000_u64 {
            // one after the other, 200 in a second
            let now_ms = number * 5;
            let mut flight = link.begin(true, true, false, 0, now_ms).unwrap();
            asked[flight.instance()] += 1;
            let delay_ms = Some(if number % 97 == 0 { waits_ms } else { 0 });
            for event in
                [LinkEvent::Written, LinkEvent::Head { whole: None, delay_ms }, LinkEvent::End]
            {
                link.event(&mut flight, 1, &event, now_ms);
            }
        }
        assert!(asked.iter().all(|count| *count >= 700), "{waits_ms} ms: {asked:?}");
    }
}

/// A link whose instances have answered this fast so often that their timers have settled.
fn warm(count: u64, took_ms: u64) -> (Link, u64) {
    let mut link = link(count);
    let mut now_ms = 0;
    for _ in 0..20 * count {
        let mut flight = link.begin(true, true, false, 0, now_ms).unwrap();
        link.event(&mut flight, 1, &LinkEvent::Written, now_ms);
        now_ms += took_ms;
        link.event(&mut flight, 1, &LinkEvent::Acknowledged, now_ms);
        link.event(&mut flight, 1, &LinkEvent::End, now_ms);
    }
    (link, now_ms)
}

#[test]
fn what_takes_longer_than_usual_goes_to_another_once() {
    for may_hurry in [true, false] {
        let (mut link, now_ms) = warm(3, 2);
        let mut flight = link.begin(true, true, may_hurry, 0, now_ms).unwrap();
        let first = flight.instance();
        link.event(&mut flight, 1, &LinkEvent::Written, now_ms);
        let due_ms = link.deadline_ms(&flight);
        assert_eq!(due_ms - now_ms, if may_hurry { 50 } else { 200 });
        let action = link.event(&mut flight, 1, &LinkEvent::Time, due_ms);
        let LinkAction::Send(second) = action else { panic!("{action:?}") };
        assert_ne!(first, second);
        let condition = link.condition(first).unwrap();
        assert_eq!(condition == UpstreamCondition::Well, may_hurry, "it may only be late");
        link.event(&mut flight, 2, &LinkEvent::Written, due_ms);
        assert_eq!(link.deadline_ms(&flight) - due_ms, 200, "once");
        // and the first instance is pinged at once
        let ping = std::iter::from_fn(|| link.ping(due_ms)).find(|ping| ping.instance == first);
        assert!(ping.is_some());
    }
}

#[test]
fn what_can_go_nowhere_else_waits_for_its_own() {
    let (mut link, now_ms) = warm(2, 2);
    (0..2).for_each(|at| link.lost(at, now_ms));
    let mut flight = link.begin(true, true, true, 0, now_ms).unwrap();
    link.event(&mut flight, 1, &LinkEvent::Written, now_ms);
    assert_eq!(link.event(&mut flight, 1, &LinkEvent::Time, now_ms + 50), LinkAction::Wait);
    assert_eq!(link.deadline_ms(&flight), now_ms + 200);
    // there is no budget to send all of them elsewhere
    let (mut link, now_ms) = warm(2, 2);
    let mut sent = 0;
    for _ in 0..500 {
        let mut flight = link.begin(true, true, true, 0, now_ms).unwrap();
        link.event(&mut flight, 1, &LinkEvent::Written, now_ms);
        let due_ms = link.deadline_ms(&flight);
        let action = link.event(&mut flight, 1, &LinkEvent::Time, due_ms);
        sent += usize::from(matches!(action, LinkAction::Send(_)));
        link.cancel(&mut flight, due_ms);
    }
    assert!((100..150).contains(&sent), "{sent}");
}

/// One instance stops, comes back, and stops again. Requests wait equally long each time, also those
/// that came to it together, and none is sent to it to find out whether it is back.
#[test]
fn who_stands_still_again_keeps_requests_waiting_for_no_longer() {
    let (mut link, mut now_ms) = warm(2, 2);
    for _ in 0..5 {
        let begun = |link: &mut Link, at_ms: u64| {
            let mut flight = link.begin(true, true, false, 0, at_ms).unwrap();
            link.event(&mut flight, 1, &LinkEvent::Written, at_ms);
            (flight, at_ms)
        };
        let all: Vec<_> = (0..40).map(|at| begun(&mut link, now_ms + at)).collect();
        let of_first = all.into_iter().filter(|(flight, _)| flight.instance() == 0);
        for (mut flight, at_ms) in of_first {
            assert_eq!(link.deadline_ms(&flight), at_ms + 200);
            let action = link.event(&mut flight, 1, &LinkEvent::Time, at_ms + 200);
            assert_eq!(action, LinkAction::Send(1));
            link.cancel(&mut flight, at_ms + 200);
        }
        now_ms += 240;
        let mut waiting = None;
        for _ in 0..100 {
            now_ms += 50;
            let pings: Vec<_> = std::iter::from_fn(|| link.ping(now_ms)).collect();
            for ping in pings {
                match ping.instance {
                    0 => waiting = Some(ping),
                    _ => link.pong(ping, true, now_ms),
                }
            }
            let mut flight = link.begin(true, true, false, 0, now_ms).unwrap();
            assert_eq!(flight.instance(), 1);
            link.event(&mut flight, 1, &LinkEvent::Written, now_ms);
            link.event(&mut flight, 1, &LinkEvent::Acknowledged, now_ms + 2);
            link.event(&mut flight, 1, &LinkEvent::End, now_ms + 2);
        }
        // the instance goes on, and answers the ping that has waited in it
        link.pong(waiting.unwrap(), true, now_ms);
        let mut asked = 0;
        for step in 0..100 {
            now_ms += 10;
            while let Some(ping) = link.ping(now_ms) {
                link.pong(ping, true, now_ms);
            }
            let mut flight = link.begin(true, true, false, 0, now_ms).unwrap();
            asked += usize::from(flight.instance() == 0 && step >= 60);
            link.event(&mut flight, 1, &LinkEvent::Written, now_ms);
            link.event(&mut flight, 1, &LinkEvent::Acknowledged, now_ms + 2);
            link.event(&mut flight, 1, &LinkEvent::End, now_ms + 2);
        }
        assert!(asked >= 15, "{asked}");
    }
}

#[test]
fn suspicions_are_counted_once_for_each_silence() {
    let mut link = link(2);
    for _ in 0..2 {
        let mut flight = begun(&mut link, true, &[LinkEvent::Written]);
        link.event(&mut flight, 1, &LinkEvent::Time, RTO);
    }
    let suspected = link.counts().suspected;
    assert!((1..=2).contains(&suspected), "{suspected}");
    assert_eq!(link.counts().hurried, 0);
}
