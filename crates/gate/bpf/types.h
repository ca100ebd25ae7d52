/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * What the programs and the server share. `src/types.rs` holds the same for the server, and a test
 * compares size and offset of every field with those in the compiled program.
 *
 * Addresses are IPv6; an IPv4 address stands in ::ffff:0:0/96. Numbers are in the machine's order, but
 * for those of `gate_tuple` and addresses, which are as the wire has them.
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

/* Two sets of rules: one in force, one being filled. */
#define GATE_TABLES 2
/* Rules that can have a bucket or a count here, by name, as long as the server runs. */
#define GATE_SLOTS 4096
/* Connections that are about to be made, and clients that are ignored. */
#define GATE_PENDING 65536
#define GATE_IGNORED 65536
/* Entries of one list. */
#define GATE_LONGEST 4096

/* What the server sets while the program runs. */
struct gate_control {
	u32 table;    /* the set of rules in force */
	u32 degree;   /* of overload: rules from a higher one on do not count */
	u32 charge;   /* GATE_AT_… */
	u32 ignores;  /* somebody may be ignored */
	u32 answers;  /* SYNs are answered here, for listeners with class sockets */
	u32 completes; /* there may be clients with an answer from here */
	u32 offers;   /* GATE_OFFER_…: what the stack of this machine has switched on */
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

/* Of the MAC of cookies. */
struct gate_key {
	u64 low, high;
};

/* Programs that others call in their place: with a stack of their own those that most packets do not need,
 * and what a filter calls. */
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

/* The rules that may match clients of one network: a part of the entries. */
struct gate_list {
	u32 first;
	u32 count;
};

/* A way in which a rule can match; that the client's address fits is known. */
struct gate_entry {
	u64 local_hi, local_lo; /* our address: these bits */
	u64 mask_hi, mask_lo;   /* where these are set */
	u16 client_first, client_last;
	u16 local_first, local_last;
	u32 rule;
	u32 unused;
};

/* What a rule says. */
struct gate_rule {
	u64 interval_ns, tolerance_ns; /* its bucket, as forebay_policy::bucket has it */
	u64 ignore_ns;                 /* how long whoever is refused is ignored */
	u32 slot;                      /* of its word and its counts */
	u8 says;                       /* GATE_SAYS_… */
	u8 marks;                      /* GATE_MARK_… */
	u8 action;                     /* GATE_DO_… */
	u8 over;                       /* GATE_DO_…, of what is over the limit */
	u16 action_page;               /* for GATE_DO_ANSWER: which */
	u16 over_page;
	u32 unused;
};

#define GATE_SAYS_ACTION 1
#define GATE_SAYS_LIMIT 2
/* Of rules for first requests. */
#define GATE_SAYS_BUSY 4
#define GATE_SAYS_CLASS 8
#define GATE_SAYS_ALL 15
#define GATE_MARK_STOP 1
/* From which degree of overload on it counts: these bits, shifted. */
#define GATE_MARK_DEGREE 6
#define GATE_DEGREE_SHIFT 1

/* More than a first segment is needed; the class is given by more than addresses. */
#define GATE_MARK_MORE 8
#define GATE_MARK_BY_REQUEST 16
/* What finds the queue of the class full gets silence, and comes again; else a reset. */
#define GATE_MARK_WAITS 32

/* No class can be told, or none is given. */
#define GATE_UNJUDGED 255

/* Alternatives for one text: a part of the patterns. */
struct gate_asked {
	u32 first;
	u16 count;
	u16 marks; /* GATE_ASKED… */
};

#define GATE_ASKED 1
/* There are alternatives besides, which cannot be tried here. */
#define GATE_ASKED_MORE 2

/* A rule for first requests: for their class, and for whether they come through. */
struct gate_url_rule {
	struct gate_asked method, path, host, cookie;
	u32 rank;  /* or GATE_UNJUDGED */
	u32 marks; /* GATE_MARK_… */
	u64 interval_ns, tolerance_ns; /* of its bucket for requests */
	u64 ignore_ns;                 /* how long whoever is refused is ignored */
	u32 slot;                      /* of its word and its counts */
	u8 says;                       /* GATE_SAYS_… */
	u8 action;                     /* GATE_DO_… */
	u8 over;                       /* GATE_DO_…, of what is over the limit */
	u8 busy;                       /* GATE_DO_…, while there are as many at once as may be */
	u16 action_page, over_page, busy_page; /* for GATE_DO_ANSWER: which */
	u16 unused;
};

#define GATE_PATTERN_BYTES 160

/* The beginning of a path, or a whole one with a zero behind it: by it are found the rules that ask for it. */
struct gate_path {
	u32 bits;
	u8 bytes[GATE_PATTERN_BYTES + 4];
};

/* A text; what is behind its length is zero. */
struct gate_pattern {
	u64 words[GATE_PATTERN_BYTES / 8];
	u32 length;
	u32 is_prefix; /* everything that begins with it fits */
};

/* USER is what only user space can do. ANSWER is an error, once the client has proven its address: of a SYN it is
 * left to user space. */
enum { GATE_DO_ALLOW = 0, GATE_DO_DROP = 1, GATE_DO_RESET = 2, GATE_DO_USER = 3, GATE_DO_ANSWER = 4 };

/* The buckets of a rule, on a cache line of their own: user space charges them, too. */
struct gate_word {
	u64 arrival;    /* of connections */
	u64 requests;
	u64 full_until; /* it has as many requests at once as it may: user space says so, and for how long */
	u64 interval_ns; /* of requests, where the rate is moved; 0: what the rule says. Of a class: of connections; 0: no limit */
	u64 unused[4];
};

/* The slots of classes, one after another for each table. */
#define GATE_RANKS 256
#define GATE_NO_SLOT (~0U)
/* Of a class so much may come at once, as time. */
#define GATE_CLASS_TOLERANCE_NS 10000000ULL

/* What became of SYNs and handshakes that a rule decided about. */
struct gate_tally {
	u64 admitted;
	u64 dropped;
	u64 reset;
	u64 answered;
	u64 requests; /* first requests among those that were refused */
};

/* Both ends of a connection, ports as the wire has them. */
struct gate_tuple {
	u8 client[16];
	u8 local[16];
	u16 client_port;
	u16 local_port;
};

/* A connection that was let through and is not accepted yet. */
struct gate_pending {
	u64 interval_ns, tolerance_ns, ignore_ns;
	u32 slot;
	u32 sequence; /* of its SYN */
	u32 state;    /* GATE_LOOKED… */
	u32 over;
};

/* An answer that refuses: different ones, which all rules share. There is each twice: one is in force, one is being
 * written. */
#define GATE_PAGES 256
#define GATE_PAGE_BYTES 512

struct gate_page {
	u32 head_bytes; /* all that HEAD gets */
	u32 bytes;
	u32 head_sum;   /* of the Internet checksum, of as many bytes */
	u32 sum;
	u8 text[GATE_PAGE_BYTES];
};

/* A connection whose first request was answered here. */
struct gate_refused {
	u32 first;        /* sequence number of its first segment */
	u32 begin, end;   /* of the answer: the last one is its FIN */
	u16 page;
	u16 marks; /* GATE_REFUSED_… */
};

/* The request was one for a head; windows are not scaled. */
enum { GATE_REFUSED_HEAD = 1, GATE_REFUSED_UNSCALED = 2 };

/* A first request that was charged, for user space, which does not charge it again. */
struct gate_charged {
	u32 slot;
	u32 sequence;
};

#define GATE_REFUSED 65536
#define GATE_CHARGED_REQUESTS 65536
#define GATE_WATCHED 65536

/* Its bucket was looked at; somebody charges it; it is charged. */
enum { GATE_LOOKED = 1, GATE_CHARGING = 2, GATE_CHARGED = 3 };

/* A socket of ours that listens. */
struct gate_listener {
	u8 address[16]; /* all zero: every address of its family */
	u16 port;
	u16 family; /* or GATE_OF_OTHERS… */
};

/* Of another server on this machine, at whatever address it listens; of another machine, at this address. */
enum { GATE_OF_OTHERS = 0, GATE_FORWARDED = 0xffff };

/* The sockets of its classes: for each rank `loops` of them, one after another. None without loops. What does not
 * speak the language of the listener is of no class. */
struct gate_sockets {
	u32 first;
	u16 loops;
	u16 ranks;
	u32 speaks_tls;
	u32 marks; /* GATE_STEERED… */
	u32 queue; /* GATE_PROTECTED: so many connections may wait there before one of a lower class */
	u32 place; /* and in `turns` */
	u32 answers; /* by this number answers from the cache are found; 0: there are none */
};

/* Handshakes are completed here; it is another server on this machine; it is protected no more, but clients may have an
 * answer from here. */
enum { GATE_STEERED = 1, GATE_PROTECTED = 2, GATE_LEAVING = 4 };

/* Other servers on this machine, or on others. */
#define GATE_OTHERS 64
/* Ranks that have a turn of their own; those below share the last. */
#define GATE_TURNS 16
/* A class waits for those above it as long as one of these was told to come again so lately. */
#define GATE_TURN_NS 1000000000ULL

/* When a first segment of each class was told to come again, because the queue of a protected server had no room. */
struct gate_turns {
	u64 at[GATE_TURNS];
};

/* Sockets of classes: one half in force, one being filled. */
#define GATE_SOCKETS 65536

/* What is counted. Each SYN for a listener of ours is in GATE_SYNS and in exactly one of those up to
 * GATE_LEFT_RACE. */
enum gate_count {
	GATE_SYNS,
	GATE_PASSED,        /* no limit, or within it */
	GATE_REPEATED,      /* a SYN again that was let through */
	GATE_DROPPED,
	GATE_RESET,
	GATE_IGNORED_SYN,
	GATE_LEFT_USER,     /* only user space can judge it */
	GATE_LEFT_RACE,     /* too many charge the same bucket at the same time */
	/* handshakes that were completed, with charge = "handshake" */
	GATE_COMPLETED,
	GATE_LATE_DROPPED,  /* the bucket was empty by then */
	GATE_LATE_RESET,
	/* TCP that is not looked at */
	GATE_LEFT_OPTIONS,
	GATE_LEFT_FRAGMENT,
	GATE_LEFT_SHORT,
	/* handshakes without state: SYNs that were answered, which are among those above, too */
	GATE_ANSWERED,
	GATE_BARE,          /* acknowledgements that were not passed on: there is nothing to be read yet */
	GATE_LATER,         /* segments that came before the first one */
	GATE_MADE,          /* connections that were made on the socket of a class */
	GATE_MADE_UNJUDGED, /* on the public one, because the class could not be told */
	GATE_MADE_PUBLIC,   /* the same, because its class has no socket */
	GATE_NOT_MADE,      /* the kernel refused to */
	GATE_FULL_DROPPED,  /* the queue of its class is full: not passed on, to come again */
	GATE_FULL_RESET,
	/* SYNs that are not answered here: in the place of a connection that has just ended */
	GATE_TIME_WAIT,
	GATE_PACED,         /* first segments beyond what the agent admits of their class: not passed on, to come again */
	/* for other servers on this machine */
	GATE_MADE_OTHER,    /* connections that were made */
	GATE_TURNED_AWAY,   /* first segments whose turn has not come: not passed on, to come again */
	GATE_COUNTS,
};

/* What became of first requests that were judged; each is in one of these up to GATE_FIRST_CONTENDED. */
enum gate_first {
	GATE_FIRST_PASSED,
	GATE_FIRST_CHARGED,
	GATE_FIRST_DROPPED,
	GATE_FIRST_RESET,
	GATE_FIRST_ANSWERED,
	GATE_FIRST_LEFT,      /* only user space can judge it */
	GATE_FIRST_CONTENDED, /* too many charge the same bucket at the same time */
	/* not judged */
	GATE_FIRST_DAMAGED,   /* its checksum is wrong */
	/* behind an answer */
	GATE_FIRST_REPEATED,  /* it was sent again */
	GATE_FIRST_ACKED,     /* what came was acknowledged: the client's FIN, or more data */
	GATE_FIRST_HELD,      /* nothing is to be said */
	GATE_FIRST_CUT,       /* a reset: more data than is acknowledged */
	GATE_FIRST_COUNTS,
};

/* Answers from the cache. Host and path of one have so many bytes together at most. */
#define GATE_NAME_BYTES 192
#define GATE_VARIANTS 4
/* Head and body of an answer: a segment of Ethernet with times. */
#define GATE_ANSWER_BYTES 1448
#define GATE_FIELD_BYTES 32
#define GATE_TAG_BYTES 64

/* What an answer is found by. */
struct gate_answer_key {
	u32 listener;   /* `answers` of its gate_sockets */
	u16 host_bytes;
	u16 path_bytes;
	u8 text[GATE_NAME_BYTES]; /* the path, the host in small letters, zeros */
};

/* An answer in its variants: the one with the smallest body comes first. */
struct gate_answer {
	u32 generation; /* it counts while `gate_serving` has the same */
	u32 number;     /* never given twice */
	u32 requests;   /* so many a connection may have */
	u32 count;      /* variants */
	u32 slots[GATE_VARIANTS]; /* of `objects`; GATE_NO_SLOT for one that the server alone can send */
	u8 codings[GATE_VARIANTS]; /* GATE_CODING_… */
};

enum { GATE_CODING_IDENTITY, GATE_CODING_BR, GATE_CODING_ZSTD, GATE_CODING_GZIP };

/* A piece of an answer, and what it adds to an Internet checksum where it begins at an even place. */
struct gate_piece {
	u16 at;
	u16 bytes;
	u32 sum;
};

/* What is before the value of `Date`, of a 200 and of a 304; what is behind it, of an answer after which the connection is
 * kept and of the last one; the body. */
enum { GATE_PIECE_OK, GATE_PIECE_NOT_MODIFIED, GATE_PIECE_KEPT, GATE_PIECE_LAST, GATE_PIECE_BODY, GATE_PIECES };

#define GATE_OBJECT_TEXT 4096

/* One variant. */
struct gate_object {
	u32 number; /* of its answer; 0 while it is written */
	u32 tag_bytes; /* 0: it has none */
	struct gate_piece pieces[GATE_PIECES];
	u8 tag[GATE_TAG_BYTES]; /* between its quotes */
	u8 text[GATE_OBJECT_TEXT];
};

/* The value of `Date`. There are two: one is in force, one is being written. */
struct gate_date {
	u8 text[32]; /* 29 of them */
	u32 sum;
	u32 unused;
};

#define GATE_DATE_BYTES 29

/* What the server sets while requests are answered. */
struct gate_serving {
	u64 until_ns;   /* of CLOCK_MONOTONIC: then nothing is answered any more, unless it has been moved on */
	u32 generation;
	u32 date;       /* which is in force */
};

/* What a field of a request means. One that is not named means nothing. */
enum gate_field {
	GATE_FIELD_LEAVES = 1, /* only the server can answer */
	GATE_FIELD_HOST,
	GATE_FIELD_CONNECTION,
	GATE_FIELD_CODINGS,    /* Accept-Encoding */
	GATE_FIELD_TAG,        /* If-None-Match */
	GATE_FIELD_SINCE,      /* If-Modified-Since: a tag goes before it */
};

/* A connection that has had an answer from here, and no socket. */
struct gate_served {
	u32 first;      /* number of the request that was answered last */
	u32 next;       /* of what comes behind all that has come */
	u32 begin, end; /* of the answer, without a FIN */
	u32 slot;       /* of `objects` */
	u32 number;     /* that it had */
	u32 kept;       /* of the client's offer, as its cookie had it */
	u32 requests;   /* that were answered */
	u32 marks;      /* GATE_SERVED_… */
	u32 at_ms;      /* when the answer was sent, or sent again after a while */
	u32 repeats;    /* how often it was, after a while */
};

/* The answer: a head alone; a 304; it says that the connection ends. And what was sent besides: a FIN, behind the answer. */
enum { GATE_SERVED_HEAD = 1, GATE_SERVED_NOT_MODIFIED = 2, GATE_SERVED_LAST = 4, GATE_SERVED_FIN = 8 };

/* An answer that is about to be sent: before the bytes of its request in a ring buffer. */
struct gate_record {
	u64 at_ns; /* of CLOCK_MONOTONIC */
	struct gate_tuple ends;
	u32 number;     /* of the answer */
	u32 charged;    /* the slot of the rule that the request was charged to, or GATE_NO_SLOT */
	u32 body_bytes;
	u32 sent_bytes; /* head and body */
	u32 request;    /* which it is on its connection, from 1 on */
	u16 head_bytes; /* of the request */
	u8 marks;       /* GATE_SERVED_… */
	u8 coding;
	u32 rank;
};

/* What became of requests that might be answered from the cache; each is in one of these up to GATE_SERVE_LEFT_RECORDS. */
enum gate_serve {
	GATE_SERVE_OK,
	GATE_SERVE_NOT_MODIFIED,
	GATE_SERVE_LEFT_HEAD,    /* it cannot be read for certain, or a field of it decides */
	GATE_SERVE_LEFT_UNKNOWN, /* there is no answer */
	GATE_SERVE_LEFT_VOID,    /* it does not count any more, or its client is ignored */
	GATE_SERVE_LEFT_VARIANT, /* the one that is wanted is not here */
	GATE_SERVE_LEFT_ROOM,    /* it does not fit into the client's segment or window */
	GATE_SERVE_LEFT_RECORDS, /* the server has not read what was answered before */
	/* behind an answer */
	GATE_SERVE_REPEATED,     /* it was sent again */
	GATE_SERVE_ACKED,        /* what came was acknowledged */
	GATE_SERVE_HELD,         /* nothing is to be said */
	GATE_SERVE_ENDED,        /* the client's FIN was answered by one */
	GATE_SERVE_CUT,          /* a reset: more data behind the last answer than is acknowledged */
	GATE_SERVE_EARLY,        /* the next request came before the answer was acknowledged: it comes again */
	GATE_SERVE_ADOPTED,      /* the kernel was told to make the connection, in its middle */
	GATE_SERVE_LOST,         /* a reset: the connection could not go on */
	GATE_SERVE_COUNTS,
};
