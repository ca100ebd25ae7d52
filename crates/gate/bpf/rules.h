/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * The rules that decide about a four-tuple: for action and for limit, the first matching rule that says
 * one, unless a matching rule with `stop` comes before it. The same as
 * `forebay_policy::Policy::connection`; a test compares the two. Reads `control` and the tables. bpf_loop
 * needs Linux 5.17.
 */
#pragma once

/* Which rule decides depends on more than is known here. */
#define FOUND_UNKNOWN (~0U)

struct search {
	void *entries;
	void *rules;
	u64 local_hi, local_lo;
	u16 client_port, local_port;
	u32 first;
	u32 degree;
	/* the result: the number of the rule plus 1, 0 for no rule, or FOUND_UNKNOWN */
	u32 action;
	u32 limit;
	/* for rules on first requests, which are in two lists, each in the order of the rules */
	u32 busy;
	u32 told; /* GATE_SAYS_…: settings that are decided, or known to be undecidable here */
	u32 end;
	u32 first_by_path;
	u32 end_by_path;
	u32 table;
	u32 rank;
	u32 waits; /* GATE_MARK_WAITS, of the rule that gave the rank */
	u32 by_address;
};

/* Whether local address and ports of an entry fit the connection. The client's address fits: its list
 * has the entry. */
static __always_inline bool is_of_entry(const struct search *search, const struct gate_entry *entry)
{
	return (search->local_hi & entry->mask_hi) == entry->local_hi &&
	       (search->local_lo & entry->mask_lo) == entry->local_lo &&
	       search->client_port >= entry->client_first && search->client_port <= entry->client_last &&
	       search->local_port >= entry->local_first && search->local_port <= entry->local_last;
}

static long try_entry(u32 at, struct search *search)
{
	u32 place = search->first + at, number;
	struct gate_entry *entry = bpf_map_lookup_elem(search->entries, &place);
	struct gate_rule *rule;

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
	if (rule->says & GATE_SAYS_ACTION && !search->action)
		search->action = number + 1;
	if (rule->says & GATE_SAYS_LIMIT && !search->limit)
		search->limit = number + 1;
	return rule->marks & GATE_MARK_STOP || (search->action && search->limit);
}

/* The two rules that decide. A rule that was not found is all zero. */
struct decision {
	struct gate_rule action;
	struct gate_rule limit;
};

static __always_inline void copy_rule(void *rules, u32 found, struct gate_rule *to)
{
	u32 number = found - 1;
	struct gate_rule *rule;

	if (!found)
		return;
	rule = bpf_map_lookup_elem(rules, &number);
	if (rule)
		*to = *rule;
}

/* The list of rules that may match the client. */
static __always_inline struct gate_list *list_of(const struct segment *s, void *outer4, void *outer6,
						 u32 table)
{
	void *clients;

	if (s->is_v4) {
		struct key4 key = { .bits = 32 };

		__builtin_memcpy(key.address, s->tuple.client + 12, 4);
		clients = bpf_map_lookup_elem(outer4, &table);
		return clients ? bpf_map_lookup_elem(clients, &key) : 0;
	}
	struct key6 key = { .bits = 128 };

	__builtin_memcpy(key.address, s->tuple.client, 16);
	clients = bpf_map_lookup_elem(outer6, &table);
	return clients ? bpf_map_lookup_elem(clients, &key) : 0;
}

static __always_inline void begin_search(struct search *search, const struct segment *s,
					 const struct gate_list *list, const struct gate_control *set)
{
	search->local_hi = half(s->tuple.local);
	search->local_lo = half(s->tuple.local + 8);
	search->client_port = bpf_ntohs(s->tuple.client_port);
	search->local_port = bpf_ntohs(s->tuple.local_port);
	search->first = list->first;
	search->degree = set->degree;
}

static __always_inline void decide(const struct segment *s, const struct gate_control *set,
				   struct decision *decision)
{
	struct search search = {};
	struct gate_list *list;
	u32 table = set->table;

	search.entries = bpf_map_lookup_elem(&tables_entries, &table);
	search.rules = bpf_map_lookup_elem(&tables_rules, &table);
	if (!search.entries || !search.rules)
		return;
	list = list_of(s, &tables_clients4, &tables_clients6, table);
	if (!list)
		return;
	begin_search(&search, s, list, set);
	bpf_loop(list->count, try_entry, &search, 0);
	copy_rule(search.rules, search.action, &decision->action);
	copy_rule(search.rules, search.limit, &decision->limit);
}
