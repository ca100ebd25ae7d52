/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * What becomes of the first request of a connection, whose client has proven its address: the same as
 * `forebay_policy::Policy::first_connection` and, behind it, `first_request`, and a test holds them against one
 * another. What is charged here is in `charged`, so that user space does not charge it again. What is answered here
 * has no connection at all: its client has one that is over, and is led to its end by what is in `refused`.
 * Reads `control`, `segments`, `found` and the tables, reads and writes `words`, `pending` and `refused`, writes
 * `charged`, `ignored`, `firsts`, `tallies` and `replies`. Verdicts: drop, SEND_RESET, SEND_REPLY, or nothing.
 */
#pragma once

/* What is told of a first request. From FIRST_DROP on it is refused. */
enum judgement {
	FIRST_GOES,
	FIRST_CHARGED,
	FIRST_LEFT,
	FIRST_CONTENDED,
	FIRST_DROP,
	FIRST_RESET,
	FIRST_ANSWER,
};

/* What the program `reply` is to send. */
struct reply {
	u32 sequence, acknowledged;
	u32 page; /* or NO_PAGE: nothing but an acknowledgement */
	u32 marks; /* GATE_REFUSED_… */
	u32 slot; /* of the rule that refuses */
	u32 is_reset;
	u32 ends; /* the reset is for the server, too, which has the connection */
	/* for the programs that answer from the cache (serve.h) */
	u32 kept;     /* of the client's offer, as its cookie has it */
	u32 rank;     /* with RANK_WAITS */
	u32 listener; /* by which answers are found; 0: none may be given; or LISTENER_LOST */
	u32 requests; /* that were answered on the connection before; 0: it is none yet */
	u32 object;   /* to be sent, or GATE_NO_SLOT: nothing but a head of TCP */
	u32 number;   /* of its answer */
	u32 sends;    /* GATE_SERVED_… */
};

#define NO_PAGE (~0U)
/* In the place of the number of a listener: nothing is known of the connection any more. */
#define LISTENER_LOST (~0U)

/* Of a client whose request was refused so much more is acknowledged, in bytes: what it sends before it has read the
 * answer. Whoever goes on gets a reset. */
#define MOST_MORE 65536

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct reply);
} replies SEC(".maps");

/* A rule with this slot says GATE_DO_… */
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

/* By the rules that ask for addresses only. A function of its own, as `rank_of` is. */
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
	/* it should have been charged, and was not: user space does that first */
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

/* How much too early a request may come if its rule's rate has been moved to this interval: as many at once as the rule
 * says. */
static __always_inline u64 moved_tolerance(const struct gate_url_rule *rule, u64 interval_ns)
{
	u64 more = rule->interval_ns ? rule->tolerance_ns / rule->interval_ns : 0;

	if (!more)
		return 0;
	/* as much as there can be, where the product is too large */
	return (interval_ns >> 32) * more >> 32 ? ~0ULL : interval_ns * more;
}

/* The request is charged to its rule's bucket. */
static __always_inline int charge_request(const struct segment *s, const struct gate_url_rule *rule, u64 now)
{
	struct gate_word *word = bpf_map_lookup_elem(&words, &rule->slot);
	struct gate_charged note = { .slot = rule->slot, .sequence = s->sequence };
	struct gate_charged *before = bpf_map_lookup_elem(&charged, &s->tuple);
	struct gate_tally *numbers = tally(rule->slot);
	u64 interval_ns = rule->interval_ns, tolerance_ns = rule->tolerance_ns, moved_ns;

	/* it comes again: the stack has not taken it, because a queue was full, or a firewall came between */
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

/* Whether user space says that a rule has as many requests at once as it may. */
static __always_inline bool is_busy(u32 slot, u64 now)
{
	struct gate_word *word = bpf_map_lookup_elem(&words, &slot);

	return word && *(volatile u64 *)&word->full_until > now;
}

/* By all rules, in the order in which user space asks them: those that `rank_of` has found. */
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

/* Whether the request in `texts` is one for a head without content: its method is known, whatever follows. */
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

/* The number behind all that the client has sent so far, and behind its FIN. */
static __always_inline u32 behind(const struct segment *s)
{
	return s->sequence + s->data_bytes + !!(s->flags & TCP_FIN);
}

/* The page with this number, as it is in force. It is written anew a second later at the earliest. */
static __always_inline struct gate_page *page_of(u32 number)
{
	u32 zero = 0, place;
	struct gate_control *set = bpf_map_lookup_elem(&control, &zero);

	if (!set)
		return 0;
	place = number + (set->pages & 1) * GATE_PAGES;
	return bpf_map_lookup_elem(&pages, &place);
}

/* Begins the answer with the page in `replies`; whether the client's window has room for it. */
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

/* What becomes of the first request in `segments`, as rules say; its client's window has this scale. `judgement` is what
 * `judge_connection` has said: called from here, it would lie deeper on the stack. TC_ACT_UNSPEC if it may go on. */
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
	/* a connection of before may have left one */
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
	/* an error of HTTP is none to others */
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

/* Whether this is a segment of a client whose first request was answered here: it acknowledges what was before the
 * answer, the answer, or its FIN, too. That is more than a cookie proves. */
static __always_inline struct gate_refused *note_of_answer(const struct segment *s)
{
	struct gate_refused *note = bpf_map_lookup_elem(&refused, &s->tuple);

	if (!note || s->sequence - note->first >= 0x80000000U)
		return 0;
	if (s->acknowledged != note->begin && note->end - s->acknowledged > 1)
		return 0;
	return note;
}

/* What becomes of a segment behind an answer. Until the client has acknowledged the answer it gets it again. */
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
