/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * A SYN cookie: a handshake without state keeps what it must remember in the sequence number of the SYN-ACK,
 * and every segment of the client acknowledges that number until the server has sent something:
 *
 *   31..27  of a MAC of both ends and the time
 *   26..9   of a MAC of these, of the client's first sequence number, and of what follows
 *    8..5   the client's window scale, 15 for none
 *    4      selective acknowledgements
 *    3      explicit congestion notification
 *    2..0   the largest segment it takes, from a table
 *
 * The first MAC alone is valid in a later segment of a connection of ours, which must wait until its client
 * has retransmitted the first one. A forger has to guess both MACs. Reads `keys` and `segments`. The MAC is
 * SipHash-2-4.
 */
#pragma once

#define GATE_NO_SCALE 15
/* An epoch is the clock shifted by this. A cookie is valid in its own epoch and the next one: 69 to 137 s. */
#define GATE_EPOCH_SHIFT 36

struct offer {
	u16 largest; /* segment: the MSS */
	u8 scale;
	u8 sack;
	u8 ecn;
};

/* The segment sizes that a cookie can name. They are packed into two words because the compiler would
 * put an array into a section of its own. */
static __always_inline u16 largest_segment(u32 place)
{
	const u64 low = 536ULL | 1220ULL << 16 | 1360ULL << 32 | 1400ULL << 48;
	const u64 high = 1440ULL | 1460ULL << 16 | 8900ULL << 32 | 65476ULL << 48;

	return (place < 4 ? low : high) >> (place % 4 * 16);
}

#define ROTATE(x, bits) ((x) << (bits) | (x) >> (64 - (bits)))

struct sip {
	u64 a, b, c, d;
};

static __always_inline void sip_round(struct sip *s)
{
	s->a += s->b;
	s->b = ROTATE(s->b, 13) ^ s->a;
	s->a = ROTATE(s->a, 32);
	s->c += s->d;
	s->d = ROTATE(s->d, 16) ^ s->c;
	s->a += s->d;
	s->d = ROTATE(s->d, 21) ^ s->a;
	s->c += s->b;
	s->b = ROTATE(s->b, 17) ^ s->c;
	s->c = ROTATE(s->c, 32);
}

static __always_inline void sip_word(struct sip *s, u64 word)
{
	s->d ^= word;
	sip_round(s);
	sip_round(s);
	s->a ^= word;
}

static __always_inline struct sip sip_begin(const struct gate_key *key)
{
	return (struct sip){
		.a = key->low ^ 0x736f6d6570736575ULL,
		.b = key->high ^ 0x646f72616e646f6dULL,
		.c = key->low ^ 0x6c7967656e657261ULL,
		.d = key->high ^ 0x7465646279746573ULL,
	};
}

static __always_inline u64 sip_end(struct sip *s, u64 bytes)
{
	sip_word(s, bytes << 56);
	s->c ^= 0xff;
	sip_round(s);
	sip_round(s);
	sip_round(s);
	sip_round(s);
	return s->a ^ s->b ^ s->c ^ s->d;
}

static __noinline u64 mac_of_ends(const struct gate_key *key, const struct gate_tuple *ends,
				       u64 epoch)
{
	struct sip sip = sip_begin(key);

	sip_word(&sip, half(ends->client));
	sip_word(&sip, half(ends->client + 8));
	sip_word(&sip, half(ends->local));
	sip_word(&sip, half(ends->local + 8));
	sip_word(&sip, epoch << 32 | (u32)ends->client_port << 16 | ends->local_port);
	return sip_end(&sip, 40);
}

/* The whole cookie. `first` is the sequence number of the SYN, `kept` the lowest nine bits. */
static __noinline u32 cookie_of(const struct gate_key *key, u64 mac, u32 first, u32 kept)
{
	struct sip sip = sip_begin(key);

	sip_word(&sip, mac);
	sip_word(&sip, (u64)first << 32 | kept);
	return (u32)(mac >> 59) << 27 | (u32)(sip_end(&sip, 16) >> 46) << 9 | kept;
}

static __always_inline u32 keep_offer(const struct offer *offer)
{
	u32 place = 0;

	for (u32 at = 1; at < 8; at++)
		if (offer->largest >= largest_segment(at))
			place = at;
	return (u32)offer->scale << 5 | (u32)offer->sack << 4 | (u32)offer->ecn << 3 | place;
}

static __always_inline u32 make_cookie(const struct segment *s, const struct offer *offer, u64 now)
{
	u32 zero = 0;
	struct gate_key *key = bpf_map_lookup_elem(&keys, &zero);

	if (!key)
		return 0;
	return cookie_of(key, mac_of_ends(key, &s->tuple, now >> GATE_EPOCH_SHIFT), s->sequence,
			 keep_offer(offer));
}

/* The result of a check that does not give an offer. */
enum { NOT_OURS = -1, LATER = -2 /* the connection is ours, but its first segment is missing */ };

/* What the cookie of the segment in `segments` proves: the nine bits that are kept of the client's
 * offer, NOT_OURS or LATER. A global function: the verifier checks it once by itself. Inlined, it would
 * be followed by one walk through all later code for each path through it. */
__noinline int check_cookie(void)
{
	struct gate_key *key;
	struct segment *s;
	u32 zero = 0, cookie, kept;
	int proof = NOT_OURS;
	u64 mac, epoch;

	key = bpf_map_lookup_elem(&keys, &zero);
	s = bpf_map_lookup_elem(&segments, &zero);
	if (!key || !s)
		return NOT_OURS;
	cookie = s->acknowledged - 1;
	kept = cookie & 0x1ff;
	epoch = bpf_ktime_get_ns() >> GATE_EPOCH_SHIFT;
	for (int before = 0; before < 2; before++) {
		mac = mac_of_ends(key, &s->tuple, epoch - before);
		if ((u32)(mac >> 59) != cookie >> 27)
			continue;
		if (cookie_of(key, mac, s->sequence - 1, kept) == cookie)
			return kept;
		proof = LATER;
	}
	return proof;
}

static __always_inline u32 scale_of(u32 kept)
{
	return kept >> 5 & 15;
}

static __always_inline void recall_offer(u32 kept, struct offer *offer)
{
	offer->scale = scale_of(kept);
	offer->sack = kept >> 4 & 1;
	offer->ecn = kept >> 3 & 1;
	offer->largest = largest_segment(kept & 7);
}
