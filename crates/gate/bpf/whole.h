/* SPDX-License-Identifier: (MIT OR GPL-2.0-only)
 *
 * The whole head of a request that is alone in its segment, as far as an answer from the cache depends on
 * it: the same as `forebay_http::head::Head::parse`, `Preference` and `evaluate` for the forms that are
 * read here; a test compares them. A head of any other form is left to the server. Reads `segments` and
 * `fields`, writes `wholes`.
 */
#pragma once

#define MOST_WHOLE 1536
/* The room for a head: a power of two, so that a mask bounds an offset. Eight more bytes follow, since
 * words are read. */
#define WHOLE_ROOM 2048
#define MOST_LINES 64

/* The places of `weights`: one for each coding, and one for `*`. Each has a weight plus 1; 0: not
 * mentioned. */
enum { WEIGHT_OTHERS = GATE_VARIANTS, WEIGHTS = 8 };

struct whole {
	/* record and data go into `records` in one piece */
	struct gate_record record;
	u8 data[WHOLE_ROOM + 8];
	struct gate_answer_key key;
	u8 spare[64]; /* behind the text of the key, because the mask of its index is larger than the text */
	union {
		u8 word[GATE_FIELD_BYTES]; /* a name, or the value of `Connection`, in lower case */
		u64 words[GATE_FIELD_BYTES / 8];
	};
	u8 tag[GATE_TAG_BYTES];
	u32 end; /* bytes of data */
	u32 at;
	u32 reading;
	u32 length; /* of what is being read */
	u32 lines;
	u32 seen;   /* meanings of fields (GATE_FIELD_…), a bit for each */
	u32 tag_bytes;
	u32 is_head;
	u32 is_old; /* HTTP/1.0 */
	u32 closes;
	u32 is_plain;
	u32 weight;
	u64 coding; /* the last eight letters of the coding that is being read */
	u16 weights[WEIGHTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct whole);
} wholes SEC(".maps");

enum reading_whole {
	WHOLE_PATH,
	WHOLE_VERSION,
	WHOLE_NAME,
	WHOLE_VALUE,
	WHOLE_LINE_END,
	WHOLE_END,
	WHOLE_HOST,
	WHOLE_CONNECTION,
	WHOLE_TAG,
	WHOLE_TAG_WEAK,
	WHOLE_TAG_QUOTE,
	WHOLE_TAG_TEXT,
	WHOLE_TAG_END,
	WHOLE_CODING,
	WHOLE_CODING_END,
	WHOLE_WEIGHT_NAME,
	WHOLE_WEIGHT,
	WHOLE_WEIGHT_END,
};

static __always_inline bool is_blank(u8 byte)
{
	return byte == ' ' || byte == '\t';
}

static __always_inline u8 small(u8 byte)
{
	return is_within(byte, 'A', 'Z') ? byte | 0x20 : byte;
}

static __always_inline bool is_letter_or_digit(u8 byte)
{
	return is_within(byte, 'a', 'z') || is_within(byte, '0', '9');
}

/* Begins the next line or the value of a field. */
static __always_inline void begin_word(struct whole *w, u32 reading)
{
	w->words[0] = w->words[1] = w->words[2] = w->words[3] = 0;
	w->length = 0;
	w->reading = reading;
}

/* Keeps a byte of path or host. */
static __always_inline void keep_of_key(struct whole *w, u32 at, u8 byte)
{
	u8 *text = (u8 *)w + __builtin_offsetof(struct whole, key.text);

	text[at & 255] = byte;
	w->length += 1;
}

/* Begins the value of the field whose name was read; 1 if the field leaves the request to the server. */
static __always_inline long begin_value(struct whole *w)
{
	u32 *found = 0, meaning, bit;

	if (w->length < GATE_FIELD_BYTES)
		found = bpf_map_lookup_elem(&fields, w->word);
	begin_word(w, WHOLE_VALUE);
	if (!found)
		return 0;
	meaning = *found;
	bit = 1 << (meaning & 31);
	if (meaning == GATE_FIELD_LEAVES || w->seen & bit)
		return 1;
	w->seen |= bit;
	switch (meaning) {
	case GATE_FIELD_HOST:
		w->reading = WHOLE_HOST;
		return 0;
	case GATE_FIELD_CONNECTION:
		w->reading = WHOLE_CONNECTION;
		return 0;
	case GATE_FIELD_CODINGS:
		w->reading = WHOLE_CODING;
		w->coding = 0;
		return 0;
	case GATE_FIELD_TAG:
		w->reading = WHOLE_TAG;
		return 0;
	}
	return meaning != GATE_FIELD_SINCE;
}

/* Keeps the weight of the coding that was read. The first mention of a coding counts. */
static __always_inline void end_coding(struct whole *w, u32 weight)
{
	u32 which;

	if (w->length == 4 && w->coding == 0x677a6970)
		which = GATE_CODING_GZIP;
	else if (w->length == 6 && w->coding == 0x782d677a6970ULL)
		which = GATE_CODING_GZIP;
	else if (w->length == 2 && w->coding == 0x6272)
		which = GATE_CODING_BR;
	else if (w->length == 4 && w->coding == 0x7a737464)
		which = GATE_CODING_ZSTD;
	else if (w->length == 8 && w->coding == 0x6964656e74697479ULL)
		which = GATE_CODING_IDENTITY;
	else if (w->length == 1 && w->coding == '*')
		which = WEIGHT_OTHERS;
	else
		return;
	if (!w->weights[which])
		w->weights[which] = weight + 1;
}

/* Ends a member of `Accept-Encoding` at this byte; 1 if the byte cannot end one. */
static __always_inline long end_member(struct whole *w, u8 byte, u32 weight)
{
	if (byte != ',' && byte != '\r')
		return 1;
	end_coding(w, weight);
	w->length = 0;
	w->coding = 0;
	w->reading = byte == ',' ? WHOLE_CODING : WHOLE_LINE_END;
	return 0;
}

/* Reads a byte of `Accept-Encoding`; 1 leaves the request to the server. */
static __always_inline long scan_coding(struct whole *w, u8 byte)
{
	u32 digit;

	switch (w->reading) {
	case WHOLE_CODING:
		byte = small(byte);
		if (is_letter_or_digit(byte) || byte == '-' || byte == '*') {
			w->coding = w->coding << 8 | byte;
			w->length += 1;
			return 0;
		}
		if (is_blank(byte)) {
			if (w->length)
				w->reading = WHOLE_CODING_END;
			return 0;
		}
		if (byte != ';' || !w->length)
			return end_member(w, byte, 1000);
		w->reading = WHOLE_WEIGHT_NAME;
		w->weight = 0;
		return 0;
	case WHOLE_CODING_END:
		if (is_blank(byte))
			return 0;
		if (byte != ';')
			return end_member(w, byte, 1000);
		w->reading = WHOLE_WEIGHT_NAME;
		w->weight = 0;
		return 0;
	case WHOLE_WEIGHT_NAME:
		/* `weight` counts the bytes of "q=" that were read */
		if (!w->weight && is_blank(byte))
			return 0;
		if (!w->weight && (byte | 0x20) == 'q') {
			w->weight = 1;
			return 0;
		}
		if (w->weight != 1 || byte != '=')
			return 1;
		w->reading = WHOLE_WEIGHT;
		w->weight = 0;
		return 0;
	case WHOLE_WEIGHT:
		/* the lower 16 bits of `weight` are thousandths, the upper ones count the bytes read */
		digit = byte - '0';
		switch (w->weight >> 16) {
		case 0:
			if (digit > 1)
				return 1;
			w->weight = 1 << 16 | digit * 1000;
			return 0;
		case 1:
			if (byte != '.')
				break;
			w->weight += 1 << 16;
			return 0;
		case 2:
		case 3:
		case 4:
			if (digit > 9)
				break;
			digit *= w->weight >> 16 == 2 ? 100 : w->weight >> 16 == 3 ? 10 : 1;
			w->weight += (1 << 16) + digit;
			return (w->weight & 0xffff) > 1000;
		}
		if (is_blank(byte)) {
			w->reading = WHOLE_WEIGHT_END;
			return 0;
		}
		return end_member(w, byte, w->weight & 0xffff);
	}
	if (is_blank(byte))
		return 0;
	return end_member(w, byte, w->weight & 0xffff);
}

/* Reads a byte of the entity tag; 1 leaves the request to the server. */
static __always_inline long scan_tag(struct whole *w, u8 byte)
{
	switch (w->reading) {
	case WHOLE_TAG:
		if (is_blank(byte))
			return 0;
		w->reading = byte == 'W' ? WHOLE_TAG_WEAK : WHOLE_TAG_TEXT;
		return byte != 'W' && byte != '"';
	case WHOLE_TAG_WEAK:
		w->reading = WHOLE_TAG_QUOTE;
		return byte != '/';
	case WHOLE_TAG_QUOTE:
		w->reading = WHOLE_TAG_TEXT;
		return byte != '"';
	case WHOLE_TAG_TEXT:
		if (byte == '"') {
			w->tag_bytes = w->length;
			w->reading = WHOLE_TAG_END;
			return !w->length;
		}
		if (!is_within(byte, '!', '~') || w->length >= GATE_TAG_BYTES - 1)
			return 1;
		w->tag[w->length & (GATE_TAG_BYTES - 1)] = byte;
		w->length += 1;
		return 0;
	}
	w->reading = WHOLE_LINE_END;
	return byte != '\r';
}

/* Reads a byte of the value of `Host` or `Connection`; 1 leaves the request to the server. */
static __always_inline long scan_word(struct whole *w, u8 byte)
{
	const u64 close = 0x65736f6c63ULL, keep_ali = 0x696c612d7065656bULL, ve = 0x6576;
	bool is_host = w->reading == WHOLE_HOST;

	if (is_blank(byte))
		return w->length != 0;
	byte = small(byte);
	if (byte != '\r' && is_host) {
		if (!is_of_host(byte) && byte != ':' && byte != '[' && byte != ']')
			return 1;
		if (w->key.path_bytes + w->length >= GATE_NAME_BYTES)
			return 1;
		keep_of_key(w, w->key.path_bytes + w->length, byte);
		return 0;
	}
	if (byte != '\r') {
		if (w->length >= GATE_FIELD_BYTES)
			return 1;
		w->word[w->length & (GATE_FIELD_BYTES - 1)] = byte;
		w->length += 1;
		return 0;
	}
	w->reading = WHOLE_LINE_END;
	if (is_host) {
		w->key.host_bytes = w->length;
		return !w->length;
	}
	if (w->words[2] | w->words[3])
		return 1;
	if (w->words[0] == close && !w->words[1]) {
		w->closes = 1;
		return 0;
	}
	/* the answer to an HTTP/1.0 client that asks for keep-alive has to confirm it, which only the
	 * server does */
	return w->words[0] != keep_ali || w->words[1] != ve || w->is_old;
}

/* Reads a byte of the request line; 1 leaves the request to the server. */
static __always_inline long scan_line(struct whole *w, u8 byte)
{
	const u64 version = 0x2e312f50545448ULL; /* HTTP/1. */
	u32 length = w->length;

	if (w->reading == WHOLE_PATH) {
		if (byte == ' ') {
			w->key.path_bytes = length;
			w->length = 0;
			w->reading = WHOLE_VERSION;
			return 0;
		}
		if (!is_within(byte, '!', '~') || byte == '?' || byte == '#' || length >= GATE_NAME_BYTES)
			return 1;
		keep_of_key(w, length, byte);
		return 0;
	}
	w->length = length + 1;
	if (length < 7)
		return byte != (u8)(version >> (length * 8 & 63));
	if (length == 7) {
		w->is_old = byte == '0';
		return byte != '0' && byte != '1';
	}
	if (length == 8)
		return byte != '\r';
	begin_word(w, WHOLE_NAME);
	return byte != '\n';
}

/* Whether all eight bytes are plain: no control characters, nothing beyond ASCII. */
static __always_inline bool are_plain(u64 word)
{
	const u64 high = 0x8080808080808080ULL;

	return !((word | (word - 0x2020202020202020ULL) | (word + 0x0101010101010101ULL)) & high);
}

/* Reads one byte, or eight of a value without a meaning. 1 ends the scan: at the end of the head, or
 * where the request is left to the server. */
static long scan_whole(u32 turn, struct whole **context)
{
	struct whole *w = *context;
	u32 at = w->at;
	u8 byte;

	(void)turn;
	if (at >= w->end)
		return 1;
	byte = w->data[at & (WHOLE_ROOM - 1)];
	w->at = at + 1;
	switch (w->reading) {
	case WHOLE_PATH:
	case WHOLE_VERSION:
		return scan_line(w, byte);
	case WHOLE_NAME:
		if (byte == ':' && w->length)
			return begin_value(w);
		if (byte == '\r' && !w->length) {
			w->reading = WHOLE_END;
			return 0;
		}
		byte = small(byte);
		if (!is_letter_or_digit(byte) && byte != '-' && byte != '_')
			return 1;
		if (w->length < GATE_FIELD_BYTES)
			w->word[w->length & (GATE_FIELD_BYTES - 1)] = byte;
		w->length += 1;
		return 0;
	case WHOLE_VALUE:
		if (at + 8 <= w->end && are_plain(*(u64 *)(w->data + (at & (WHOLE_ROOM - 1))))) {
			w->at = at + 8;
			return 0;
		}
		if (byte == '\r') {
			w->reading = WHOLE_LINE_END;
			return 0;
		}
		return !is_within(byte, ' ', '~') && byte != '\t';
	case WHOLE_LINE_END:
		w->lines += 1;
		begin_word(w, WHOLE_NAME);
		return byte != '\n' || w->lines > MOST_LINES;
	case WHOLE_END:
		w->is_plain = byte == '\n' && at + 1 == w->end;
		return 1;
	case WHOLE_HOST:
	case WHOLE_CONNECTION:
		return scan_word(w, byte);
	case WHOLE_TAG:
	case WHOLE_TAG_WEAK:
	case WHOLE_TAG_QUOTE:
	case WHOLE_TAG_TEXT:
	case WHOLE_TAG_END:
		return scan_tag(w, byte);
	}
	return scan_coding(w, byte);
}

/* Reads the segment in `segments`; whether all that an answer depends on is known then. A global function, as
 * `read_request` is. */
__noinline int read_whole(struct __sk_buff *skb)
{
	u32 zero = 0, bytes;
	struct segment *s = bpf_map_lookup_elem(&segments, &zero);
	struct whole *w = bpf_map_lookup_elem(&wholes, &zero);
	bool is_head;

	if (!s || !w)
		return 0;
	bytes = s->data_bytes;
	if (!bytes || bytes > MOST_WHOLE)
		return 0;
	bytes = ((bytes - 1) & (WHOLE_ROOM - 1)) + 1;
	if (bpf_skb_load_bytes(skb, ETH_HLEN + s->ip_bytes + s->tcp.doff * 4, w->data, bytes))
		return 0;
	is_head = w->data[0] == 'H' && w->data[1] == 'E' && w->data[2] == 'A' && w->data[3] == 'D' &&
		  w->data[4] == ' ';
	if (!is_head &&
	    (w->data[0] != 'G' || w->data[1] != 'E' || w->data[2] != 'T' || w->data[3] != ' '))
		return 0;
	w->at = is_head ? 5 : 4;
	if (w->data[w->at & 7] != '/')
		return 0;
	w->end = s->data_bytes;
	w->is_head = is_head;
	w->lines = 1;
	w->seen = w->tag_bytes = w->is_old = w->closes = w->is_plain = 0;
	__builtin_memset(w->weights, 0, sizeof(w->weights));
	__builtin_memset(&w->key, 0, sizeof(w->key));
	begin_word(w, WHOLE_PATH);
	bpf_loop(bytes, scan_whole, &w, 0);
	/* without a tag, If-Modified-Since is a condition, which only the server evaluates */
	if (w->seen & 1 << GATE_FIELD_SINCE && !(w->seen & 1 << GATE_FIELD_TAG))
		return 0;
	return w->is_plain && w->key.host_bytes;
}

/* The client's preference for a coding: a weight plus 1, or 0 if the client does not accept the coding. */
static __always_inline u32 liking(const struct whole *w, u32 coding)
{
	u32 weight = w->weights[coding & (WEIGHTS - 1)];

	if (!weight)
		weight = w->weights[WEIGHT_OTHERS];
	/* neither the coding nor `*` is mentioned: identity is acceptable, no other coding is */
	if (!weight)
		return coding == GATE_CODING_IDENTITY;
	return weight == 1 ? 0 : weight;
}
