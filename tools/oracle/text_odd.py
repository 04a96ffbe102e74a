#!/usr/bin/env python3
"""Writes goldens for random small tokenizers, with what no family has but the format allows.

usage: text_odd.py OUT.jsonl TOKENIZERS STRINGS SEED

Overlapping added tokens with any flags, listed out of order or twice; merges in random order over a
few bytes, some of them without a token; every pre-tokenizer, unk, templates. Each line is an object
{"tokenizer": ..., "lines": [...]} with STRINGS lines as in text_golden.py; strings on which the
reference panics (white space that two tokens claim) are left out.
"""
import json
import random
import sys

from tokenizers import Tokenizer

import text_tokenizers as make

PARTS = ["a", "b", "A", " ", "  ", "\n", "\r", "\t", "1", "22", "!", "'", "'s", "s", "\u00e9",
         "e\u0301", "\u0301", "\u0323", "\u017f", "\u4e2d", "_", "\u00a0", "\u2028", "\u0967",
         "\u00b2", "<", ">"]
BYTES = sorted(set("".join(PARTS).encode()) | set("\u1e63\u0228".encode()))


def flip(rng, probability):
    return rng.random() < probability


def vocabulary(rng):
    """Single bytes, perhaps not all, and merges of random products in random order."""
    kept = rng.sample(BYTES, len(BYTES) - rng.choice([0, 0, 5]))
    vocab = {make.ALPHABET[b]: i for i, b in enumerate(kept)}
    usable, merges = list(vocab) * 2, []
    for _ in range(rng.randint(0, 60)):
        a, b = rng.choice(usable), rng.choice(usable)
        if a + b not in vocab:
            vocab[a + b] = len(vocab)
            usable.append(a + b)
        if [a, b] not in merges:
            merges.append([a, b])
    rng.shuffle(merges)
    return vocab, merges


def added_tokens(rng, vocab):
    tokens = []
    for i in range(rng.randint(0, 6)):
        content = "".join(rng.choice(PARTS) for _ in range(rng.randint(1, 3)))
        if tokens and flip(rng, 0.1):
            content = rng.choice(tokens)["content"]
        tokens.append(dict(id=len(vocab) + i, content=content, single_word=flip(rng, 0.3),
                           lstrip=flip(rng, 0.3), rstrip=flip(rng, 0.3), normalized=flip(rng, 0.4),
                           special=flip(rng, 0.5)))
    return tokens


def template(tokens):
    names = list(dict.fromkeys(t["content"] for t in tokens))[:2]
    pieces = [{"SpecialToken": {"id": name, "type_id": 0}} for name in names]
    a, b = ({"Sequence": {"id": s, "type_id": 0}} for s in "AB")
    return {"type": "TemplateProcessing", "single": [pieces[0], a, *pieces[1:]], "pair": [a, b],
            "special_tokens": {n: {"id": n, "ids": [i, i + 1], "tokens": [n, n]}
                               for i, n in enumerate(names)}}


def tokenizer_file(rng):
    vocab, merges = vocabulary(rng)
    tokens = added_tokens(rng, vocab)
    steps = rng.choice([[], [make.split(r"\p{N}")], [make.split(r"\p{N}{1,3}")],
                        [{"type": "Digits", "individual_digits": True}],
                        [{"type": "Digits", "individual_digits": False}]])
    pre = make.sequence(*steps, make.byte_level(prefix=flip(rng, 0.3), regex=flip(rng, 0.5)))
    content = make.file_of(vocab, [" ".join(m) for m in merges] if flip(rng, 0.5) else merges,
                           tokens, rng.choice([None, {"type": "NFC"}]), pre,
                           template(tokens) if tokens and flip(rng, 0.5) else None,
                           make.byte_level(), ignore=flip(rng, 0.3))
    if flip(rng, 0.3):
        content["model"]["unk_token"] = rng.choice(list(vocab))
        content["model"]["fuse_unk"] = flip(rng, 0.5)
    return content


def lines_of(rng, content, count):
    tokenizer = Tokenizer.from_str(json.dumps(content))
    if flip(rng, 0.9):  # Else the file claims ids that the reference does not give.
        for token in content["added_tokens"]:
            token["id"] = tokenizer.token_to_id(token["content"])
    parts = PARTS + [t["content"] for t in content["added_tokens"]] * 3
    for _ in range(count):
        text = "".join(rng.choice(parts) for _ in range(rng.randint(0, 9)))
        flags = rng.choice([0, 1, 2])
        tokenizer.encode_special_tokens = flags == 2
        try:
            ids = tokenizer.encode(text, add_special_tokens=flags == 1).ids
        except BaseException as error:  # pyo3's PanicException is no Exception
            if type(error).__name__ not in ("PanicException", "Exception"):
                raise
            continue
        decoded = tokenizer.decode(ids, skip_special_tokens=False)
        yield [flags, text, ids] + ([decoded] if decoded != text else [])


def main():
    path, tokenizers, strings, seed = sys.argv[1], *map(int, sys.argv[2:5])
    rng = random.Random(seed)
    with open(path, "w", encoding="utf-8") as out:
        for _ in range(tokenizers):
            content = tokenizer_file(rng)
            lines = list(lines_of(rng, content, strings))
            line = {"tokenizer": content, "lines": lines}
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
