/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * The options of a TCP header. Reads `segments`, writes `options`.
 */
#pragma once

/* The window scale that is offered: the one that the kernel uses for its largest buffer. */
#define OUR_SCALE 7

#define OPTION_END 0
#define OPTION_PAD 1
#define OPTION_LARGEST 2
#define OPTION_SCALE 3
#define OPTION_SACK 4
#define OPTION_TIMES 8

/* Options with OPTION_PAD in front, so that each fills four bytes, or the first four of a timestamp. */
#define PADDED_SACK 0x01010402
#define PADDED_SCALE (0x01030300 | OUR_SCALE)
#define PADDED_TIMES 0x0101080a
#define SACK_AND_TIMES 0x0402080a

struct options {
	u8 bytes[128];
	u32 end;
	u32 at;
	u32 value, echo; /* of the timestamp option: TSval and TSecr */
	u16 largest;
	u8 scale;
	u8 has_times;
	u8 has_sack;
	u8 has_largest;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct options);
} options SEC(".maps");

static __always_inline u32 big(const struct options *o, u32 at)
{
	return (u32)o->bytes[at & 127] << 24 | (u32)o->bytes[(at + 1) & 127] << 16 |
	       (u32)o->bytes[(at + 2) & 127] << 8 | o->bytes[(at + 3) & 127];
}

static long read_option(u32 turn, struct options **context)
{
	struct options *o = *context;
	u32 at = o->at, length;
	u8 kind;

	(void)turn;
	if (at >= o->end)
		return 1;
	kind = o->bytes[at & 127];
	if (kind == OPTION_END)
		return 1;
	if (kind == OPTION_PAD) {
		o->at = at + 1;
		return 0;
	}
	length = o->bytes[(at + 1) & 127];
	if (length < 2 || at + length > o->end)
		return 1;
	if (kind == OPTION_LARGEST && length == 4) {
		o->largest = big(o, at + 2) >> 16;
		o->has_largest = 1;
	} else if (kind == OPTION_SCALE && length == 3) {
		o->scale = o->bytes[(at + 2) & 127] > 14 ? 14 : o->bytes[(at + 2) & 127];
	} else if (kind == OPTION_SACK && length == 2) {
		o->has_sack = 1;
	} else if (kind == OPTION_TIMES && length == 10) {
		o->has_times = 1;
		o->value = big(o, at + 2);
		o->echo = big(o, at + 6);
	}
	o->at = at + length;
	return 0;
}

/* Parses the options of the segment in `segments`; whether they could be read. A global function, as
 * `rank_of` is. */
__noinline int parse_options(struct __sk_buff *skb)
{
	u32 zero = 0, bytes;
	struct segment *s = bpf_map_lookup_elem(&segments, &zero);
	struct options *o = bpf_map_lookup_elem(&options, &zero);

	if (!s || !o)
		return 0;
	bytes = s->tcp.doff * 4 - sizeof(s->tcp);
	o->end = bytes;
	o->at = 0;
	o->largest = 0;
	o->scale = GATE_NO_SCALE;
	o->has_times = o->has_sack = o->has_largest = 0;
	if (!bytes)
		return 1;
	bytes = ((bytes - 1) & 63) + 1;
	if (bpf_skb_load_bytes(skb, ETH_HLEN + s->ip_bytes + sizeof(s->tcp), o->bytes, bytes))
		return 0;
	bpf_loop(40, read_option, &o, 0);
	return 1;
}

static __always_inline struct options *read_options(struct __sk_buff *skb)
{
	u32 zero = 0;

	return parse_options(skb) ? bpf_map_lookup_elem(&options, &zero) : 0;
}

/* The value of a timestamp option: milliseconds, as the kernel's own. */
static __always_inline u32 time_of(u64 now)
{
	return now / 1000000;
}
