/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * Answers from the cache: a request that the rules admitted is looked up, written into `records`, and
 * answered by one segment, which replaces the request's. There is no socket. A request that cannot be
 * answered for certain becomes an ordinary connection. Reads `segments`, `wholes`, `serving`, `ignored`,
 * `answers`, `objects` and `dates`, reads and writes `replies` and `charged`, writes `served`, `records`
 * and `serves`.
 */
#pragma once

/* Adds one to `what`. */
static __always_inline void count_serve(u32 what)
{
	u64 *number = bpf_map_lookup_elem(&serves, &what);

	if (number)
		*number += 1;
}

/* The pieces of an answer, and what they add to an Internet checksum. */
struct parts {
	const struct gate_piece *lines, *end, *body; /* the body 0 if there is none */
	u32 bytes;
	u32 sum;
};

/* Adds a piece. The sum of one that begins at an odd offset is added with its bytes swapped (RFC 1071). */
static __always_inline void add_part(struct parts *parts, u32 sum, u32 bytes)
{
	u16 folded = fold(sum);

	parts->sum += parts->bytes & 1 ? (u16)(folded >> 8 | folded << 8) : folded;
	parts->bytes += bytes;
}

static __always_inline void find_parts(struct parts *parts, const struct gate_object *object, u32 marks,
				       u32 sum_of_date)
{
	bool has_body = !(marks & (GATE_SERVED_HEAD | GATE_SERVED_NOT_MODIFIED));

	parts->lines = &object->pieces[marks & GATE_SERVED_NOT_MODIFIED ? GATE_PIECE_NOT_MODIFIED : GATE_PIECE_OK];
	parts->end = &object->pieces[marks & GATE_SERVED_LAST ? GATE_PIECE_LAST : GATE_PIECE_KEPT];
	parts->body = has_body ? &object->pieces[GATE_PIECE_BODY] : 0;
	add_part(parts, parts->lines->sum, parts->lines->bytes);
	add_part(parts, sum_of_date, GATE_DATE_BYTES);
	add_part(parts, parts->end->sum, parts->end->bytes);
	if (parts->body)
		add_part(parts, parts->body->sum, parts->body->bytes);
}

/* The number plus 1 of the variant that the client prefers, as `Preference::choose` does; 0 if it
 * accepts none. */
static __always_inline u32 choose(const struct whole *w, const struct gate_answer *answer)
{
	u32 best = 0, most = 0, likes;

	for (u32 at = 0; at < GATE_VARIANTS; at++) {
		if (at >= answer->count)
			break;
		likes = liking(w, answer->codings[at]);
		if (likes > most) {
			most = likes;
			best = at + 1;
		}
	}
	return best;
}

/* Whether the entity tag in If-None-Match is that of the variant. */
static __always_inline bool is_same_tag(const struct whole *w, const struct gate_object *object)
{
	if (w->tag_bytes != object->tag_bytes)
		return false;
	for (u32 at = 0; at < GATE_TAG_BYTES; at++) {
		if (at >= w->tag_bytes)
			break;
		if (w->tag[at] != object->tag[at])
			return false;
	}
	return true;
}

/* Whether an answer of `bytes` bytes fits into the client's MSS and window and into the interface's MTU. */
static __always_inline bool has_room(struct __sk_buff *skb, const struct segment *s, u32 kept, u32 bytes)
{
	u32 largest = largest_here(skb, s), window = bpf_ntohs(s->tcp.window), of_client;
	u32 options = s->tcp.doff * 4 - sizeof(s->tcp);
	struct offer offer;

	recall_offer(kept, &offer);
	of_client = offer.largest;
	if (of_client < largest)
		largest = of_client;
	if (offer.scale != GATE_NO_SCALE)
		window <<= offer.scale & 15;
	/* an answer has at most the timestamp option, with its padding 12 bytes, whatever options the
	 * client has sent */
	return bytes + (options ? 12 : 0) <= largest && bytes < window;
}

/* The reader polls `records` by itself; it is woken only when more than this part of the ring, half, is
 * unread. */
#define RECORDS_WAKE_SHIFT 1

/* Writes the record of an answer, with the bytes of its request; whether the ring had room. */
static __always_inline bool write_record(const struct segment *s, struct whole *w, u32 number, u32 marks,
					 const struct parts *parts, u32 coding, u32 rank, u32 request)
{
	struct gate_charged *known = bpf_map_lookup_elem(&charged, &s->tuple);
	struct gate_record *r = &w->record;
	u64 waits = bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA);
	u64 all = bpf_ringbuf_query(&records, BPF_RB_RING_SIZE);
	u32 bytes = s->data_bytes;

	r->at_ns = bpf_ktime_get_ns();
	__builtin_memcpy(&r->ends, &s->tuple, sizeof(r->ends));
	r->number = number;
	r->charged = known && known->sequence == s->sequence ? known->slot : GATE_NO_SLOT;
	r->body_bytes = parts->body ? parts->body->bytes : 0;
	r->sent_bytes = parts->bytes;
	r->request = request;
	r->head_bytes = bytes;
	r->marks = marks;
	r->coding = coding;
	r->rank = rank;
	bytes = ((bytes - 1) & (WHOLE_ROOM - 1)) + 1;
	return !bpf_ringbuf_output(&records, r, sizeof(*r) + bytes,
				   waits > all >> RECORDS_WAKE_SHIFT ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/* The answer to the request in `wholes`, if there is one of the current generation. */
static __always_inline struct gate_answer *answer_to(struct whole *w, const struct gate_serving *now, u32 listener)
{
	struct gate_answer *answer;

	w->key.listener = listener;
	answer = bpf_map_lookup_elem(&answers, &w->key);
	if (!answer) {
		count_serve(GATE_SERVE_LEFT_UNKNOWN);
		return 0;
	}
	if (answer->generation != *(volatile u32 *)&now->generation) {
		count_serve(GATE_SERVE_LEFT_VOID);
		return 0;
	}
	return answer;
}

/* The variant to send, with its slot and coding; 0 if only the server has it. */
static __always_inline struct gate_object *object_of(const struct whole *w, const struct gate_answer *answer,
						     u32 *slot, u32 *coding)
{
	u32 which = choose(w, answer);
	struct gate_object *object = 0;

	if (which) {
		*slot = answer->slots[(which - 1) & (GATE_VARIANTS - 1)];
		*coding = answer->codings[(which - 1) & (GATE_VARIANTS - 1)];
		object = bpf_map_lookup_elem(&objects, slot);
	}
	if (!object || object->number != answer->number ||
	    (w->seen & 1 << GATE_FIELD_TAG && !object->tag_bytes)) {
		count_serve(GATE_SERVE_LEFT_VARIANT);
		return 0;
	}
	return object;
}

/* Whether answers may be given now, and to this client: an ignored client is left to the server. */
static __always_inline bool may_serve(const struct segment *s, const struct gate_serving *now)
{
	u64 time = bpf_ktime_get_ns();

	if (*(volatile u64 *)&now->until_ns > time && !is_ignored(s, time))
		return true;
	count_serve(GATE_SERVE_LEFT_VOID);
	return false;
}

/* Enters the connection into `served`, with the answer that it is about to get. */
static __always_inline void remember(const struct segment *s, const struct reply *reply, u32 bytes)
{
	struct gate_served note = {
		.first = s->sequence,
		.next = s->sequence + s->data_bytes,
		.begin = s->acknowledged,
		.end = s->acknowledged + bytes,
		.slot = reply->object,
		.number = reply->number,
		.kept = reply->kept,
		.requests = reply->requests + 1,
		.marks = reply->sends,
		.at_ms = time_of(bpf_ktime_get_ns()),
	};

	bpf_map_update_elem(&served, &s->tuple, &note, BPF_ANY);
}

/* Finds the answer to the request in `segments`, and puts it into `replies`; whether there is one. A
 * global function, as `rank_of` is. */
__noinline int find_object(struct __sk_buff *skb)
{
	u32 zero = 0, slot = 0, coding = 0, marks;
	struct segment *s = bpf_map_lookup_elem(&segments, &zero);
	struct whole *w = bpf_map_lookup_elem(&wholes, &zero);
	struct reply *reply = bpf_map_lookup_elem(&replies, &zero);
	struct gate_serving *now = bpf_map_lookup_elem(&serving, &zero);
	struct parts parts = {};
	struct gate_answer *answer;
	struct gate_object *object;

	if (!s || !w || !reply || !now || !may_serve(s, now))
		return 0;
	if (!read_whole(skb)) {
		count_serve(GATE_SERVE_LEFT_HEAD);
		return 0;
	}
	answer = answer_to(w, now, reply->listener);
	if (!answer)
		return 0;
	object = object_of(w, answer, &slot, &coding);
	if (!object)
		return 0;
	marks = w->is_head ? GATE_SERVED_HEAD : 0;
	if (w->seen & 1 << GATE_FIELD_TAG && is_same_tag(w, object))
		marks |= GATE_SERVED_NOT_MODIFIED;
	if (w->is_old || w->closes || reply->requests + 1 >= answer->requests)
		marks |= GATE_SERVED_LAST | GATE_SERVED_FIN;
	find_parts(&parts, object, marks, 0);
	if (!has_room(skb, s, reply->kept, parts.bytes)) {
		count_serve(GATE_SERVE_LEFT_ROOM);
		return 0;
	}
	if (!write_record(s, w, answer->number, marks, &parts, coding, reply->rank & GATE_UNJUDGED,
			  reply->requests + 1)) {
		count_serve(GATE_SERVE_LEFT_RECORDS);
		return 0;
	}
	/* the record has the charge. The note would keep user space from charging the request again, but
	 * user space never receives this request */
	bpf_map_delete_elem(&charged, &s->tuple);
	count_serve(marks & GATE_SERVED_NOT_MODIFIED ? GATE_SERVE_NOT_MODIFIED : GATE_SERVE_OK);
	reply->object = slot;
	reply->number = answer->number;
	reply->sends = marks;
	reply->sequence = s->acknowledged;
	reply->acknowledged = s->sequence + s->data_bytes;
	remember(s, reply, parts.bytes);
	return 1;
}

/* Has the kernel make the connection of a request that cannot be answered here, as `begin_connection`
 * would have done; in its middle, with the numbers of the latest segment, if it has had answers. */
static __always_inline int connect_after_all(struct __sk_buff *skb, struct segment *s, const struct reply *reply,
					     const struct gate_control *set)
{
	struct bpf_sock *public = socket_of(skb, s), *of_class;
	u32 rank = reply->rank & GATE_UNJUDGED;
	struct gate_sockets *known;
	int verdict = TC_ACT_UNSPEC;

	if (!public)
		return TC_ACT_UNSPEC;
	known = ours(public, s);
	if (!known) {
		bpf_sk_release(public);
		return TC_ACT_UNSPEC;
	}
	of_class = socket_of_rank(skb, known, rank);
	if (reply->requests) {
		/* a first request has passed these checks in `begin_connection` */
		if (of_class ? is_full(of_class) : is_full(public))
			verdict = refuse_full(RANK_WAITS);
		else if (of_class && !is_within_pace(set->table, rank))
			verdict = TC_ACT_SHOT;
		else
			count_serve(GATE_SERVE_ADOPTED);
	}
	if (verdict == TC_ACT_UNSPEC)
		verdict = make_connection(skb, public, of_class, reply->kept, rank);
	if (of_class)
		bpf_sk_release(of_class);
	bpf_sk_release(public);
	return verdict;
}

static __always_inline void store_piece(struct __sk_buff *skb, u32 *to, const struct gate_object *object,
					const struct gate_piece *piece)
{
	u32 at = piece->at & (GATE_OBJECT_TEXT / 2 - 1), bytes = piece->bytes;

	if (!bytes)
		return;
	bytes = ((bytes - 1) & (GATE_OBJECT_TEXT / 2 - 1)) + 1;
	bpf_skb_store_bytes(skb, *to, object->text + at, bytes, BPF_F_RECOMPUTE_CSUM);
	*to += bytes;
}

/* Turns the segment into what `replies` says, and sends it: an answer, a FIN, or an acknowledgement. */
static __always_inline int send_served(struct __sk_buff *skb, struct segment *s, const struct reply *reply,
				       const struct gate_control *set)
{
	u32 zero = 0, date_at, bytes = sizeof(struct tcphdr), slot = reply->object, to;
	struct gate_serving *now = bpf_map_lookup_elem(&serving, &zero);
	struct gate_object *object = 0;
	struct options *o = read_options(skb);
	struct gate_date *date;
	struct answer answer = {};
	struct parts parts = {};

	if (!now)
		return TC_ACT_SHOT;
	date_at = now->date & 1;
	date = bpf_map_lookup_elem(&dates, &date_at);
	if (!date)
		return TC_ACT_SHOT;
	if (slot != GATE_NO_SLOT) {
		object = bpf_map_lookup_elem(&objects, &slot);
		if (!object || *(volatile u32 *)&object->number != reply->number)
			return TC_ACT_SHOT;
		find_parts(&parts, object, reply->sends, date->sum);
	}
	answer.tcp.seq = bpf_htonl(reply->sequence);
	answer.tcp.ack_seq = bpf_htonl(reply->acknowledged);
	answer.tcp.ack = 1;
	answer.tcp.psh = !!object;
	answer.tcp.fin = !!(reply->sends & GATE_SERVED_FIN);
	answer.tcp.window = bpf_htons(scale_of(reply->kept) == GATE_NO_SCALE ? REPLY_WINDOW
									    : REPLY_WINDOW >> OUR_SCALE);
	if (o && o->has_times && set->offers & GATE_OFFER_TIMES) {
		answer.options[0] = bpf_htonl(PADDED_TIMES);
		/* odd, so that `is_behind_answer` recognizes the next segment by its echo, even after
		 * `served` has evicted the connection */
		answer.options[1] = bpf_htonl(time_of(bpf_ktime_get_ns()) | 1);
		answer.options[2] = bpf_htonl(o->value);
		bytes += 12;
	}
	to = ETH_HLEN + s->ip_bytes + bytes;
	if (!put_heads(skb, s, &answer, bytes, parts.bytes, parts.sum, true))
		return TC_ACT_SHOT;
	if (object) {
		store_piece(skb, &to, object, parts.lines);
		bpf_skb_store_bytes(skb, to, date->text, GATE_DATE_BYTES, BPF_F_RECOMPUTE_CSUM);
		to += GATE_DATE_BYTES;
		store_piece(skb, &to, object, parts.end);
		if (parts.body)
			store_piece(skb, &to, object, parts.body);
		/* user space has overwritten the object meanwhile, so the copied bytes may be mixed:
		 * nothing is sent, and the client retransmits its request */
		if (*(volatile u32 *)&object->number != reply->number)
			return TC_ACT_SHOT;
	}
	return bpf_redirect(skb->ifindex, 0);
}
