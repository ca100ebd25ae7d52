/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * The answer to a first request that is refused: a reset, perhaps to both ends; one segment with an error
 * page and a FIN; or an acknowledgement of what the client sends behind that. Reads `control`, `segments`,
 * `replies` and `pages`.
 */
#pragma once

/* The receive window of an answer: 32 KiB. The field in the header has it shifted by OUR_SCALE where
 * windows are scaled. */
#define REPLY_WINDOW 32768

/* Ends a connection that the stack has made: a copy of the packet goes back to the client as a reset,
 * and the packet itself becomes a reset for the server. */
static __always_inline int reset_both(struct __sk_buff *skb, struct segment *s)
{
	struct answer answer = {};
	struct content nothing = {};

	if (answer_reset(skb, s) == TC_ACT_SHOT)
		return TC_ACT_SHOT;
	bpf_clone_redirect(skb, skb->ifindex, 0);
	answer.tcp.rst = 1;
	answer.tcp.ack = 1;
	answer.tcp.seq = s->tcp.seq;
	answer.tcp.ack_seq = s->tcp.ack_seq;
	return put(skb, s, &answer, sizeof(answer.tcp), &nothing, false) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

/* Replaces the segment in `segments` by what `replies` says, and sends it. */
static __always_inline int send_reply(struct __sk_buff *skb, struct segment *s,
				      const struct gate_control *set)
{
	u32 zero = 0, bytes = sizeof(struct tcphdr);
	struct reply *reply = bpf_map_lookup_elem(&replies, &zero);
	struct answer answer = {};
	struct content content = {};
	struct gate_page *page;
	struct options *o;
	bool is_head;

	if (!reply)
		return TC_ACT_SHOT;
	if (reply->is_reset)
		return reply->ends ? reset_both(skb, s) : answer_reset(skb, s);
	o = read_options(skb);
	answer.tcp.seq = bpf_htonl(reply->sequence);
	answer.tcp.ack_seq = bpf_htonl(reply->acknowledged);
	answer.tcp.ack = 1;
	answer.tcp.window = bpf_htons(reply->marks & GATE_REFUSED_UNSCALED ? REPLY_WINDOW
									 : REPLY_WINDOW >> OUR_SCALE);
	if (reply->page != NO_PAGE) {
		page = page_of(reply->page);
		if (!page)
			return TC_ACT_SHOT;
		answer.tcp.psh = 1;
		answer.tcp.fin = 1;
		content.text = page->text;
		is_head = reply->marks & GATE_REFUSED_HEAD;
		content.bytes = is_head ? page->head_bytes : page->bytes;
		content.sum = is_head ? page->head_sum : page->sum;
		if (content.bytes > GATE_PAGE_BYTES)
			return TC_ACT_SHOT;
	}
	if (o && o->has_times && set->offers & GATE_OFFER_TIMES) {
		answer.options[0] = bpf_htonl(PADDED_TIMES);
		answer.options[1] = bpf_htonl(time_of(bpf_ktime_get_ns()));
		answer.options[2] = bpf_htonl(o->value);
		bytes += 12;
	}
	return send_with(skb, s, &answer, bytes, &content);
}
