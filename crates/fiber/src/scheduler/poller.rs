//! Waits for events outside of the program: descriptors and the clock.

use super::SchedulerCore;
use super::entry::WaitId;
use super::remote::Remote;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::{Entry, HashMap};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// The epoll token of the remote's bell; those of descriptors are their numbers.
const BELL: u64 = u64::MAX;
/// The number of events taken from the kernel at once.
const EVENTS: usize = 256;

/// The direction in which a descriptor is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// The fibers that wait for a descriptor.
#[derive(Clone, Copy, Default)]
struct DescriptorWaits {
    read: Option<WaitId>,
    write: Option<WaitId>,
}

impl DescriptorWaits {
    fn place(&mut self, direction: Direction) -> &mut Option<WaitId> {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }

    fn flags(&self) -> epoll::EventFlags {
        // one report, then silence until a fiber waits again
        let mut flags = epoll::EventFlags::ONESHOT;
        if self.read.is_some() {
            flags |= epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        }
        if self.write.is_some() {
            flags |= epoll::EventFlags::OUT;
        }
        flags
    }
}

/// An epoll that watches the remote's bell.
pub(crate) fn watch(remote: &Remote) -> io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let data = epoll::EventData::new_u64(BELL);
    epoll::add(&epoll, remote.bell()?, data, epoll::EventFlags::IN)?;
    Ok(epoll)
}

/// The descriptors and timers for which fibers wait.
#[derive(Default)]
pub(crate) struct Poller {
    watches: HashMap<RawFd, DescriptorWaits>,
    timers: BinaryHeap<Reverse<(Instant, WaitId)>>,
    events: Vec<epoll::Event>,
}

impl Poller {
    /// Ends the wait `ticket` when `at` is reached.
    pub(crate) fn add_timer(&mut self, at: Instant, ticket: WaitId) {
        self.timers.push(Reverse((at, ticket)));
    }

    /// The time of the earliest timer.
    #[inline]
    pub(crate) fn first_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// Ends the wait `ticket` when `fd` is ready.
    pub(crate) fn add_descriptor(
        &mut self,
        fd: BorrowedFd<'_>,
        direction: Direction,
        ticket: WaitId,
        core: &SchedulerCore,
    ) -> io::Result<()> {
        let epoll = core.epoll()?;
        let number = fd.as_raw_fd();
        let watch = self.watches.entry(number).or_default();
        let place = watch.place(direction);
        if place.is_some_and(|other| core.is_waiting(other)) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        *place = Some(ticket);
        let armed = arm(epoll, fd, watch.flags());
        if armed.is_err() {
            *watch.place(direction) = None;
        }
        armed
    }

    /// Waits until some fiber's wait is over, at most for `most`, and adds the waits that are over
    /// to `woken`.
    pub(crate) fn wait(
        &mut self,
        most: Option<Duration>,
        core: &SchedulerCore,
        woken: &mut Vec<WaitId>,
    ) -> io::Result<()> {
        let epoll = core.epoll()?;
        let until_timer =
            self.timers.peek().map(|Reverse((at, _))| at.saturating_duration_since(Instant::now()));
        let timeout = [until_timer, most].into_iter().flatten().min().map(whole_milliseconds);
        self.events.clear();
        self.events.reserve(EVENTS);
        match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref())
        {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for at in 0..self.events.len() {
            let event = self.events[at];
            match event.data.u64() {
                BELL => core.remote.silence(),
                number => self.report(epoll, number as RawFd, event.flags, woken)?,
            }
        }
        if !self.timers.is_empty() {
            let now = Instant::now();
            while let Some(Reverse((at, ticket))) = self.timers.peek()
                && *at <= now
            {
                woken.push(*ticket);
                self.timers.pop();
            }
        }
        Ok(())
    }

    fn report(
        &mut self,
        epoll: &OwnedFd,
        number: RawFd,
        flags: epoll::EventFlags,
        woken: &mut Vec<WaitId>,
    ) -> io::Result<()> {
        let Entry::Occupied(mut watch) = self.watches.entry(number) else { return Ok(()) };
        let both = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        let read = both | epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        if flags.intersects(read) {
            woken.extend(watch.get_mut().read.take());
        }
        if flags.intersects(both | epoll::EventFlags::OUT) {
            woken.extend(watch.get_mut().write.take());
        }
        let left = *watch.get();
        if left.read.is_none() && left.write.is_none() {
            watch.remove();
            return Ok(());
        }
        // the report has disarmed both directions (EPOLLONESHOT), and one of them is still awaited
        // SAFETY: a fiber waits for the other direction and borrows the descriptor meanwhile.
        arm(epoll, unsafe { BorrowedFd::borrow_raw(number) }, left.flags())
    }
}

/// Requests one report. A descriptor that was awaited before is still registered with the kernel.
fn arm(epoll: &OwnedFd, fd: BorrowedFd<'_>, flags: epoll::EventFlags) -> io::Result<()> {
    let data = epoll::EventData::new_u64(fd.as_raw_fd() as u64);
    match epoll::modify(epoll, fd, data, flags) {
        Err(Errno::NOENT) => Ok(epoll::add(epoll, fd, data, flags)?),
        result => Ok(result?),
    }
}

/// Rounds up, because a timer that wakes early would be polled again and again.
fn whole_milliseconds(time: Duration) -> Timespec {
    let ms = time.as_nanos().div_ceil(1_000_000).min(86_400_000) as u64;
    Timespec { tv_sec: (ms / 1000) as i64, tv_nsec: (ms % 1000 * 1_000_000) as _ }
}
