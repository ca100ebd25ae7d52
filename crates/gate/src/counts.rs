//! The counters of the program, as in `bpf/types.h`.

/// The counters of SYNs and handshakes, in the order of `enum gate_count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// SYNs that were judged: each is in exactly one of those up to [`Count::LeftRace`].
    Syns,
    /// No limit applies, or the SYN is within it.
    Passed,
    /// A retransmitted SYN that was admitted before.
    Repeated,
    /// A rule refused the SYN, silently.
    Dropped,
    /// A rule refused the SYN, with a reset.
    Reset,
    /// The client was refused a moment ago, and is ignored.
    Ignored,
    /// Only user space can judge the SYN.
    LeftUser,
    /// Too many CPUs charged the same bucket at the same time.
    LeftRace,
    /// A handshake that was completed, and then charged.
    Completed,
    /// The bucket was empty when the handshake was completed: a segment dropped.
    LateDropped,
    /// The bucket was empty when the handshake was completed: a reset.
    LateReset,
    /// TCP with IP options or extension headers.
    LeftOptions,
    /// A fragment of TCP.
    LeftFragment,
    /// TCP with an incomplete header.
    LeftShort,
    /// A SYN that was answered here, without state; also counted among those above.
    Answered,
    /// The acknowledgement of such a SYN-ACK without data, which is not passed on.
    Bare,
    /// A segment of such a connection before its first one.
    Later,
    /// A connection made on the socket of its class.
    Made,
    /// A connection made on the public socket, because its class could not be determined.
    MadeUnjudged,
    /// A connection made on the public socket, because its class has none.
    MadePublic,
    /// The kernel refused to make the connection.
    NotMade,
    /// The queue of the class is full: a first segment dropped, to be retransmitted.
    FullDropped,
    /// The queue of the class is full: a reset.
    FullReset,
    /// A SYN in the place of a connection in TIME_WAIT: for class sockets, but not answered here.
    TimeWait,
    /// Beyond what the agent admits of the class: a first segment dropped, to be retransmitted.
    Paced,
    /// A connection made for another server on this machine.
    MadeOther,
    /// The class's turn at another server has not come: a first segment dropped, to be retransmitted.
    TurnedAway,
}

impl Count {
    /// All counters, in their order.
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

/// The counters of first requests that were judged, by result, in the order of `enum gate_first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstCount {
    /// No limit applies. Each judged request is in exactly one of those up to [`FirstCount::Contended`].
    Passed,
    /// Within the limit of a rule, and charged to it.
    Charged,
    /// A rule refused the request, silently.
    Dropped,
    /// A rule refused the request, with a reset.
    Reset,
    /// A rule refused the request, with an error page.
    Answered,
    /// Only user space can judge the request.
    Left,
    /// Too many CPUs charged the same bucket at the same time.
    Contended,
    /// The checksum of the segment is wrong.
    Damaged,
    /// An error page was sent again.
    Repeated,
    /// A segment behind an error page was acknowledged.
    Acked,
    /// A segment behind an error page was dropped: there was nothing to send.
    Held,
    /// A reset: the client sent too much behind an error page.
    Cut,
}

impl FirstCount {
    /// All counters, in their order.
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
