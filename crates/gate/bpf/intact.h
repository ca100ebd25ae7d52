/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * Whether a segment is as its client has sent it. The stack looks at the checksum behind us: whatever is answered here
 * has to be looked at here. Reads `segments`, overwrites the data in `texts`. Needs Linux 5.8 (bpf_csum_level).
 */
#pragma once

/* So many bytes are summed up at once. */
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
	/* what is behind the last byte counts nothing */
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

/* A function of its own, as `rank_of` is. */
__noinline int is_intact(struct __sk_buff *skb)
{
	struct summing sum = { .skb = skb };
	struct pseudo pseudo = {};
	struct segment *s;
	u32 zero = 0, of_pseudo;

	/* the device has done it */
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
	/* it comes from this machine, or several were put together: then the device computes it when it goes out */
	if (s->tcp.check == (u16)fold(of_pseudo))
		return 1;
	sum.sum = of_pseudo;
	bpf_loop(0x10000 / SUMMED + 1, sum_part, &sum, 0);
	return !sum.failed && (u16)fold(sum.sum) == 0xffff;
}
