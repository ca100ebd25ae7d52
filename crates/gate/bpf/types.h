/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * The types that the programs and the server share. `src/types.rs` has the same ones for the server, and a
 * test compares size and offset of every field with those in the compiled program.
 *
 * Addresses are IPv6; an IPv4 address is a mapped one in ::ffff:0:0/96. Numbers are in host byte order,
 * except addresses and the ports of `gate_tuple`, which are in network byte order.
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

/* Two sets of rules: one in force, one being filled. */
#define GATE_TABLES 2
/* The largest number of rules, by name, that get a bucket or counts here while the server runs. */
#define GATE_SLOTS 4096
/* The largest numbers of connections that are not accepted yet, and of ignored clients. */
#define GATE_PENDING 65536
#define GATE_IGNORED 65536
/* The largest number of entries in one list. */
#define GATE_LONGEST 4096

/* The settings that the server changes while the programs run. */
struct gate_control {
	u32 table;    /* the set of rules in force */
	u32 degree;   /* of overload: rules that hold from a higher one on do not count */
	u32 charge;   /* GATE_AT_… */
	u32 ignores;  /* there may be ignored clients */
	u32 answers;  /* SYNs are answered here, for listeners with class sockets */
	u32 completes; /* there may be clients with a SYN-ACK from here */
	u32 offers;   /* GATE_OFFER_…: the TCP options that this machine's stack has switched on */
	u32 judges;   /* first requests are judged here */
	u32 pages;    /* which half of the pages is in force */
	u32 reads_cookies; /* a rule asks for a cookie */
	u32 default_rank;
	u32 forwards; /* SYNs for other machines are judged */
	u32 watches;  /* handshakes are completed for another server on this machine */
	u32 serves;   /* 1: there may be connections whose requests were answered here */
	u32 unused[2];
};

enum { GATE_OFFER_SCALE = 1, GATE_OFFER_SACK = 2, GATE_OFFER_TIMES = 4, GATE_OFFER_ECN = 8 };

/* The key of the cookies' MAC. */
struct gate_key {
	u64 low, high;
};

/* The programs that others tail-call: those that most packets do not need, which so have a stack of
 * their own, and the one that the filter calls. */
enum {
	GATE_ANSWER = 0,
	GATE_COMPLETE = 1,
	GATE_JUDGE = 2,
	GATE_REPLY = 3,
	GATE_WATCH = 4,
	GATE_SERVE = 5,
	GATE_SERVE_ON = 6,
	GATE_SEND = 7,
	GATE_PROGRAMS = 8
};

/* When a connection is charged to its rule's bucket. */
enum { GATE_AT_SYN = 0, GATE_AT_HANDSHAKE = 1 };

/* The rules that may match clients of one network: a range of the entries. */
struct gate_list {
	u32 first;
	u32 count;
};

/* One way in which a rule can match a client; the list that has the entry has matched the client's
 * address. */
struct gate_entry {
	u64 local_hi, local_lo; /* the local address has these bits */
	u64 mask_hi, mask_lo;   /* where these are set */
	u16 client_first, client_last;
	u16 local_first, local_last;
	u32 rule;
	u32 unused;
};

/* A rule by addresses, and what it says. */
struct gate_rule {
	u64 interval_ns, tolerance_ns; /* of its bucket, as in forebay_policy::bucket */
	u64 ignore_ns;                 /* how long a refused client is ignored */
	u32 slot;                      /* of its word and its counts */
	u8 says;                       /* GATE_SAYS_… */
	u8 marks;                      /* GATE_MARK_… */
	u8 action;                     /* GATE_DO_… */
	u8 over;                       /* GATE_DO_…, for connections over the limit */
	u16 action_page;               /* for GATE_DO_ANSWER: the page */
	u16 over_page;
	u32 unused;
};

#define GATE_SAYS_ACTION 1
#define GATE_SAYS_LIMIT 2
/* Only in rules for first requests. */
#define GATE_SAYS_BUSY 4
#define GATE_SAYS_CLASS 8
#define GATE_SAYS_ALL 15
#define GATE_MARK_STOP 1
/* The degree of overload from which the rule holds: these bits, shifted. */
#define GATE_MARK_DEGREE 6
#define GATE_DEGREE_SHIFT 1

/* The rule asks for more than a first segment shows; its class depends on more than addresses. */
#define GATE_MARK_MORE 8
#define GATE_MARK_BY_REQUEST 16
/* A first segment that finds its class's queue full is dropped, to be retransmitted; without the mark,
 * it gets a reset. */
#define GATE_MARK_WAITS 32

/* The class cannot be determined, or the rule gives none. */
#define GATE_UNJUDGED 255

/* The alternatives that a rule has for one text: a range of the patterns. */
struct gate_asked {
	u32 first;
	u16 count;
	u16 marks; /* GATE_ASKED… */
};

#define GATE_ASKED 1
/* There are further alternatives, which only user space can try. */
#define GATE_ASKED_MORE 2

/* A rule for first requests: it gives them a class, or refuses them. */
struct gate_url_rule {
	struct gate_asked method, path, host, cookie;
	u32 rank;  /* or GATE_UNJUDGED */
	u32 marks; /* GATE_MARK_… */
	u64 interval_ns, tolerance_ns; /* of its bucket for requests */
	u64 ignore_ns;                 /* how long a refused client is ignored */
	u32 slot;                      /* of its word and its counts */
	u8 says;                       /* GATE_SAYS_… */
	u8 action;                     /* GATE_DO_… */
	u8 over;                       /* GATE_DO_…, for requests over the rate */
	u8 busy;                       /* GATE_DO_…, while the limit of requests at once is reached */
	u16 action_page, over_page, busy_page; /* for GATE_DO_ANSWER: the page */
	u16 unused;
};

#define GATE_PATTERN_BYTES 160

/* The key by which the rules for a path are found: the beginning of a path, or a whole one with a zero
 * behind it. */
struct gate_path {
	u32 bits;
	u8 bytes[GATE_PATTERN_BYTES + 4];
};

/* A text, padded with zeros. */
struct gate_pattern {
	u64 words[GATE_PATTERN_BYTES / 8];
	u32 length;
	u32 is_prefix; /* a text that begins with it fits */
};

/* The actions. USER is one that only user space can do. ANSWER is an error page, which a client gets
 * after it has proven its address; at a SYN it is left to user space. */
enum { GATE_DO_ALLOW = 0, GATE_DO_DROP = 1, GATE_DO_RESET = 2, GATE_DO_USER = 3, GATE_DO_ANSWER = 4 };

/* The buckets of a rule, on a cache line of their own: user space charges them, too. */
struct gate_word {
	u64 arrival;    /* the bucket of connections */
	u64 requests;   /* the bucket of requests */
	u64 full_until; /* until then the limit of requests at once is reached; user space sets it */
	/* of requests, where the agent has moved the rate; 0: the rule's. Of a class: of connections; 0:
	 * no limit */
	u64 interval_ns;
	u64 unused[4];
};

/* The slots of classes, one after another for each table. */
#define GATE_RANKS 256
#define GATE_NO_SLOT (~0U)
/* The burst of a class's connections, as time. */
#define GATE_CLASS_TOLERANCE_NS 10000000ULL

/* A rule's counts: SYNs, handshakes and first requests, by what became of them. */
struct gate_tally {
	u64 admitted;
	u64 dropped;
	u64 reset;
	u64 answered;
	u64 requests; /* first requests among the refused */
};

/* Both ends of a connection, ports in network byte order. */
struct gate_tuple {
	u8 client[16];
	u8 local[16];
	u16 client_port;
	u16 local_port;
};

/* A connection that was admitted and is not accepted yet. */
struct gate_pending {
	u64 interval_ns, tolerance_ns, ignore_ns;
	u32 slot;
	u32 sequence; /* of its SYN */
	u32 state;    /* GATE_LOOKED… */
	u32 over;
};

/* The number of error pages, which all rules share, and the size of one. The map has each page twice: in
 * the half that is in force and in the one that is being written. */
#define GATE_PAGES 256
#define GATE_PAGE_BYTES 512

struct gate_page {
	u32 head_bytes; /* of the head alone, which HEAD gets */
	u32 bytes;
	u32 head_sum;   /* what the head adds to the Internet checksum */
	u32 sum;        /* the same of all bytes */
	u8 text[GATE_PAGE_BYTES];
};

/* A connection whose first request was answered here. */
struct gate_refused {
	u32 first;        /* sequence number of its first segment */
	u32 begin, end;   /* sequence numbers of the answer; the last is its FIN */
	u16 page;
	u16 marks; /* GATE_REFUSED_… */
};

/* The request had the method HEAD; windows are not scaled. */
enum { GATE_REFUSED_HEAD = 1, GATE_REFUSED_UNSCALED = 2 };

/* A first request that was charged here, so that user space does not charge it again. */
struct gate_charged {
	u32 slot;
	u32 sequence;
};

#define GATE_REFUSED 65536
#define GATE_CHARGED_REQUESTS 65536
#define GATE_WATCHED 65536

/* The state of a pending connection: its bucket was looked at; a CPU is charging it; it is charged. */
enum { GATE_LOOKED = 1, GATE_CHARGING = 2, GATE_CHARGED = 3 };

/* The key of a listening socket. */
struct gate_listener {
	u8 address[16]; /* all zero: every address of its family */
	u16 port;
	u16 family; /* or GATE_OF_OTHERS… */
};

/* In the place of the family: another server on this machine, at whatever address it listens; another
 * machine, at this address. */
enum { GATE_OF_OTHERS = 0, GATE_FORWARDED = 0xffff };

/* The sockets of a listener's classes: `loops` of them for each rank, one after another; without loops
 * there are none. A first segment in another protocol than the listener's has no class. */
struct gate_sockets {
	u32 first;
	u16 loops;
	u16 ranks;
	u32 speaks_tls;
	u32 marks; /* GATE_STEERED… */
	u32 queue; /* GATE_PROTECTED: the connections in its accept queue from which on lower classes wait */
	u32 place; /* GATE_PROTECTED: the index in `turns` */
	u32 answers; /* the number by which answers from the cache are found; 0: there are none */
};

/* Handshakes are completed here; the listener is another server on this machine; it is not protected any
 * more, but clients may still have a SYN-ACK from here. */
enum { GATE_STEERED = 1, GATE_PROTECTED = 2, GATE_LEAVING = 4 };

/* The largest number of other servers, on this machine and on others. */
#define GATE_OTHERS 64
/* Ranks that have a turn of their own; those below share the last. */
#define GATE_TURNS 16
/* How long a class waits for a higher one after a first segment of that one was dropped, to be
 * retransmitted. */
#define GATE_TURN_NS 1000000000ULL

/* The time at which a first segment of each class was last dropped, to be retransmitted, because the
 * queue of a protected server had no room for it. */
struct gate_turns {
	u64 at[GATE_TURNS];
};

/* The number of sockets of classes: one half is in force, one is being filled. */
#define GATE_SOCKETS 65536

/* The counters. Each SYN that is judged is in GATE_SYNS and in exactly one of those up to GATE_LEFT_RACE. */
enum gate_count {
	GATE_SYNS,
	GATE_PASSED,        /* no limit, or within it */
	GATE_REPEATED,      /* a retransmitted SYN that was admitted before */
	GATE_DROPPED,
	GATE_RESET,
	GATE_IGNORED_SYN,
	GATE_LEFT_USER,     /* only user space can judge it */
	GATE_LEFT_RACE,     /* too many charge the same bucket at the same time */
	/* handshakes that were completed, with charge = "handshake" */
	GATE_COMPLETED,
	GATE_LATE_DROPPED,  /* the bucket was empty by then */
	GATE_LATE_RESET,
	/* TCP that is not parsed */
	GATE_LEFT_OPTIONS,
	GATE_LEFT_FRAGMENT,
	GATE_LEFT_SHORT,
	/* handshakes without state: SYNs that were answered, which are among those above, too */
	GATE_ANSWERED,
	GATE_BARE,          /* acknowledgements without data, which were not passed on */
	GATE_LATER,         /* segments that came before the first one */
	GATE_MADE,          /* connections that were made on the socket of a class */
	GATE_MADE_UNJUDGED, /* on the public socket, because the class could not be determined */
	GATE_MADE_PUBLIC,   /* on the public socket, because the class has none */
	GATE_NOT_MADE,      /* the kernel refused to make the connection */
	GATE_FULL_DROPPED,  /* the queue of the class is full: dropped, to be retransmitted */
	GATE_FULL_RESET,    /* the queue of the class is full: reset */
	/* SYNs that are not answered here: in the place of a connection in TIME_WAIT */
	GATE_TIME_WAIT,
	GATE_PACED,         /* first segments beyond what the agent admits of their class: dropped, to be retransmitted */
	/* for other servers on this machine */
	GATE_MADE_OTHER,    /* connections that were made */
	GATE_TURNED_AWAY,   /* first segments whose turn has not come: dropped, to be retransmitted */
	GATE_COUNTS,
};

/* The results of judging first requests; each request is in one of these up to GATE_FIRST_CONTENDED. */
enum gate_first {
	GATE_FIRST_PASSED,
	GATE_FIRST_CHARGED,
	GATE_FIRST_DROPPED,
	GATE_FIRST_RESET,
	GATE_FIRST_ANSWERED,
	GATE_FIRST_LEFT,      /* only user space can judge the request */
	GATE_FIRST_CONTENDED, /* too many charge the same bucket at the same time */
	/* not judged */
	GATE_FIRST_DAMAGED,   /* the checksum is wrong */
	/* segments behind a page */
	GATE_FIRST_REPEATED,  /* the page was sent again */
	GATE_FIRST_ACKED,     /* the client's FIN, or more data, was acknowledged */
	GATE_FIRST_HELD,      /* dropped: there is nothing to send */
	GATE_FIRST_CUT,       /* a reset: more data than is acknowledged */
	GATE_FIRST_COUNTS,
};

/* Answers from the cache. The most bytes of host and path together. */
#define GATE_NAME_BYTES 192
#define GATE_VARIANTS 4
/* The most bytes of an answer's head and body: one segment on Ethernet with timestamps. */
#define GATE_ANSWER_BYTES 1448
#define GATE_FIELD_BYTES 32
#define GATE_TAG_BYTES 64

/* The key by which an answer is found. */
struct gate_answer_key {
	u32 listener;   /* `answers` of its gate_sockets */
	u16 host_bytes;
	u16 path_bytes;
	u8 text[GATE_NAME_BYTES]; /* the path, the host in lower case, zeros */
};

/* An answer with its variants, the one with the smallest body first. */
struct gate_answer {
	u32 generation; /* the answer is valid while `gate_serving` has the same one */
	u32 number;     /* never used twice */
	u32 requests;   /* the most requests of one connection */
	u32 count;      /* of variants */
	u32 slots[GATE_VARIANTS]; /* of `objects`; GATE_NO_SLOT for one that the server alone can send */
	u8 codings[GATE_VARIANTS]; /* GATE_CODING_… */
};

enum { GATE_CODING_IDENTITY, GATE_CODING_BR, GATE_CODING_ZSTD, GATE_CODING_GZIP };

/* A piece of an answer, and what it adds to an Internet checksum if it begins at an even offset. */
struct gate_piece {
	u16 at;
	u16 bytes;
	u32 sum;
};

/* The pieces: the head before the value of `Date`, for a 200 and for a 304; the head behind it, for an
 * answer that keeps the connection and for the last one; the body. */
enum { GATE_PIECE_OK, GATE_PIECE_NOT_MODIFIED, GATE_PIECE_KEPT, GATE_PIECE_LAST, GATE_PIECE_BODY, GATE_PIECES };

#define GATE_OBJECT_TEXT 4096

/* One variant of an answer. */
struct gate_object {
	u32 number; /* of its answer; 0 while user space writes the object */
	u32 tag_bytes; /* 0: there is no entity tag */
	struct gate_piece pieces[GATE_PIECES];
	u8 tag[GATE_TAG_BYTES]; /* without its quotes */
	u8 text[GATE_OBJECT_TEXT];
};

/* The value of `Date`. The map has two: one is in force, one is being written. */
struct gate_date {
	u8 text[32]; /* GATE_DATE_BYTES are used */
	u32 sum;
	u32 unused;
};

#define GATE_DATE_BYTES 29

/* The settings that the server changes while requests are answered. */
struct gate_serving {
	u64 until_ns;   /* CLOCK_MONOTONIC: from then on nothing is answered; the server renews it */
	u32 generation;
	u32 date;       /* the one in force */
};

/* The meaning of a header field in a request. A field that is not in `fields` means nothing. */
enum gate_field {
	GATE_FIELD_LEAVES = 1, /* only the server can answer */
	GATE_FIELD_HOST,
	GATE_FIELD_CONNECTION,
	GATE_FIELD_CODINGS,    /* Accept-Encoding */
	GATE_FIELD_TAG,        /* If-None-Match */
	GATE_FIELD_SINCE,      /* If-Modified-Since: ignored beside a tag */
};

/* A connection that has had an answer from here, and no socket. */
struct gate_served {
	u32 first;      /* sequence number of the request that was answered last */
	u32 next;       /* the sequence number behind all data received */
	u32 begin, end; /* sequence numbers of the answer, without a FIN */
	u32 slot;       /* of `objects` */
	u32 number;     /* of the answer in that slot when it was sent */
	u32 kept;       /* of the client's offer, as its cookie had it */
	u32 requests;   /* answered on the connection */
	u32 marks;      /* GATE_SERVED_… */
	u32 at_ms;      /* when the answer was sent, or last requested again after REPEATS_MS */
	u32 repeats;    /* how often it was requested again after REPEATS_MS */
};

/* The answer is a head alone; is a 304; announces the end of the connection. The last mark: a FIN was
 * sent behind it. */
enum { GATE_SERVED_HEAD = 1, GATE_SERVED_NOT_MODIFIED = 2, GATE_SERVED_LAST = 4, GATE_SERVED_FIN = 8 };

/* The record of an answer that is about to be sent, in a ring buffer; the bytes of its request follow. */
struct gate_record {
	u64 at_ns; /* CLOCK_MONOTONIC */
	struct gate_tuple ends;
	u32 number;     /* of the answer */
	u32 charged;    /* the slot of the rule that the request was charged to, or GATE_NO_SLOT */
	u32 body_bytes;
	u32 sent_bytes; /* head and body */
	u32 request;    /* its number on the connection, from 1 on */
	u16 head_bytes; /* of the request */
	u8 marks;       /* GATE_SERVED_… */
	u8 coding;
	u32 rank;
};

/* The results for requests that might be answered from the cache; each is in one of these up to
 * GATE_SERVE_LEFT_RECORDS. */
enum gate_serve {
	GATE_SERVE_OK,
	GATE_SERVE_NOT_MODIFIED,
	GATE_SERVE_LEFT_HEAD,    /* the head cannot be read for certain, or only the server knows a field */
	GATE_SERVE_LEFT_UNKNOWN, /* there is no answer */
	GATE_SERVE_LEFT_VOID,    /* the answer is not valid any more, or the client is ignored */
	GATE_SERVE_LEFT_VARIANT, /* the variant that the client wants is not here */
	GATE_SERVE_LEFT_ROOM,    /* the answer does not fit into the client's segment or window */
	GATE_SERVE_LEFT_RECORDS, /* `records` is full: the server has not read the earlier ones */
	/* segments behind an answer */
	GATE_SERVE_REPEATED,     /* the answer was sent again */
	GATE_SERVE_ACKED,        /* the segment was acknowledged */
	GATE_SERVE_HELD,         /* dropped: there is nothing to send */
	GATE_SERVE_ENDED,        /* the client's FIN was answered by one */
	GATE_SERVE_CUT,          /* a reset: more data behind the last answer than is acknowledged */
	GATE_SERVE_EARLY,        /* a request before the last answer was acknowledged: dropped, to be retransmitted */
	GATE_SERVE_ADOPTED,      /* the kernel was asked to make the connection, in its middle */
	GATE_SERVE_LOST,         /* a reset: the connection could not go on */
	GATE_SERVE_COUNTS,
};
