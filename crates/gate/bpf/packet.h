/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * Parses a packet into the four-tuple, the flags and the numbers of a TCP segment. Counts TCP that it does
 * not parse as GATE_LEFT_… in `counts`: IP options, extension headers, fragments.
 */
#pragma once

struct segment {
	struct gate_tuple tuple;
	u32 sequence; /* both numbers in host byte order */
	u32 acknowledged;
	u16 ip_bytes; /* 20 or 40 */
	u16 data_bytes;
	u8 is_v4;
	u8 flags;
	/* the headers as received, for the check of a cookie */
	union {
		struct iphdr ip4;
		struct ipv6hdr ip6;
	};
	struct tcphdr tcp;
};

/* The segment of programs that need their stack for other things. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct segment);
} segments SEC(".maps");

#define VLAN_ID 0xfff

#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4
#define TCP_ACK 16
#define TCP_URG 32

/* Writes an IPv4 address as a mapped one, ::ffff:a.b.c.d. */
static __always_inline void map_v4(u8 address[16], u32 v4)
{
	__builtin_memset(address, 0, 10);
	address[10] = 0xff;
	address[11] = 0xff;
	__builtin_memcpy(address + 12, &v4, 4);
}

/* Counts TCP behind an extension header of IPv6. The first byte of each is the number of the next header. */
static __always_inline void count_behind(struct __sk_buff *skb, u8 header)
{
	u8 next = 0;

	switch (header) {
	case IPPROTO_FRAGMENT:
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
	case IPPROTO_AH:
		bpf_skb_load_bytes_relative(skb, sizeof(struct ipv6hdr), &next, 1, BPF_HDR_START_NET);
		if (next == IPPROTO_TCP)
			count(header == IPPROTO_FRAGMENT ? GATE_LEFT_FRAGMENT : GATE_LEFT_OPTIONS);
	}
}

/* Parses the IP header; the length of the segment with its TCP header, or 0 if the packet is not parsed
 * further. */
static __always_inline u32 read_ip(struct __sk_buff *skb, struct segment *s)
{
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = &s->ip4;

		if (bpf_skb_load_bytes_relative(skb, 0, ip, sizeof(*ip), BPF_HDR_START_NET))
			return 0;
		if (ip->protocol != IPPROTO_TCP)
			return 0;
		if (ip->frag_off & bpf_htons(0x3fff)) {
			count(GATE_LEFT_FRAGMENT);
			return 0;
		}
		if (ip->ihl != 5 || ip->version != 4) {
			count(GATE_LEFT_OPTIONS);
			return 0;
		}
		map_v4(s->tuple.client, ip->saddr);
		map_v4(s->tuple.local, ip->daddr);
		s->is_v4 = 1;
		s->ip_bytes = sizeof(*ip);
		return bpf_ntohs(ip->tot_len) - sizeof(*ip);
	}
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = &s->ip6;

		if (bpf_skb_load_bytes_relative(skb, 0, ip, sizeof(*ip), BPF_HDR_START_NET))
			return 0;
		if (ip->nexthdr != IPPROTO_TCP) {
			count_behind(skb, ip->nexthdr);
			return 0;
		}
		__builtin_memcpy(s->tuple.client, &ip->saddr, 16);
		__builtin_memcpy(s->tuple.local, &ip->daddr, 16);
		s->is_v4 = 0;
		s->ip_bytes = sizeof(*ip);
		return bpf_ntohs(ip->payload_len);
	}
	return 0;
}

/* The most tags that are taken off. A legitimate sender uses one. */
#define MOST_TAGS 8

static __always_inline bool is_tag(u32 protocol)
{
	return protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD);
}

/* Takes tags of VLAN 0 off; false if there are more than MOST_TAGS. Such a tag, of 802.1Q or 802.1ad,
 * only gives a priority: the kernel hands the packet to the device itself, as one without a tag
 * (__netif_receive_skb_core), also where tags are nested, so they must not hide a segment from the
 * rules. The outermost tag is not in the frame: the kernel has moved it into the skb, and
 * bpf_skb_vlan_pop does the same with the next one. */
static __always_inline bool skip_priority_tags(struct __sk_buff *skb)
{
	u16 inner;
	int left;

	for (left = MOST_TAGS; left > 0; left--) {
		/* a tag inside a real VLAN belongs to that VLAN, and is judged there */
		if (skb->vlan_present && skb->vlan_tci & VLAN_ID)
			return true;
		if (!is_tag(skb->protocol))
			return true;
		if (bpf_skb_load_bytes_relative(skb, 0, &inner, 2, BPF_HDR_START_NET))
			return true;
		if (!skb->vlan_present && inner & bpf_htons(VLAN_ID))
			return true;
		if (bpf_skb_vlan_pop(skb))
			return true;
	}
	return !is_tag(skb->protocol);
}

/* Whether the packet is a TCP segment that can be judged. */
static __always_inline bool read_segment(struct __sk_buff *skb, struct segment *s)
{
	u32 bytes, head;

	/* a packet of a VLAN is judged on the VLAN's own device */
	if (skb->vlan_present && skb->vlan_tci & VLAN_ID)
		return false;
	bytes = read_ip(skb, s);
	if (!bytes)
		return false;
	if (bpf_skb_load_bytes_relative(skb, s->ip_bytes, &s->tcp, sizeof(s->tcp), BPF_HDR_START_NET)) {
		count(GATE_LEFT_SHORT);
		return false;
	}
	head = s->tcp.doff * 4;
	if (head < sizeof(s->tcp) || head > bytes) {
		count(GATE_LEFT_SHORT);
		return false;
	}
	s->data_bytes = bytes - head;
	s->flags = ((u8 *)&s->tcp)[13];
	s->tuple.client_port = s->tcp.source;
	s->tuple.local_port = s->tcp.dest;
	s->sequence = bpf_ntohl(s->tcp.seq);
	s->acknowledged = bpf_ntohl(s->tcp.ack_seq);
	return true;
}

/* Half of an address as a number. */
static __always_inline u64 half(const u8 *bytes)
{
	u64 number;

	__builtin_memcpy(&number, bytes, 8);
	return bpf_be64_to_cpu(number);
}
