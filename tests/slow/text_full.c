/* text_full TOKENIZER GOLDEN: replays a file of goldens, however large; tests/slow/text_full.py makes
   both. The exit status is the verdict. */
#include "../golden_text.h"

int main(int argc, char **argv)
{
    struct text *t = NULL;
    struct err e = {0};
    struct golden g;
    if (argc != 3) {
        fprintf(stderr, "usage: text_full TOKENIZER GOLDEN\n");
        return 2;
    }
    if (text_open(&t, argv[1], &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    bool read = golden_replay(&g, t, argv[2]);
    text_close(t);
    printf("%s: %zu strings, %zu bytes, %zu tokens, %zu wrong\n", argv[2], g.lines, g.bytes,
           g.tokens, g.wrong);
    if (g.wrong > 0)
        printf("%s\n", g.first);
    return read && g.lines > 0 && g.wrong == 0 ? 0 : 1;
}
