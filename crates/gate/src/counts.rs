//! What is counted, as `bpf/types.h` has it.

/// What is counted, in the order of `enum gate_count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// SYNs for a listener of ours: each is in exactly one of those up to [`Count::LeftRace`].
    Syns,
    /// No limit, or within it.
    Passed,
    /// Sent again after it was let through.
    Repeated,
    /// A rule refused it, silently.
    Dropped,
    /// A rule refused it, with a reset.
    Reset,
    /// Its client was refused a moment ago, and is ignored.
    Ignored,
    /// Only user space can judge it.
    LeftUser,
    /// Too many CPUs charged the same bucket at the same time.
    LeftRace,
    /// A handshake that was completed, and then charged.
    Completed,
    /// The bucket was empty when it was completed: a segment dropped.
    LateDropped,
    /// The same, with a reset.
    LateReset,
    /// TCP with IP options or extension headers.
    LeftOptions,
    /// A fragment of TCP.
    LeftFragment,
    /// TCP whose head is not whole.
    LeftShort,
    /// A SYN that was answered here, without state. It is among those above, too.
    Answered,
    /// The acknowledgement of such an answer, without data: it is not passed on.
    Bare,
    /// A segment of such a connection before its first one.
    Later,
    /// A connection made on the socket of its class.
    Made,
    /// On the public socket, because its class could not be told.
    MadeUnjudged,
    /// The same, because its class has no socket.
    MadePublic,
    /// The kernel refused to make the connection.
    NotMade,
    /// The queue of its class is full: a first segment dropped, which comes again.
    FullDropped,
    /// The same, with a reset.
    FullReset,
    /// A SYN in the place of a connection that has just ended: for class sockets, but not answered here.
    TimeWait,
    /// Beyond what the agent admits of its class: a first segment dropped, which comes again.
    Paced,
    /// A connection made for another server on this machine.
    MadeOther,
    /// Its class's turn at another server has not come: a first segment dropped, which comes again.
    TurnedAway,
}

impl Count {
    /// All of them.
    pub const ALL: [Count; 27] = [
        Count::Syns,
        Count::Passed,
        Count::Repeated,
        Count::Dropped,
        Count::Reset,
        Count::Ignored,
        Count::LeftUser,
        Count::LeftRace,
        Count::Completed,
        Count::LateDropped,
        Count::LateReset,
        Count::LeftOptions,
        Count::LeftFragment,
        Count::LeftShort,
        Count::Answered,
        Count::Bare,
        Count::Later,
        Count::Made,
        Count::MadeUnjudged,
        Count::MadePublic,
        Count::NotMade,
        Count::FullDropped,
        Count::FullReset,
        Count::TimeWait,
        Count::Paced,
        Count::MadeOther,
        Count::TurnedAway,
    ];
}

/// What became of first requests that were judged, in the order of `enum gate_first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstCount {
    /// No limit. Each first request that is judged is in exactly one of those up to [`FirstCount::Contended`].
    Passed,
    /// Within the limit of a rule, and charged to it.
    Charged,
    /// A rule refused it, silently.
    Dropped,
    /// With a reset.
    Reset,
    /// With an error.
    Answered,
    /// Only user space can judge it.
    Left,
    /// Too many CPUs charged the same bucket at the same time.
    Contended,
    /// Its checksum is wrong.
    Damaged,
    /// An error was sent once more.
    Repeated,
    /// What came behind an error was acknowledged.
    Acked,
    /// Behind an error nothing is to be said.
    Held,
    /// Too much came behind an error: a reset.
    Cut,
}

impl FirstCount {
    /// All of them.
    pub const ALL: [FirstCount; 12] = [
        FirstCount::Passed,
        FirstCount::Charged,
        FirstCount::Dropped,
        FirstCount::Reset,
        FirstCount::Answered,
        FirstCount::Left,
        FirstCount::Contended,
        FirstCount::Damaged,
        FirstCount::Repeated,
        FirstCount::Acked,
        FirstCount::Held,
        FirstCount::Cut,
    ];
}
