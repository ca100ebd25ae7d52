/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * An answer replaces the received segment and is sent back through the interface it came by. No socket and
 * no route is looked up: `bpf_fib_lookup` works only on machines that forward. Needs an Ethernet header.
 */
#pragma once

/* Verdicts of our own, beside the kernel's TC_ACT_…. Each program sends at one place only, or has the
 * program `reply` send, which has a stack of its own. */
#define SEND_REPLY 0x100
#define SEND_RESET 0x101
#define SEND_RESETS 0x102 /* resets to both ends */

static __always_inline u16 fold(u64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

struct pseudo {
	u8 from[16], to[16];
	u32 bytes; /* in network byte order */
	u8 zero[3];
	u8 protocol;
};

static __always_inline void pseudo_of(struct pseudo *pseudo, const u8 *from, const u8 *to, bool is_v4,
				      u32 bytes)
{
	__builtin_memcpy(pseudo->from, from, 16);
	__builtin_memcpy(pseudo->to, to, 16);
	/* the ffff of a mapped address is not part of an IPv4 pseudo header, so its sum must not contain
	 * it */
	if (is_v4) {
		pseudo->from[10] = pseudo->from[11] = 0;
		pseudo->to[10] = pseudo->to[11] = 0;
	}
	pseudo->bytes = bpf_htonl(bytes);
	pseudo->protocol = IPPROTO_TCP;
}

/* Whether the packet is CHECKSUM_PARTIAL: the field holds the sum of the pseudo header, and the device
 * adds the rest. Tried out: then bpf_l4_csum_replace without BPF_F_PSEUDO_HDR leaves the field as it is. */
static __always_inline bool is_partial(struct __sk_buff *skb, u32 field)
{
	u16 before = 0, after = 0;

	bpf_skb_load_bytes(skb, field, &before, 2);
	bpf_l4_csum_replace(skb, field, 0, bpf_htons(0x1234), 0);
	bpf_skb_load_bytes(skb, field, &after, 2);
	bpf_skb_store_bytes(skb, field, &before, 2, 0);
	return before == after;
}

/* A TCP header with room for the most options that are sent: those of a SYN-ACK. */
struct answer {
	struct tcphdr tcp;
	u32 options[5];
};

/* The data behind the TCP header of an answer: at most GATE_PAGE_BYTES. */
struct content {
	const u8 *text; /* a buffer of GATE_PAGE_BYTES, or 0 for no data */
	u32 bytes;
	u32 sum; /* what the data adds to the Internet checksum */
};

/* Replaces the headers of the segment by those of another packet, which goes `back` to the sender or on
 * to the receiver; returns whether this succeeded. The TCP header in `answer` has `bytes` bytes, a
 * multiple of four; behind it stays room for content of `content_bytes` with this sum. Fills in ports
 * and checksum. */
static __always_inline bool put_heads(struct __sk_buff *skb, const struct segment *s, struct answer *answer,
				      u32 bytes, u32 content_bytes, u32 sum, bool back)
{
	u8 macs[12], swapped[12];
	struct pseudo pseudo = {};
	u32 tcp_at = ETH_HLEN + s->ip_bytes;
	u32 field = tcp_at + __builtin_offsetof(struct tcphdr, check);
	u32 all = bytes + content_bytes;
	u64 of_pseudo, of_tcp;
	bool partial;

	if (bytes < sizeof(answer->tcp) || bytes > sizeof(*answer))
		return false;
	/* the VLAN priority of the received packet is not one of the answer */
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return false;
	if (bpf_skb_load_bytes(skb, 0, macs, 12))
		return false;
	if (bpf_skb_change_tail(skb, tcp_at + all, 0))
		return false;
	partial = is_partial(skb, field);

	__builtin_memcpy(swapped, macs + 6, 6);
	__builtin_memcpy(swapped + 6, macs, 6);
	bpf_skb_store_bytes(skb, 0, swapped, 12, 0);
	/* BPF_F_RECOMPUTE_CSUM from here on: where the device has summed up the whole packet
	 * (CHECKSUM_COMPLETE), the sum must follow what is written, or the stack reports the device as
	 * broken */

	if (s->is_v4) {
		struct iphdr ip = {
			.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP,
			.tot_len = bpf_htons(sizeof(ip) + all),
			.frag_off = bpf_htons(0x4000),
			.saddr = back ? s->ip4.daddr : s->ip4.saddr,
			.daddr = back ? s->ip4.saddr : s->ip4.daddr,
		};

		ip.check = ~fold(bpf_csum_diff(0, 0, (void *)&ip, sizeof(ip), 0));
		bpf_skb_store_bytes(skb, ETH_HLEN, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM);
	} else {
		struct ipv6hdr ip = {
			.version = 6, .hop_limit = 64, .nexthdr = IPPROTO_TCP,
			.payload_len = bpf_htons(all),
			.saddr = back ? s->ip6.daddr : s->ip6.saddr,
			.daddr = back ? s->ip6.saddr : s->ip6.daddr,
		};

		bpf_skb_store_bytes(skb, ETH_HLEN, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM);
	}

	answer->tcp.source = back ? s->tcp.dest : s->tcp.source;
	answer->tcp.dest = back ? s->tcp.source : s->tcp.dest;
	answer->tcp.doff = bytes / 4;
	/* the order of the two addresses does not change the sum */
	pseudo_of(&pseudo, s->tuple.local, s->tuple.client, s->is_v4, all);
	of_pseudo = bpf_csum_diff(0, 0, (void *)&pseudo, sizeof(pseudo), 0);
	of_tcp = bpf_csum_diff(0, 0, (void *)answer, bytes, of_pseudo) + sum;
	answer->tcp.check = partial ? fold(of_pseudo) : (u16)~fold(of_tcp);
	bpf_skb_store_bytes(skb, tcp_at, answer, bytes, BPF_F_RECOMPUTE_CSUM);
	return true;
}

/* Does what `put_heads` does, and writes the content. */
static __always_inline bool put(struct __sk_buff *skb, const struct segment *s, struct answer *answer, u32 bytes,
				const struct content *content, bool back)
{
	u32 content_at = ETH_HLEN + s->ip_bytes + bytes, text_bytes;

	if (!put_heads(skb, s, answer, bytes, content->bytes, content->sum, back))
		return false;
	if (content->text && content->bytes) {
		text_bytes = ((content->bytes - 1) & (GATE_PAGE_BYTES - 1)) + 1;
		bpf_skb_store_bytes(skb, content_at, content->text, text_bytes, BPF_F_RECOMPUTE_CSUM);
	}
	return true;
}

/* Replaces the segment by an answer and sends it back; TC_ACT_SHOT if that fails. */
static __always_inline int send_with(struct __sk_buff *skb, const struct segment *s, struct answer *answer,
				     u32 bytes, const struct content *content)
{
	return put(skb, s, answer, bytes, content, true) ? bpf_redirect(skb->ifindex, 0) : TC_ACT_SHOT;
}

/* Sends an answer without content. */
static __always_inline int send_back(struct __sk_buff *skb, const struct segment *s, struct answer *answer,
				     u32 bytes)
{
	struct content nothing = {};

	return send_with(skb, s, answer, bytes, &nothing);
}

/* Turns the packet into a reset and sends it back; TC_ACT_SHOT if that fails. */
static __always_inline int answer_reset(struct __sk_buff *skb, struct segment *s)
{
	struct answer answer = {};

	answer.tcp.rst = 1;
	if (s->flags & TCP_ACK) {
		answer.tcp.seq = s->tcp.ack_seq;
	} else {
		answer.tcp.ack = 1;
		answer.tcp.ack_seq = bpf_htonl(s->sequence + 1);
	}
	return send_back(skb, s, &answer, sizeof(answer.tcp));
}
