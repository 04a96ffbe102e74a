#!/usr/bin/env python3
"""Writes goldens for a tokenizer.json: varied strings, with the ids that Hugging Face gives them.

usage: text_golden.py TOKENIZER.json OUT.jsonl COUNT SEED [ROWS.jsonl [sweep]]

ROWS.jsonl are GSM8K rows to take questions from; "" for none. With "sweep" every code point goes by
once as well, each between a letter and a digit. tests/golden_text.h says what a line is.
"""
import json
import random
import sys
import unicodedata

from tokenizers import Tokenizer

WRAP, PLAIN = 1, 2
SPACES = [*map(chr, [9, 10, 11, 12, 13, 28, 31, 32, 32, 32, 0x85, 0xA0, 0x1680, 0x180E, *range(
    0x2000, 0x2010), 0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF]), "\r\n", "\n", " \n"]
BLOCKS = [(0, 0x20), (0x20, 0x7F), (0x7F, 0x100), (0x100, 0x250), (0x250, 0x300), (0x370, 0x400),
          (0x400, 0x530), (0x530, 0x590), (0x590, 0x600), (0x600, 0x700), (0x700, 0x8FF),
          (0x900, 0xE00), (0xE00, 0x1000), (0x1000, 0x1200), (0x1200, 0x1700), (0x1700, 0x1E00),
          (0x1E00, 0x2000), (0x2000, 0x2C00), (0x2C00, 0x3040), (0x3040, 0x3400), (0x3400, 0x4E00),
          (0x4E00, 0xA000), (0xA000, 0xAC00), (0xAC00, 0xD7B0), (0xE000, 0xF900), (0xF900, 0xFB00),
          (0xFB00, 0x10000), (0x10000, 0x11000), (0x11000, 0x12000), (0x12000, 0x1D000),
          (0x1D000, 0x1E000), (0x1E000, 0x1F000), (0x1F000, 0x20000), (0x20000, 0x323B0),
          (0xE0000, 0xE0200), (0x10FF00, 0x110000)]
MARKS = [c for c in map(chr, range(0x20000)) if unicodedata.combining(c)]
DECOMPOSED = [c for c in map(chr, range(0x30000))
              if unicodedata.decomposition(c)[:1] not in ("", "<")]
NUMBERS = [c for c in map(chr, range(0x20000)) if unicodedata.category(c)[0] == "N"]
EMOJI = ["\U0001F468\u200D\U0001F469\u200D\U0001F467", "\U0001F1E9\U0001F1EA", "\u2764\uFE0F",
         "\U0001F44D\U0001F3FD", "1\uFE0F\u20E3", "\U0001F600", "\u263A",
         "\U0001F9D1\u200D\U0001F4BB"]
SNIPPETS = ["x=\\frac{3}{4}", "def f(x):\n    return x**2\n", "https://example.org/?q=1&r=%20",
            '{"key": [1, 2.5e-3, null]}', "<<48/2=24>>24", "#### 72", "$1,234.56", "e.g. i.e.",
            "foo_bar-baz", "<a href='b'>", "I'LL don't 'RE we've 'S", "O'Neil's '\u017fx '\u017f",
            "'sx 'Sx 'llx ''s", "50% of 3/4", "12,345.67", "\\n\\t", "C++ & C#",
            "\u2014 \u201cq\u201d"]


class Maker:
    def __init__(self, tokenizer, rng, rows):
        self.tokenizer, self.rng, self.rows = tokenizer, rng, rows
        self.size = tokenizer.get_vocab_size(with_added_tokens=True)
        self.added = [a.content for a in tokenizer.get_added_tokens_decoder().values()]

    def char(self, lo, hi):
        code = self.rng.randrange(lo, hi)
        return chr(code) if not 0xD800 <= code < 0xE000 else "\uFFFD"

    def many(self, source, lo, hi):
        return "".join(source() for _ in range(self.rng.randint(lo, hi)))

    def script(self):
        block = self.rng.choice(BLOCKS)
        return self.many(lambda: " " if self.rng.random() < 0.15 else self.char(*block), 1, 16)

    def mixed(self):
        return self.many(lambda: self.char(*self.rng.choice(BLOCKS)), 1, 8)

    def control(self):
        return self.many(lambda: self.char(0, 0x20), 1, 8)

    def spaces(self):
        return self.many(lambda: self.rng.choice(SPACES) * self.rng.choice([1, 1, 2, 3]) +
                         self.rng.choice(["", "", "a", "1", "!", "'s", "\u00e9"]), 1, 8)

    def run(self):
        unit = self.rng.choice(["a", " ", "\n", "!", "7", "\u4e2d", "ab", "= ", "\u0301", "\r\n",
                                "<"])
        return unit * self.rng.choice([3, 9, 17, 40])

    def marks(self):
        base = lambda: self.rng.choice([self.rng.choice("aeou cz>=\u03b1\u05d0"),
                                        self.rng.choice(DECOMPOSED), self.char(0x1100, 0x1200),
                                        self.char(0xAC00, 0xD7A4)])
        return self.many(lambda: base() + self.many(lambda: self.rng.choice(MARKS), 0, 4), 1, 5)

    def numbers(self):
        return self.many(lambda: self.rng.choice([self.rng.choice("0123456789"),
                                                  self.rng.choice(NUMBERS)]), 1, 9)

    def emoji(self):
        return self.many(lambda: self.rng.choice(EMOJI + [" ", "a"]), 1, 4)

    def snippet(self):
        return self.rng.choice(SNIPPETS)

    def row(self):
        words = self.rng.choice(self.rows).split(" ")
        at = self.rng.randrange(len(words))
        return " ".join(words[at:at + self.rng.randint(1, 12)])

    def case(self):
        return "".join(self.rng.choice([c.upper(), c.lower()]) for c in self.row())

    def specials(self):
        token = self.rng.choice(self.added) if self.added else ""
        if token and self.rng.random() < 0.3:
            token = token[:self.rng.randint(1, len(token))]
        before = self.rng.choice(["", " ", "  ", "a", "<", "\n"])
        return before + token + self.rng.choice(["", " ", "b"])

    def tokens(self):
        ids = [self.rng.randrange(self.size) for _ in range(self.rng.randint(1, 5))]
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def text(self):
        kinds = [self.script, self.script, self.mixed, self.control, self.spaces, self.spaces,
                 self.run, self.marks, self.marks, self.numbers, self.emoji, self.snippet, self.row,
                 self.row, self.case, self.specials, self.specials, self.tokens]
        return self.many(lambda: self.rng.choice(kinds)(), 1, self.rng.choice([1, 1, 2, 4]))

    def raw(self):
        """Bytes that are no UTF-8, or rarely are."""
        lead = [b"\xc2", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90",
                b"\xff"]
        parts = [self.rng.choice([self.rng.choice(lead), self.rng.randbytes(self.rng.randint(1, 6)),
                                  self.row()[:9].encode(), self.script().encode()[:7]])
                 for _ in range(self.rng.randint(1, 4))]
        return b"".join(parts)


def sweep():
    """Every code point once, 96 a line."""
    codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for at in range(0, len(codes), 96):
        yield "".join("a" + chr(c) + "1" for c in codes[at:at + 96])


def long_runs():
    for unit in ("a", " ", "\n", "7", "the ", "\u4e2d", "\u0301", "ab" * 7):
        yield unit * 3000


def main():
    path, out_path, count, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    rows = ["The quick brown fox jumps over the lazy dog."]
    if sys.argv[5:6] not in ([], [""]):
        with open(sys.argv[5], encoding="utf-8") as lines:
            rows = [json.loads(line)["question"] for line in lines]
    tokenizer, rng = Tokenizer.from_file(path), random.Random(seed)
    maker = Maker(tokenizer, rng, rows)
    texts = ["", " ", "\0", *SNIPPETS]
    texts += [maker.raw() if rng.random() < 0.06 else maker.text()
              for _ in range(count - len(texts))]
    if "sweep" in sys.argv[6:]:
        texts += [*sweep(), *long_runs(), *rows]
    with open(out_path, "w", encoding="utf-8") as out:
        for raw in texts:
            text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
            flags = rng.choice([0, 0, 0, WRAP, PLAIN])
            tokenizer.encode_special_tokens = flags == PLAIN
            ids = tokenizer.encode(text, add_special_tokens=flags == WRAP).ids
            decoded = tokenizer.decode(ids, skip_special_tokens=False)
            line = [flags, {"hex": raw.hex()} if isinstance(raw, bytes) else raw, ids]
            if decoded != raw:
                line.append(decoded)
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
