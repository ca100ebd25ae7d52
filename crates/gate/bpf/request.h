/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * Method, path and host of a first request, where the first segment of data has them in plain form: the
 * same as `forebay_policy::first::FirstSegment::read`; a test compares the two. Reads `segments`, writes
 * `texts`.
 */
#pragma once

/* The texts; TEXTS is a power of two, so that a mask bounds an index for the verifier. */
enum { TEXT_METHOD, TEXT_PATH, TEXT_HOST, TEXTS = 4 };

/* The room of a text: a power of two above the longest one, so that a mask bounds an index. */
#define TEXT_BYTES 256

struct texts {
	u8 data[512];
	union {
		u8 bytes[TEXTS * TEXT_BYTES];
		u64 words[TEXTS * TEXT_BYTES / 8];
	};
	u32 lengths[TEXTS];
	struct gate_path path; /* with a zero behind it */
	/* the state of the scan: in a map, because the verifier would follow each value of it on the stack */
	u32 reading;
	u32 length; /* of the text that is being read */
	u32 last;   /* bytes of it, the last one lowest */
	u32 has_path;
	u32 has_host;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct texts);
} texts SEC(".maps");

#define MOST_READ 384
#define MOST_METHOD 15
#define MOST_PATH 160
#define MOST_HOST 63

/* Whether a condition holds. */
enum { HOLDS_NOT, HOLDS_PERHAPS, HOLDS };

/* The part of a word that the first `bytes` bytes in memory make, 1 to 7. */
static __always_inline u64 part_of(u64 word, u32 bytes)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return word << ((8 - bytes) * 8 & 63);
#else
	return word >> ((8 - bytes) * 8 & 63);
#endif
}

enum reading { IN_METHOD, AT_PATH, IN_PATH, IN_QUERY, IN_VERSION, IN_NAME, AT_HOST, IN_HOST };

static __always_inline bool is_within(u8 byte, u8 first, u8 last)
{
	return byte >= first && byte <= last;
}

static __always_inline bool is_of_path(u8 byte)
{
	/* a bit for each of !$&'()*+,-./0123456789:= and @ABC…XYZ_abc…xyz~ */
	const u64 low = 0x27ffffd200000000ULL, high = 0x47fffffe87ffffffULL;

	return byte < 64 ? low >> byte & 1 : byte < 128 && high >> (byte - 64) & 1;
}

static __always_inline bool is_of_host(u8 byte)
{
	return is_within(byte, 'a', 'z') || is_within(byte, '0', '9') || byte == '-' || byte == '_' ||
	       byte == '.';
}

static __always_inline void keep(struct texts *scan, u32 which, u8 byte)
{
	scan->bytes[which * TEXT_BYTES + (scan->length & (TEXT_BYTES - 1))] = byte;
	scan->length += 1;
	scan->last = scan->last << 8 | byte;
}

static __always_inline void next_text(struct texts *scan, u32 which)
{
	scan->lengths[which] = scan->length;
	scan->length = 0;
	scan->last = 0;
}

/* Whether a path ends in .gz, .br or .zst, given its last four bytes: such a path is not judged here. */
static __always_inline bool is_form(u32 last)
{
	return (last & 0xffffff) == 0x2e677a || (last & 0xffffff) == 0x2e6272 || last == 0x2e7a7374;
}

/* Reads one byte; 1 ends the scan, because all is known or nothing more can be. */
static long scan_byte(u32 at, struct texts **context)
{
	struct texts *scan = *context;
	u8 byte = scan->data[at & 511], small;

	switch (scan->reading) {
	case IN_METHOD:
		if (byte == ' ' && scan->length) {
			next_text(scan, TEXT_METHOD);
			scan->reading = AT_PATH;
			return 0;
		}
		if ((!is_within(byte, 'A', 'Z') && byte != '-' && byte != '_') ||
		    scan->length >= MOST_METHOD)
			return 1;
		keep(scan, TEXT_METHOD, byte);
		return 0;
	case AT_PATH:
		if (byte != '/')
			return 1;
		keep(scan, TEXT_PATH, byte);
		scan->reading = IN_PATH;
		return 0;
	case IN_PATH:
		if (byte == ' ' || byte == '?') {
			if (is_form(scan->last))
				return 1;
			next_text(scan, TEXT_PATH);
			scan->has_path = 1;
			scan->reading = byte == ' ' ? IN_VERSION : IN_QUERY;
			return 0;
		}
		if (!is_of_path(byte) || scan->length >= MOST_PATH)
			return 1;
		if ((scan->last & 0xff) == '/' && (byte == '/' || byte == '.'))
			return 1;
		keep(scan, TEXT_PATH, byte);
		return 0;
	case IN_QUERY:
		if (byte == ' ')
			scan->reading = IN_VERSION;
		return byte == '\r' || byte == '\n';
	case IN_VERSION:
		if (byte == '\n')
			scan->reading = IN_NAME;
		return 0;
	case IN_NAME:
		small = byte | 0x20;
		switch (scan->length) {
		case 0: if (small != 'h') return 1; break;
		case 1: if (small != 'o') return 1; break;
		case 2: if (small != 's') return 1; break;
		case 3: if (small != 't') return 1; break;
		default:
			if (byte != ':')
				return 1;
			scan->length = 0;
			scan->reading = AT_HOST;
			return 0;
		}
		scan->length += 1;
		return 0;
	case AT_HOST:
		if (byte == ' ' || byte == '\t')
			return 0;
		scan->reading = IN_HOST;
		break;
	}
	if (is_of_host(byte)) {
		if (scan->length >= MOST_HOST)
			return 1;
		keep(scan, TEXT_HOST, byte);
		return 0;
	}
	if ((byte == '\r' || byte == ':') && scan->length && (scan->last & 0xff) != '.') {
		next_text(scan, TEXT_HOST);
		scan->has_host = 1;
	}
	return 1;
}

/* Reads the segment in `segments`; whether method and path are known then. A global function: the
 * verifier checks it once by itself, instead of walking through all later code for each path through it. */
__noinline int read_request(struct __sk_buff *skb)
{
	u32 zero = 0, bytes;
	struct segment *s = bpf_map_lookup_elem(&segments, &zero);
	struct texts *scan = bpf_map_lookup_elem(&texts, &zero);

	if (!s || !scan)
		return 0;
	scan->reading = IN_METHOD;
	scan->has_path = scan->has_host = 0;
	if (!s->data_bytes)
		return 0;
	bytes = s->data_bytes;
	if (bytes > MOST_READ)
		bytes = MOST_READ;
	bytes = ((bytes - 1) & 511) + 1;
	/* offsets count from the Ethernet header: bpf_skb_load_bytes_relative reads the linear part of
	 * the packet only */
	if (bpf_skb_load_bytes(skb, ETH_HLEN + s->ip_bytes + s->tcp.doff * 4, scan->data, bytes))
		return 0;
	scan->length = scan->last = 0;
	bpf_loop(bytes, scan_byte, &scan, 0);
	return scan->has_path;
}

/* Whether the segment that `read_request` read last begins a request of HTTP/1. */
static __always_inline bool is_request(const struct texts *known)
{
	const u8 *method = known->bytes + TEXT_METHOD * TEXT_BYTES;

	if (known->reading == IN_METHOD)
		return false;
	/* the preface of HTTP/2 */
	return known->lengths[TEXT_METHOD] != 3 || method[0] != 'P' || method[1] != 'R' || method[2] != 'I';
}
