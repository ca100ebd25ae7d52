/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * The cookies of a first request (RFC 6265 §4.2.1), where its first segment has them in plain form: the
 * same as `forebay_policy::first::FirstCookies::read`; a test compares the two. Reads `segments`, writes
 * `pairs`. The segment is read byte by byte, so this is done only where a rule asks for a cookie.
 */
#pragma once

/* The bytes of a segment that are read at most, and the room for them: a power of two, so that a mask
 * bounds an index for the verifier. */
#define MOST_HEAD 1536
#define HEAD_ROOM 2048
/* The most pairs, a power of two for the same reason. A pair is one byte shorter than its room. */
#define PAIRS 16
#define PAIR_BYTES 64
#define MOST_PAIR (PAIR_BYTES - 1)

struct pairs {
	u8 data[HEAD_ROOM];
	union {
		u8 bytes[PAIRS * PAIR_BYTES];
		u64 words[PAIRS * PAIR_BYTES / 8];
	};
	u32 lengths[PAIRS];
	u32 count;
	u32 unseen; /* there may be other pairs, which were not read */
	/* the state of the scan */
	u32 reading;
	u32 at;     /* bytes of the field name `cookie` that matched so far */
	u32 length; /* of the pair that is being read, with trailing blanks */
	u32 end;    /* the same without trailing blanks */
	u32 is_odd; /* the pair that is being read is not plain */
	u32 missed; /* a pair was not kept: not plain, too long, or too many */
	u32 is_whole;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct pairs);
} pairs SEC(".maps");

enum reading_head { IN_LINE, IN_FIELD_NAME, AT_HEAD_END, IN_PAIR, AT_PAIR_END };

/* Ends the pair that is being read, and keeps it if it is plain and there is room. */
static __always_inline void end_pair(struct pairs *all)
{
	if (all->is_odd || all->end > MOST_PAIR) {
		all->missed = 1;
	} else if (all->end) {
		if (all->count >= PAIRS) {
			all->missed = 1;
		} else {
			all->lengths[all->count & (PAIRS - 1)] = all->end;
			all->count += 1;
		}
	}
	all->length = all->end = all->is_odd = 0;
}

static __always_inline void keep_of_pair(struct pairs *all, u8 byte)
{
	bool is_blank = byte == ' ' || byte == '\t';

	/* leading blanks are skipped */
	if (is_blank && !all->length)
		return;
	/* a blank inside: user space trims blanks around name and value, which is not repeated here */
	if (!is_blank && all->end != all->length)
		all->is_odd = 1;
	if (!is_blank && (byte < ' ' || byte == 0x7f))
		all->is_odd = 1;
	if (all->length < MOST_PAIR && all->count < PAIRS)
		all->bytes[(all->count & (PAIRS - 1)) * PAIR_BYTES + (all->length & (PAIR_BYTES - 1))] = byte;
	all->length += 1;
	if (!is_blank)
		all->end = all->length;
}

/* Reads one byte; 1 ends the scan, at the end of the head. */
static long scan_head(u32 at, struct pairs **context)
{
	struct pairs *all = *context;
	u8 byte = all->data[at & (HEAD_ROOM - 1)];
	/* "cookie", its first letter in the lowest byte */
	const u64 name = 0x65696b6f6f63ULL;

	switch (all->reading) {
	case IN_LINE:
		if (byte == '\n') {
			all->reading = IN_FIELD_NAME;
			all->at = 0;
		}
		return 0;
	case IN_FIELD_NAME:
		if (!all->at && byte == '\r') {
			all->reading = AT_HEAD_END;
			return 0;
		}
		if (byte == '\n') {
			all->is_whole = !all->at;
			all->at = 0;
			return all->is_whole;
		}
		if (all->at < 6 && (byte | 0x20) == (u8)(name >> (all->at * 8 & 63))) {
			all->at += 1;
		} else if (all->at == 6 && byte == ':') {
			all->reading = IN_PAIR;
			all->length = all->end = all->is_odd = 0;
		} else {
			all->reading = IN_LINE;
		}
		return 0;
	case AT_HEAD_END:
		all->is_whole = byte == '\n';
		if (!all->is_whole)
			all->missed = 1;
		return 1;
	case AT_PAIR_END:
		if (byte != '\n') {
			all->missed = 1;
			return 1;
		}
		break;
	}
	if (byte == '\r') {
		all->reading = AT_PAIR_END;
		return 0;
	}
	if (byte == ';' || byte == '\n') {
		end_pair(all);
		if (byte == '\n') {
			all->reading = IN_FIELD_NAME;
			all->at = 0;
		}
		return 0;
	}
	keep_of_pair(all, byte);
	return 0;
}

/* Reads the cookies of the segment in `segments`; without `reads` only forgets those of the segment
 * before. A global function, as `read_request` is. */
__noinline int read_cookies(struct __sk_buff *skb, u32 reads)
{
	u32 zero = 0, bytes;
	struct segment *s = bpf_map_lookup_elem(&segments, &zero);
	struct pairs *all = bpf_map_lookup_elem(&pairs, &zero);

	if (!s || !all)
		return 0;
	all->count = 0;
	all->unseen = 1;
	if (!reads || !s->data_bytes)
		return 0;
	bytes = s->data_bytes;
	if (bytes > MOST_HEAD)
		bytes = MOST_HEAD;
	bytes = ((bytes - 1) & (HEAD_ROOM - 1)) + 1;
	if (bpf_skb_load_bytes(skb, ETH_HLEN + s->ip_bytes + s->tcp.doff * 4, all->data, bytes))
		return 0;
	all->reading = IN_LINE;
	all->at = all->length = all->end = all->is_odd = all->missed = all->is_whole = 0;
	bpf_loop(bytes, scan_head, &all, 0);
	all->unseen = all->missed || !all->is_whole;
	return 1;
}

/* The context of `try_pair`. It is small because it lies on the stack where the chain of calls is
 * deepest; a map cannot keep it, because a map value must not hold a pointer to a table. */
struct pair_search {
	void *patterns;
	u32 first;
	u32 fits;
};

/* Compares one pattern with one cookie, in the order of the patterns. */
static long try_pair(u32 at, struct pair_search *search)
{
	u32 place = search->first + at / PAIRS, which = at % PAIRS, zero = 0, length, left;
	const struct pairs *all = bpf_map_lookup_elem(&pairs, &zero);
	struct gate_pattern *pattern;
	u64 word;

	if (!all || which >= all->count)
		return 0;
	pattern = bpf_map_lookup_elem(search->patterns, &place);
	if (!pattern)
		return 1;
	length = pattern->length;
	if (pattern->is_prefix ? all->lengths[which] < length : all->lengths[which] != length)
		return 0;
	for (u32 i = 0; i < PAIR_BYTES / 8 && i * 8 < length; i++) {
		left = length - i * 8;
		word = pattern->words[i] ^ all->words[which * (PAIR_BYTES / 8) + i];
		if (left < 8)
			word = part_of(word, left);
		if (word)
			return 0;
	}
	search->fits = 1;
	return 1;
}

/* Whether one of `count` patterns from `first` on fits a cookie. A global function, as `holds` is. */
__noinline int holds_of_cookies(u32 table, u32 first, u32 count, u32 marks)
{
	struct pair_search search = { .first = first };
	struct pairs *known;
	u32 zero = 0;

	search.patterns = bpf_map_lookup_elem(&tables_patterns, &table);
	if (!search.patterns)
		return HOLDS_PERHAPS;
	bpf_loop(count * PAIRS, try_pair, &search, 0);
	if (search.fits)
		return HOLDS;
	known = bpf_map_lookup_elem(&pairs, &zero);
	return !known || known->unseen || marks & GATE_ASKED_MORE ? HOLDS_PERHAPS : HOLDS_NOT;
}
