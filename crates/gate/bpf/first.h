/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * The judgement on the first request of a connection, whose client has proven its address: the same as
 * `forebay_policy::Policy::first_connection` and, behind it, `first_request`; a test compares them. A
 * request that is charged here is in `charged`, so that user space does not charge it again. A request that
 * is answered here has no connection on the server: the client sees one that the server has closed, and
 * `refused` has what is needed to bring it to its end. Reads `control`, `segments`, `found` and the tables,
 * reads and writes `words`, `pending` and `refused`, writes `charged`, `ignored`, `firsts`, `tallies` and
 * `replies`. Verdicts: drop, SEND_RESET, SEND_REPLY, or nothing.
 */
#pragma once

/* The judgement on a first request. From FIRST_DROP on it is refused. */
enum judgement {
	FIRST_GOES,
	FIRST_CHARGED,
	FIRST_LEFT,
	FIRST_CONTENDED,
	FIRST_DROP,
	FIRST_RESET,
	FIRST_ANSWER,
};

/* What the programs `reply`, `serve` and `send_answer` send. */
struct reply {
	u32 sequence, acknowledged;
	u32 page; /* or NO_PAGE: an acknowledgement only */
	u32 marks; /* GATE_REFUSED_… */
	u32 slot; /* of the rule that refuses */
	u32 is_reset;
	u32 ends; /* the server, which has the connection, gets a reset, too */
	/* for the programs that answer from the cache (serve.h) */
	u32 kept;     /* of the client's offer, as its cookie has it */
	u32 rank;     /* with RANK_WAITS */
	u32 listener; /* by which answers are found; 0: no answer may be given; or LISTENER_LOST */
	u32 requests; /* answered on the connection before this one; 0: there is no connection yet */
	u32 object;   /* to send, or GATE_NO_SLOT: a TCP header only */
	u32 number;   /* of the answer that the object belongs to */
	u32 sends;    /* GATE_SERVED_… */
};

#define NO_PAGE (~0U)
/* In the place of a listener's number: the entry of the connection in `served` has been evicted. */
#define LISTENER_LOST (~0U)

/* The bytes, from the refused request on, that are still acknowledged: what the client sends before it
 * has read the answer. A client that sends more gets a reset. */
#define MOST_MORE 65536

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct reply);
} replies SEC(".maps");

/* Puts a refusal by the rule with this slot into `replies`; returns the judgement for `what` (GATE_DO_…). */
static __always_inline int refuse_as(u8 what, u32 page, u32 slot)
{
	u32 zero = 0;
	struct reply *reply = bpf_map_lookup_elem(&replies, &zero);

	if (!reply)
		return FIRST_LEFT;
	reply->page = page;
	reply->slot = slot;
	switch (what) {
	case GATE_DO_DROP:
		return FIRST_DROP;
	case GATE_DO_RESET:
		return FIRST_RESET;
	case GATE_DO_ANSWER:
		return FIRST_ANSWER;
	default:
		return FIRST_LEFT;
	}
}

/* Judges the connection of the segment in `segments` by the rules that ask for addresses only. A global
 * function, as `rank_of` is. */
__noinline int judge_connection(void)
{
	struct decision decision = {};
	struct gate_rule *limit = &decision.limit;
	struct gate_control *set;
	struct gate_pending *known;
	struct gate_tally *rule;
	struct segment *s;
	struct found *f;
	bool alone;
	u32 zero = 0;
	u64 now;

	set = bpf_map_lookup_elem(&control, &zero);
	s = bpf_map_lookup_elem(&segments, &zero);
	if (!set || !s)
		return FIRST_LEFT;
	decide(s, set, &decision);
	if (decision.action.action != GATE_DO_ALLOW)
		return refuse_as(decision.action.action, decision.action.action_page,
				 decision.action.slot);
	if (!(limit->says & GATE_SAYS_LIMIT) || limit->over == GATE_DO_ALLOW)
		return FIRST_GOES;
	f = bpf_map_lookup_elem(&found, &zero);
	alone = f && f->alone;
	if (limit->over == GATE_DO_USER)
		return alone ? FIRST_GOES : FIRST_LEFT;
	known = bpf_map_lookup_elem(&pending, &s->tuple);
	if (known && known->state == GATE_CHARGED && known->slot == limit->slot &&
	    known->sequence + 1 == s->sequence)
		return FIRST_GOES;
	/* the SYN should have been charged, and was not: user space must charge the connection before
	 * the request */
	if (limit->over != GATE_DO_ANSWER && !alone)
		return FIRST_LEFT;
	now = bpf_ktime_get_ns();
	switch (admit(s, s->sequence - 1, limit, GATE_AT_SYN, now)) {
	case ADMITTED:
		rule = tally(limit->slot);
		if (rule)
			rule->admitted += 1;
		return FIRST_GOES;
	case REFUSED:
		ignore_client(s, limit->ignore_ns, now);
		return refuse_as(limit->over, limit->over_page, limit->slot);
	default:
		return alone ? FIRST_GOES : FIRST_CONTENDED;
	}
}

/* The tolerance of a rule whose rate the agent has moved to this interval: the burst stays the number of
 * requests that the rule says. */
static __always_inline u64 moved_tolerance(const struct gate_url_rule *rule, u64 interval_ns)
{
	u64 more = rule->interval_ns ? rule->tolerance_ns / rule->interval_ns : 0;

	if (!more)
		return 0;
	/* the product saturates */
	return (interval_ns >> 32) * more >> 32 ? ~0ULL : interval_ns * more;
}

/* Charges the request to its rule's bucket. */
static __always_inline int charge_request(const struct segment *s, const struct gate_url_rule *rule, u64 now)
{
	struct gate_word *word = bpf_map_lookup_elem(&words, &rule->slot);
	struct gate_charged note = { .slot = rule->slot, .sequence = s->sequence };
	struct gate_charged *before = bpf_map_lookup_elem(&charged, &s->tuple);
	struct gate_tally *numbers = tally(rule->slot);
	u64 interval_ns = rule->interval_ns, tolerance_ns = rule->tolerance_ns, moved_ns;

	/* a retransmission: the stack has not taken the segment, because a queue was full or a firewall
	 * dropped it */
	if (before && before->slot == note.slot && before->sequence == note.sequence)
		return FIRST_CHARGED;
	if (!word)
		return FIRST_LEFT;
	moved_ns = *(volatile u64 *)&word->interval_ns;
	if (moved_ns) {
		interval_ns = moved_ns;
		tolerance_ns = moved_tolerance(rule, moved_ns);
	}
	switch (charge_word(&word->requests, interval_ns, tolerance_ns, now)) {
	case ADMITTED:
		bpf_map_update_elem(&charged, &s->tuple, &note, BPF_ANY);
		if (numbers)
			numbers->admitted += 1;
		return FIRST_CHARGED;
	case REFUSED:
		ignore_client(s, rule->ignore_ns, now);
		return refuse_as(rule->over, rule->over_page, rule->slot);
	default:
		return FIRST_CONTENDED;
	}
}

/* Whether user space says that the rule's limit of requests at once is reached. */
static __always_inline bool is_busy(u32 slot, u64 now)
{
	struct gate_word *word = bpf_map_lookup_elem(&words, &slot);

	return word && *(volatile u64 *)&word->full_until > now;
}

/* Judges the request by the rules that `rank_of` has found, in the order in which user space applies
 * them: action, requests at once, rate. */
__noinline int judge_request(void)
{
	struct gate_url_rule *rule;
	struct segment *s;
	struct found *f;
	u32 zero = 0, table, number;
	void *rules;
	u64 now;

	s = bpf_map_lookup_elem(&segments, &zero);
	f = bpf_map_lookup_elem(&found, &zero);
	if (!s || !f)
		return FIRST_LEFT;
	table = f->table;
	rules = bpf_map_lookup_elem(&tables_url_rules, &table);
	if (!rules || f->action == FOUND_UNKNOWN)
		return FIRST_LEFT;
	if (f->action) {
		number = f->action - 1;
		rule = bpf_map_lookup_elem(rules, &number);
		if (!rule)
			return FIRST_LEFT;
		if (rule->action != GATE_DO_ALLOW)
			return refuse_as(rule->action, rule->action_page, rule->slot);
	}
	now = bpf_ktime_get_ns();
	if (f->busy == FOUND_UNKNOWN)
		return FIRST_LEFT;
	if (f->busy) {
		number = f->busy - 1;
		rule = bpf_map_lookup_elem(rules, &number);
		if (!rule || (rule->busy == GATE_DO_USER && !f->alone))
			return FIRST_LEFT;
		if (rule->busy != GATE_DO_ALLOW && rule->busy != GATE_DO_USER && is_busy(rule->slot, now))
			return refuse_as(rule->busy, rule->busy_page, rule->slot);
	}
	if (f->limit == FOUND_UNKNOWN)
		return FIRST_LEFT;
	if (!f->limit)
		return FIRST_GOES;
	number = f->limit - 1;
	rule = bpf_map_lookup_elem(rules, &number);
	if (!rule || rule->over == GATE_DO_USER)
		return FIRST_LEFT;
	return rule->over == GATE_DO_ALLOW ? FIRST_GOES : charge_request(s, rule, now);
}

/* Whether the request in `texts` has the method HEAD, whatever follows the method. */
static __always_inline bool is_of_head(void)
{
	u32 zero = 0;
	struct texts *known = bpf_map_lookup_elem(&texts, &zero);

	return known && known->reading != IN_METHOD && known->lengths[TEXT_METHOD] == 4 &&
	       known->bytes[TEXT_METHOD * TEXT_BYTES] == 'H' &&
	       known->bytes[TEXT_METHOD * TEXT_BYTES + 1] == 'E' &&
	       known->bytes[TEXT_METHOD * TEXT_BYTES + 2] == 'A' &&
	       known->bytes[TEXT_METHOD * TEXT_BYTES + 3] == 'D';
}

/* The sequence number that follows this segment: its data and its FIN. */
static __always_inline u32 behind(const struct segment *s)
{
	return s->sequence + s->data_bytes + !!(s->flags & TCP_FIN);
}

/* The page with this number in the half that is in force. User space overwrites it a second later at the
 * earliest. */
static __always_inline struct gate_page *page_of(u32 number)
{
	u32 zero = 0, place;
	struct gate_control *set = bpf_map_lookup_elem(&control, &zero);

	if (!set)
		return 0;
	place = number + (set->pages & 1) * GATE_PAGES;
	return bpf_map_lookup_elem(&pages, &place);
}

/* Prepares the answer with the page in `replies`; whether the client's window has room for it. */
static __always_inline bool begin_answer(const struct segment *s, u32 scale)
{
	u32 zero = 0, bytes, window = bpf_ntohs(s->tcp.window);
	struct reply *reply = bpf_map_lookup_elem(&replies, &zero);
	struct gate_refused note = { .first = s->sequence, .begin = s->acknowledged };
	struct gate_page *page;

	if (!reply)
		return false;
	page = page_of(reply->page);
	if (!page)
		return false;
	if (scale != GATE_NO_SCALE)
		window <<= scale & 15;
	reply->marks = (is_of_head() ? GATE_REFUSED_HEAD : 0) |
		       (scale == GATE_NO_SCALE ? GATE_REFUSED_UNSCALED : 0);
	bytes = reply->marks & GATE_REFUSED_HEAD ? page->head_bytes : page->bytes;
	if (window < bytes + 1)
		return false;
	note.page = reply->page;
	note.marks = reply->marks;
	note.end = note.begin + bytes + 1;
	reply->sequence = note.begin;
	reply->acknowledged = behind(s);
	bpf_map_update_elem(&refused, &s->tuple, &note, BPF_ANY);
	return true;
}

/* The verdict on the request in `segments`, whose client scales its window by `scale`; TC_ACT_UNSPEC if
 * the request is not refused. `judgement` is the result of `judge_connection`, which the caller calls:
 * called from here, it would lie deeper on the stack. */
__noinline int judge_first(int judgement, u32 scale)
{
	struct gate_tally *rule = 0;
	struct reply *reply;
	struct segment *s;
	struct found *f;
	bool by_request = judgement == FIRST_GOES;
	u32 zero = 0;

	s = bpf_map_lookup_elem(&segments, &zero);
	f = bpf_map_lookup_elem(&found, &zero);
	if (!s || !f)
		return TC_ACT_UNSPEC;
	if (by_request)
		judgement = judge_request();
	f->judgement = judgement;
	/* an earlier connection with the same four-tuple may have left one */
	if (judgement != FIRST_CHARGED)
		bpf_map_delete_elem(&charged, &s->tuple);
	switch (judgement) {
	case FIRST_GOES:
		count_first(GATE_FIRST_PASSED);
		return TC_ACT_UNSPEC;
	case FIRST_CHARGED:
		count_first(GATE_FIRST_CHARGED);
		return TC_ACT_UNSPEC;
	case FIRST_LEFT:
		count_first(GATE_FIRST_LEFT);
		return TC_ACT_UNSPEC;
	case FIRST_CONTENDED:
		count_first(GATE_FIRST_CONTENDED);
		return TC_ACT_UNSPEC;
	}
	reply = bpf_map_lookup_elem(&replies, &zero);
	if (reply)
		rule = tally(reply->slot);
	if (rule && by_request)
		rule->requests += 1;
	if (judgement == FIRST_DROP) {
		count_first(GATE_FIRST_DROPPED);
		if (rule)
			rule->dropped += 1;
		return TC_ACT_SHOT;
	}
	/* only a client of plain HTTP/1 understands a page */
	if (judgement == FIRST_ANSWER && f->answers && begin_answer(s, scale)) {
		count_first(GATE_FIRST_ANSWERED);
		if (rule)
			rule->answered += 1;
		return SEND_REPLY;
	}
	count_first(GATE_FIRST_RESET);
	if (rule)
		rule->reset += 1;
	return SEND_RESET;
}

/* The entry of the connection, if its request was refused with a page and the segment acknowledges a
 * number that the client can have: the one before the answer, the end of its data, or its FIN. This
 * proves more than a cookie does. */
static __always_inline struct gate_refused *note_of_answer(const struct segment *s)
{
	struct gate_refused *note = bpf_map_lookup_elem(&refused, &s->tuple);

	if (!note || s->sequence - note->first >= 0x80000000U)
		return 0;
	if (s->acknowledged != note->begin && note->end - s->acknowledged > 1)
		return 0;
	return note;
}

/* The verdict on a segment behind a page. Until the client has acknowledged the page, each further
 * segment of data or FIN has it sent again. */
static __always_inline int go_on_after_answer(const struct segment *s, const struct gate_refused *note)
{
	u32 zero = 0;
	struct reply *reply = bpf_map_lookup_elem(&replies, &zero);

	if (!reply)
		return TC_ACT_SHOT;
	if (behind(s) - note->first > MOST_MORE) {
		count_first(GATE_FIRST_CUT);
		return SEND_RESET;
	}
	if (!s->data_bytes && !(s->flags & TCP_FIN)) {
		count_first(GATE_FIRST_HELD);
		return TC_ACT_SHOT;
	}
	reply->acknowledged = behind(s);
	reply->marks = note->marks;
	if (s->acknowledged != note->end) {
		reply->sequence = note->begin;
		reply->page = note->page;
		count_first(GATE_FIRST_REPEATED);
	} else {
		reply->sequence = note->end;
		reply->page = NO_PAGE;
		count_first(GATE_FIRST_ACKED);
	}
	return SEND_REPLY;
}
