/* Tokenizers: bytes to token ids and back, exactly as Hugging Face `tokenizers` does it.
 *
 * What is read is tokenizer.json of the byte-level BPE families: Qwen2 to Qwen3, Llama-3, SmolLM2
 * and GPT-2. The way from text to ids has six steps, each as the file says:
 *
 *   1  added tokens that match raw text are cut out, leftmost and longest first
 *   2  each stretch between them is normalised (NFC or nothing)
 *   3  added tokens that match normalised text are cut out
 *   4  each remaining stretch is split into pieces, by hand-written scanners
 *   5  each piece becomes tokens by merging pairs of symbols, lowest rank first (BPE)
 *   6  the post-processor puts tokens such as <|begin_of_text|> around all of it
 *
 * Equality with the reference comes before speed: the Unicode tables are probed from it (its parts
 * have different Unicode versions), a symbol that the vocabulary lacks is dropped without a word as
 * it does (SmolLM2 lacks 21 bytes: text_describe says so), and added tokens are numbered as it
 * does. Text that is not UTF-8 is first made so: each maximal invalid part becomes U+FFFD, so the
 * ids are those of Python's bytes.decode("utf-8", "replace").
 *
 * What it refuses, naming the place in the file: any component, pattern or key other than those,
 * truncation and padding, byte_fallback, dropout, ids that stand twice, merges of tokens that are
 * not in the vocabulary. Nothing in the file is skipped that could change an id.
 *
 * Ownership: a struct text owns everything it hands out. text_encode uses scratch of the text's
 * own, so one thread at a time; everything that takes a const struct text may be called from
 * anywhere.
 *
 *     struct text *t;
 *     struct text_ids ids = {0};
 *     TRY(text_open(&t, "SmolLM2-135M", e));
 *     text_encode(t, "7 + 5", 5, 0, &ids);
 *     text_decode(t, ids.id, ids.n, true, &out);
 *     text_ids_release(&ids);
 *     text_close(t);
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

struct text; // An open tokenizer.

/* A growing list of token ids. {0} is empty. */
struct text_ids {
    int32_t *id; // (n) Owned.
    size_t n, cap;
};

enum text_flags {
    TEXT_WRAP = 1,  // Put the post-processor's tokens around the text (add_special_tokens).
    TEXT_PLAIN = 2, // Special tokens spelled out in the text stay text: for what users send.
};

/* Reads the tokenizer of a model folder, or the tokenizer.json at path. On failure *t is NULL.
   ERR_IO, ERR_FORMAT (not what a tokenizer.json is) or ERR_UNSUPPORTED. */
int text_open(struct text **t, const char *path, struct err *e);

/* The same from a file's n bytes in memory. */
int text_parse(struct text **t, const char *json, size_t n, struct err *e);

void text_close(struct text *t); // NULL is fine.

#define TEXT_MAX ((size_t)1 << 28) // bytes that can be encoded at once

/* Appends the ids of the n <= TEXT_MAX bytes at s to out. flags: enum text_flags. A template
   that prints the first token itself is encoded without TEXT_WRAP, or that token doubles. */
void text_encode(struct text *t, const char *s, size_t n, unsigned flags, struct text_ids *out);

void text_ids_push(struct text_ids *ids, int32_t id);
void text_ids_release(struct text_ids *ids);

/* Appends the bytes that the ids stand for: raw, perhaps not UTF-8; buf_utf8_lossy makes of them
   what the reference's decode() returns. Ids without a token add nothing; special tokens add
   nothing when skip_special. */
void text_decode(const struct text *t, const int32_t *ids, size_t n, bool skip_special,
                 struct buf *out);

/* The bytes of one token, and their number; NULL when no token has this id. Valid while t is. */
const char *text_token_bytes(const struct text *t, int32_t id, size_t *n);

/* The id of a token by its content (as tokenizer.json spells it), or -1. */
int32_t text_token_id(const struct text *t, const char *content);

int32_t text_size(const struct text *t);                // Largest id plus one.
bool text_is_special(const struct text *t, int32_t id); // Flagged special among the added tokens.

/* Makes of token bytes that arrive one by one text that can be shown: complete code points at once,
   an incomplete one when its rest has come. {0} starts one. All that it appends is together what
   buf_utf8_lossy makes of all the bytes. */
struct text_stream {
    char held[4];
    size_t n; // held
};
void text_stream_put(struct text_stream *s, const char *bytes, size_t n, struct buf *out);
void text_stream_end(struct text_stream *s, struct buf *out); // Nothing more will come.

/* Whether a model of so many tokens has all ids of its folder's tokenizer. ERR_FORMAT. */
int text_fits(const struct text *t, const char *dir, int vocab_size, struct err *e);

/* Appends a few lines on vocabulary, pipeline and bytes without a token, for loco inspect. */
void text_describe(const struct text *t, struct buf *out);

/* Whether a model folder states a chat template (chat_template.jinja or tokenizer_config.json). */
bool text_has_chat_template(const char *dir);

/* The tokenizer of a fresh model: byte b is id b, and these. */
enum text_bytes_id {
    TEXT_BYTES_PAD = 256,   // <|pad|>
    TEXT_BYTES_START = 257, // <|im_start|>
    TEXT_BYTES_END = 258,   // <|im_end|>, ends a turn and a completion
    TEXT_BYTES_SIZE = 259,
};

/* Writes that tokenizer (tokenizer.json, tokenizer_config.json) into a folder. */
int text_write_bytes(const char *dir, struct err *e);
