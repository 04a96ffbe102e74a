/* The tokenizer's parts, shared by the files of this folder.
 *
 * Loading goes pipeline.c, model.c, tokens.c, then pipeline.c for the post-processor; encoding goes
 * encode.c, added.c, nfc.c, scan.c, bpe.c. What is scratch belongs to struct text, so that encoding
 * allocates nothing once its buffers have grown.
 */
#pragma once

#include "base/map.h"
#include "base/mem.h"
#include "text/text.h"

#include <jansson.h>

#define TEXT_SIZE_MAX  (1 << 22) // Ids stay below: a table over them must be affordable.
#define TEXT_STEPS_MAX 8
#define TEXT_CODES     0x110000u

/* unicode.c: classes of code points, as bits. */
enum text_class {
    CLASS_LETTER = 1,     // \p{L}
    CLASS_NUMBER = 2,     // \p{N}
    CLASS_SPACE = 4,      // \s
    CLASS_NUMERIC = 8,    // What Digits isolates.
    CLASS_WORD = 16,      // \w
    CLASS_MARK = 32,      // Has a combining class.
    CLASS_COMPOSITE = 64, // Has a canonical decomposition.
};

/* Run lengths over the code points, outside and inside in turn, ended by two zeros. */
extern const uint32_t text_runs_letter[], text_runs_number[], text_runs_numeric[],
    text_runs_space[], text_runs_word[], text_runs_mark[], text_runs_composite[];

uint8_t *text_classes_new(void); // (TEXT_CODES) Class bits; mem_free.

/* Class bits of the code point at s, and its length in bytes. s is UTF-8, n > 0. */
static inline unsigned text_class_at(const uint8_t *classes, const char *s, size_t n, size_t *len)
{
    if ((unsigned char)s[0] < 0x80) {
        *len = 1;
        return classes[(unsigned char)s[0]];
    }
    uint32_t code = 0;
    *len = (size_t)utf8_decode(s, n, &code);
    return classes[code];
}

/* nfc.c: scratch of one normalisation. */
struct text_nfc {
    uint32_t *code; // (cap)
    uint32_t *sort; // (sort_cap)
    size_t cap, sort_cap;
};
/* Appends the NFC form of s (UTF-8) to out. */
void text_nfc(struct text_nfc *w, const uint8_t *classes, const char *s, size_t n, struct buf *out);
void text_nfc_release(struct text_nfc *w);

/* alphabet.c: byte-level BPE spells every byte as a printable character. */
uint32_t text_alphabet_code(unsigned char byte);
/* Appends the bytes that content spells; content itself when a character is not in the alphabet. */
void text_alphabet_bytes(const char *content, size_t n, struct buf *out);
/* Appends the spelling of n bytes. */
void text_alphabet_spell(const char *bytes, size_t n, struct buf *out);

/* scan.c: length of the first piece of s (UTF-8, n > 0). */
enum text_step_kind {
    STEP_PREFIX,     // A space in front of what has none (add_prefix_space).
    STEP_DIGITS,     // Each numeric code point alone.
    STEP_DIGIT_RUNS, // Runs of them alone.
    STEP_GPT2,       // The pattern of GPT-2, which ByteLevel brings.
    STEP_QWEN2,      // The pattern of Qwen2: numbers one by one.
    STEP_LLAMA3,     // The pattern of Llama-3: numbers by up to three.
};
extern const char text_pattern_gpt2[], text_pattern_qwen2[], text_pattern_llama3[];
size_t text_scan(enum text_step_kind kind, const uint8_t *classes, const char *s, size_t n);

/* added.c: one added token, and a set of them that is searched for in text. */
struct text_added {
    char *content; // Owned.
    size_t len;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
    bool decodes_normal; // Some listing had normalized: decoded to its normal form.
};
struct text_pattern {
    char *bytes; // Owned.
    size_t len;
    int added; // Index of the added token.
};
struct text_set {
    struct text_pattern *pattern; // (n), sorted by bytes, no two equal.
    size_t n, cap;
    bool first[256]; // Some pattern starts with this byte.
};
struct text_match {
    size_t lo, hi; // [lo, hi)
    int added;
};
void text_set_add(struct text_set *set, const char *bytes, size_t len, int added);
void text_set_sort(struct text_set *set); // After the last add; equal patterns: the first stays.
/* Leftmost-longest match at or after `from`. */
bool text_set_find(const struct text_set *set, const char *s, size_t n, size_t from,
                   struct text_match *m);
void text_set_release(struct text_set *set);

/* bpe.c: the model. */
struct text_merge {
    uint64_t pair; // left id << 32 | right id; UINT64_MAX: free slot
    int32_t rank, product;
};
struct text_bpe {
    int32_t byte_id[256];    // -1: the vocabulary lacks the byte.
    int32_t unk;             // What stands for a missing byte, or -1: nothing does.
    bool fuse_unk;           // A run of missing bytes gives one unk.
    bool ignore_merges;      // A piece that is a token needs no merging.
    const struct map *vocab; // Borrowed: content -> id.
    struct text_merge *slot; // (slots) Hash table.
    size_t slots, n_merges;
    struct text_symbol *symbol; // Scratch.
    struct text_candidate *heap;
    size_t symbol_cap, heap_cap, n_heap;
    struct buf spelling;
    struct text_cached *cache; // (TEXT_CACHE_SLOTS) Pieces seen before.
};
void text_bpe_init(struct text_bpe *b, size_t n_merges);
void text_bpe_merge(struct text_bpe *b, int32_t left, int32_t right, int32_t rank, int32_t product);
void text_bpe_encode(struct text_bpe *b, const char *piece, size_t n, struct text_ids *out);
void text_bpe_release(struct text_bpe *b);

/* One id's token. */
struct text_token {
    uint32_t at, len; // In struct text's bytes.
    bool used, special;
};

struct text {
    struct map vocab;         // The model's tokens: content -> id.
    struct map added_index;   // Added tokens: content -> index.
    struct text_added *added; // (n_added)
    size_t n_added, added_cap;
    int32_t next_added;       // Id of the next one that the model does not have.
    struct text_token *token; // (size) By id.
    size_t size, token_cap;
    struct buf bytes; // Of all tokens.
    struct text_set raw, normalized;
    struct text_bpe bpe;
    enum text_step_kind step[TEXT_STEPS_MAX]; // (n_steps)
    int n_steps;
    bool nfc, byte_level;           // byte_level: pre_tokenizer ended in ByteLevel.
    struct text_ids prefix, suffix; // Of the post-processor.
    uint8_t *classes;               // (TEXT_CODES)
    struct text_nfc work;           // Scratch of text_encode, and these.
    struct buf valid, normal, spaced;
};

/* model.c */
int text_load_model(struct text *t, const json_t *model, struct err *e);

/* tokens.c. Added tokens are loaded after the model and the pipeline: they need its normaliser. */
void text_token_set(struct text *t, int32_t id, const char *content, size_t n);
int text_load_added(struct text *t, const json_t *added, struct err *e);

/* pipeline.c: normaliser, pre-tokeniser and decoder; and the post-processor, after the tokens. */
int text_load_pipeline(struct text *t, const json_t *root, struct err *e);
int text_load_post(struct text *t, const json_t *post, struct err *e);

/* json.c: checked access; `at` names the place, as "model.vocab". */
#define TEXT_PLACE  200 // bytes of a place's name
#define TEXT_QUOTED 48

/* ERR_UNSUPPORTED when object has a key that is not in the comma-separated list. */
int text_json_keys(const json_t *object, const char *at, const char *keys, struct err *e);

/* object[key] as a bool. Absent or null: fallback, which is 0, 1, or -1 for "required". */
int text_json_bool(const json_t *object, const char *at, const char *key, int fallback, bool *out,
                   struct err *e);

/* An id in [0, TEXT_SIZE_MAX). The message names no place: the caller prepends it. */
int text_json_id(const json_t *value, int32_t *id, struct err *e);

bool text_json_is_type(const json_t *object, const char *type);
int text_json_refuse_type(const json_t *object, const char *at, struct err *e);
int text_json_refuse(const char *at, const char *expected, const json_t *found, struct err *e);

/* s in quotes, safe to print, cut when long. Returns out. */
const char *text_json_quote(const char *s, size_t n, char out[TEXT_QUOTED]);
