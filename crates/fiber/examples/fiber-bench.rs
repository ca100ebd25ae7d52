//! What fibers cost, beside threads and other implementations, interleaved in one run:
//! `cargo run --release -p forebay-fiber --example fiber-bench [ROUNDS]`.
//!
//! Creating and ending 1,000 is emu's figures 4 and 5: all are created, then all are run to their
//! end. The medians of the rounds are printed, and the least and the most.

use forebay_fiber::{self as fiber, Options, Scheduler};
use generator::Gn;
use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::error::Error;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::time::Instant;

const COUNT: usize = 1_000;
const SWITCHES: u32 = 200_000;
const STACK_BYTES: usize = 64 * 1024;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// One way of doing it: nanoseconds to create one and to end one.
type Lives = fn() -> Result<(f64, f64)>;
/// One way of switching: nanoseconds from one to the next.
type Switches = fn() -> Result<f64>;

fn main() -> Result<()> {
    let rounds = std::env::args().nth(1).map_or(Ok(15), |text| text.parse())?;
    let switches: &[(&str, Switches)] = &[
        ("corosensei alone, there and back", switch_alone),
        ("forebay-fiber, yield among 2", || yield_among(2)),
        ("forebay-fiber, yield among 1,000", || yield_among(COUNT)),
        ("forebay-fiber, park and unpark", park_and_unpark),
        ("generator, there and back", switch_generator),
        ("swapcontext, there and back", switch_context),
        ("thread::yield_now among 2 on one core", yield_threads),
    ];
    let lives: &[(&str, Lives)] = &[
        ("threads", live_threads),
        ("forebay-fiber, pooled stacks", live_pooled),
        ("forebay-fiber, pooled, nobody joins", live_started),
        ("forebay-fiber, fresh stacks", || live_fibers(&Scheduler::new(options(0)))),
        ("generator", live_generators),
        ("swapcontext, stacks from malloc", live_contexts),
    ];
    let mut switch_ns = vec![Vec::new(); switches.len()];
    let mut life_ns = vec![[Vec::new(), Vec::new(), Vec::new()]; lives.len()];
    for _ in 0..rounds {
        for ((_, run), figures) in switches.iter().zip(&mut switch_ns) {
            figures.push(run()?);
        }
        for ((_, run), figures) in lives.iter().zip(&mut life_ns) {
            let (create, end) = run()?;
            for (figure, place) in [create, end, create + end].into_iter().zip(figures) {
                place.push(figure);
            }
        }
    }
    println!("{:<40} {:>26}", "a switch, ns", "median (least-most)");
    for ((name, _), figures) in switches.iter().zip(&mut switch_ns) {
        println!("{name:<40} {:>26}", spread(figures, 1.0));
    }
    println!(
        "\n{:<40} {:>22} {:>22} {:>22} {:>8}",
        "1,000 of them, µs", "created", "ended", "both", ""
    );
    let threads_ns = median(&mut life_ns[0][2]);
    for ((name, _), figures) in lives.iter().zip(&mut life_ns) {
        let share = 100.0 * median(&mut figures[2]) / threads_ns;
        let [create, end, both] = figures.each_mut().map(|one| spread(one, COUNT as f64 / 1e3));
        println!("{name:<40} {create:>22} {end:>22} {both:>22} {share:>7.2}%");
    }
    Ok(())
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn spread(figures: &mut [f64], times: f64) -> String {
    let middle = median(figures) * times;
    let (least, most) = (figures[0] * times, figures[figures.len() - 1] * times);
    if middle < 100.0 {
        format!("{middle:.1} ({least:.1}-{most:.1})")
    } else {
        format!("{middle:.0} ({least:.0}-{most:.0})")
    }
}

/// Nanoseconds for each of `count`.
fn each_ns(begin: Instant, count: u32) -> f64 {
    begin.elapsed().as_nanos() as f64 / f64::from(count)
}

fn options(kept_stacks: usize) -> Options {
    Options { stack_bytes: STACK_BYTES, kept_stacks }
}

fn switch_alone() -> Result<f64> {
    let mut coroutine = corosensei::Coroutine::new(|yielder, ()| {
        loop {
            yielder.suspend(());
        }
    });
    let begin = Instant::now();
    for _ in 0..SWITCHES {
        let _: corosensei::CoroutineResult<(), ()> = black_box(coroutine.resume(()));
    }
    Ok(each_ns(begin, SWITCHES))
}

fn yield_among(count: usize) -> Result<f64> {
    let scheduler = Scheduler::new(options(0));
    let rounds = SWITCHES / count as u32;
    for _ in 0..count {
        scheduler.spawn(move || (0..=rounds).for_each(|_| fiber::yield_now()))?;
    }
    // the first round maps the stacks
    scheduler.run_ready();
    let begin = Instant::now();
    while scheduler.alive() > 0 {
        scheduler.run_ready();
    }
    Ok(each_ns(begin, rounds * count as u32))
}

fn park_and_unpark() -> Result<f64> {
    let scheduler = Scheduler::new(options(0));
    let parks = || (0..SWITCHES).for_each(|_| fiber::park());
    let Some(id) = scheduler.start(parks)? else { return Err("it has not parked".into()) };
    let begin = Instant::now();
    for _ in 0..SWITCHES {
        scheduler.unpark(id);
        scheduler.run_ready();
    }
    Ok(each_ns(begin, SWITCHES))
}

fn switch_generator() -> Result<f64> {
    let mut generator = Gn::new_scoped_opt(STACK_BYTES / 8, |mut scope| {
        loop {
            scope.yield_(());
        }
    });
    let begin = Instant::now();
    for _ in 0..SWITCHES {
        let _: Option<()> = black_box(generator.next());
    }
    Ok(each_ns(begin, SWITCHES))
}

fn yield_threads() -> Result<f64> {
    let turns = SWITCHES / 10;
    let work = move || {
        // SAFETY: plain data for which zero is valid, filled before use; 0 is this thread.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(0, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
        }
        (0..turns).for_each(|_| std::thread::yield_now());
    };
    let begin = Instant::now();
    let threads = [std::thread::spawn(work), std::thread::spawn(work)];
    threads.into_iter().try_for_each(|thread| thread.join()).map_err(|_| "a thread panicked")?;
    Ok(each_ns(begin, 2 * turns))
}

fn live_threads() -> Result<(f64, f64)> {
    let begin = Instant::now();
    let threads: Vec<_> = (0..COUNT).map(|n| std::thread::spawn(move || black_box(n))).collect();
    let create = each_ns(begin, COUNT as u32);
    let begin = Instant::now();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")?;
    }
    Ok((create, each_ns(begin, COUNT as u32)))
}

fn live_fibers(scheduler: &Scheduler) -> Result<(f64, f64)> {
    let begin = Instant::now();
    let fibers = (0..COUNT)
        .map(|n| scheduler.spawn(move || black_box(n)))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let create = each_ns(begin, COUNT as u32);
    let begin = Instant::now();
    scheduler.run_ready();
    for fiber in fibers {
        fiber.join()?;
    }
    Ok((create, each_ns(begin, COUNT as u32)))
}

fn live_pooled() -> Result<(f64, f64)> {
    let scheduler = Scheduler::new(options(COUNT));
    live_fibers(&scheduler)?;
    live_fibers(&scheduler)
}

/// Each runs as soon as it is created, as an engine's fibers do.
fn live_started() -> Result<(f64, f64)> {
    let scheduler = Scheduler::new(options(COUNT));
    scheduler.start(|| ())?;
    let begin = Instant::now();
    for n in 0..COUNT {
        scheduler.start(move || {
            black_box(n);
        })?;
    }
    Ok((each_ns(begin, COUNT as u32), 0.0))
}

fn live_generators() -> Result<(f64, f64)> {
    let begin = Instant::now();
    let mut all: Vec<_> = (0..COUNT)
        .map(|n| {
            Gn::new_scoped_opt(STACK_BYTES / 8, move |mut scope| {
                scope.yield_(());
                black_box(n);
                generator::done!();
            })
        })
        .collect();
    let create = each_ns(begin, COUNT as u32);
    let begin = Instant::now();
    for generator in &mut all {
        while generator.next().is_some() {}
    }
    drop(all);
    Ok((create, each_ns(begin, COUNT as u32)))
}

/// A context of the C library with a stack from malloc.
struct Context {
    own: Box<MaybeUninit<libc::ucontext_t>>,
    caller: Box<MaybeUninit<libc::ucontext_t>>,
    stack: *mut u8,
}

thread_local! {
    /// Where the context that runs goes back to, and how often it does.
    static BACK: Cell<(*mut libc::ucontext_t, *mut libc::ucontext_t, u32)> =
        const { Cell::new((std::ptr::null_mut(), std::ptr::null_mut(), 0)) };
}

extern "C" fn context_main() {
    let (caller, own, times) = BACK.get();
    for _ in 0..times {
        // SAFETY: both contexts are alive: their owner waits for this one to come back.
        unsafe { libc::swapcontext(own, caller) };
    }
}

impl Context {
    fn layout() -> Result<Layout> {
        Ok(Layout::from_size_align(STACK_BYTES, 16)?)
    }

    fn new() -> Result<Context> {
        // SAFETY: the size is not zero.
        let stack = unsafe { alloc(Self::layout()?) };
        let mut context = Context { own: Box::new_uninit(), caller: Box::new_uninit(), stack };
        let (own, caller) = (context.own.as_mut_ptr(), context.caller.as_mut_ptr());
        // SAFETY: both are memory for a context; the stack is this context's alone.
        unsafe {
            if stack.is_null() || libc::getcontext(own) != 0 {
                return Err("no memory".into());
            }
            (*own).uc_stack.ss_sp = stack.cast();
            (*own).uc_stack.ss_size = STACK_BYTES;
            (*own).uc_link = caller;
            libc::makecontext(own, context_main, 0);
        }
        Ok(context)
    }

    /// Lets it run until it comes back.
    fn resume(&mut self, times: u32) {
        let (own, caller) = (self.own.as_mut_ptr(), self.caller.as_mut_ptr());
        BACK.set((caller, own, times));
        // SAFETY: `own` was made by makecontext or by its last swap, and has not ended.
        unsafe { libc::swapcontext(caller, own) };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Ok(layout) = Self::layout() {
            // SAFETY: allocated in `new` with this layout; nothing runs on it any more.
            unsafe { dealloc(self.stack, layout) };
        }
    }
}

fn switch_context() -> Result<f64> {
    let mut context = Context::new()?;
    let begin = Instant::now();
    for _ in 0..SWITCHES {
        context.resume(SWITCHES);
    }
    Ok(each_ns(begin, SWITCHES))
}

fn live_contexts() -> Result<(f64, f64)> {
    let begin = Instant::now();
    let mut all = (0..COUNT).map(|_| Context::new()).collect::<Result<Vec<_>>>()?;
    let create = each_ns(begin, COUNT as u32);
    let begin = Instant::now();
    all.iter_mut().for_each(|context| context.resume(0));
    drop(all);
    Ok((create, each_ns(begin, COUNT as u32)))
}
