/* Numbers of JSON texts that 64 bits do not hold. Python's json writes NaN, Infinity and integers
 * of any length; a parser that knows none of them would refuse a whole file for a key that nobody
 * reads. Here such a number becomes a string with a mark, which passes where its key does not
 * matter, is no number where it does, and goes back to what it was when the text is written again.
 */
#include "base/str.h"

#include <string.h>

static const char MARK[] = "\\u0001"; // as it stands in a text, by our hand or a parser's

/* Length of the string that begins at s, quotes included; n when it does not end. */
static size_t string_length(const char *s, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        if (s[i] == '\\')
            i++;
        else if (s[i] == '"')
            return i + 1;
    }
    return n;
}

static size_t word_length(const char *s, size_t n)
{
    static const char of_words[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789+-.";
    size_t i = 0;
    while (i < n && s[i] && strchr(of_words, s[i]))
        i++;
    return i;
}

/* Whether the word is a number that no int64_t or finite double holds. */
static bool is_odd(const char *word)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    const char *digits = word + (*word == '-');
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || (digits[0] == '0' && n > 1)) // No number of JSON: left for the parser to refuse.
        return false;
    int64_t integer;
    if (digits[n] == '\0')
        return !str_to_int(word, &integer);
    double real;
    return str_is_decimal(word) && !str_to_double(word, &real);
}

void buf_json_tame(struct buf *b, const char *text, size_t n)
{
    struct buf word = {0};
    for (size_t at = 0, len; at < n; at += len) {
        bool is_string = text[at] == '"';
        len = is_string ? string_length(text + at, n - at) : word_length(text + at, n - at);
        buf_clear(&word);
        if (!is_string)
            buf_put(&word, text + at, len);
        if (is_odd(buf_str(&word))) {
            buf_printf(b, "\"%s%s\"", MARK, buf_str(&word));
        } else {
            len = MAX(len, 1);
            buf_put(b, text + at, len);
        }
    }
    buf_release(&word);
}

void buf_json_untame(struct buf *b, const char *text, size_t n)
{
    size_t mark = 1 + strlen(MARK); // with the quote before it
    for (size_t at = 0, len; at < n; at += len) {
        len = text[at] == '"' ? string_length(text + at, n - at) : 1;
        if (len > mark && memcmp(text + at + 1, MARK, mark - 1) == 0)
            buf_put(b, text + at + mark, len - mark - 1);
        else
            buf_put(b, text + at, len);
    }
}
