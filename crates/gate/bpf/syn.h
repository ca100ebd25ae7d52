/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * SYN policing (voigt §4.4): a SYN for a listener that the gate knows is judged by the rules that ask for
 * addresses only, before the kernel keeps any state for it; with data (TCP Fast Open) as without. Reads
 * `control`, `listeners`, `locals`, `ignored` and the tables, reads and writes `words` and `pending`,
 * writes `counts` and `tallies`. Verdicts: drop, SEND_RESET, or nothing.
 */
#pragma once

/* The socket that would get the segment if it came from this port of its client, or 0. The caller
 * releases it. */
static __always_inline struct bpf_sock *socket_of_port(struct __sk_buff *skb, const struct segment *s,
						       __be16 client_port)
{
	struct bpf_sock_tuple tuple = {};

	if (s->is_v4) {
		tuple.ipv4.saddr = s->ip4.saddr;
		tuple.ipv4.daddr = s->ip4.daddr;
		tuple.ipv4.sport = client_port;
		tuple.ipv4.dport = s->tcp.dest;
		return bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	}
	__builtin_memcpy(tuple.ipv6.saddr, &s->ip6.saddr, 16);
	__builtin_memcpy(tuple.ipv6.daddr, &s->ip6.daddr, 16);
	tuple.ipv6.sport = client_port;
	tuple.ipv6.dport = s->tcp.dest;
	return bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
}

/* The socket that gets the segment, which may be a request socket or one in TIME_WAIT, or 0. The caller
 * releases it. */
static __always_inline struct bpf_sock *socket_of(struct __sk_buff *skb, const struct segment *s)
{
	return socket_of_port(skb, s, s->tcp.source);
}

/* The listening socket at the segment's destination, or 0, whatever connection its client has there: the
 * lookup uses the client's port 0, which no connection has. The caller releases it. */
static __always_inline struct bpf_sock *listener_of(struct __sk_buff *skb, const struct segment *s)
{
	return socket_of_port(skb, s, 0);
}

/* The entry in `listeners` for this socket, if it listens and is known. Where several addresses are
 * bound to one port, the kernel has chosen the socket. */
static __always_inline struct gate_sockets *ours(struct bpf_sock *socket, const struct segment *s)
{
	struct gate_listener key = {};
	struct gate_sockets *found;
	u32 v4;

	if (socket->state != BPF_TCP_LISTEN)
		return 0;
	key.port = bpf_ntohs(s->tuple.local_port);
	key.family = socket->family;
	if (socket->family == AF_INET) {
		v4 = socket->src_ip4;
		if (v4)
			map_v4(key.address, v4);
	} else {
		u32 words[4] = { socket->src_ip6[0], socket->src_ip6[1], socket->src_ip6[2],
				 socket->src_ip6[3] };

		__builtin_memcpy(key.address, words, 16);
	}
	found = bpf_map_lookup_elem(&listeners, &key);
	if (!found) {
		__builtin_memset(key.address, 0, 16);
		key.family = GATE_OF_OTHERS;
		found = bpf_map_lookup_elem(&listeners, &key);
	}
	if (!found)
		return 0;
	/* all of 127.0.0.0/8 is this machine */
	if (s->is_v4 && s->tuple.local[12] == 127)
		return found;
	return bpf_map_lookup_elem(&locals, s->tuple.local) ? found : 0;
}

/* Whether the segment goes to another server for which handshakes are completed here. */
static __always_inline bool is_of_others(const struct segment *s)
{
	struct gate_listener key = { .family = GATE_OF_OTHERS };
	struct gate_sockets *known;

	key.port = bpf_ntohs(s->tuple.local_port);
	known = bpf_map_lookup_elem(&listeners, &key);
	return known && (known->marks & (GATE_STEERED | GATE_PROTECTED)) == (GATE_STEERED | GATE_PROTECTED);
}

/* Whether the handshake can be completed here as far as the address family goes: class sockets have the
 * family of the public one. Another server's socket makes connections of both families, if the lookup
 * found it for both. */
static __always_inline bool is_of_family(const struct gate_sockets *known, const struct bpf_sock *socket,
					 const struct segment *s)
{
	return known->marks & GATE_PROTECTED || (socket->family == AF_INET) == s->is_v4;
}

/* Whether the segment goes through this machine to another one whose SYNs are judged here. Such a
 * segment has no socket here, and its handshake is not followed. */
static __always_inline bool is_forwarded(const struct segment *s, const struct gate_control *set)
{
	struct gate_listener key = { .family = GATE_FORWARDED };

	if (!set->forwards)
		return false;
	__builtin_memcpy(key.address, s->tuple.local, 16);
	key.port = bpf_ntohs(s->tuple.local_port);
	return bpf_map_lookup_elem(&listeners, &key);
}

/* The client that a limit counts for: an IPv4 address or an IPv6 /64. */
static __always_inline void client_of(const struct segment *s, u8 client[16])
{
	__builtin_memcpy(client, s->tuple.client, 16);
	if (!s->is_v4)
		__builtin_memset(client + 8, 0, 8);
}

static __always_inline bool is_ignored(const struct segment *s, u64 now)
{
	u8 client[16];
	u64 *until;

	client_of(s, client);
	until = bpf_map_lookup_elem(&ignored, client);
	return until && *until > now;
}

/* Has the SYNs of a client dropped for `ignore_ns`, after a limit has refused it and it has proven its
 * address; 0: the rule ignores no client. */
static __always_inline void ignore_client(const struct segment *s, u64 ignore_ns, u64 now)
{
	u64 until = now + ignore_ns;
	u8 client[16];

	if (!ignore_ns)
		return;
	client_of(s, client);
	bpf_map_update_elem(&ignored, client, &until, BPF_ANY);
}

/* The verdict on a SYN that the rule with this slot refuses. */
static __always_inline int refuse_syn(u8 what, u32 slot)
{
	struct gate_tally *rule = tally(slot);

	if (what == GATE_DO_RESET) {
		count(GATE_RESET);
		if (rule)
			rule->reset += 1;
		return SEND_RESET;
	}
	count(GATE_DROPPED);
	if (rule)
		rule->dropped += 1;
	return TC_ACT_SHOT;
}

/* Whether the limit admits a connection whose SYN has this number; if so, the connection is entered into
 * `pending`. */
static __always_inline enum outcome admit(const struct segment *s, u32 sequence,
					  const struct gate_rule *rule, u32 when, u64 now)
{
	struct gate_pending next = {
		.interval_ns = rule->interval_ns,
		.tolerance_ns = rule->tolerance_ns,
		.ignore_ns = rule->ignore_ns,
		.slot = rule->slot,
		.sequence = sequence,
		.over = rule->over,
	};
	enum outcome outcome;

	if (when == GATE_AT_HANDSHAKE) {
		outcome = look(rule->slot, rule->tolerance_ns, now) ? ADMITTED : REFUSED;
		next.state = GATE_LOOKED;
	} else {
		outcome = charge(rule->slot, rule->interval_ns, rule->tolerance_ns, now);
		next.state = GATE_CHARGED;
	}
	if (outcome == ADMITTED)
		bpf_map_update_elem(&pending, &s->tuple, &next, BPF_ANY);
	return outcome;
}

/* The part of the kernel's `struct tcp_sock` that is read here; CO-RE ignores the suffix behind `___`. */
struct tcp_sock___multipath {
	bool is_mptcp;
} __attribute__((preserve_access_index));

/* Whether a listening socket makes connections of MPTCP, which only the stack can make. */
static __always_inline bool is_multipath(struct bpf_sock *socket)
{
	struct tcp_sock___multipath *listener;

	if (!bpf_core_field_exists(struct tcp_sock___multipath, is_mptcp))
		return false;
	listener = (struct tcp_sock___multipath *)bpf_skc_to_tcp_sock(socket);
	return listener && listener->is_mptcp;
}

/* The destination of a SYN. */
struct target {
	bool is_ours; /* the SYN is judged */
	bool is_other; /* it goes to another server on this machine */
	bool is_steered; /* its handshake can be completed here */
	bool is_watched; /* its first data is judged even if the stack completes the handshake */
	bool in_place; /* it reuses a connection in TIME_WAIT: the rules hold, but only the stack can answer it */
	bool is_forwarded;
};

/* The verdict on a SYN that is not refused: it is answered here, or passed to the stack, watched or not. */
static __always_inline int pass_syn(struct __sk_buff *skb, const struct gate_control *set,
				    const struct target *target)
{
	if (target->is_steered && set->answers) {
		if (target->in_place)
			count(GATE_TIME_WAIT);
		else
			bpf_tail_call(skb, &programs, GATE_ANSWER);
	}
	if (target->is_watched)
		bpf_tail_call(skb, &programs, GATE_WATCH);
	return TC_ACT_UNSPEC;
}

static __always_inline void find_target(struct __sk_buff *skb, struct segment *s, const struct gate_control *set,
					struct target *target)
{
	struct bpf_sock *socket;
	struct gate_sockets *known;

	if (!bpf_map_lookup_elem(&locals, s->tuple.local) && is_forwarded(s, set)) {
		target->is_ours = target->is_forwarded = true;
		return;
	}
	socket = socket_of(skb, s);
	if (!socket)
		return;
	if (socket->state == BPF_TCP_TIME_WAIT) {
		bpf_sk_release(socket);
		socket = listener_of(skb, s);
		if (!socket)
			return;
		target->in_place = true;
	}
	known = ours(socket, s);
	/* an address of this machine may be configured as another machine's: the socket that listens
	 * here is not one of ours */
	if (!known && socket->state == BPF_TCP_LISTEN)
		target->is_ours = target->is_forwarded = is_forwarded(s, set);
	if (known && !(known->marks & GATE_LEAVING)) {
		target->is_ours = true;
		target->is_other = known->marks & GATE_PROTECTED;
		target->is_steered = known->marks & GATE_STEERED && is_of_family(known, socket, s);
		target->is_watched = target->is_other && target->is_steered && set->judges;
		if (target->is_other && is_multipath(socket))
			target->is_steered = false;
	}
	bpf_sk_release(socket);
}

static __always_inline int judge_syn(struct __sk_buff *skb, struct segment *s,
				     const struct gate_control *set)
{
	struct decision decision = {};
	struct target target = {};
	struct gate_pending *before;
	struct gate_tally *rule;
	bool at_once;
	u64 now;

	find_target(skb, s, set, &target);
	if (!target.is_ours)
		return TC_ACT_UNSPEC;
	count(GATE_SYNS);
	decide(s, set, &decision);
	switch (decision.action.action) {
	case GATE_DO_DROP:
	case GATE_DO_RESET:
		return refuse_syn(decision.action.action, decision.action.slot);
	case GATE_DO_USER:
	case GATE_DO_ANSWER:
		count(GATE_LEFT_USER);
		return pass_syn(skb, set, &target);
	}
	now = bpf_ktime_get_ns();
	if (set->ignores && is_ignored(s, now)) {
		count(GATE_IGNORED_SYN);
		return TC_ACT_SHOT;
	}
	if (!(decision.limit.says & GATE_SAYS_LIMIT) || decision.limit.over == GATE_DO_ALLOW) {
		count(GATE_PASSED);
		return pass_syn(skb, set, &target);
	}
	if (decision.limit.over == GATE_DO_USER || decision.limit.over == GATE_DO_ANSWER) {
		count(GATE_LEFT_USER);
		return pass_syn(skb, set, &target);
	}
	before = bpf_map_lookup_elem(&pending, &s->tuple);
	if (before && before->sequence == s->sequence && before->slot == decision.limit.slot) {
		count(GATE_REPEATED);
		return pass_syn(skb, set, &target);
	}
	/* charged at once: where the handshake is not followed, or where TCP Fast Open makes another
	 * server's connection before it completes, which nothing else would charge. Not where the SYN is
	 * answered or watched here: its data is retransmitted behind the handshake */
	at_once = target.is_forwarded ||
		  (target.is_other && s->data_bytes && !target.is_watched &&
		   !(target.is_steered && set->answers && !target.in_place));
	switch (admit(s, s->sequence, &decision.limit, at_once ? GATE_AT_SYN : set->charge, now)) {
	case ADMITTED:
		count(GATE_PASSED);
		rule = tally(decision.limit.slot);
		if (rule)
			rule->admitted += 1;
		return pass_syn(skb, set, &target);
	case REFUSED:
		return refuse_syn(decision.limit.over, decision.limit.slot);
	default:
		count(GATE_LEFT_RACE);
		return pass_syn(skb, set, &target);
	}
}
