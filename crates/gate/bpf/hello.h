/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * The server name of a TLS ClientHello, where the first segment of data has it in plain form: the same as
 * `forebay_policy::first::FirstHello::read`; a test compares the two. The hello may be longer than the
 * segment. Reads `segments`, writes `texts`.
 */
#pragma once

#define MOST_EXTENSIONS 40
#define MOST_SESSION 32

/* Offsets in the packet. */
struct hello {
	struct __sk_buff *skb;
	u32 at;
	u32 end;
	u32 name; /* the content of the extension server_name; 0 until it is found */
	u32 bytes;
};

/* The next byte of the hello, or -1 at its end. */
static __always_inline int hello_byte(struct hello *h)
{
	u8 byte;

	if (h->at + 1 > h->end || bpf_skb_load_bytes(h->skb, h->at, &byte, 1))
		return -1;
	h->at += 1;
	return byte;
}

static __always_inline int hello_number(struct hello *h)
{
	__be16 number;

	if (h->at + 2 > h->end || bpf_skb_load_bytes(h->skb, h->at, &number, 2))
		return -1;
	h->at += 2;
	return bpf_ntohs(number);
}

static long try_extension(u32 turn, struct hello *h)
{
	int kind = hello_number(h), bytes = hello_number(h);

	(void)turn;
	if (kind < 0 || bytes < 0)
		return 1;
	if (!kind) {
		h->name = h->at;
		h->bytes = bytes;
		return 1;
	}
	h->at += bytes;
	return 0;
}

/* Finds the extension with the server's name; whether the segment has all of it. */
static __always_inline bool find_name(struct hello *h, u32 data_bytes)
{
	u32 start = h->at, left, in_hello;
	int some;
	u8 head[9];

	if (data_bytes < sizeof(head) || bpf_skb_load_bytes(h->skb, start, head, sizeof(head)))
		return false;
	/* a record of type handshake, and in it a ClientHello */
	if (head[0] != 22 || head[1] != 3 || head[5] != 1)
		return false;
	left = (u32)head[3] << 8 | head[4];
	in_hello = (u32)head[6] << 16 | (u32)head[7] << 8 | head[8];
	if (left < 4)
		return false;
	left -= 4;
	if (left > in_hello)
		left = in_hello;
	if (left > data_bytes - sizeof(head))
		left = data_bytes - sizeof(head);
	h->end = start + sizeof(head) + left;
	/* skip version and random number */
	h->at = start + sizeof(head) + 34;
	some = hello_byte(h);
	if (some < 0 || some > MOST_SESSION)
		return false;
	h->at += some;
	some = hello_number(h);
	if (some < 0)
		return false;
	h->at += some;
	some = hello_byte(h);
	if (some < 0)
		return false;
	h->at += some;
	some = hello_number(h);
	if (some < 0)
		return false;
	if (h->end > h->at + some)
		h->end = h->at + some;
	bpf_loop(MOST_EXTENSIONS, try_extension, h, 0);
	return h->name && h->name + h->bytes <= h->end;
}

/* Whether the segment begins with a TLS record of type handshake. */
static __always_inline bool begins_tls(struct __sk_buff *skb, const struct segment *s)
{
	u8 head[2] = {};

	if (s->data_bytes < sizeof(head) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + s->ip_bytes + s->tcp.doff * 4, head, sizeof(head)))
		return false;
	return head[0] == 22 && head[1] == 3;
}

/* Reads the segment in `segments` and puts the server's name where `read_request` puts the host; whether
 * there is one. A global function, as `read_request` is. */
__noinline int read_hello(struct __sk_buff *skb)
{
	u32 zero = 0, bytes;
	struct segment *s = bpf_map_lookup_elem(&segments, &zero);
	struct texts *known = bpf_map_lookup_elem(&texts, &zero);
	struct hello h = { .skb = skb };
	int list, kind, length;

	if (!s || !known)
		return 0;
	known->has_path = known->has_host = 0;
	h.at = ETH_HLEN + s->ip_bytes + s->tcp.doff * 4;
	if (!find_name(&h, s->data_bytes))
		return 0;
	h.at = h.name;
	h.end = h.name + h.bytes;
	list = hello_number(&h);
	kind = hello_byte(&h);
	length = hello_number(&h);
	/* a list of exactly one name, of type host_name */
	if (kind || length < 1 || length > MOST_HOST || list != length + 3 ||
	    h.bytes != (u32)length + 5)
		return 0;
	bytes = ((length - 1) & 63) + 1;
	if (bpf_skb_load_bytes(skb, h.at, known->bytes + TEXT_HOST * TEXT_BYTES, bytes))
		return 0;
	for (u32 at = 0; at < MOST_HOST && at < bytes; at++)
		if (!is_of_host(known->bytes[TEXT_HOST * TEXT_BYTES + at]))
			return 0;
	if (known->bytes[TEXT_HOST * TEXT_BYTES + ((bytes - 1) & 63)] == '.')
		return 0;
	known->lengths[TEXT_HOST] = bytes;
	known->has_host = 1;
	return 1;
}
