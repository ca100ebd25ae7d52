/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * A connection behind an answer from the cache, which has no socket. A request that its client retransmits
 * is answered again, and its FIN by a FIN. Its next request is judged and looked up in the cache; if there
 * is no answer, the kernel makes the connection in its middle, with the current sequence numbers. Reads
 * `control`, `segments`, `listeners` and the tables, reads and writes `served`, writes `replies` and
 * `serves`.
 */
#pragma once

/* The next step for a segment. */
enum go_on {
	GO_ON_OTHER, /* the segment belongs to no such connection */
	GO_ON_DROP,
	GO_ON_STACK,
	GO_ON_SEND,   /* send what `replies` says */
	GO_ON_RESET,
	GO_ON_REFUSE, /* refuse by the error page in `replies` */
	GO_ON_SERVE,  /* serve the next request */
};

/* How far a segment may lie ahead of what has been received, in bytes. */
#define MOST_AHEAD 65536

/* Whether a segment belongs to the connection: it acknowledges a number from the beginning of the answer
 * to its end or its FIN, and its own number lies in the range that the client can have reached. */
static __always_inline bool is_of_served(const struct segment *s, const struct gate_served *note)
{
	u32 acked = s->acknowledged - note->begin, all = note->end - note->begin;

	if (note->marks & GATE_SERVED_FIN)
		all += 1;
	return acked <= all && s->sequence - note->first <= note->next - note->first + MOST_AHEAD;
}

/* An answer that was lost more than MOST_REPEATS times is too large for the path's MTU. Only the stack
 * learns of that, so the request becomes a connection, which can send smaller segments. Requests within
 * REPEATS_MS are copies that the network has made, and do not count. */
#define MOST_REPEATS 2
#define REPEATS_MS 150

/* Whether the client has retransmitted its request too often; counts one that comes REPEATS_MS or more
 * after the last. */
static __always_inline bool is_too_large(const struct segment *s, struct gate_served *note)
{
	u32 now_ms = time_of(bpf_ktime_get_ns());

	if (s->acknowledged != note->begin || s->sequence != note->first ||
	    s->sequence + s->data_bytes != note->next || note->marks & GATE_SERVED_FIN)
		return false;
	if (now_ms - note->at_ms < REPEATS_MS)
		return false;
	note->at_ms = now_ms;
	note->repeats += 1;
	return note->repeats > MOST_REPEATS;
}

/* Acknowledges all data received, and sends the answer again if the client has not acknowledged it; a
 * reset if the answer does not exist any more. */
static __always_inline int say(const struct segment *s, const struct gate_served *note, struct reply *reply,
			       u32 counts)
{
	u32 acked = s->acknowledged - note->begin, all = note->end - note->begin;
	bool has_fin = note->marks & GATE_SERVED_FIN;
	u32 slot = note->slot;
	struct gate_object *object;

	reply->acknowledged = note->next;
	reply->kept = note->kept;
	reply->object = GATE_NO_SLOT;
	reply->sends = 0;
	if (acked < all) {
		object = bpf_map_lookup_elem(&objects, &slot);
		if (!object || *(volatile u32 *)&object->number != note->number) {
			/* the slot has another answer by now */
			count_serve(GATE_SERVE_LOST);
			bpf_map_delete_elem(&served, &s->tuple);
			reply->is_reset = 1;
			reply->ends = 0;
			return GO_ON_RESET;
		}
		reply->sequence = note->begin;
		reply->object = note->slot;
		reply->number = note->number;
		reply->sends = note->marks;
		count_serve(counts == GATE_SERVE_ACKED ? GATE_SERVE_REPEATED : counts);
		return GO_ON_SEND;
	}
	reply->sequence = s->acknowledged;
	if (acked == all && has_fin)
		reply->sends = GATE_SERVED_FIN;
	count_serve(counts);
	return GO_ON_SEND;
}

/* Judges the next request by the rules for requests; the rules for connections have admitted the
 * connection before. */
static __always_inline int judge_next(struct __sk_buff *skb, struct segment *s, const struct gate_served *note,
				      struct reply *reply, const struct gate_control *set, u32 listener)
{
	u32 zero = 0, kept = note->kept, requests = note->requests, of_first = rank_of(skb, 0);
	struct found *f = bpf_map_lookup_elem(&found, &zero);
	bool is_certain;

	if (!f)
		return GO_ON_DROP;
	if (set->judges) {
		switch (judge_first(FIRST_GOES, scale_of(kept))) {
		case TC_ACT_SHOT:
			return GO_ON_DROP;
		case SEND_REPLY:
			/* from here on `refused` has the connection, to bring it to its end */
			bpf_map_delete_elem(&served, &s->tuple);
			reply->is_reset = 0;
			return GO_ON_REFUSE;
		case SEND_RESET:
			bpf_map_delete_elem(&served, &s->tuple);
			reply->is_reset = 1;
			reply->ends = 0;
			return GO_ON_RESET;
		}
	}
	is_certain = set->judges && (f->judgement == FIRST_GOES || f->judgement == FIRST_CHARGED) &&
		     (of_first & GATE_UNJUDGED) != GATE_UNJUDGED && !(s->flags & (TCP_FIN | TCP_URG));
	reply->listener = is_certain ? listener : 0;
	reply->kept = kept;
	reply->rank = of_first;
	reply->requests = requests;
	return GO_ON_SERVE;
}

/* Whether the data is, or may become, the preface of HTTP/2. A connection keeps its protocol behind an
 * answer, but the socket that is made in its middle takes the first bytes for the connection's. */
static __always_inline bool begins_http2(struct __sk_buff *skb, const struct segment *s)
{
	u32 at = ETH_HLEN + s->ip_bytes + s->tcp.doff * 4, four = 0;
	u8 first = 0;

	if (s->data_bytes < sizeof(four))
		return !bpf_skb_load_bytes(skb, at, &first, sizeof(first)) && first == 'P';
	return !bpf_skb_load_bytes(skb, at, &four, sizeof(four)) && four == bpf_htonl(0x50524920); /* "PRI " */
}

/* Handles a segment that comes in order, directly behind all data received: the client's FIN, data
 * behind our FIN, or the next request. */
static __always_inline int go_on_in_order(struct __sk_buff *skb, struct segment *s, struct gate_served *note,
					  struct reply *reply, const struct gate_control *set, u32 listener)
{
	if (note->marks & GATE_SERVED_FIN) {
		if (behind(s) - note->first > MOST_MORE) {
			count_serve(GATE_SERVE_CUT);
			reply->is_reset = 1;
			reply->ends = 0;
			return GO_ON_RESET;
		}
		note->next = behind(s);
		return say(s, note, reply, GATE_SERVE_ACKED);
	}
	if (!s->data_bytes) {
		note->next += 1;
		note->marks |= GATE_SERVED_FIN;
		return say(s, note, reply, GATE_SERVE_ENDED);
	}
	/* the entry holds one answer, so two unacknowledged ones could not both be sent again */
	if (s->acknowledged != note->end) {
		count_serve(GATE_SERVE_EARLY);
		return GO_ON_DROP;
	}
	if (begins_http2(skb, s)) {
		bpf_map_delete_elem(&served, &s->tuple);
		count_serve(GATE_SERVE_CUT);
		reply->is_reset = 1;
		reply->ends = 0;
		return GO_ON_RESET;
	}
	return judge_next(skb, s, note, reply, set, listener);
}

/* The number of the listener's answers plus 1, if the segment still leads to a listening socket that
 * could make the connection; 0 if the connection has a socket. */
static __always_inline u32 listener_of_served(struct bpf_sock *socket, const struct segment *s)
{
	struct gate_sockets *known = ours(socket, s);

	if (!known || !(known->marks & GATE_STEERED) || !is_of_family(known, socket, s))
		return 0;
	return known->answers + 1;
}

static __always_inline int go_on_after_served(struct __sk_buff *skb, struct segment *s, struct reply *reply,
					      const struct gate_control *set)
{
	struct gate_served *note = bpf_map_lookup_elem(&served, &s->tuple);
	struct bpf_sock *socket;
	u32 listener;

	if (!note || !is_of_served(s, note))
		return GO_ON_OTHER;
	socket = socket_of(skb, s);
	if (!socket) {
		/* the listener is gone: the stack resets the connection */
		count_serve(GATE_SERVE_LOST);
		bpf_map_delete_elem(&served, &s->tuple);
		return GO_ON_STACK;
	}
	listener = listener_of_served(socket, s);
	bpf_sk_release(socket);
	if (!listener) {
		/* the connection was made */
		bpf_map_delete_elem(&served, &s->tuple);
		return GO_ON_OTHER;
	}
	if (!s->data_bytes && !(s->flags & TCP_FIN)) {
		if (s->sequence != note->next)
			return say(s, note, reply, GATE_SERVE_ACKED);
		count_serve(GATE_SERVE_HELD);
		return GO_ON_DROP;
	}
	/* the stack drops a segment with a wrong checksum */
	if (!is_intact(skb)) {
		count_first(GATE_FIRST_DAMAGED);
		return GO_ON_STACK;
	}
	if (s->sequence == note->next)
		return go_on_in_order(skb, s, note, reply, set, listener - 1);
	if (is_too_large(s, note)) {
		reply->listener = 0;
		reply->kept = note->kept;
		reply->requests = note->requests;
		reply->rank = rank_of(skb, 0);
		return GO_ON_SERVE;
	}
	/* a retransmission, or a segment behind a gap */
	return say(s, note, reply, GATE_SERVE_ACKED);
}
