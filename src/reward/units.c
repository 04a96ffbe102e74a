/* Words after a number: which may be dropped as a unit, and which units are the same.
 *
 * Units never convert: two different known ones on both sides make answers unequal, anything else
 * is dropped. Words that change a number ("times", "thirds") or hedge it ("or") are no unit.
 */
#include "reward/reward_int.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* A row is one unit: its spellings between bars. */
static const char *const UNIT[] = {
    "|km|kilometer|kilometers|kilometre|kilometres|",
    "|m|meter|meters|metre|metres|",
    "|cm|centimeter|centimeters|centimetre|centimetres|",
    "|mm|millimeter|millimeters|millimetre|millimetres|",
    "|mi|mile|miles|",
    "|ft|foot|feet|",
    "|inch|inches|",
    "|yd|yard|yards|",
    "|kg|kilogram|kilograms|",
    "|g|gram|grams|",
    "|mg|milligram|milligrams|",
    "|lb|lbs|",
    "|oz|ounce|ounces|",
    "|l|liter|liters|litre|litres|",
    "|ml|milliliter|milliliters|millilitre|millilitres|",
    "|s|sec|second|seconds|",
    "|min|minute|minutes|",
    "|h|hr|hrs|hour|hours|",
    "|day|days|",
    "|week|weeks|",
    "|month|months|",
    "|year|years|",
    "|degree|degrees|",
    "|rad|radian|radians|",
    "|mph|miles per hour|miles/hour|",
    "|km/h|kph|kilometers per hour|kilometres per hour|",
    "|m/s|meters per second|metres per second|",
    "|cm^{2}|square centimeters|square centimetres|sq cm|",
    "|m^{2}|square meters|square metres|sq m|",
    "|ft^{2}|square feet|sq ft|",
    "|cm^{3}|cubic centimeters|cubic centimetres|",
    "|m^{3}|cubic meters|cubic metres|",
    "|am|",
    "|pm|",
    "|$|dollar|dollars|usd|",
    "|cent|cents|",
    "|\u20ac|euro|euros|eur|",
    "|\u00a3|gbp|",
    "|\u00a5|yen|yuan|",
};

static const char NO_UNIT[] =
    "|and|or|not|to|than|but|if|times|plus|minus|over|divided|more|less|fewer|squared|cubed|"
    "factorial|percent|pi|sqrt|root|sin|cos|tan|log|ln|mod|infinity|half|halves|third|thirds|"
    "fourth|fourths|fifth|fifths|sixth|sixths|seventh|sevenths|eighth|eighths|ninth|ninths|"
    "tenth|tenths|hundredth|hundredths|thousandth|thousandths|hundred|hundreds|thousands|"
    "millions|billions|k|x|y|z|n|i|e|";

/* Whether a list between bars holds the word (n bytes), letter case aside. */
static bool list_holds(const char *list, const char *word, size_t n)
{
    for (const char *p = list + 1; *p; p += strcspn(p, "|") + 1)
        if (strcspn(p, "|") == n && strncasecmp(p, word, n) == 0)
            return true;
    return false;
}

int reward_unit_find(const char *s, size_t n)
{
    for (size_t i = 0; n > 0 && i < ARRAY_LEN(UNIT); i++)
        if (list_holds(UNIT[i], s, n))
            return (int)i + 1;
    return 0;
}

/* The word right behind the number. Glued to it, only a known unit of two letters or more passes:
   5km, but not 5x or 5m, where the letter may be a variable. */
static bool first_ok(const char *word, size_t n, bool is_apart)
{
    bool is_unit = reward_unit_find(word, n) > 0;
    return n > 1 ? is_apart || is_unit : is_apart && is_unit;
}

bool reward_unit_ok(const char *s, size_t n, bool is_apart)
{
    if (n > 0 && s[n - 1] != '}' && !isalpha((unsigned char)s[n - 1]))
        return false;
    for (size_t i = 0; i < n;) {
        size_t first = i;
        while (i < n && isalpha((unsigned char)s[i]))
            i++;
        if (i == first || list_holds(NO_UNIT, s + first, i - first))
            return false;
        if (first == 0 && !first_ok(s, i, is_apart))
            return false;
        if (strncmp(s + i, "^{2}", 4) == 0 || strncmp(s + i, "^{3}", 4) == 0)
            i += 4;
        if (i < n && !strchr(" /-'", s[i++]))
            return false;
    }
    return true;
}
