//! Who takes what, and when.

use super::*;
use crate::ranks::Settings;
use std::sync::mpsc::channel;

const ANYBODY: Standing = Standing { rank: 0, client: 0 };

fn plain<T>(target: u32) -> List<T> {
    List::new(target, &Ranks::default(), 0)
}

fn of_rank(rank: u8) -> Standing {
    Standing { rank, client: 7 }
}

fn next<T>(list: &List<T>, number: u32) -> (T, TaskRun) {
    list.next(WorkerSlot::Common(number), None, || ()).unwrap()
}

#[test]
fn tasks_are_taken_in_order_and_counted() {
    let list = plain(1);
    list.push('a', ANYBODY);
    list.push('b', ANYBODY);
    let (task, task_run) = next(&list, 0);
    assert_eq!(task, 'a');
    assert_eq!(list.figures().busy, 1);
    let (task, task_run) = list.next(WorkerSlot::Common(0), Some(task_run), || ()).unwrap();
    assert_eq!(task, 'b');
    let figures = list.figures();
    assert_eq!((figures.arrivals, figures.taken, figures.completions), (2, 2, 1));
    list.close();
    assert!(list.next(WorkerSlot::Common(0), Some(task_run), || ()).is_none());
    assert_eq!(list.figures().busy, 0);
}

#[test]
fn threads_beyond_the_target_are_parked_until_it_rises() {
    let list = Arc::new(plain(1));
    let (tell, told) = channel();
    for number in 0..2 {
        let (list, tell) = (Arc::clone(&list), tell.clone());
        std::thread::spawn(move || {
            let mut ended = None;
            while let Some((task, task_run)) = list.next(WorkerSlot::Common(number), ended, || ()) {
                ended = Some(task_run);
                tell.send((number, task)).unwrap();
            }
        });
    }
    for task in 0..100 {
        list.push(task, ANYBODY);
    }
    assert!((0..100).all(|task| told.recv().unwrap() == (0, task)));
    assert_eq!(list.set_target(2), 1..2);
    assert_eq!(list.set_target(1), 2..2);
    assert_eq!(list.set_target(2), 2..2);
    list.set_target(0);
    list.push(100, ANYBODY);
    assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
    list.set_target(2);
    assert_eq!(told.recv().unwrap().1, 100);
    list.close();
    drop(tell);
    assert!(told.recv().is_err());
}

#[test]
fn one_thread_of_several_is_kept_from_jobs() {
    let list = plain(3);
    for task in ['a', 'b', 'c', 'd'] {
        list.push(task, ANYBODY);
    }
    let begin = |number| {
        let (task, mut task_run) = next(&list, number);
        let begun = list.begin_job(task, ANYBODY, &mut task_run);
        (task, begun.is_some(), task_run)
    };
    let [mut a, b, c] = [0, 1, 2].map(begin);
    assert!(a.1 && b.1 && !c.1);
    let (d, mut task_run) = list.next(WorkerSlot::Common(2), Some(c.2), || ()).unwrap();
    assert!(list.begin_job(d, ANYBODY, &mut task_run).is_none());
    list.push('e', ANYBODY);
    assert_eq!(list.figures().waiting, 3);
    list.end_job(&mut a.2);
    // what was held comes first, and may be begun
    let (task, mut task_run) = list.next(WorkerSlot::Common(2), Some(task_run), || ()).unwrap();
    assert_eq!((task, list.begin_job(task, ANYBODY, &mut task_run)), ('c', Some('c')));
    list.set_target(4);
    let (d, _) = list.next(WorkerSlot::Common(0), Some(a.2), || ()).unwrap();
    let (e, _) = next(&list, 3);
    assert_eq!((d, e), ('d', 'e'));
    // those that were held are neither taken twice nor finished by being held
    let figures = list.figures();
    assert_eq!((figures.arrivals, figures.taken, figures.completions), (5, 5, 1));
    assert_eq!(figures.jobs, 4);
}

#[test]
fn high_ranks_go_first_and_have_threads_that_take_nothing_below() {
    let list =
        List::new(1, &Ranks::new(&Settings { shares: [0.0; 3].into(), ..Settings::default() }), 1);
    assert_eq!(
        list.first_slots(),
        [WorkerSlot::Common(0), WorkerSlot::Reserve(0, 0), WorkerSlot::Reserve(1, 0)]
    );
    for (task, rank) in [('z', 2), ('y', 2), ('b', 1), ('a', 0), ('c', 0), ('d', 1)] {
        list.push(task, of_rank(rank));
    }
    let of_reserve = |rank| list.next(WorkerSlot::Reserve(rank, 0), None, || ()).unwrap().0;
    assert_eq!([of_reserve(0), of_reserve(1), of_reserve(1)], ['a', 'c', 'b']);
    assert_eq!([next(&list, 0).0, next(&list, 0).0, next(&list, 0).0], ['d', 'z', 'y']);
}

#[test]
fn whoever_may_take_it_is_woken() {
    let ranks = Ranks::new(&Settings { shares: [0.0, 0.1].into(), ..Settings::default() });
    let list = Arc::new(List::new(2, &ranks, 1));
    let (tell, told) = channel();
    let threads: Vec<_> = list
        .first_slots()
        .into_iter()
        .map(|worker_slot| {
            let (list, tell) = (Arc::clone(&list), tell.clone());
            std::thread::spawn(move || {
                let mut ended = None;
                while let Some((task, mut task_run)) = list.next(worker_slot, ended.take(), || ()) {
                    let standing = of_rank(task_run.rank());
                    if list.begin_job(task, standing, &mut task_run).is_some() {
                        tell.send((task, worker_slot)).unwrap();
                        list.end_job(&mut task_run);
                    }
                    ended = Some(task_run);
                }
            })
        })
        .collect();
    for round in 0..2_000u32 {
        list.push(round, of_rank((round % 2) as u8));
        // now and then everybody sleeps
        if round % 100 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let mut seen: Vec<_> = (0..2_000).map(|_| told.recv().unwrap()).collect();
    assert!(
        seen.iter().all(
            |(task, worker_slot)| task % 2 == 0 || matches!(worker_slot, WorkerSlot::Common(_))
        )
    );
    seen.sort_unstable_by_key(|(task, _)| *task);
    assert!((0..2_000).eq(seen.iter().map(|(task, _)| *task)));
    list.close();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_job_that_is_held_is_done_by_a_reserve() {
    let list =
        List::new(1, &Ranks::new(&Settings { shares: [0.0; 2].into(), ..Settings::default() }), 1);
    let (low, mut task_run) = {
        list.push('z', of_rank(1));
        next(&list, 0)
    };
    assert!(list.begin_job(low, of_rank(1), &mut task_run).is_some());
    list.set_target(2);
    list.push('a', of_rank(0));
    let (high, mut other) = next(&list, 1);
    assert!(list.begin_job(high, of_rank(0), &mut other).is_none());
    let (high, mut task_run) = list.next(WorkerSlot::Reserve(0, 0), None, || ()).unwrap();
    assert_eq!(list.begin_job(high, of_rank(0), &mut task_run), Some('a'));
}

#[test]
fn a_thread_rests_before_a_long_sleep() {
    let list = Arc::new(plain::<()>(1));
    let (tell, told) = channel();
    let sleeper = Arc::clone(&list);
    let rest = move || tell.send(()).unwrap();
    let thread =
        std::thread::spawn(move || sleeper.next(WorkerSlot::Common(0), None, rest).is_none());
    told.recv().unwrap();
    list.close();
    assert!(thread.join().unwrap());
}
