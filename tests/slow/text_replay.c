/* text_replay TOKENIZER GOLDEN, or text_replay ODD: replays goldens, however many. The exit status
   is the verdict; tests/slow/text.sh has them made. */
#include "../golden_text.h"

static int usage(void)
{
    fprintf(stderr, "usage: text_replay TOKENIZER GOLDEN | text_replay ODD\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct text *t = NULL;
    struct err e = {0};
    struct golden g;
    if (argc != 2 && argc != 3)
        return usage();
    if (argc == 3 && text_open(&t, argv[1], &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    bool read = golden_replay(&g, t, argv[argc - 1]);
    text_close(t);
    printf("%s %s: %zu strings, %zu bytes, %zu tokens, %zu wrong\n", g.wrong ? "not ok" : "ok",
           argv[argc - 1], g.lines, g.bytes, g.tokens, g.wrong);
    if (g.wrong > 0)
        printf("%s\n", g.first);
    return read && g.lines > 0 && g.wrong == 0 ? 0 : 1;
}
