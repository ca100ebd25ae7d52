/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * Every map. Tables of rules are made by the server, one set for each policy, and put into the outer
 * maps; the others are made with the program and keep what they hold.
 */
#pragma once

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gate_control);
} control SEC(".maps");

/* By port, as the machine has it: whether anybody listens there. */
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

/* The addresses of this machine: a listener on every address is found for packets that are only passed
 * on, too. */
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

/* By size: clang describes a type only forward that is named in an inner map alone. */
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

/* Which rules may match, by the network that a client is in: the longest prefix knows those of all
 * around it. */
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

/* The same for rules that give classes to first requests: those that ask for a path and for no network of
 * clients are found by the path. */
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

/* The same rules once more, for hellos of TLS: all of them by network. */
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

/* The slots of classes, by table and rank. */
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

/* First requests, by the rank that was told; the last are those that it could not be told of. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GATE_UNJUDGED + 1);
	__type(key, u32);
	__type(value, u64);
} judged SEC(".maps");

/* Buckets, by slot. The server maps them into its memory. */
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

/* Until when (CLOCK_MONOTONIC, ns) a client is ignored: an IPv4 address or an IPv6 /64. */
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

/* The maps that follow are there on the rung `full` only. */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * GATE_PAGES);
	__type(key, u32);
	__type(value, struct gate_page);
} pages SEC(".maps");

/* Whoever is forgotten gets a reset of the stack for its FIN. */
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

/* Connections to another server whose handshake only the stack can complete: the sequence number of the SYN. Their first
 * data is judged where it comes. */
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

/* The maps that follow are there where requests are answered from the cache only; the server says how large they are. */

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

/* Names of fields in small letters, with zeros behind them: what they mean (GATE_FIELD_…). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 128);
	__type(key, u8[GATE_FIELD_BYTES]);
	__type(value, u32);
} fields SEC(".maps");

/* What is forgotten gets a reset. */
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

/* By GATE_ANSWER, GATE_COMPLETE and the others, as far as they are loaded. The kernel empties it when no process holds it
 * any more, whatever is attached: then nothing is judged. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, GATE_PROGRAMS);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} programs SEC(".maps");

/* Is never made: it has clang describe what a test compares. */
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

/* One more of `what`. Of a CPU's own numbers only programs on it write, one at a time. */
static __always_inline void count(u32 what)
{
	u64 *number = bpf_map_lookup_elem(&counts, &what);

	if (number)
		*number += 1;
}

/* One more first request, or segment behind one. */
static __always_inline void count_first(u32 what)
{
	u64 *number = bpf_map_lookup_elem(&firsts, &what);

	if (number)
		*number += 1;
}
