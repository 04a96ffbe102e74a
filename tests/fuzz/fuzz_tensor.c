/* Fuzz target: any bytes as a safetensors file. Of what is accepted every byte of data is read, and
 * the tensors must cover the data in order.
 */
#include "tensor/tensor_int.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void read_all(const struct tensor *t)
{
    float x[64];
    bf16 h[64];
    uint64_t bad = st_first_nonfinite(t);
    ASSERT(bad <= t->n_elems);
    if (!(TENSOR_WEIGHTS & TENSOR_ONLY(t->dtype)))
        return;
    for (uint64_t lo = 0; lo < t->n_elems; lo += ARRAY_LEN(x)) {
        uint64_t hi = MIN(lo + ARRAY_LEN(x), t->n_elems);
        tensor_to_float(t, lo, hi, x);
        tensor_to_bf16(t, lo, hi, h);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct st_header h;
    struct err e = {0};
    int rc = st_header_parse(&h, data, n, &e);
    ASSERT((rc < 0) == (e.code != 0));
    const unsigned char *end = NULL;
    for (size_t i = 0; i < h.n; i++) {
        int64_t at = -1;
        ASSERT(map_get(&h.names, h.tensor[i].name, strlen(h.tensor[i].name), &at) &&
               at == (int64_t)i);
        ASSERT(!end || h.tensor[i].data == end);
        end = h.tensor[i].data + h.tensor[i].n_bytes;
        read_all(&h.tensor[i]);
    }
    ASSERT(!end || end == data + n);
    st_header_release(&h);
    return 0;
}
