/* A curve in characters: points to columns of dots, dots to cells of braille or asterisks. */
#include "telem/telem_int.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

/* Braille cells are two dots wide and four high; their bit by column and row. */
static const unsigned char braille_bit[2][4] = {{0, 1, 2, 6}, {3, 4, 5, 7}};

struct grid {
    int columns, rows;  // of dots
    int across, down;   // dots of a cell
    double lo, hi;      // y of the lowest and highest row
    double *level;      // (columns) y of each column, NaN where no point falls
    unsigned char *dot; // (rows, columns)
};

/* Means of the points of each column, then straight lines over the gaps between them. */
static void fill_levels(struct grid *g, const struct telem_series *s)
{
    int *count = mem_calloc((size_t)g->columns, sizeof *count);
    double x0 = s->n > 0 ? s->x[0] : 0, x1 = s->n > 0 ? s->x[s->n - 1] : 0;
    for (size_t i = 0; i < s->n; i++) {
        double place = x1 > x0 ? (s->x[i] - x0) / (x1 - x0) : 0;
        int c = (int)(place * (g->columns - 1) + 0.5);
        if (isfinite(s->y[i])) {
            g->level[c] += s->y[i];
            count[c]++;
        }
    }
    int before = -1;
    for (int c = 0; c < g->columns; c++) {
        if (count[c] == 0) {
            g->level[c] = NAN;
            continue;
        }
        g->level[c] /= count[c];
        for (int gap = before + 1; before >= 0 && gap < c; gap++)
            g->level[gap] =
                g->level[before] + (g->level[c] - g->level[before]) * (gap - before) / (c - before);
        before = c;
    }
    mem_free(count);
}

static void fit_range(struct grid *g, const struct telem_plot *plot)
{
    g->lo = plot->lo;
    g->hi = plot->hi;
    if (g->hi > g->lo)
        return;
    g->lo = INFINITY;
    g->hi = -INFINITY;
    for (int c = 0; c < g->columns; c++) {
        g->lo = fmin(g->lo, g->level[c]);
        g->hi = fmax(g->hi, g->level[c]);
    }
    if (!(g->hi > g->lo)) {
        double middle = isfinite(g->lo) ? g->lo : 0;
        g->lo = middle - 0.5;
        g->hi = middle + 0.5;
    }
}

static int row_of(const struct grid *g, double y)
{
    double place = (g->hi - y) / (g->hi - g->lo);
    return (int)(fmin(fmax(place, 0), 1) * (g->rows - 1) + 0.5);
}

/* A dot in every column, and the rows between it and the column before. */
static void draw_dots(struct grid *g)
{
    int before = -1;
    for (int c = 0; c < g->columns; c++) {
        if (isnan(g->level[c])) {
            before = -1;
            continue;
        }
        int row = row_of(g, g->level[c]);
        int step = before < row ? 1 : -1;
        g->dot[row * g->columns + c] = 1;
        for (int r = before + step; before >= 0 && r != row && before != row; r += step)
            g->dot[r * g->columns + c] = 1;
        before = row;
    }
}

static void put_cell(const struct grid *g, int column, int row, struct buf *out)
{
    uint32_t bits = 0;
    for (int i = 0; i < g->across; i++) {
        for (int j = 0; j < g->down; j++) {
            int dot = (row * g->down + j) * g->columns + column * g->across + i;
            bits |= (uint32_t)g->dot[dot] << braille_bit[i][j];
        }
    }
    char utf8[4];
    if (g->down == 1 || bits == 0)
        buf_putc(out, bits ? '*' : ' ');
    else
        buf_put(out, utf8, (size_t)utf8_encode(0x2800 + bits, utf8));
}

static void put_axis_label(const struct telem_plot *plot, const struct grid *g, int row,
                           struct buf *out)
{
    bool labelled = row == 0 || row == plot->height - 1 || row == (plot->height - 1) / 2;
    double y = g->hi - (g->hi - g->lo) * row / (plot->height - 1);
    if (labelled)
        buf_printf(out, "%9.3g ", fabs(y) < 1e-12 * (g->hi - g->lo) ? 0 : y);
    else
        buf_printf(out, "%10s", "");
    buf_puts(out, plot->ascii ? "|" : labelled ? "┤" : "│");
}

/* The line under the curve, and the first and last x under its ends. */
static void put_x_axis(const struct telem_plot *plot, const struct telem_series *s, struct buf *out)
{
    buf_printf(out, "%10s%s", "", plot->ascii ? "+" : "└");
    for (int i = 0; i < plot->width; i++)
        buf_puts(out, plot->ascii ? "-" : "─");
    struct buf first = {0};
    buf_printf(&first, "%.10g", s->n > 0 ? s->x[0] : 0);
    buf_printf(out, "\n%11s%s%*.10g\n", "", buf_str(&first), MAX(plot->width - (int)first.len, 1),
               s->n > 0 ? s->x[s->n - 1] : 0);
    buf_release(&first);
}

void telem_plot(struct buf *out, const struct telem_plot *plot, const struct telem_series *s)
{
    ASSERT(plot->width >= 2 && plot->height >= 2);
    struct grid g = {.across = plot->ascii ? 1 : 2, .down = plot->ascii ? 1 : 4};
    g.columns = plot->width * g.across;
    g.rows = plot->height * g.down;
    g.level = mem_calloc((size_t)g.columns, sizeof *g.level);
    g.dot = mem_calloc((size_t)g.columns * (size_t)g.rows, 1);
    fill_levels(&g, s);
    fit_range(&g, plot);
    draw_dots(&g);
    buf_printf(out, "%10s %s\n", "", plot->title);
    for (int row = 0; row < plot->height; row++) {
        put_axis_label(plot, &g, row, out);
        for (int column = 0; column < plot->width; column++)
            put_cell(&g, column, row, out);
        while (out->len > 0 && out->data[out->len - 1] == ' ')
            out->data[--out->len] = '\0';
        buf_putc(out, '\n');
    }
    put_x_axis(plot, s, out);
    mem_free(g.level);
    mem_free(g.dot);
}
