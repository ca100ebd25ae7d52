//! Measures what fibers cost, compared with threads and other implementations, interleaved in one run: `cargo
//! run --release -p forebay-fiber --example fiber-bench [ROUNDS] [--stack BYTES] [--rows]`.
//!
//! Creating and ending 1,000 fibers corresponds to emu's figures 4 and 5: all are created, then all run to
//! their end. The output has the median of the rounds, and the least and the largest value. `--rows` prints
//! CSV instead, with a line for each implementation and round.

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
/// The stack size, unless `--stack` sets another.
const STACK_BYTES: usize = 64 * 1024;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// An implementation of creating and ending, for stacks of a given size: returns the nanoseconds to create
/// one fiber and to end one.
type Lives = fn(usize) -> Result<(f64, f64)>;
/// An implementation of switching: returns the nanoseconds from one fiber to the next.
type Switches = fn(usize) -> Result<f64>;

/// The implementations of switching: name in rows, name in tables, function.
const SWITCHING: &[(&str, &str, Switches)] = &[
    ("switch: corosensei", "corosensei alone, there and back", switch_alone),
    ("switch: yield among 2", "forebay-fiber, yield among 2", |stack| yield_among(2, stack)),
    ("switch: yield among 1000", "forebay-fiber, yield among 1,000", |stack| {
        yield_among(COUNT, stack)
    }),
    ("switch: park", "forebay-fiber, park and unpark", park_and_unpark),
    ("switch: generator", "generator, there and back", switch_generator),
    ("switch: swapcontext", "swapcontext, there and back", switch_context),
    ("switch: threads", "thread::yield_now among 2 on one core", yield_threads),
];

/// The implementations of creating and ending; the others are compared with the first.
const LIVING: &[(&str, &str, Lives)] = &[
    ("threads", "threads", live_threads),
    ("pooled", "forebay-fiber, pooled stacks", live_pooled),
    ("pooled alone", "forebay-fiber, pooled, nobody joins", live_started),
    ("fresh", "forebay-fiber, fresh stacks", |stack| {
        live_fibers(&Scheduler::new(options(0, stack)))
    }),
    ("generator", "generator", live_generators),
    ("swapcontext", "swapcontext, stacks from malloc", live_contexts),
];

/// The settings from the command line.
struct Asked {
    rounds: u32,
    stack_bytes: usize,
    rows: bool,
}

impl Asked {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Asked> {
        let mut asked = Asked { rounds: 15, stack_bytes: STACK_BYTES, rows: false };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--rows" => asked.rows = true,
                "--stack" => {
                    asked.stack_bytes = words.next().ok_or("--stack needs BYTES")?.parse()?;
                }
                rounds => asked.rounds = rounds.parse()?,
            }
        }
        if asked.rounds == 0 || asked.stack_bytes < 4096 {
            return Err("at least one round, and stacks of 4096 bytes".into());
        }
        Ok(asked)
    }
}

fn main() -> Result<()> {
    let Asked { rounds, stack_bytes, rows } = Asked::read(std::env::args().skip(1))?;
    let mut switch_ns = vec![Vec::new(); SWITCHING.len()];
    let mut life_ns = vec![[Vec::new(), Vec::new(), Vec::new()]; LIVING.len()];
    if rows {
        println!("way,created_us,ended_us,both_us,switch_ns");
    }
    for _ in 0..rounds {
        for ((way, _, run), figures) in SWITCHING.iter().zip(&mut switch_ns) {
            let switch = run(stack_bytes)?;
            figures.push(switch);
            if rows {
                println!("{way},,,,{switch:.2}");
            }
        }
        for ((way, _, run), figures) in LIVING.iter().zip(&mut life_ns) {
            let (create, end) = run(stack_bytes)?;
            for (figure, place) in [create, end, create + end].into_iter().zip(figures) {
                place.push(figure);
            }
            if rows {
                let [create, end, both] = [create, end, create + end].map(|ns| ns * TO_US);
                println!("{way},{create:.2},{end:.2},{both:.2},");
            }
        }
    }
    if rows {
        return Ok(());
    }
    println!("{:<40} {:>26}", "a switch, ns", "median (least-most)");
    for ((_, name, _), figures) in SWITCHING.iter().zip(&mut switch_ns) {
        println!("{name:<40} {:>26}", spread(figures, 1.0));
    }
    println!(
        "\n{:<40} {:>22} {:>22} {:>22} {:>8}",
        "1,000 of them, µs", "created", "ended", "both", ""
    );
    let threads_ns = median(&mut life_ns[0][2]);
    for ((_, name, _), figures) in LIVING.iter().zip(&mut life_ns) {
        let share = 100.0 * median(&mut figures[2]) / threads_ns;
        let [create, end, both] = figures.each_mut().map(|one| spread(one, TO_US));
        println!("{name:<40} {create:>22} {end:>22} {both:>22} {share:>7.2}%");
    }
    Ok(())
}

/// The factor from nanoseconds for one to microseconds for all.
const TO_US: f64 = COUNT as f64 / 1e3;

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

/// The nanoseconds for each of `count`.
fn each_ns(begin: Instant, count: u32) -> f64 {
    begin.elapsed().as_nanos() as f64 / f64::from(count)
}

fn options(kept_stacks: usize, stack_bytes: usize) -> Options {
    Options { stack_bytes, kept_stacks }
}

fn switch_alone(_: usize) -> Result<f64> {
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

fn yield_among(count: usize, stack_bytes: usize) -> Result<f64> {
    let scheduler = Scheduler::new(options(0, stack_bytes));
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

fn park_and_unpark(stack_bytes: usize) -> Result<f64> {
    let scheduler = Scheduler::new(options(0, stack_bytes));
    let parks = || (0..SWITCHES).for_each(|_| fiber::park());
    let Some(id) = scheduler.start(parks)? else { return Err("it has not parked".into()) };
    let begin = Instant::now();
    for _ in 0..SWITCHES {
        scheduler.unpark(id);
        scheduler.run_ready();
    }
    Ok(each_ns(begin, SWITCHES))
}

fn switch_generator(stack_bytes: usize) -> Result<f64> {
    let mut generator = Gn::new_scoped_opt(stack_bytes / 8, |mut scope| {
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

fn yield_threads(_: usize) -> Result<f64> {
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

fn live_threads(_: usize) -> Result<(f64, f64)> {
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

fn live_pooled(stack_bytes: usize) -> Result<(f64, f64)> {
    let scheduler = Scheduler::new(options(COUNT, stack_bytes));
    live_fibers(&scheduler)?;
    live_fibers(&scheduler)
}

/// Each fiber runs as soon as it is created, as in an engine.
fn live_started(stack_bytes: usize) -> Result<(f64, f64)> {
    let scheduler = Scheduler::new(options(COUNT, stack_bytes));
    scheduler.start(|| ())?;
    let begin = Instant::now();
    for n in 0..COUNT {
        scheduler.start(move || {
            black_box(n);
        })?;
    }
    Ok((each_ns(begin, COUNT as u32), 0.0))
}

fn live_generators(stack_bytes: usize) -> Result<(f64, f64)> {
    let begin = Instant::now();
    let mut all: Vec<_> = (0..COUNT)
        .map(|n| {
            Gn::new_scoped_opt(stack_bytes / 8, move |mut scope| {
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
    stack_bytes: usize,
}

thread_local! {
    /// The context to which a running context returns, and how often it does.
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
    fn layout(stack_bytes: usize) -> Result<Layout> {
        Ok(Layout::from_size_align(stack_bytes, 16)?)
    }

    fn new(stack_bytes: usize) -> Result<Context> {
        // SAFETY: the size is not zero: `Asked` takes none below 4096.
        let stack = unsafe { alloc(Self::layout(stack_bytes)?) };
        let (own, caller) = (Box::new_uninit(), Box::new_uninit());
        let mut context = Context { own, caller, stack, stack_bytes };
        let (own, caller) = (context.own.as_mut_ptr(), context.caller.as_mut_ptr());
        // SAFETY: both are memory for a context; the stack is this context's alone.
        unsafe {
            if stack.is_null() || libc::getcontext(own) != 0 {
                return Err("no memory".into());
            }
            (*own).uc_stack.ss_sp = stack.cast();
            (*own).uc_stack.ss_size = stack_bytes;
            (*own).uc_link = caller;
            libc::makecontext(own, context_main, 0);
        }
        Ok(context)
    }

    /// Lets the context run until it returns.
    fn resume(&mut self, times: u32) {
        let (own, caller) = (self.own.as_mut_ptr(), self.caller.as_mut_ptr());
        BACK.set((caller, own, times));
        // SAFETY: `own` was made by makecontext or by its last swap, and has not ended.
        unsafe { libc::swapcontext(caller, own) };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Ok(layout) = Self::layout(self.stack_bytes) {
            // SAFETY: allocated in `new` with this layout; nothing runs on it any more.
            unsafe { dealloc(self.stack, layout) };
        }
    }
}

fn switch_context(stack_bytes: usize) -> Result<f64> {
    let mut context = Context::new(stack_bytes)?;
    let begin = Instant::now();
    for _ in 0..SWITCHES {
        context.resume(SWITCHES);
    }
    Ok(each_ns(begin, SWITCHES))
}

fn live_contexts(stack_bytes: usize) -> Result<(f64, f64)> {
    let begin = Instant::now();
    let mut all = (0..COUNT).map(|_| Context::new(stack_bytes)).collect::<Result<Vec<_>>>()?;
    let create = each_ns(begin, COUNT as u32);
    let begin = Instant::now();
    all.iter_mut().for_each(|context| context.resume(0));
    drop(all);
    Ok((create, each_ns(begin, COUNT as u32)))
}
