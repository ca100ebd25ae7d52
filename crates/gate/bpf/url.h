/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * The class of a first request, or of a ClientHello of TLS: the same as
 * `forebay_policy::Policy::first_segment` and `first_hello`; a test compares them. For a request also the
 * rules that decide whether it is admitted, which first.h applies. Rules are found by the network of the
 * client, or by the path. Reads `control`, `segments` and the tables by URL, reads and writes `texts`,
 * writes `found`.
 */
#pragma once

/* The context of `try_pattern`. It is small because it lies on the stack where only one frame is deeper;
 * a map cannot keep it, because a map value must not hold a pointer to a table. */
struct alternatives {
	void *patterns;
	u32 first;
	u16 which;
	u16 fits;
};

static long try_pattern(u32 at, struct alternatives *all)
{
	u32 place = all->first + at, start = (all->which % TEXTS) * (TEXT_BYTES / 8);
	struct gate_pattern *pattern = bpf_map_lookup_elem(all->patterns, &place);
	u32 length, have, left, zero = 0;
	const struct texts *known = bpf_map_lookup_elem(&texts, &zero);
	u64 word;

	if (!pattern || !known)
		return 1;
	length = pattern->length;
	have = known->lengths[all->which % TEXTS];
	if (pattern->is_prefix ? have < length : have != length)
		return 0;
	for (u32 i = 0; i < GATE_PATTERN_BYTES / 8 && i * 8 < length; i++) {
		left = length - i * 8;
		word = pattern->words[i] ^ known->words[start + i];
		if (left < 8)
			word = part_of(word, left);
		if (word)
			return 0;
	}
	all->fits = 1;
	return 1;
}

/* Whether one of `count` patterns from `first` on fits a text. A global function, as `read_request` is. */
__noinline int holds(u32 table, u32 first, u32 count, u32 marks, u32 which)
{
	struct alternatives all = { .first = first, .which = which };
	u32 zero = 0;
	struct texts *known = bpf_map_lookup_elem(&texts, &zero);

	all.patterns = bpf_map_lookup_elem(&tables_patterns, &table);
	if (!known || !all.patterns || !(which == TEXT_HOST ? known->has_host : known->has_path))
		return HOLDS_PERHAPS;
	bpf_loop(count, try_pattern, &all, 0);
	if (all.fits)
		return HOLDS;
	return marks & GATE_ASKED_MORE ? HOLDS_PERHAPS : HOLDS_NOT;
}

static __always_inline u32 asked_holds(const struct search *search, const struct gate_asked *asked,
				       u32 which)
{
	if (!(asked->marks & GATE_ASKED))
		return HOLDS;
	return holds(search->table, asked->first, asked->count, asked->marks, which);
}

static __always_inline u32 asked_cookie_holds(const struct search *search, const struct gate_asked *asked)
{
	if (!(asked->marks & GATE_ASKED))
		return HOLDS;
	return holds_of_cookies(search->table, asked->first, asked->count, asked->marks);
}

/* The next entry of both lists, merged in the order of the rules; 0 if there is none. */
static __always_inline struct gate_entry *next_entry(struct search *search)
{
	struct gate_entry *of_client = 0, *of_path = 0;

	if (search->first < search->end)
		of_client = bpf_map_lookup_elem(search->entries, &search->first);
	if (search->first_by_path < search->end_by_path)
		of_path = bpf_map_lookup_elem(search->entries, &search->first_by_path);
	if (of_client && (!of_path || of_client->rule < of_path->rule)) {
		search->first += 1;
		return of_client;
	}
	search->first_by_path += 1;
	return of_path;
}

/* No judgement yet; not a value of `enum judgement` in first.h. */
#define NOT_JUDGED (~0U)

/* The rules that decide about the first request in `segments`; action, limit and busy as in `struct
 * search`. */
struct found {
	u32 table; /* the numbers are of rules in this table */
	u32 action;
	u32 limit;
	u32 busy;
	u32 alone;   /* the segment was read with READ_ALONE */
	u32 answers; /* the client understands an error page */
	u32 judgement; /* the result of first.h */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct found);
} found SEC(".maps");

/* Notes that these settings are decided: by the rule with `number` - 1, or FOUND_UNKNOWN. */
static __always_inline void settle(struct search *search, u32 settings, u32 number)
{
	if (settings & GATE_SAYS_ACTION)
		search->action = number;
	if (settings & GATE_SAYS_LIMIT)
		search->limit = number;
	if (settings & GATE_SAYS_BUSY)
		search->busy = number;
	search->told |= settings;
}

static __always_inline void settle_class(struct search *search, const struct gate_url_rule *rule)
{
	bool by_request = rule->marks & GATE_MARK_BY_REQUEST;

	if (rule->rank == GATE_UNJUDGED || (!by_request && search->by_address))
		return;
	search->rank = rule->rank;
	search->waits = rule->marks & GATE_MARK_WAITS;
	if (by_request)
		search->told |= GATE_SAYS_CLASS;
	else
		search->by_address = 1;
}

/* Whether a rule that fits only perhaps is skipped: it is where no user space of ours sees the request
 * later. */
static __always_inline bool passes_over(void)
{
	u32 zero = 0;
	struct found *f = bpf_map_lookup_elem(&found, &zero);

	return f && f->alone;
}

static long try_url(u32 at, struct search *search)
{
	u32 number, says, method, path, host, cookie;
	struct gate_entry *entry = next_entry(search);
	struct gate_url_rule *rule;
	bool stops;

	(void)at;
	if (!entry)
		return 1;
	if (!is_of_entry(search, entry))
		return 0;
	number = entry->rule;
	rule = bpf_map_lookup_elem(search->rules, &number);
	if (!rule)
		return 1;
	if ((rule->marks & GATE_MARK_DEGREE) >> GATE_DEGREE_SHIFT > search->degree)
		return 0;
	says = rule->says & ~search->told;
	stops = rule->marks & GATE_MARK_STOP;
	if (!says && !stops)
		return 0;
	method = asked_holds(search, &rule->method, TEXT_METHOD);
	path = method ? asked_holds(search, &rule->path, TEXT_PATH) : HOLDS_NOT;
	host = path ? asked_holds(search, &rule->host, TEXT_HOST) : HOLDS_NOT;
	cookie = host ? asked_cookie_holds(search, &rule->cookie) : HOLDS_NOT;
	if (!cookie)
		return 0;
	if (method == HOLDS_PERHAPS || path == HOLDS_PERHAPS || host == HOLDS_PERHAPS ||
	    cookie == HOLDS_PERHAPS || rule->marks & GATE_MARK_MORE) {
		if (passes_over())
			return 0;
		/* a rule with `stop` that fits perhaps leaves no later rule certain */
		if (stops)
			says = GATE_SAYS_ALL & ~search->told;
		settle(search, says, FOUND_UNKNOWN);
		if (says & GATE_SAYS_CLASS)
			search->rank = GATE_UNJUDGED;
		return search->told == GATE_SAYS_ALL;
	}
	settle(search, says & ~GATE_SAYS_CLASS, number + 1);
	if (says & GATE_SAYS_CLASS)
		settle_class(search, rule);
	return stops || search->told == GATE_SAYS_ALL;
}

/* A flag beside the rank, for a rule with GATE_MARK_WAITS; above all ranks. */
#define RANK_WAITS 256

/* The list of rules that ask for the path in `texts`. */
static __always_inline struct gate_list *list_of_path(u32 table)
{
	u32 zero = 0, length;
	struct texts *known = bpf_map_lookup_elem(&texts, &zero);
	void *paths = bpf_map_lookup_elem(&tables_url_paths, &table);

	if (!known || !paths)
		return 0;
	length = known->lengths[TEXT_PATH];
	if (length > MOST_PATH)
		return 0;
	__builtin_memcpy(known->path.bytes, known->bytes + TEXT_PATH * TEXT_BYTES, MOST_PATH);
	known->path.bytes[length] = 0;
	known->path.bits = (length + 1) * 8;
	return bpf_map_lookup_elem(paths, &known->path);
}

/* How a first segment is read. READ_TLS: the listener speaks TLS only. READ_ALONE: no user space of ours
 * judges the segment later, so a rule that fits only perhaps is skipped, and the bytes themselves show
 * whether they are TLS. */
enum { READ_TLS = 1, READ_ALONE = 2 };

/* The rank of the request or ClientHello that begins in the segment in `segments`, or GATE_UNJUDGED;
 * with RANK_WAITS if it waits where the queue is full. A global function: the verifier checks it once by
 * itself, instead of once for each path that leads here. */
__noinline int rank_of(struct __sk_buff *skb, u32 how)
{
	struct search search = { .rank = GATE_UNJUDGED };
	struct gate_control *set;
	struct gate_list *list, *by_path;
	struct segment *s;
	struct found *f;
	struct texts *known;
	u32 zero = 0, table, count, reads;
	bool alone = how & READ_ALONE, speaks_tls = how & READ_TLS;

	set = bpf_map_lookup_elem(&control, &zero);
	s = bpf_map_lookup_elem(&segments, &zero);
	f = bpf_map_lookup_elem(&found, &zero);
	known = bpf_map_lookup_elem(&texts, &zero);
	if (!set || !s || !f || !known)
		return GATE_UNJUDGED;
	f->action = f->limit = f->busy = FOUND_UNKNOWN;
	f->judgement = NOT_JUDGED;
	f->alone = alone;
	if (alone && begins_tls(skb, s))
		speaks_tls = true;
	reads = speaks_tls ? read_hello(skb) : read_request(skb);
	f->answers = !alone || (!speaks_tls && is_request(known));
	if (!reads && !alone)
		return GATE_UNJUDGED;
	read_cookies(skb, reads && !speaks_tls && set->reads_cookies);
	table = f->table = set->table;
	search.entries = bpf_map_lookup_elem(&tables_url_entries, &table);
	search.rules = bpf_map_lookup_elem(&tables_url_rules, &table);
	search.table = table;
	if (!search.entries || !search.rules)
		return GATE_UNJUDGED;
	list = speaks_tls && !alone ? list_of(s, &tables_hello_clients4, &tables_hello_clients6, table)
				    : list_of(s, &tables_url_clients4, &tables_url_clients6, table);
	if (!list)
		return GATE_UNJUDGED;
	begin_search(&search, s, list, set);
	count = list->count;
	search.end = list->first + count;
	by_path = reads && !speaks_tls ? list_of_path(table) : 0;
	if (by_path) {
		search.first_by_path = by_path->first;
		search.end_by_path = by_path->first + by_path->count;
		count += by_path->count;
	}
	/* a ClientHello shows no request yet, so only its class is asked for */
	if (!set->judges || (speaks_tls && !alone))
		search.told = GATE_SAYS_ALL & ~GATE_SAYS_CLASS;
	bpf_loop(count, try_url, &search, 0);
	f->action = search.action;
	f->limit = search.limit;
	f->busy = search.busy;
	if (search.rank != GATE_UNJUDGED && search.waits)
		return search.rank | RANK_WAITS;
	return search.rank;
}
