/* Class bits of every code point, unpacked once from the generated run lengths: 1 MiB that is read
   one byte at a time beats any search, and real text touches a few pages of it. */
#include "text/text_int.h"

static void mark_runs(uint8_t *classes, const uint32_t *run, unsigned bit)
{
    uint32_t code = 0;
    for (; run[0] + run[1] > 0; run += 2) {
        code += run[0];
        for (uint32_t end = code + run[1]; code < end; code++)
            classes[code] |= (uint8_t)bit;
    }
}

uint8_t *text_classes_new(void)
{
    uint8_t *classes = mem_calloc(TEXT_CODES, 1);
    mark_runs(classes, text_runs_letter, CLASS_LETTER);
    mark_runs(classes, text_runs_number, CLASS_NUMBER | CLASS_NUMERIC);
    mark_runs(classes, text_runs_numeric, CLASS_NUMERIC);
    mark_runs(classes, text_runs_space, CLASS_SPACE);
    mark_runs(classes, text_runs_word, CLASS_WORD);
    mark_runs(classes, text_runs_mark, CLASS_MARK);
    mark_runs(classes, text_runs_composite, CLASS_COMPOSITE);
    return classes;
}
