//! Every system call that Forebay makes, behind safe functions whose names say what they are for.
//!
//! Only `fiber` and `gate` may also contain `unsafe`. A function here does one thing, returns the
//! kernel's answer, and decides nothing: policy is the callers'.
//!
//! | module | what it holds |
//! |---|---|
//! | [`socket`], `listening` | listeners, accept, receive, send, sendfile, closing with and without mercy |
//! | [`unix`], [`inherited`] | listening at a path; sockets that a service manager opened |
//! | [`unix_address`] | names of Unix sockets: a path, or a name in the abstract namespace |
//! | [`passing`] | sockets for a process that is started |
//! | [`attempts`] | what this process may do to others, tried without doing it |
//! | [`broker`] | connections that one process makes for another |
//! | [`mod@line`] | a pair of sockets between a process and the one that has started it |
//! | [`launch`] | programs that one process runs for another, and the messages between the two |
//! | [`cgi`] | a program that is run for one request, and the end of all that it has started |
//! | [`descriptors`] | descriptors that one process gives another |
//! | [`lend`] | a client's socket that another process has for a while |
//! | [`client`] | connecting without waiting, from a chosen address |
//! | [`epoll`], `eventfd` | readiness, and the descriptor that wakes a loop |
//! | [`file`](mod@file) | opening beneath a root, opening what an operator names, stamps |
//! | [`unnamed`] | files without a name, which are gone when they are closed |
//! | [`wait_budget`] | retries of what may succeed later, for a bounded time in all |
//! | [`folder`] | folders of one process, which another removes if that is killed |
//! | [`pages`] | the page cache: what is in memory, reading through it and around it |
//! | [`pipe`] | bytes of a file that wait in the kernel to be sent |
//! | [`watch`] | inotify: which directories changed |
//! | [`clock`] | monotonic and wall time |
//! | [`name_service`] | records of names that are no addresses |
//! | [`poll`] | waiting for a few descriptors, for threads that serve one connection each |
//! | [`schedule`] | how long a thread ran, and how long it waited for a core |
//! | [`privileges`] | users, and giving up the rights of root |
//! | [`seal`](mod@seal) | a process that gets no more access from the kernel |
//! | [`restrain`](mod@restrain) | a process that leaves other processes and the kernel alone |
//! | [`processes`] | the processes there are, and which of them listens at an address |
//! | [`process`] | descriptor limits, affinity, timers; a process on one core |
//! | [`shared`] | memory that several processes share |
//! | `append` | writing a log without waiting |
//! | [`memory`] | how much memory this process may have |
//! | [`threads`] | how many threads there may be |
//! | [`stderr`] | messages for the operator on standard error |
//! | [`addresses`] | which addresses the machine has |
//!
//! The crate deliberately has no third-party type in its interface and no state of its own.

pub mod addresses;
mod append;
pub mod attempts;
pub mod broker;
pub mod cgi;
pub mod client;
pub mod clock;
pub mod descriptors;
pub mod epoll;
mod eventfd;
pub mod file;
pub mod folder;
pub mod inherited;
pub mod launch;
pub mod lend;
pub mod line;
mod listening;
pub mod memory;
pub mod name_service;
pub mod pages;
pub mod passing;
pub mod pipe;
pub mod poll;
pub mod privileges;
pub mod process;
pub mod processes;
pub mod restrain;
pub mod schedule;
pub mod seal;
pub mod shared;
pub mod socket;
pub mod stderr;
pub mod threads;
pub mod unix;
pub mod unix_address;
pub mod unnamed;
pub mod wait_budget;
pub mod watch;
