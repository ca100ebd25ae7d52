//! Tests of every operation of the library, and of fibers that fail.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_fiber as fiber;
use forebay_fiber::{FiberState, JoinError, MainThread, Options, Scheduler, Schedulers};
use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

type Log = Rc<RefCell<Vec<String>>>;

fn say(log: &Log, what: impl Into<String>) {
    log.borrow_mut().push(what.into());
}

#[test]
fn fibers_run_first_in_first_out() {
    let log = Log::default();
    let inner = Rc::clone(&log);
    fiber::run(move || {
        let fibers: Vec<_> = (0..3)
            .map(|n| {
                let log = Rc::clone(&inner);
                fiber::spawn(move || {
                    for round in 0..3 {
                        say(&log, format!("{round}{n}"));
                        fiber::yield_now();
                    }
                    n
                })
                .unwrap()
            })
            .collect();
        let results: Vec<_> = fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect();
        assert_eq!(results, [0, 1, 2]);
    })
    .unwrap();
    assert_eq!(*log.borrow(), ["00", "01", "02", "10", "11", "12", "20", "21", "22"]);
}

#[test]
fn states_are_those_of_the_paper() {
    fiber::run(|| {
        let created = fiber::create(fiber::park).unwrap();
        assert_eq!(created.state(), Some(FiberState::Suspended));
        fiber::yield_now();
        assert_eq!(created.state(), Some(FiberState::Suspended), "nobody has resumed it");
        created.unpark();
        assert_eq!(created.state(), Some(FiberState::Yielded));
        fiber::yield_now();
        assert_eq!(created.state(), Some(FiberState::Suspended), "it waits");
        created.unpark();
        fiber::yield_now();
        assert_eq!(created.state(), Some(FiberState::Terminated));
        created.join().unwrap();
        let (tell, told) = mpsc::channel::<fiber::Fiber<FiberState>>();
        let asks = fiber::spawn(move || told.recv().unwrap().state().unwrap()).unwrap();
        let itself = fiber::spawn(|| FiberState::Terminated).unwrap();
        tell.send(itself).unwrap();
        assert_eq!(asks.join().unwrap(), FiberState::Yielded);
    })
    .unwrap();
}

#[test]
fn an_unpark_that_comes_first_is_kept_and_only_one() {
    let scheduler = Scheduler::new(Options::default());
    let count = Rc::new(Cell::new(0));
    let counted = Rc::clone(&count);
    let id = scheduler
        .start(move || {
            loop {
                fiber::park();
                counted.set(counted.get() + 1);
            }
        })
        .unwrap()
        .unwrap();
    let expect = |after: &str, expected| {
        while scheduler.run_ready() {}
        assert_eq!(count.get(), expected, "{after}");
    };
    expect("no unpark", 0);
    scheduler.unpark(id);
    expect("one unpark", 1);
    // the second and the third call find the fiber ready, and leave one permit between them
    (0..3).for_each(|_| scheduler.unpark(id));
    expect("three unparks", 3);
}

/// The order in which fibers wake that sleep for 60, 20 and 40 ms; `None` if this machine was so slow that
/// one of those times was over too early.
fn order_of_sleepers() -> Option<Vec<u64>> {
    let (woken, in_time) = (Rc::<RefCell<Vec<u64>>>::default(), Rc::new(Cell::new(true)));
    let (log, is_so, begun) = (Rc::clone(&woken), Rc::clone(&in_time), Instant::now());
    fiber::run(move || {
        let sleep = |ms| {
            let (log, is_so) = (Rc::clone(&log), Rc::clone(&is_so));
            fiber::spawn(move || {
                let left = Duration::from_millis(ms).checked_sub(begun.elapsed());
                is_so.set(is_so.get() && left.is_some());
                fiber::sleep(left.unwrap_or_default());
                log.borrow_mut().push(ms);
            })
            .unwrap()
        };
        let fibers = [60, 20, 40].map(sleep);
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    })
    .unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(60));
    in_time.get().then(|| woken.take())
}

#[test]
fn sleepers_wake_in_the_order_of_their_times() {
    // a fiber that loses its core between reading the clock and sleeping wakes later than it should
    let mut orders = (0..100).filter_map(|_| order_of_sleepers()).take(3).peekable();
    assert!(orders.peek().is_some(), "a machine that runs within 20 ms");
    assert!(orders.any(|order| order == [20, 40, 60]));
}

#[test]
fn an_unpark_does_not_end_another_wait() {
    fiber::run(|| {
        let (mut left, right) = UnixStream::pair().unwrap();
        let waits = fiber::spawn(move || {
            fiber::readable(&right).unwrap();
            (&right).read(&mut [0; 8]).unwrap()
        })
        .unwrap();
        fiber::yield_now();
        waits.unpark();
        fiber::yield_now();
        assert_eq!(waits.state(), Some(FiberState::Suspended));
        left.write_all(b"abc").unwrap();
        assert_eq!(waits.join().unwrap(), 3);
    })
    .unwrap();
}

#[test]
fn both_directions_of_a_socket_can_be_waited_for() {
    fiber::run(|| {
        let (left, right) = UnixStream::pair().unwrap();
        left.set_nonblocking(true).unwrap();
        let left = Rc::new(left);
        let mut sent = 0;
        while let Ok(count) = (&*left).write(&[1; 4096]) {
            sent += count;
        }
        let [reader, writer, second] = [0, 1, 2].map(|which| {
            let left = Rc::clone(&left);
            fiber::spawn(move || match which {
                0 | 2 => fiber::readable(&*left),
                _ => fiber::writable(&*left),
            })
            .unwrap()
        });
        assert_eq!(second.join().unwrap().unwrap_err().kind(), ErrorKind::ResourceBusy);
        assert!(!writer.is_finished());
        let mut taken = vec![0; sent];
        (&right).read_exact(&mut taken).unwrap();
        writer.join().unwrap().unwrap();
        assert!(!reader.is_finished());
        (&right).write_all(b"x").unwrap();
        reader.join().unwrap().unwrap();
        // again, on a descriptor that is already registered with the kernel
        let again = Rc::clone(&left);
        let reader = fiber::spawn(move || fiber::readable(&*again)).unwrap();
        reader.join().unwrap().unwrap();
        drop(right);
        fiber::readable(&*left).unwrap();
    })
    .unwrap();
}

#[test]
fn what_cannot_be_watched_is_an_error() {
    fiber::run(|| {
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(fiber::readable(&file).unwrap_err().kind(), ErrorKind::PermissionDenied);
    })
    .unwrap();
}

#[test]
fn a_panic_comes_out_of_join_and_out_of_run() {
    fiber::run(|| {
        let fails = fiber::spawn(|| panic!("as {}", "planned")).unwrap();
        let bystander = fiber::spawn(|| 7).unwrap();
        let error = fails.join().unwrap_err();
        assert!(matches!(error, JoinError::Panicked(_)));
        assert_eq!(error.to_string(), "the fiber panicked: as planned");
        assert_eq!(bystander.join().unwrap(), 7);
    })
    .unwrap();
    let outside = std::panic::catch_unwind(|| fiber::run(|| panic!("whole")));
    assert_eq!(outside.unwrap_err().downcast_ref::<&str>(), Some(&"whole"));
}

/// Tries to wait when it is dropped, and then logs.
struct Goes(Log, &'static str);

impl Drop for Goes {
    fn drop(&mut self) {
        fiber::yield_now();
        fiber::sleep(Duration::from_secs(3600));
        fiber::park();
        say(&self.0, self.1);
    }
}

#[test]
fn a_fiber_that_unwinds_does_not_wait() {
    let log = Log::default();
    let inner = Rc::clone(&log);
    fiber::run(move || {
        let held = Rc::clone(&inner);
        let fails = fiber::spawn(move || {
            let (left, _right) = UnixStream::pair().unwrap();
            let _goes = Goes(Rc::clone(&held), "goes");
            struct Waits(UnixStream);
            impl Drop for Waits {
                fn drop(&mut self) {
                    let error = fiber::readable(&self.0).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Interrupted);
                }
            }
            let _waits = Waits(left);
            panic!("on the way");
        })
        .unwrap();
        let other = Rc::clone(&inner);
        let bystander = fiber::spawn(move || say(&other, "bystander")).unwrap();
        assert!(fails.join().is_err());
        bystander.join().unwrap();
    })
    .unwrap();
    assert_eq!(*log.borrow(), ["goes", "bystander"]);
}

#[test]
fn what_is_deferred_runs_last_first_before_the_join() {
    let log = Log::default();
    let inner = Rc::clone(&log);
    fiber::run(move || {
        for fails in [false, true] {
            let log = Rc::clone(&inner);
            let fiber = fiber::spawn(move || {
                for n in 0..3 {
                    let log = Rc::clone(&log);
                    fiber::defer(move || {
                        fiber::yield_now();
                        say(&log, format!("deferred {n}"));
                    });
                }
                fiber::defer(|| panic!("harms nobody"));
                say(&log, "end");
                assert!(!fails, "a failure");
            })
            .unwrap();
            assert_eq!(fiber.join().is_err(), fails);
            say(&inner, "joined");
        }
    })
    .unwrap();
    let once = ["end", "deferred 2", "deferred 1", "deferred 0", "joined"];
    assert_eq!(*log.borrow(), [once, once].concat());
}

#[test]
fn a_scheduler_that_is_dropped_unwinds_what_is_left() {
    let log = Log::default();
    let scheduler = Scheduler::new(Options::default());
    let (waits, begun) = (Rc::clone(&log), Rc::clone(&log));
    let waiting = scheduler
        .spawn(move || {
            let _goes = Goes(Rc::clone(&waits), "unwound");
            let deferred = Rc::clone(&waits);
            fiber::defer(move || say(&deferred, "deferred"));
            fiber::park();
            say(&waits, "never");
        })
        .unwrap();
    while scheduler.run_ready() {}
    let not_begun = scheduler.spawn(move || say(&begun, "never")).unwrap();
    assert_eq!(scheduler.alive(), 2);
    drop(scheduler);
    assert!(matches!(waiting.join(), Err(JoinError::Dropped)));
    assert!(matches!(not_begun.join(), Err(JoinError::Dropped)));
    assert_eq!(*log.borrow(), ["unwound", "deferred"]);
}

#[test]
fn a_fiber_that_does_not_wait_leaves_its_stack_to_the_next() {
    let scheduler = Scheduler::new(Options { stack_bytes: 16 << 10, kept_stacks: 4 });
    let places = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..10 {
        let places = Rc::clone(&places);
        let left = scheduler.start(move || {
            let here = 0u8;
            places.borrow_mut().push(&raw const here as usize);
        });
        assert_eq!(left.unwrap(), None);
    }
    let places = places.borrow();
    assert!(places.len() == 10 && places.iter().all(|place| *place == places[0]));
    assert_eq!(scheduler.alive(), 0);
    let deepest = scheduler.deepest_bytes();
    assert!((100..16 << 10).contains(&deepest), "{deepest}");
}

#[test]
fn ids_of_ended_fibers_wake_nobody() {
    let scheduler = Scheduler::new(Options::default());
    let first = scheduler.start(fiber::park).unwrap().unwrap();
    scheduler.unpark(first);
    scheduler.run_ready();
    let second = scheduler.start(fiber::park).unwrap().unwrap();
    assert_ne!(first, second);
    scheduler.unpark(first);
    scheduler.run_ready();
    assert_eq!(scheduler.alive(), 1);
}

#[test]
fn ten_thousand_fibers_wait_for_each_other() {
    let sum = fiber::run(|| {
        let mut last: Option<fiber::Fiber<u64>> = None;
        for n in 0..10_000 {
            let before = last.take();
            let next = move || n + before.map_or(0, |before| before.join().unwrap());
            last = Some(fiber::spawn(next).unwrap());
        }
        last.unwrap().join().unwrap()
    });
    assert_eq!(sum.unwrap(), 49_995_000);
}

#[test]
fn fibers_stay_on_their_threads_and_join_across_them() {
    let schedulers = Schedulers::start(3, Options::default()).unwrap();
    assert_eq!(schedulers.count(), 3);
    let fibers: Vec<_> = (0..9)
        .map(|_| {
            schedulers.spawn(|| {
                let before = std::thread::current().id();
                for _ in 0..100 {
                    fiber::yield_now();
                    fiber::sleep(Duration::from_millis(1).mul_f32(0.01));
                    assert_eq!(std::thread::current().id(), before);
                }
                before
            })
        })
        .collect();
    let mut threads: Vec<_> = fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect();
    threads.sort_by_key(|id| format!("{id:?}"));
    threads.dedup();
    assert_eq!(threads.len(), 3);

    // a fiber of one thread waits for a fiber of another
    let far = schedulers.spawn_on(0, || {
        fiber::park();
        5
    });
    let (tell, told) = mpsc::channel();
    let near = schedulers.spawn_on(1, move || {
        tell.send(()).unwrap();
        far.unpark();
        far.join().unwrap() + 1
    });
    told.recv().unwrap();
    assert_eq!(near.join().unwrap(), 6);

    // the schedulers are dropped only when the fiber has ended
    let (tell, told) = mpsc::channel();
    schedulers.spawn(move || {
        fiber::sleep(Duration::from_millis(30));
        tell.send("done").unwrap();
    });
    drop(schedulers);
    assert_eq!(told.try_recv().unwrap(), "done");
}

#[test]
fn an_unparker_works_from_any_thread() {
    let (tell, told) = mpsc::channel();
    let wakes = std::thread::spawn(move || {
        let unparker: fiber::Unparker = told.recv().unwrap();
        unparker.unpark();
    });
    fiber::run(move || {
        tell.send(fiber::unparker()).unwrap();
        fiber::park();
    })
    .unwrap();
    wakes.join().unwrap();
}

#[test]
fn the_main_thread_makes_calls_for_fibers() {
    let (main, handle) = MainThread::new().unwrap();
    let here = std::thread::current().id();
    let schedulers = Schedulers::start(2, Options::default()).unwrap();
    let fibers: Vec<_> = (0..4)
        .map(|n| {
            let handle = handle.clone();
            schedulers.spawn(move || {
                let other = fiber::spawn(|| "went on").unwrap();
                let (thread, n) = handle.call(move || (std::thread::current().id(), n)).unwrap();
                let error = handle.call(|| panic!("on the main thread")).unwrap_err();
                assert!(error.to_string().ends_with("on the main thread"));
                assert_eq!(other.join().unwrap(), "went on");
                (thread, n)
            })
        })
        .collect();
    let kept = handle.clone();
    drop(handle);
    let waits = schedulers.spawn(move || {
        fiber::sleep(Duration::from_millis(20));
        drop(kept);
    });
    main.serve().unwrap();
    waits.join().unwrap();
    for (n, fiber) in fibers.into_iter().enumerate() {
        assert_eq!(fiber.join().unwrap(), (here, n));
    }

    let (main, handle) = MainThread::new().unwrap();
    assert_eq!(main.make_calls(), 0);
    drop(main);
    assert!(matches!(handle.call(|| ()), Err(JoinError::Dropped)));
}

#[test]
fn a_loop_of_its_own_turns_the_scheduler_when_told() {
    let scheduler = Scheduler::new(Options::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepts = scheduler
        .spawn(move || {
            fiber::readable(&listener).unwrap();
            listener.accept().unwrap();
        })
        .unwrap();
    scheduler.turn(Some(Duration::ZERO)).unwrap();
    assert!(!accepts.is_finished());
    let _client = TcpStream::connect(address).unwrap();
    let mut set = [rustix::event::PollFd::from_borrowed_fd(
        scheduler.descriptor().unwrap(),
        rustix::event::PollFlags::IN,
    )];
    assert_eq!(rustix::event::poll(&mut set, None).unwrap(), 1);
    scheduler.turn(Some(Duration::ZERO)).unwrap();
    assert!(accepts.is_finished());
}
