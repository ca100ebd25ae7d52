/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * Handshakes without state, and connections that are made on the socket of their class. A SYN for a
 * listener with class sockets is answered here (cookie.h has what is remembered); the bare
 * acknowledgement is not passed on; the first data makes the connection, on the socket of the class that
 * its request has, or on the public one. The kernel makes it as from its own cookies
 * (bpf_sk_assign_tcp_reqsk, Linux 6.9); without that, nothing of this is switched on.
 * Where first requests are judged (first.h), one that is refused makes none. For another server on this machine they are
 * made on its own socket, when it is the turn of their class (`turns`).
 * Handshakes that only the stack completes (in the place of TIME_WAIT, with MPTCP, of the smallest segments) are the stack's:
 * of another server's connections the first data is judged then, and what is refused is ended by resets to both ends.
 * Reads `control`, `listeners`, `locals`, `keys`, `sockets`, `ranks` and the tables by URL, reads and writes
 * `pending`, `words`, `turns` and `watched`, writes `counts`, `tallies` and `judged`. Verdicts: drop, a redirect of the
 * SYN-ACK, SEND_RESET, SEND_REPLY, or nothing, with the request socket assigned or not.
 */
#pragma once

/* What the kernel is told of a connection: `struct bpf_tcp_req_attrs`, as it has it. */
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

/* Declared whole: a declaration only forward does not fit the kernel's. */
struct sock {
	int unused;
};

/* As far as we look into it, under a name of ours. */
struct sock___queue {
	u32 sk_ack_backlog;
	u32 sk_max_ack_backlog;
} __attribute__((preserve_access_index));

extern int bpf_sk_assign_tcp_reqsk(struct __sk_buff *s, struct sock *sk, struct bpf_tcp_req_attrs *attrs,
				   int attrs__sz) __ksym __weak;

/* What is offered: a window that holds what a client sends at first. */
#define OUR_WINDOW 29200

/* The largest segment that the interface takes. */
static __always_inline u32 largest_here(struct __sk_buff *skb, const struct segment *s)
{
	u32 mtu = 0, heads = s->ip_bytes + sizeof(s->tcp);

	bpf_check_mtu(skb, 0, &mtu, 0, 0);
	if (mtu <= heads)
		return 0;
	mtu -= heads;
	return mtu > 65495 ? 65495 : mtu;
}

/* A SYN that is within all limits is answered. */
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
	/* the kernel does not make such a connection from a cookie */
	if (offer.largest < least || largest < least)
		return TC_ACT_UNSPEC;
	offer.scale = set->offers & GATE_OFFER_SCALE ? o->scale : GATE_NO_SCALE;
	offer.sack = set->offers & GATE_OFFER_SACK && o->has_sack;
	offer.ecn = set->offers & GATE_OFFER_ECN && s->tcp.ece && s->tcp.cwr;
	has_times = set->offers & GATE_OFFER_TIMES && o->has_times && o->has_largest;
	if (!o->has_largest) {
		/* an answer that says so would be longer than the SYN */
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
		/* even, where those of answers from the cache are odd */
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

/* The socket of a class, to be released; 0 if there is none. */
static __always_inline struct bpf_sock *socket_of_rank(struct __sk_buff *skb,
						       const struct gate_sockets *known, u32 rank)
{
	u32 place;

	if (rank >= known->ranks || !known->loops)
		return 0;
	place = known->first + rank * known->loops + bpf_get_hash_recalc(skb) % known->loops;
	return bpf_map_lookup_elem(&sockets, &place);
}

/* Whether the kernel would drop what would make one more connection on this socket. */
static __always_inline bool is_full(struct bpf_sock *socket)
{
	struct sock___queue *listener = (struct sock___queue *)bpf_skc_to_tcp_sock(socket);

	return listener && listener->sk_ack_backlog > listener->sk_max_ack_backlog;
}

/* Has the kernel make the connection on this socket; whether it will. */
static __always_inline bool assign(struct __sk_buff *skb, struct bpf_sock *socket,
				   struct bpf_tcp_req_attrs *attrs)
{
	struct sock *listener = (struct sock *)bpf_skc_to_tcp_sock(socket);

	return listener && bpf_sk_assign_tcp_reqsk &&
	       !bpf_sk_assign_tcp_reqsk(skb, listener, attrs, sizeof(*attrs));
}

/* With a rank: it is for another server. */
#define RANK_OF_OTHERS 512
/* And the number by which answers from the cache are found at its listener; 0 if there are none, or none that counts. */
#define LISTENER_SHIFT 10

/* A verdict that is none of the kernel's: an answer from the cache is looked for (serve.h), and else the connection made. */
#define SERVE_REQUEST 0x103
/* The segment is of a connection that had an answer from the cache, and nothing is known of it any more. */
#define SERVE_LOST 0x104

/* Whether rules have let the first request in `segments` through for certain, and told its class; then what `serve` needs is
 * in `replies`. A function of its own, as `rank_of` is. */
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

/* The first segment of a connection whose client has proven its address, and with it what is `kept` of its offer: has the
 * kernel make it on the socket of its class, or on the public one if that is 0. SERVE_REQUEST if an answer from the cache is
 * to be looked for before. A function of its own, as `has_turn` is. */
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
	/* what another server gets is in no queue of ours */
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

/* What becomes of a first segment whose class has a full queue: the kernel would be silent to it, and its
 * client would believe that it is connected. */
static __always_inline int refuse_full(u32 waits)
{
	if (waits) {
		count(GATE_FULL_DROPPED);
		return TC_ACT_SHOT;
	}
	count(GATE_FULL_RESET);
	return SEND_RESET;
}

/* What the agent admits of a class per second is charged; whether there was room. A function of its own, as `has_turn` is,
 * so that what it keeps lies on no deeper function's stack. */
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

/* Whether it is this class's turn at another server: those above it come first, as long as any of these was told to
 * come again lately and has not had its turn since, and while connections wait in that server's queue: where none waits,
 * there is nothing to order. A connection that waits there cannot be overtaken, so it is made only while few wait. */
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

/* The first segment of a connection that has data, or ends it: judged, charged, made. */
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
		/* as the kernel would do, before anything is charged */
		verdict = refuse_full(RANK_WAITS);
	} else {
		note = note_of(s);
		if (note && set->charge == GATE_AT_HANDSHAKE)
			verdict = charge_proven(s, note);
		if (verdict == TC_ACT_UNSPEC && set->judges && !known->speaks_tls && !is_left && s->data_bytes)
			verdict = judge_first(judge_connection(), scale_of(kept));
		/* what comes again is not charged again: it has left notes */
		if (verdict == TC_ACT_UNSPEC && is_protected && !is_left &&
		    !has_turn(known, public, rank == GATE_UNJUDGED ? set->default_rank : rank))
			verdict = TC_ACT_SHOT;
		/* what comes to the public socket user space charges */
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

/* Of a connection to another server the stack completes the handshake: its first data is judged where it comes. */
static __always_inline void watch(const struct segment *s)
{
	bpf_map_update_elem(&watched, &s->tuple, &s->sequence, BPF_ANY);
}

/* The first data of such a connection. */
static __always_inline int judge_watched(struct __sk_buff *skb, struct segment *s, u32 state)
{
	u32 zero = 0, *first = bpf_map_lookup_elem(&watched, &s->tuple);
	struct found *f = bpf_map_lookup_elem(&found, &zero);
	u32 early;

	if (!f || !first)
		return TC_ACT_UNSPEC;
	/* the stack would cut off what is before the first byte, and take the rest */
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
	/* the connection is the server's: an error from here would be none of it */
	f->answers = 0;
	if (judge_first(judge_connection(), GATE_NO_SCALE) != TC_ACT_UNSPEC)
		return SEND_RESETS;
	bpf_map_delete_elem(&watched, &s->tuple);
	return TC_ACT_UNSPEC;
}

/* Whether the segment in `segments`, which no cookie proves, has data behind an answer from the cache: its client says when
 * what it has got was sent. A function of its own, as `check_cookie` is. */
__noinline int is_behind_answer(struct __sk_buff *skb)
{
	u32 zero = 0;
	struct segment *s = bpf_map_lookup_elem(&segments, &zero);
	struct options *o = read_options(skb);

	return s && o && s->data_bytes && o->has_times && o->echo & 1;
}

/* Any segment with an acknowledgement and neither SYN nor RST, while clients may have an answer from
 * here. */
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
		/* five bits are soon right: one cookie of the kernel in sixteen has them, of two epochs */
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
		/* what has been forgotten would wait for ever for a segment before it */
		if (known->answers && is_behind_answer(skb))
			return SERVE_LOST;
		count(GATE_LATER);
		return TC_ACT_SHOT;
	}
	/* what is not as it was sent is not judged: the stack drops it */
	if (set->judges && s->data_bytes && !known->speaks_tls && !is_intact(skb)) {
		bpf_sk_release(socket);
		count_first(GATE_FIRST_DAMAGED);
		return TC_ACT_UNSPEC;
	}
	if (s->data_bytes || s->flags & TCP_FIN) {
		verdict = begin_connection(skb, s, set, socket, known, proof);
	} else {
		/* what the limit has no room for is told at once */
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
