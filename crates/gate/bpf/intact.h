/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * Verification of a segment's checksum. The stack verifies it only after this hook, so a segment that is
 * answered here has to be verified here. Reads `segments`, overwrites the data in `texts`. Needs Linux 5.8
 * (bpf_csum_level).
 */
#pragma once

/* The bytes that one turn of the loop sums up. */
#define SUMMED 512

struct summing {
	struct __sk_buff *skb;
	struct texts *room;
	u32 at;
	u32 left;
	u32 sum;
	u32 failed;
};

static long sum_part(u32 turn, struct summing *sum)
{
	u32 bytes = sum->left > SUMMED ? SUMMED : sum->left;
	struct texts *room = sum->room;
	s64 more;

	(void)turn;
	if (!bytes)
		return 1;
	/* zeros behind the last byte add nothing to the sum */
	if (bytes < SUMMED)
		__builtin_memset(room->data, 0, SUMMED);
	bytes = ((bytes - 1) & (SUMMED - 1)) + 1;
	if (bpf_skb_load_bytes(sum->skb, sum->at, room->data, bytes)) {
		sum->failed = 1;
		return 1;
	}
	more = bpf_csum_diff(0, 0, (void *)room->data, SUMMED, sum->sum);
	if (more < 0) {
		sum->failed = 1;
		return 1;
	}
	sum->sum = more;
	sum->at += bytes;
	sum->left -= bytes;
	return 0;
}

/* Whether the checksum of the segment in `segments` is right. A global function, as `rank_of` is. */
__noinline int is_intact(struct __sk_buff *skb)
{
	struct summing sum = { .skb = skb };
	struct pseudo pseudo = {};
	struct segment *s;
	u32 zero = 0, of_pseudo;

	/* the device has verified it */
	if (bpf_csum_level(skb, BPF_CSUM_LEVEL_QUERY) >= 0)
		return 1;
	s = bpf_map_lookup_elem(&segments, &zero);
	sum.room = bpf_map_lookup_elem(&texts, &zero);
	if (!s || !sum.room)
		return 0;
	sum.at = ETH_HLEN + s->ip_bytes;
	sum.left = s->tcp.doff * 4 + s->data_bytes;
	pseudo_of(&pseudo, s->tuple.client, s->tuple.local, s->is_v4, sum.left);
	of_pseudo = bpf_csum_diff(0, 0, (void *)&pseudo, sizeof(pseudo), 0);
	/* CHECKSUM_PARTIAL: the segment comes from this machine, or GRO has merged several; the field
	 * holds the sum of the pseudo header only, because the device would compute the rest when
	 * sending */
	if (s->tcp.check == (u16)fold(of_pseudo))
		return 1;
	sum.sum = of_pseudo;
	bpf_loop(0x10000 / SUMMED + 1, sum_part, &sum, 0);
	return !sum.failed && (u16)fold(sum.sum) == 0xffff;
}
