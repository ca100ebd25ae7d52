/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * Every map. The server creates the tables of rules, one set for each policy, and puts them into the outer
 * maps. The other maps are created with the program and keep their content when the policy changes.
 */
#pragma once

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gate_control);
} control SEC(".maps");

/* A bit for each port, in host byte order: whether SYNs to it are judged. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u64);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct gate_listener);
	__type(value, struct gate_sockets);
} listeners SEC(".maps");

/* The addresses of this machine. A lookup finds a listener on every address for forwarded packets, too,
 * so the destination is checked against these. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u8[16]);
	__type(value, u32);
} locals SEC(".maps");

struct key4 {
	u32 bits;
	u8 address[4];
};

struct key6 {
	u32 bits;
	u8 address[16];
};

/* Inner maps give key and value by size: clang emits a mere forward declaration for a type that only an
 * inner map names. */
struct clients4 {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(struct key4));
	__uint(value_size, sizeof(struct gate_list));
};

struct clients6 {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(struct key6));
	__uint(value_size, sizeof(struct gate_list));
};

struct paths {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(struct gate_path));
	__uint(value_size, sizeof(struct gate_list));
};

struct entries {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct gate_entry));
};

struct rules {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct gate_rule));
};

struct url_rules {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct gate_url_rule));
};

struct patterns {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct gate_pattern));
};

/* Which rules may match a client, by its network: the longest prefix has the rules of all networks that
 * contain it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, GATE_TABLES);
	__type(key, u32);
	__array(values, struct clients4);
} tables_clients4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, GATE_TABLES);
	__type(key, u32);
	__array(values, struct clients6);
} tables_clients6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, GATE_TABLES);
	__type(key, u32);
	__array(values, struct entries);
} tables_entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, GATE_TABLES);
	__type(key, u32);
	__array(values, struct rules);
} tables_rules SEC(".maps");

/* The tables of rules for first requests. A rule that asks for a path and for no network of clients is
 * found by the path, the others by the client's network. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, GATE_TABLES);
	__type(key, u32);
	__array(values, struct clients4);
} tables_url_clients4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, GATE_TABLES);
	__type(key, u32);
	__array(values, struct clients6);
} tables_url_clients6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, GATE_TABLES);
	__type(key, u32);
	__array(values, struct paths);
} tables_url_paths SEC(".maps");

/* The same rules for ClientHellos of TLS, which have no path: all of them by the client's network. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, GATE_TABLES);
	__type(key, u32);
	__array(values, struct clients4);
} tables_hello_clients4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, GATE_TABLES);
	__type(key, u32);
	__array(values, struct clients6);
} tables_hello_clients6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, GATE_TABLES);
	__type(key, u32);
	__array(values, struct entries);
} tables_url_entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, GATE_TABLES);
	__type(key, u32);
	__array(values, struct url_rules);
} tables_url_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, GATE_TABLES);
	__type(key, u32);
	__array(values, struct patterns);
} tables_patterns SEC(".maps");

/* Listening sockets of classes. */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, GATE_SOCKETS);
	__type(key, u32);
	__type(value, u64);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gate_key);
} keys SEC(".maps");

/* The slot of each class in `words` and `tallies`, by table and rank. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GATE_TABLES * GATE_RANKS);
	__type(key, u32);
	__type(value, u32);
} ranks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GATE_OTHERS);
	__type(key, u32);
	__type(value, struct gate_turns);
} turns SEC(".maps");

/* The number of first requests by rank; the last entry is for those whose rank could not be determined. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GATE_UNJUDGED + 1);
	__type(key, u32);
	__type(value, u64);
} judged SEC(".maps");

/* The buckets, by slot. The server maps them into its memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, GATE_SLOTS);
	__type(key, u32);
	__type(value, struct gate_word);
} words SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GATE_SLOTS);
	__type(key, u32);
	__type(value, struct gate_tally);
} tallies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, GATE_PENDING);
	__type(key, struct gate_tuple);
	__type(value, struct gate_pending);
} pending SEC(".maps");

/* Ignored clients, an IPv4 address or an IPv6 /64 each, with the end of that time (CLOCK_MONOTONIC, ns). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, GATE_IGNORED);
	__type(key, u8[16]);
	__type(value, u64);
} ignored SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GATE_COUNTS);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

/* The maps that follow exist on the rung `full` only. */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * GATE_PAGES);
	__type(key, u32);
	__type(value, struct gate_page);
} pages SEC(".maps");

/* Connections whose request was refused with a page. A client whose entry was evicted gets a reset from
 * the stack in answer to its FIN. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, GATE_REFUSED);
	__type(key, struct gate_tuple);
	__type(value, struct gate_refused);
} refused SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, GATE_CHARGED_REQUESTS);
	__type(key, struct gate_tuple);
	__type(value, struct gate_charged);
} charged SEC(".maps");

/* Connections to another server whose handshake only the stack can complete, with the sequence number of
 * the SYN. Their first data is judged when it arrives. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, GATE_WATCHED);
	__type(key, struct gate_tuple);
	__type(value, u32);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GATE_FIRST_COUNTS);
	__type(key, u32);
	__type(value, u64);
} firsts SEC(".maps");

/* The maps that follow exist only where requests are answered from the cache. The server sets their
 * sizes at loading. */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gate_serving);
} serving SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct gate_answer_key);
	__type(value, struct gate_answer);
} answers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gate_object);
} objects SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct gate_date);
} dates SEC(".maps");

/* The meaning (GATE_FIELD_…) of a header field, by its name in lower case, padded with zeros. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 128);
	__type(key, u8[GATE_FIELD_BYTES]);
	__type(value, u32);
} fields SEC(".maps");

/* Connections that had answers from the cache and have no socket. A client whose entry was evicted gets
 * a reset. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct gate_tuple);
	__type(value, struct gate_served);
} served SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GATE_SERVE_COUNTS);
	__type(key, u32);
	__type(value, u64);
} serves SEC(".maps");

/* The programs for tail calls, by GATE_ANSWER, GATE_COMPLETE and the others, as far as they are loaded.
 * The kernel empties a PROG_ARRAY when no process holds it any more, even while a filter is attached:
 * then nothing is judged. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, GATE_PROGRAMS);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} programs SEC(".maps");

/* A struct that is never used: with it clang describes the types that a test compares. */
struct gate_shapes {
	struct gate_list list;
	struct gate_entry entry;
	struct gate_rule rule;
	struct gate_url_rule url_rule;
	struct gate_pattern pattern;
	struct gate_path path;
	struct gate_key key;
	struct gate_sockets sockets;
	enum gate_count count;
	enum gate_first first;
	struct gate_record record;
	enum gate_serve serve;
	enum gate_field field;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gate_shapes);
} shapes SEC(".maps");

/* Adds one to `what`. The map is per CPU, and programs on one CPU run one at a time, so no atomic is
 * needed. */
static __always_inline void count(u32 what)
{
	u64 *number = bpf_map_lookup_elem(&counts, &what);

	if (number)
		*number += 1;
}

/* Adds one to `what` of first requests and the segments behind them. */
static __always_inline void count_first(u32 what)
{
	u64 *number = bpf_map_lookup_elem(&firsts, &what);

	if (number)
		*number += 1;
}
