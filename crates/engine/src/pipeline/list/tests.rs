//! Tests of which thread takes what, and when.

use super::*;
use crate::order::ranks::OrderSettings;
use std::sync::mpsc::channel;

const ANYBODY: RankedClient = RankedClient { rank: 0, client: 0 };

fn plain<T>(target: u32) -> TaskList<T> {
    with_threads(TaskList::new(target, &Ranks::default(), 0))
}

/// A list for which all threads that it expects are there.
fn with_threads<T>(list: TaskList<T>) -> TaskList<T> {
    (0..list.coming()).for_each(|_| list.join());
    list
}

/// Sets the number of threads that take tasks; those that are lacking come.
fn set_target<T>(list: &TaskList<T>, target: u32) {
    let lacking = list.raise(target);
    (0..lacking).for_each(|_| list.join());
    if lacking == 0 {
        list.lower(target, &mut Vec::new(), |_| true);
    }
}

impl<T> Duty<T> {
    fn task(self) -> Option<(T, TaskRun)> {
        match self {
            Duty::Task(task, task_run) => Some((task, task_run)),
            _ => None,
        }
    }
}

fn of_rank(rank: u8) -> RankedClient {
    RankedClient { rank, client: 7 }
}

fn next<T>(list: &TaskList<T>, number: u32) -> (T, TaskRun) {
    list.next(WorkerSlot::Common(number), None, || ()).task().unwrap()
}

#[test]
fn tasks_are_taken_in_order_and_counted() {
    let list = plain(1);
    list.push('a', ANYBODY);
    list.push('b', ANYBODY);
    let (task, task_run) = next(&list, 0);
    assert_eq!(task, 'a');
    assert_eq!(list.figures().busy, 1);
    let (task, task_run) = list.next(WorkerSlot::Common(0), Some(task_run), || ()).task().unwrap();
    assert_eq!(task, 'b');
    let figures = list.figures();
    assert_eq!((figures.arrivals, figures.taken, figures.completions), (2, 2, 1));
    list.close();
    assert!(matches!(list.next(WorkerSlot::Common(0), Some(task_run), || ()), Duty::End));
    assert_eq!(list.figures().busy, 0);
}

#[test]
fn a_thread_that_is_too_many_rests() {
    let list = plain::<char>(2);
    let ended = |number, task_run| list.next(WorkerSlot::Common(number), task_run, || ());
    list.push('a', ANYBODY);
    list.push('b', ANYBODY);
    let (_, task_run) = next(&list, 0);
    set_target(&list, 1);
    assert!(matches!(ended(1, None), Duty::Rest));
    assert_eq!(list.figures().threads, 1);
    // the other thread goes on, and so does one that was too many and has not rested yet
    let (task, task_run) = ended(0, Some(task_run)).task().unwrap();
    assert_eq!(task, 'b');
    assert_eq!(list.raise(2), 1);
    assert_eq!((list.raise(2), list.coming()), (0, 1), "it is on its way");
    list.join();
    list.lower(1, &mut Vec::new(), |_| true);
    assert_eq!(list.raise(2), 0, "it has not left");
    list.lower(2, &mut Vec::new(), |_| true);
    list.push('c', ANYBODY);
    assert_eq!(ended(0, Some(task_run)).task().unwrap().0, 'c');
}

#[test]
fn a_thread_changes_its_phase_when_it_has_no_task() {
    let list = plain::<char>(3);
    let ended = |task_run| list.next(WorkerSlot::Common(0), task_run, || ());
    list.push('a', ANYBODY);
    let (_, task_run) = next(&list, 0);
    let mut takers = vec![Phase::Send, Phase::Process, Phase::Accept];
    list.lower(1, &mut takers, |phase| phase != Phase::Process);
    assert_eq!(takers, [Phase::Process]);
    // tasks that wait do not keep the thread here
    list.push('b', ANYBODY);
    assert!(matches!(ended(Some(task_run)), Duty::Switch(Phase::Send)));
    assert_eq!(list.take_back(), [Phase::Accept]);
    // no task waits for the thread any more, and it is one too many
    assert!(matches!(ended(None), Duty::Rest));
    let (task, task_run) = ended(None).task().unwrap();
    assert_eq!((task, list.figures().threads), ('b', 1));
    // threads of a reserve stay where they are
    list.lower(0, &mut vec![Phase::Send], |_| true);
    list.push('c', ANYBODY);
    let of_reserve = list.next(WorkerSlot::Reserve(0, 0), None, || ());
    assert_eq!(of_reserve.task().unwrap().0, 'c');
    assert!(matches!(ended(Some(task_run)), Duty::Switch(Phase::Send)));
}

#[test]
fn threads_that_sleep_are_told() {
    let list = Arc::new(plain::<u32>(2));
    let (tell, told) = channel();
    let sleep = |number| {
        let (list, tell) = (Arc::clone(&list), tell.clone());
        std::thread::spawn(move || {
            let mut ended = None;
            loop {
                match list.next(WorkerSlot::Common(number), ended.take(), || ()) {
                    Duty::Task(_, task_run) => ended = Some(task_run),
                    duty => return tell.send(duty).unwrap(),
                }
            }
        })
    };
    let threads = [0, 1].map(sleep);
    list.lower(1, &mut vec![Phase::Process], |_| true);
    assert!(matches!(told.recv().unwrap(), Duty::Switch(Phase::Process)));
    list.lower(0, &mut Vec::new(), |_| true);
    assert!(matches!(told.recv().unwrap(), Duty::Rest));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
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
    let of_third = |ended| list.next(WorkerSlot::Common(2), Some(ended), || ()).task().unwrap();
    let (d, mut task_run) = of_third(c.2);
    assert!(list.begin_job(d, ANYBODY, &mut task_run).is_none());
    list.push('e', ANYBODY);
    assert_eq!(list.figures().waiting, 3);
    list.end_job(&mut a.2);
    // a held task comes first, and may be begun
    let (task, mut task_run) = of_third(task_run);
    assert_eq!((task, list.begin_job(task, ANYBODY, &mut task_run)), ('c', Some('c')));
    set_target(&list, 4);
    let (d, _) = list.next(WorkerSlot::Common(0), Some(a.2), || ()).task().unwrap();
    let (e, _) = next(&list, 3);
    assert_eq!((d, e), ('d', 'e'));
    // tasks that were held are neither taken twice nor finished by being held
    let figures = list.figures();
    assert_eq!((figures.arrivals, figures.taken, figures.completions), (5, 5, 1));
    assert_eq!(figures.jobs, 4);
}

#[test]
fn high_ranks_go_first_and_have_threads_that_take_nothing_below() {
    let ranks = Ranks::new(&OrderSettings { shares: [0.0; 3].into(), ..OrderSettings::default() });
    let list = with_threads(TaskList::new(1, &ranks, 1));
    let reserves: Vec<_> = list.reserves().collect();
    assert_eq!(reserves, [WorkerSlot::Reserve(0, 0), WorkerSlot::Reserve(1, 0)]);
    for (task, rank) in [('z', 2), ('y', 2), ('b', 1), ('a', 0), ('c', 0), ('d', 1)] {
        list.push(task, of_rank(rank));
    }
    let of_reserve = |rank| list.next(WorkerSlot::Reserve(rank, 0), None, || ()).task().unwrap().0;
    assert_eq!([of_reserve(0), of_reserve(1), of_reserve(1)], ['a', 'c', 'b']);
    assert_eq!([next(&list, 0).0, next(&list, 0).0, next(&list, 0).0], ['d', 'z', 'y']);
}

#[test]
fn whoever_may_take_it_is_woken() {
    let ranks =
        Ranks::new(&OrderSettings { shares: [0.0, 0.1].into(), ..OrderSettings::default() });
    let list = Arc::new(with_threads(TaskList::new(2, &ranks, 1)));
    let (tell, told) = channel();
    let threads: Vec<_> = [WorkerSlot::Common(0), WorkerSlot::Common(1)]
        .into_iter()
        .chain(list.reserves())
        .map(|worker_slot| {
            let (list, tell) = (Arc::clone(&list), tell.clone());
            std::thread::spawn(move || {
                let mut ended = None;
                while let Some((task, mut task_run)) =
                    list.next(worker_slot, ended.take(), || ()).task()
                {
                    let ranked_client = of_rank(task_run.rank());
                    if list.begin_job(task, ranked_client, &mut task_run).is_some() {
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
        // at times all threads sleep
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
    let ranks = Ranks::new(&OrderSettings { shares: [0.0; 2].into(), ..OrderSettings::default() });
    let list = with_threads(TaskList::new(1, &ranks, 1));
    let (low, mut task_run) = {
        list.push('z', of_rank(1));
        next(&list, 0)
    };
    assert!(list.begin_job(low, of_rank(1), &mut task_run).is_some());
    set_target(&list, 2);
    list.push('a', of_rank(0));
    let (high, mut other) = next(&list, 1);
    assert!(list.begin_job(high, of_rank(0), &mut other).is_none());
    let of_reserve = list.next(WorkerSlot::Reserve(0, 0), None, || ());
    let (high, mut task_run) = of_reserve.task().unwrap();
    assert_eq!(list.begin_job(high, of_rank(0), &mut task_run), Some('a'));
}

#[test]
fn a_thread_rests_before_a_long_sleep() {
    let list = Arc::new(plain::<()>(1));
    let (tell, told) = channel();
    let sleeper = Arc::clone(&list);
    let rest = move || tell.send(()).unwrap();
    let thread = std::thread::spawn(move || {
        sleeper.next(WorkerSlot::Common(0), None, rest).task().is_none()
    });
    told.recv().unwrap();
    list.close();
    assert!(thread.join().unwrap());
}
