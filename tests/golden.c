/* Reads the golden files of tiny models. See golden.h. */
#include "golden.h"
#include "base/mem.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

const char *const golden_models[] = {"llama_tied",   "llama_rope3", "llama_rope3_v4", "qwen2_bias",
                                     "qwen2_untied", "qwen3_wide",  "qwen3_tied",     NULL};

static const struct tensor *get(const struct golden *g, const char *name)
{
    const struct tensor *t = tensor_find(g->set, name);
    ASSERT(t != NULL);
    return t;
}

static double *values(const struct golden *g, const char *name)
{
    const struct tensor *t = get(g, name);
    double *x = mem_alloc(sizeof *x * t->n_elems);
    for (uint64_t i = 0; i < t->n_elems; i++) {
        float value;
        tensor_to_float(t, i, i + 1, &value);
        x[i] = (double)value;
    }
    return x;
}

static double scalar(const struct golden *g, const char *name)
{
    float value;
    tensor_to_float(get(g, name), 0, 1, &value);
    return (double)value;
}

static int *integers(const struct golden *g, const char *name)
{
    const struct tensor *t = get(g, name);
    ASSERT(t->dtype == TENSOR_I32);
    return memcpy(mem_alloc(t->n_bytes), t->data, t->n_bytes);
}

static void read_sequence(struct golden *g, int i)
{
    struct golden_sequence *s = &g->seq[i];
    char name[5][64];
    const char *const what[] = {"ids", "argmax", "coef", "logprobs", "entropies"};
    for (int k = 0; k < 5; k++)
        snprintf(name[k], sizeof name[k], "seq.%d.%s", i, what[k]);
    s->n = (int)get(g, name[0])->n_elems;
    s->ids = integers(g, name[0]);
    s->argmax = integers(g, name[1]);
    s->coef = values(g, name[2]);
    s->logprobs = values(g, name[3]);
    s->entropies = values(g, name[4]);
}

void golden_open(struct golden *g, const char *name)
{
    char path[160];
    *g = (struct golden){.name = name};
    snprintf(g->folder, sizeof g->folder, "tests/golden/models/%s", name);
    snprintf(path, sizeof path, "%s/golden.safetensors", g->folder);
    ASSERT(tensor_open(&g->set, path, NULL) == 0);
    g->temperature = scalar(g, "temperature");
    g->spread = scalar(g, "spread");
    for (int i = 0; i < GOLDEN_SEQUENCES; i++)
        read_sequence(g, i);
}

void golden_close(struct golden *g)
{
    for (int i = 0; i < GOLDEN_SEQUENCES; i++) {
        struct golden_sequence *s = &g->seq[i];
        mem_free(s->ids);
        mem_free(s->argmax);
        mem_free(s->coef);
        mem_free(s->logprobs);
        mem_free(s->entropies);
    }
    tensor_close(g->set);
    *g = (struct golden){0};
}

double *golden_gradient(const struct golden *g, const char *tensor)
{
    char name[128];
    snprintf(name, sizeof name, "grad.%s", tensor);
    return values(g, name);
}
