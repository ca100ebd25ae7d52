/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * The charge when a handshake completes. At the SYN the bucket is only looked at; a client that sends the
 * acknowledgement that the kernel waits for has received the SYN-ACK, so its address is not forged. The
 * number that the kernel waits for is in the request socket (Linux 5.9 shows it), or in the kernel's own
 * SYN cookie. A connection without an entry in `pending` is left to user space, which charges it. Reads and
 * writes `pending` and `words`, writes `ignored`, `counts` and `tallies`. Verdicts: drop, SEND_RESET, or
 * nothing.
 */
#pragma once

/* The part of the kernel's struct that is read here. The loader takes the field's offset from the
 * kernel's BTF. */
struct tcp_request_sock {
	u32 snt_isn;
} __attribute__((preserve_access_index));

/* Whether a segment for a listening socket acknowledges a SYN cookie that the kernel has sent lately. */
static __always_inline bool is_of_kernel(struct bpf_sock *socket, struct segment *s)
{
	return !bpf_tcp_check_syncookie(socket, s->is_v4 ? (void *)&s->ip4 : (void *)&s->ip6,
					s->is_v4 ? sizeof(s->ip4) : sizeof(s->ip6), &s->tcp,
					sizeof(s->tcp));
}

/* Whether this is the acknowledgement of a SYN-ACK that the kernel sent. */
static __always_inline bool is_proven(struct __sk_buff *skb, struct segment *s)
{
	struct bpf_sock *socket = socket_of(skb, s);
	struct tcp_request_sock *request;
	bool proven = false;

	if (!socket)
		return false;
	if (socket->state == BPF_TCP_LISTEN) {
		proven = is_of_kernel(socket, s);
	} else if (socket->state == BPF_TCP_NEW_SYN_RECV) {
		request = bpf_skc_to_tcp_request_sock(socket);
		if (request)
			proven = s->acknowledged == request->snt_isn + 1;
	}
	bpf_sk_release(socket);
	return proven;
}

/* Charges the connection of this entry, whose client has proven its address; TC_ACT_UNSPEC if it is
 * admitted. */
static __always_inline int charge_proven(const struct segment *s, struct gate_pending *known)
{
	struct gate_tally *rule;
	enum outcome outcome;
	u64 now;

	/* two segments of one connection may arrive on two CPUs: only one charges */
	if (__sync_val_compare_and_swap(&known->state, GATE_LOOKED, GATE_CHARGING) != GATE_LOOKED)
		return TC_ACT_UNSPEC;
	now = bpf_ktime_get_ns();
	outcome = charge(known->slot, known->interval_ns, known->tolerance_ns, now);
	if (outcome == ADMITTED) {
		known->state = GATE_CHARGED;
		count(GATE_COMPLETED);
		return TC_ACT_UNSPEC;
	}
	known->state = GATE_LOOKED;
	/* left to user space, which charges the connection */
	if (outcome == CONTENDED)
		return TC_ACT_UNSPEC;
	ignore_client(s, known->ignore_ns, now);
	rule = tally(known->slot);
	if (known->over == GATE_DO_RESET) {
		count(GATE_LATE_RESET);
		if (rule)
			rule->reset += 1;
		return SEND_RESET;
	}
	count(GATE_LATE_DROPPED);
	if (rule)
		rule->dropped += 1;
	return TC_ACT_SHOT;
}

/* The entry of the connection whose first segment behind the SYN this is, if it is not charged yet. */
static __always_inline struct gate_pending *note_of(const struct segment *s)
{
	struct gate_pending *known = bpf_map_lookup_elem(&pending, &s->tuple);

	return known && known->state == GATE_LOOKED && known->sequence + 1 == s->sequence ? known : 0;
}

static __always_inline int judge_acknowledgement(struct __sk_buff *skb, struct segment *s)
{
	struct gate_pending *known = note_of(s);

	if (!known || !is_proven(skb, s))
		return TC_ACT_UNSPEC;
	return charge_proven(s, known);
}
