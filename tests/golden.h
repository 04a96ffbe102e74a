/* Tiny models with what transformers and autograd make of them, in float32.
 *
 * tests/golden/models/NAME/ is a Hugging Face folder (tools/oracle/make_tiny.py) and beside it
 * golden.safetensors (tools/oracle/model_golden.py): token sequences with their log-probabilities,
 * and the gradient of
 *
 *     loss = sum over sequences and t >= 1 of coef[t] * logprob of ids[t] given ids[0 .. t)
 *
 * by every tensor of the folder. A folder that is not whole fails the calling test.
 */
#pragma once

#include <stddef.h>

enum { GOLDEN_SEQUENCES = 4 };

struct golden_sequence {
    int n;                        // tokens
    int *ids, *argmax;            // (n), (n - 1)
    double *coef;                 // (n), 0 in the prompt
    double *logprobs, *entropies; // (n - 1): of ids[1:]
};

struct golden {
    const char *name;
    char folder[128];   // the model's
    double temperature; // at which all of this was made
    double spread;      // standard deviation of a row's log-probabilities (nats), rms over rows
    struct golden_sequence seq[GOLDEN_SEQUENCES];
    struct tensor_set *set; // the golden file
};

/* Every model's name, ended by NULL. */
extern const char *const golden_models[];

void golden_open(struct golden *g, const char *name);
void golden_close(struct golden *g);

/* The gradient by a tensor; the caller frees it (mem_free). */
double *golden_gradient(const struct golden *g, const char *tensor);
