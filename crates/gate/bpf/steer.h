/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * Handshakes without state, and connections that are made on the socket of their class. A SYN for a
 * listener with class sockets is answered here (cookie.h has the format of the cookie); the bare
 * acknowledgement is not passed on; the first data makes the connection, on the socket of its request's
 * class, or on the public one. The kernel makes it as it does from its own cookies
 * (bpf_sk_assign_tcp_reqsk, Linux 6.9); without that function all of this is off.
 *
 * Where first requests are judged (first.h), a refused one makes no connection. Connections for another
 * server on this machine are made on its own socket, when it is the turn of their class (`turns`).
 *
 * Handshakes that only the stack can complete (in the place of TIME_WAIT, with MPTCP, with very small
 * segments) are left to the stack. Where such a connection goes to another server, its first data is judged,
 * and if it is refused, both ends get a reset.
 *
 * Reads `control`, `listeners`, `locals`, `keys`, `sockets`, `ranks` and the tables by URL, reads and writes
 * `pending`, `words`, `turns` and `watched`, writes `counts`, `tallies` and `judged`. Verdicts: drop, a
 * redirect of the SYN-ACK, SEND_RESET, SEND_REPLY, or nothing, with the request socket assigned or not.
 */
#pragma once

/* What the kernel needs to make a connection: its own `struct bpf_tcp_req_attrs`. */
struct bpf_tcp_req_attrs {
	u32 rcv_tsval;
	u32 rcv_tsecr;
	u16 mss;
	u8 rcv_wscale;
	u8 snd_wscale;
	u8 ecn_ok;
	u8 wscale_ok;
	u8 sack_ok;
	u8 tstamp_ok;
	u8 usec_ts_ok;
	u8 reserved[3];
};

/* Declared with a body: a forward declaration does not match the kernel's BTF. */
struct sock {
	int unused;
};

/* The part of the kernel's `struct sock` that is read here; CO-RE ignores the suffix behind `___`. */
struct sock___queue {
	u32 sk_ack_backlog;
	u32 sk_max_ack_backlog;
} __attribute__((preserve_access_index));

extern int bpf_sk_assign_tcp_reqsk(struct __sk_buff *s, struct sock *sk, struct bpf_tcp_req_attrs *attrs,
				   int attrs__sz) __ksym __weak;

/* The window in a SYN-ACK: room for the first data of a client. */
#define OUR_WINDOW 29200

/* The largest segment that the interface can send, by its MTU. */
static __always_inline u32 largest_here(struct __sk_buff *skb, const struct segment *s)
{
	u32 mtu = 0, heads = s->ip_bytes + sizeof(s->tcp);

	bpf_check_mtu(skb, 0, &mtu, 0, 0);
	if (mtu <= heads)
		return 0;
	mtu -= heads;
	return mtu > 65495 ? 65495 : mtu;
}

/* Answers a SYN that is within all limits; TC_ACT_UNSPEC if only the stack can. */
static __always_inline int answer_syn(struct __sk_buff *skb, struct segment *s,
				      const struct gate_control *set)
{
	struct options *o = read_options(skb);
	u32 largest = largest_here(skb, s), least = s->is_v4 ? 536 : 1220;
	struct answer answer = {};
	struct offer offer = {};
	u64 now = bpf_ktime_get_ns();
	u32 bytes = sizeof(answer.tcp);
	bool has_times, has_scale;

	if (!o)
		return TC_ACT_UNSPEC;
	offer.largest = o->has_largest ? o->largest : least;
	/* the kernel makes no connection with a smaller segment from a cookie */
	if (offer.largest < least || largest < least)
		return TC_ACT_UNSPEC;
	offer.scale = set->offers & GATE_OFFER_SCALE ? o->scale : GATE_NO_SCALE;
	offer.sack = set->offers & GATE_OFFER_SACK && o->has_sack;
	offer.ecn = set->offers & GATE_OFFER_ECN && s->tcp.ece && s->tcp.cwr;
	has_times = set->offers & GATE_OFFER_TIMES && o->has_times && o->has_largest;
	if (!o->has_largest) {
		/* without options: with them the SYN-ACK would be longer than the SYN, an amplification */
		offer.sack = 0;
		offer.scale = GATE_NO_SCALE;
	}

	answer.tcp.seq = bpf_htonl(make_cookie(s, &offer, now));
	answer.tcp.ack_seq = bpf_htonl(s->sequence + 1);
	answer.tcp.syn = 1;
	answer.tcp.ack = 1;
	answer.tcp.ece = offer.ecn;
	answer.tcp.window = bpf_htons(OUR_WINDOW);
	has_scale = offer.scale != GATE_NO_SCALE;
	if (o->has_largest) {
		answer.options[0] = bpf_htonl((u32)OPTION_LARGEST << 24 | 4 << 16 | largest);
		bytes += 4;
	}
	if (has_times) {
		answer.options[1] = bpf_htonl(offer.sack ? SACK_AND_TIMES : PADDED_TIMES);
		/* even where answers from the cache are on, since those have odd times
		 * (`is_behind_answer`) */
		answer.options[2] = bpf_htonl(time_of(now) & ~set->serves);
		answer.options[3] = bpf_htonl(o->value);
		answer.options[4] = bpf_htonl(PADDED_SCALE);
		bytes += has_scale ? 16 : 12;
	} else {
		answer.options[1] = bpf_htonl(offer.sack ? PADDED_SACK : PADDED_SCALE);
		answer.options[2] = bpf_htonl(PADDED_SCALE);
		bytes += (offer.sack ? 4 : 0) + (has_scale ? 4 : 0);
	}
	count(GATE_ANSWERED);
	return send_back(skb, s, &answer, bytes);
}

/* The listening socket of a class, which the caller releases; 0 if there is none. */
static __always_inline struct bpf_sock *socket_of_rank(struct __sk_buff *skb,
						       const struct gate_sockets *known, u32 rank)
{
	u32 place;

	if (rank >= known->ranks || !known->loops)
		return 0;
	place = known->first + rank * known->loops + bpf_get_hash_recalc(skb) % known->loops;
	return bpf_map_lookup_elem(&sockets, &place);
}

/* Whether the accept queue of this socket is full, so that the kernel would make no further connection. */
static __always_inline bool is_full(struct bpf_sock *socket)
{
	struct sock___queue *listener = (struct sock___queue *)bpf_skc_to_tcp_sock(socket);

	return listener && listener->sk_ack_backlog > listener->sk_max_ack_backlog;
}

/* Has the kernel make the connection on this socket; whether it agrees. */
static __always_inline bool assign(struct __sk_buff *skb, struct bpf_sock *socket,
				   struct bpf_tcp_req_attrs *attrs)
{
	struct sock *listener = (struct sock *)bpf_skc_to_tcp_sock(socket);

	return listener && bpf_sk_assign_tcp_reqsk &&
	       !bpf_sk_assign_tcp_reqsk(skb, listener, attrs, sizeof(*attrs));
}

/* A flag beside the rank: the connection is for another server. */
#define RANK_OF_OTHERS 512
/* Above the flags: the number by which answers from the cache are found for the listener; 0 if there are
 * none. */
#define LISTENER_SHIFT 10

/* A verdict of our own: look for an answer in the cache (serve.h), and if there is none, make the
 * connection. */
#define SERVE_REQUEST 0x103
/* Another: the segment belongs to a connection that had an answer from the cache and is not in `served`
 * any more. */
#define SERVE_LOST 0x104

/* Whether the rules admit the first request in `segments` for certain and its class is known; then
 * `replies` has what `serve` needs. A global function, as `rank_of` is. */
__noinline int may_be_served(u32 listener, u32 rank, u32 kept)
{
	u32 zero = 0;
	struct segment *s = bpf_map_lookup_elem(&segments, &zero);
	struct found *f = bpf_map_lookup_elem(&found, &zero);
	struct reply *reply = bpf_map_lookup_elem(&replies, &zero);

	if (!s || !f || !reply || !s->data_bytes || s->flags & (TCP_FIN | TCP_URG))
		return false;
	if ((f->judgement != FIRST_GOES && f->judgement != FIRST_CHARGED) ||
	    rank == GATE_UNJUDGED)
		return false;
	reply->listener = listener;
	reply->kept = kept;
	reply->rank = rank;
	reply->requests = 0;
	return true;
}

/* Has the kernel make the connection of a first segment, whose cookie has proven its client's address
 * and what is `kept` of the client's offer: on the socket of its class, or on the public one if that is
 * 0. SERVE_REQUEST if the cache is to be asked before. Not inlined, as `has_turn` is not. */
static __noinline int make_connection(struct __sk_buff *skb, struct bpf_sock *public, struct bpf_sock *of_class,
				      u32 kept, u32 of_first)
{
	struct options *o = read_options(skb);
	u32 zero = 0, rank = of_first & GATE_UNJUDGED;
	struct gate_control *set = bpf_map_lookup_elem(&control, &zero);
	u64 *number = bpf_map_lookup_elem(&judged, &rank);
	struct bpf_tcp_req_attrs attrs = {};
	struct offer offer;

	if (of_first >> LISTENER_SHIFT && may_be_served(of_first >> LISTENER_SHIFT, rank, kept))
		return SERVE_REQUEST;
	recall_offer(kept, &offer);
	attrs.mss = offer.largest;
	attrs.wscale_ok = offer.scale != GATE_NO_SCALE;
	attrs.rcv_wscale = attrs.wscale_ok ? OUR_SCALE : 0;
	attrs.snd_wscale = attrs.wscale_ok ? offer.scale : 0;
	attrs.sack_ok = offer.sack;
	attrs.ecn_ok = offer.ecn;
	if (o && set && o->has_times && set->offers & GATE_OFFER_TIMES) {
		attrs.tstamp_ok = 1;
		attrs.rcv_tsval = o->value;
		attrs.rcv_tsecr = o->echo;
	}
	/* `judged` counts requests for the queues of this server, not for another one's */
	if (number && !(of_first & RANK_OF_OTHERS))
		*number += 1;
	if (of_class && assign(skb, of_class, &attrs))
		count(GATE_MADE);
	else if (!assign(skb, public, &attrs))
		count(GATE_NOT_MADE);
	else if (of_first & RANK_OF_OTHERS)
		count(GATE_MADE_OTHER);
	else
		count(rank == GATE_UNJUDGED ? GATE_MADE_UNJUDGED : GATE_MADE_PUBLIC);
	return TC_ACT_UNSPEC;
}

/* The verdict on a first segment whose class has a full queue. The kernel would drop it silently,
 * although the client believes that it is connected. */
static __always_inline int refuse_full(u32 waits)
{
	if (waits) {
		count(GATE_FULL_DROPPED);
		return TC_ACT_SHOT;
	}
	count(GATE_FULL_RESET);
	return SEND_RESET;
}

/* Charges the connection to what the agent admits of its class per second; whether there was room. Not
 * inlined, as `has_turn` is not: so its variables lie on the stack only while it runs, and not below
 * deeper calls of its caller. */
static __noinline bool is_within_pace(u32 table, u32 rank)
{
	u32 place = (table & 1) * GATE_RANKS + rank, slot;
	u32 *known = rank < GATE_RANKS ? bpf_map_lookup_elem(&ranks, &place) : 0;
	struct gate_word *word;
	struct gate_tally *numbers;
	u64 interval_ns;

	if (rank == GATE_UNJUDGED || !known || *known == GATE_NO_SLOT)
		return true;
	slot = *known;
	word = bpf_map_lookup_elem(&words, &slot);
	if (!word)
		return true;
	interval_ns = *(volatile u64 *)&word->interval_ns;
	if (!interval_ns)
		return true;
	numbers = tally(slot);
	if (charge_word(&word->arrival, interval_ns, minus(GATE_CLASS_TOLERANCE_NS, interval_ns),
			bpf_ktime_get_ns()) == REFUSED) {
		count(GATE_PACED);
		if (numbers)
			numbers->dropped += 1;
		return false;
	}
	if (numbers)
		numbers->admitted += 1;
	return true;
}

/* Whether it is this class's turn at another server. A higher class comes first if one of its segments
 * was dropped lately, to be retransmitted, and it has not had its turn since; but only while connections
 * wait in that server's queue, because otherwise there is nothing to order. A connection that waits
 * there cannot be overtaken, so one of a lower class is made only while few wait. */
static __noinline bool has_turn(const struct gate_sockets *known, struct bpf_sock *public, u32 rank)
{
	struct sock___queue *listener = (struct sock___queue *)bpf_skc_to_tcp_sock(public);
	u32 place = known->place, own = rank < GATE_TURNS ? rank : GATE_TURNS - 1;
	struct gate_turns *all = bpf_map_lookup_elem(&turns, &place);
	u64 now = bpf_ktime_get_ns();
	bool has = true;

	if (!listener || !all)
		return true;
	if (is_full(public) || (rank && listener->sk_ack_backlog >= known->queue))
		has = false;
	for (u32 above = 0; above < GATE_TURNS - 1; above++)
		if (above < own && all->at[above] && listener->sk_ack_backlog &&
		    now - all->at[above] < GATE_TURN_NS)
			has = false;
	all->at[own & (GATE_TURNS - 1)] = has ? 0 : now;
	if (!has)
		count(GATE_TURNED_AWAY);
	return has;
}

/* Judges and charges the first segment of a connection that has data or a FIN, and has the connection
 * made. */
static __always_inline int begin_connection(struct __sk_buff *skb, struct segment *s,
					    const struct gate_control *set, struct bpf_sock *public,
					    const struct gate_sockets *known, u32 kept)
{
	bool is_protected = known->marks & GATE_PROTECTED, is_left = known->marks & GATE_LEAVING;
	u32 how = (known->speaks_tls ? READ_TLS : 0) | (is_protected ? READ_ALONE : 0);
	u32 of_first = rank_of(skb, how), rank = of_first & GATE_UNJUDGED;
	struct bpf_sock *of_class = socket_of_rank(skb, known, rank);
	struct gate_pending *note;
	int verdict = TC_ACT_UNSPEC;

	if (of_class && is_full(of_class)) {
		verdict = refuse_full(of_first & RANK_WAITS);
	} else if (!of_class && !is_protected && is_full(public)) {
		/* the kernel would drop it, too: here that happens before anything is charged */
		verdict = refuse_full(RANK_WAITS);
	} else {
		note = note_of(s);
		if (note && set->charge == GATE_AT_HANDSHAKE)
			verdict = charge_proven(s, note);
		if (verdict == TC_ACT_UNSPEC && set->judges && !known->speaks_tls && !is_left && s->data_bytes)
			verdict = judge_first(judge_connection(), scale_of(kept));
		/* from here on a segment may be dropped after its charge: `pending` and `charged` have
		 * it, so the retransmission is not charged again */
		if (verdict == TC_ACT_UNSPEC && is_protected && !is_left &&
		    !has_turn(known, public, rank == GATE_UNJUDGED ? set->default_rank : rank))
			verdict = TC_ACT_SHOT;
		/* a connection on the public socket is charged by user space instead */
		if (verdict == TC_ACT_UNSPEC && of_class && !is_within_pace(set->table, rank))
			verdict = TC_ACT_SHOT;
		if (verdict == TC_ACT_UNSPEC)
			verdict = make_connection(skb, public, of_class, kept,
						  rank | (is_protected ? RANK_OF_OTHERS : 0) |
							  known->answers << LISTENER_SHIFT);
	}
	if (of_class)
		bpf_sk_release(of_class);
	return verdict;
}

/* Remembers the SYN of a connection to another server whose handshake the stack completes, so that its
 * first data is judged when it arrives. */
static __always_inline void watch(const struct segment *s)
{
	bpf_map_update_elem(&watched, &s->tuple, &s->sequence, BPF_ANY);
}

/* Judges the first data of such a connection. */
static __always_inline int judge_watched(struct __sk_buff *skb, struct segment *s, u32 state)
{
	u32 zero = 0, *first = bpf_map_lookup_elem(&watched, &s->tuple);
	struct found *f = bpf_map_lookup_elem(&found, &zero);
	u32 early;

	if (!f || !first)
		return TC_ACT_UNSPEC;
	/* the segment begins before the first byte: the stack would trim that part and accept the rest,
	 * unjudged */
	early = *first + 1 - s->sequence;
	if (early && early < s->data_bytes)
		return TC_ACT_SHOT;
	if (early)
		return TC_ACT_UNSPEC;
	if ((state == BPF_TCP_LISTEN || state == BPF_TCP_NEW_SYN_RECV) && !is_proven(skb, s))
		return TC_ACT_UNSPEC;
	if (!is_intact(skb)) {
		count_first(GATE_FIRST_DAMAGED);
		return TC_ACT_UNSPEC;
	}
	rank_of(skb, READ_ALONE);
	/* the connection exists on the other server, so a page from here would not be part of it: resets
	 * only */
	f->answers = 0;
	if (judge_first(judge_connection(), GATE_NO_SCALE) != TC_ACT_UNSPEC)
		return SEND_RESETS;
	bpf_map_delete_elem(&watched, &s->tuple);
	return TC_ACT_UNSPEC;
}

/* Whether the segment in `segments`, which no cookie proves, has data behind an answer from the cache:
 * it echoes the time of a segment that its client received, which is odd in such an answer and even in a
 * SYN-ACK from here. A global function, as `check_cookie` is. */
__noinline int is_behind_answer(struct __sk_buff *skb)
{
	u32 zero = 0;
	struct segment *s = bpf_map_lookup_elem(&segments, &zero);
	struct options *o = read_options(skb);

	return s && o && s->data_bytes && o->has_times && o->echo & 1;
}

/* Judges a segment with ACK and neither SYN nor RST, while there may be clients with a SYN-ACK from here. */
static __always_inline int judge_segment(struct __sk_buff *skb, struct segment *s,
					 const struct gate_control *set)
{
	struct bpf_sock *socket = socket_of(skb, s);
	struct gate_sockets *known = 0;
	struct gate_refused *answered;
	struct gate_pending *note;
	int proof = NOT_OURS;
	int verdict = TC_ACT_UNSPEC;
	u32 state;

	if (!socket)
		return TC_ACT_UNSPEC;
	state = socket->state;
	if (state == BPF_TCP_LISTEN) {
		known = ours(socket, s);
		if (known && is_of_family(known, socket, s))
			proof = check_cookie();
		/* LATER rests on five bits and two epochs, so one in sixteen of the kernel's own cookies
		 * passes by chance */
		if (proof == LATER && is_of_kernel(socket, s))
			proof = NOT_OURS;
	}
	answered = known && set->judges ? note_of_answer(s) : 0;
	if (answered) {
		bpf_sk_release(socket);
		return go_on_after_answer(s, answered);
	}
	if (!known || proof == NOT_OURS) {
		bpf_sk_release(socket);
		if (set->charge == GATE_AT_HANDSHAKE)
			verdict = judge_acknowledgement(skb, s);
		if (verdict == TC_ACT_UNSPEC && set->watches && set->judges && s->data_bytes)
			verdict = judge_watched(skb, s, state);
		if (verdict == TC_ACT_UNSPEC && known && known->answers && is_behind_answer(skb))
			verdict = SERVE_LOST;
		return verdict;
	}
	if (proof == LATER) {
		bpf_sk_release(socket);
		/* its connection had an answer and was evicted from `served`: it would wait for ever for
		 * a first segment, which its client has sent long ago */
		if (known->answers && is_behind_answer(skb))
			return SERVE_LOST;
		count(GATE_LATER);
		return TC_ACT_SHOT;
	}
	/* a segment with a wrong checksum is not judged: the stack drops it */
	if (set->judges && s->data_bytes && !known->speaks_tls && !is_intact(skb)) {
		bpf_sk_release(socket);
		count_first(GATE_FIRST_DAMAGED);
		return TC_ACT_UNSPEC;
	}
	if (s->data_bytes || s->flags & TCP_FIN) {
		verdict = begin_connection(skb, s, set, socket, known, proof);
	} else {
		/* the handshake is complete: where the limit has no room, the client is refused now, not
		 * at its first data */
		note = note_of(s);
		if (note && set->charge == GATE_AT_HANDSHAKE)
			verdict = charge_proven(s, note);
		if (verdict == TC_ACT_UNSPEC) {
			count(GATE_BARE);
			verdict = TC_ACT_SHOT;
		}
	}
	bpf_sk_release(socket);
	return verdict;
}
