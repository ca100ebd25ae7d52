/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * The bucket of a rule: the same word and the same arithmetic as `forebay_policy::bucket`, which has the
 * explanation. Reads and writes `words` and `tallies`. Compare-and-swap needs Linux 5.12.
 */
#pragma once

/* How often a charge is tried while other CPUs or user space change the word. */
#define GATE_TRIES 16

enum outcome { ADMITTED, REFUSED, CONTENDED };

static __always_inline u64 minus(u64 a, u64 b)
{
	return a > b ? a - b : 0;
}

static __always_inline u64 plus(u64 a, u64 b)
{
	return a + b < a ? ~0ULL : a + b;
}

static __always_inline bool conforms(u64 arrival, u64 now, u64 tolerance_ns)
{
	return minus(arrival, tolerance_ns) <= now;
}

/* Whether an event at `now` would be admitted. */
static __always_inline bool look(u32 slot, u64 tolerance_ns, u64 now)
{
	struct gate_word *word = bpf_map_lookup_elem(&words, &slot);

	return !word || conforms(*(volatile u64 *)&word->arrival, now, tolerance_ns);
}

static __always_inline enum outcome charge_word(u64 *word, u64 interval_ns, u64 tolerance_ns, u64 now)
{
	u64 arrival = *(volatile u64 *)word, next, seen;

	for (int try = 0; try < GATE_TRIES; try++) {
		if (!conforms(arrival, now, tolerance_ns))
			return REFUSED;
		next = plus(arrival > now ? arrival : now, interval_ns);
		seen = __sync_val_compare_and_swap(word, arrival, next);
		if (seen == arrival)
			return ADMITTED;
		arrival = seen;
	}
	return CONTENDED;
}

/* Charges a connection at `now`; CONTENDED where the slot has no word. */
static __always_inline enum outcome charge(u32 slot, u64 interval_ns, u64 tolerance_ns, u64 now)
{
	struct gate_word *word = bpf_map_lookup_elem(&words, &slot);

	return word ? charge_word(&word->arrival, interval_ns, tolerance_ns, now) : CONTENDED;
}

static __always_inline struct gate_tally *tally(u32 slot)
{
	return bpf_map_lookup_elem(&tallies, &slot);
}
