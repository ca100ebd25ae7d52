/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * Hook: TC ingress, on every interface that holds our addresses: `gate` by a TCX link, which vanishes with
 * the process (Linux 6.6), or `forebay_gate` by a filter at clsact, which does not. Minimum kernel: 6.1,
 * the oldest that it was tried on; `answer`, `complete` and `reply` are loaded for the rung `full` only,
 * which needs 6.9; `serve_on`, `serve` and `send_answer` where requests are answered from the cache.
 * Maps: maps.h. Verdicts: TC_ACT_SHOT (drop), a redirect of the packet that replaced the received one (a
 * reset, a SYN-ACK, an answer), and TC_ACT_UNSPEC, which leaves the packet as it is to the next program or
 * the stack.
 *
 * Most packets belong to established connections: each costs the reading of its IP and TCP headers, one bit
 * of `ports` and, with charges at the handshake, one lookup in `pending`.
 */
#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#define AF_INET 2

#include "types.h"

#include "maps.h"
#include "packet.h"
#include "bucket.h"
#include "cookie.h"
#include "request.h"
#include "hello.h"
#include "rules.h"
#include "pairs.h"
#include "url.h"
#include "answer.h"
#include "intact.h"
#include "syn.h"
#include "handshake.h"
#include "first.h"
#include "options.h"
#include "steer.h"
#include "reply.h"
#include "whole.h"
#include "serve.h"
#include "served.h"

static __always_inline bool is_open(u16 wire_port)
{
	u32 port = bpf_ntohs(wire_port), word = port / 64;
	u64 *bits = bpf_map_lookup_elem(&ports, &word);

	return bits && *bits >> (port % 64) & 1;
}

SEC("tc")
int gate(struct __sk_buff *skb)
{
	struct segment segment = {};
	struct gate_control *set;
	int verdict = TC_ACT_UNSPEC;
	u32 zero = 0;

	if (!skip_priority_tags(skb))
		return TC_ACT_SHOT;
	if (!read_segment(skb, &segment) || !is_open(segment.tuple.local_port))
		return TC_ACT_UNSPEC;
	set = bpf_map_lookup_elem(&control, &zero);
	if (!set)
		return TC_ACT_UNSPEC;
	switch (segment.flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) {
	case TCP_SYN:
		verdict = judge_syn(skb, &segment, set);
		break;
	case TCP_ACK:
	case TCP_ACK | TCP_FIN:
		if (set->serves)
			bpf_tail_call(skb, &programs, GATE_SERVE_ON);
		if (set->completes || set->watches)
			bpf_tail_call(skb, &programs, GATE_COMPLETE);
		if (set->charge == GATE_AT_HANDSHAKE)
			verdict = judge_acknowledgement(skb, &segment);
	}
	return verdict == SEND_RESET ? answer_reset(skb, &segment) : verdict;
}

/* The program that is attached as a clsact filter. The filter stays when the process is killed, but then
 * `programs` is empty, so the tail call fails and every packet passes. */
SEC("tc")
int forebay_gate(struct __sk_buff *skb)
{
	bpf_tail_call(skb, &programs, GATE_JUDGE);
	return TC_ACT_UNSPEC;
}

/* A SYN that `gate` lets through, for a listener with class sockets. */
SEC("tc")
int answer(struct __sk_buff *skb)
{
	struct gate_control *set;
	struct segment *segment;
	u32 zero = 0;
	int verdict;

	set = bpf_map_lookup_elem(&control, &zero);
	segment = bpf_map_lookup_elem(&segments, &zero);
	if (!set || !segment || !read_segment(skb, segment))
		return TC_ACT_UNSPEC;
	verdict = answer_syn(skb, segment, set);
	/* a SYN that cannot be answered here. Data in it would bypass the rules, so it is dropped: the client
	 * retransmits the SYN without data. */
	if (verdict == TC_ACT_UNSPEC && set->watches && set->judges && is_of_others(segment)) {
		if (segment->data_bytes)
			return TC_ACT_SHOT;
		watch(segment);
	}
	return verdict;
}

/* A SYN that `gate` lets through to the stack, for another server. */
SEC("tc")
int watch_first(struct __sk_buff *skb)
{
	struct segment *segment;
	u32 zero = 0;

	segment = bpf_map_lookup_elem(&segments, &zero);
	if (segment && read_segment(skb, segment)) {
		if (segment->data_bytes)
			return TC_ACT_SHOT;
		watch(segment);
	}
	return TC_ACT_UNSPEC;
}

/* A segment that may complete a handshake whose SYN-ACK came from `answer`. */
SEC("tc")
int complete(struct __sk_buff *skb)
{
	struct gate_control *set;
	struct segment *segment;
	struct reply *reply;
	u32 zero = 0;
	int verdict;

	set = bpf_map_lookup_elem(&control, &zero);
	segment = bpf_map_lookup_elem(&segments, &zero);
	if (!set || !segment || !read_segment(skb, segment))
		return TC_ACT_UNSPEC;
	verdict = judge_segment(skb, segment, set);
	if (verdict == SERVE_REQUEST || verdict == SERVE_LOST) {
		if (verdict == SERVE_LOST && (reply = bpf_map_lookup_elem(&replies, &zero)))
			reply->listener = LISTENER_LOST;
		bpf_tail_call(skb, &programs, GATE_SERVE);
		return TC_ACT_SHOT;
	}
	if (verdict != SEND_REPLY && verdict != SEND_RESET && verdict != SEND_RESETS)
		return verdict;
	reply = bpf_map_lookup_elem(&replies, &zero);
	if (!reply)
		return TC_ACT_SHOT;
	reply->is_reset = verdict != SEND_REPLY;
	reply->ends = verdict == SEND_RESETS;
	bpf_tail_call(skb, &programs, GATE_REPLY);
	return TC_ACT_SHOT;
}

/* Sends what `complete` or `serve_on` has put into `replies`. */
SEC("tc")
int reply(struct __sk_buff *skb)
{
	struct gate_control *set;
	struct segment *segment;
	u32 zero = 0;

	set = bpf_map_lookup_elem(&control, &zero);
	segment = bpf_map_lookup_elem(&segments, &zero);
	if (!set || !segment)
		return TC_ACT_SHOT;
	return send_reply(skb, segment, set);
}

/* A segment of a connection that may have had an answer from the cache. */
SEC("tc")
int serve_on(struct __sk_buff *skb)
{
	struct gate_control *set;
	struct segment *segment;
	struct reply *reply;
	u32 zero = 0;

	set = bpf_map_lookup_elem(&control, &zero);
	segment = bpf_map_lookup_elem(&segments, &zero);
	reply = bpf_map_lookup_elem(&replies, &zero);
	if (!set || !segment || !reply || !read_segment(skb, segment))
		return TC_ACT_UNSPEC;
	switch (go_on_after_served(skb, segment, reply, set)) {
	case GO_ON_DROP:
		return TC_ACT_SHOT;
	case GO_ON_STACK:
		return TC_ACT_UNSPEC;
	case GO_ON_SEND:
		bpf_tail_call(skb, &programs, GATE_SEND);
		return TC_ACT_SHOT;
	case GO_ON_RESET:
	case GO_ON_REFUSE:
		bpf_tail_call(skb, &programs, GATE_REPLY);
		return TC_ACT_SHOT;
	case GO_ON_SERVE:
		bpf_tail_call(skb, &programs, GATE_SERVE);
		return TC_ACT_SHOT;
	}
	bpf_tail_call(skb, &programs, GATE_COMPLETE);
	return TC_ACT_UNSPEC;
}

/* A first or later request that the rules admitted: answered from the cache, or else its connection is
 * made. */
SEC("tc")
int serve(struct __sk_buff *skb)
{
	struct gate_control *set;
	struct segment *segment;
	struct reply *reply;
	u32 zero = 0;

	set = bpf_map_lookup_elem(&control, &zero);
	segment = bpf_map_lookup_elem(&segments, &zero);
	reply = bpf_map_lookup_elem(&replies, &zero);
	if (!set || !segment || !reply)
		return TC_ACT_SHOT;
	if (reply->listener == LISTENER_LOST) {
		/* the stack has no such connection, and resets it */
		count_serve(GATE_SERVE_LOST);
		return TC_ACT_UNSPEC;
	}
	if (reply->listener && find_object(skb)) {
		bpf_tail_call(skb, &programs, GATE_SEND);
		return TC_ACT_SHOT;
	}
	return connect_after_all(skb, segment, reply, set);
}

/* Sends what `serve` or `serve_on` has put into `replies`. */
SEC("tc")
int send_answer(struct __sk_buff *skb)
{
	struct gate_control *set;
	struct segment *segment;
	struct reply *reply;
	u32 zero = 0;

	set = bpf_map_lookup_elem(&control, &zero);
	segment = bpf_map_lookup_elem(&segments, &zero);
	reply = bpf_map_lookup_elem(&replies, &zero);
	if (!set || !segment || !reply)
		return TC_ACT_SHOT;
	return send_served(skb, segment, reply, set);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
