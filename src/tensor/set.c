/* Sets of tensors: one file or the shards of a folder, opened, checked against their index,
 * searched. */
#include "tensor/tensor_int.h"

#include "base/mem.h"
#include "base/str.h"

#include <string.h>

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME  "model.safetensors.index.json"

struct file {
    char *path; // Owned.
    struct file_map map;
    struct st_header header;
};

struct tensor_set {
    struct file *file; // (n_files)
    size_t n_files;
};

static int open_file(struct file *f, uint32_t index, struct err *e)
{
    int rc = file_map(&f->map, f->path, e);
    if (rc < 0)
        return rc;
    rc = st_header_parse(&f->header, f->map.data, f->map.size, e);
    for (size_t i = 0; i < f->header.n; i++)
        f->header.tensor[i].file = index;
    return err_in(e, rc, "%s", f->path);
}

static int open_single(struct tensor_set *set, const char *path, struct err *e)
{
    set->file = mem_calloc(1, sizeof *set->file);
    set->n_files = 1;
    set->file[0].path = mem_strdup(path);
    return open_file(&set->file[0], 0, e);
}

/* What an index says: names to shards, both in the order met. */
struct index {
    struct map weights; // Tensor name to index of its shard.
    struct map shards;  // Shard name to its index.
};

static int add_weight(struct index *x, const char *name, const json_t *shard, struct err *e)
{
    char shown[ST_NAME_TEXT], shard_shown[ST_NAME_TEXT];
    const char *file = json_string_value(shard);
    if (!file)
        return err_set(e, ERR_FORMAT, "tensor '%s': its shard is not a string: " ST_REMEDY,
                       st_name(name, shown));
    if (!*file || *file == '.' || strchr(file, '/'))
        return err_set(e, ERR_FORMAT,
                       "tensor '%s': shard '%s' is not a plain file name: shards lie in the "
                       "index's own folder",
                       st_name(name, shown), st_name(file, shard_shown));
    int64_t i = (int64_t)x->shards.n;
    if (!map_get(&x->shards, file, strlen(file), &i))
        map_put(&x->shards, file, strlen(file), i);
    if (!map_put(&x->weights, name, strlen(name), i))
        return err_set(e, ERR_FORMAT, "tensor '%s': the index lists it twice: " ST_REMEDY,
                       st_name(name, shown));
    return 0;
}

static int read_weight_map(struct index *x, struct st_walk *w, struct err *e)
{
    json_t *key = NULL, *value = NULL;
    int rc = 0;
    TRY(st_walk_enter(w, "weight_map", e));
    while ((rc = st_walk_key(w, &key, e)) > 0) {
        TRY(st_walk_value(w, json_string_value(key), &value, e));
        TRY(add_weight(x, json_string_value(key), value, e));
        json_decref(key);
        json_decref(value);
        key = value = NULL;
    }
fail:
    json_decref(key);
    json_decref(value);
    return rc;
}

/* Reads {"metadata": ..., "weight_map": {name: shard}}; other members are passed over. */
static int read_index(struct index *x, const char *text, size_t size, struct err *e)
{
    json_t *key = NULL, *value = NULL;
    struct st_walk w;
    bool found = false;
    int rc = 0;
    TRY(st_walk_open(&w, "index", text, size, e));
    while ((rc = st_walk_key(&w, &key, e)) > 0) {
        if (strcmp(json_string_value(key), "weight_map") != 0) {
            TRY(st_walk_value(&w, json_string_value(key), &value, e));
        } else if (found) {
            TRY(err_set(e, ERR_FORMAT, "weight_map stands twice in the index: " ST_REMEDY));
        } else {
            TRY(read_weight_map(x, &w, e));
            found = true;
        }
        json_decref(key);
        json_decref(value);
        key = value = NULL;
    }
    TRY(rc);
    TRY(st_walk_close(&w, e));
    if (x->weights.n == 0)
        TRY(err_set(e, ERR_FORMAT, "'weight_map' is missing or empty: " ST_REMEDY));
fail:
    json_decref(key);
    json_decref(value);
    return rc;
}

/* The index lists exactly the tensors of its shards, each in the shard that holds it. */
static int check_index(const struct tensor_set *set, const struct index *x, struct err *e)
{
    char shown[ST_NAME_TEXT];
    for (size_t i = 0; i < x->weights.n; i++) {
        const struct map_entry *w = &x->weights.entry[i];
        const struct file *f = &set->file[w->value];
        if (!map_get(&f->header.names, w->key, w->len, NULL))
            return err_set(e, ERR_FORMAT,
                           "tensor '%s' is not in shard %s, where the index puts it: " ST_REMEDY,
                           st_name(w->key, shown), file_base(f->path));
    }
    for (size_t i = 0; i < set->n_files; i++) {
        const struct st_header *h = &set->file[i].header;
        for (size_t k = 0; k < h->n; k++) {
            const char *name = h->tensor[k].name;
            int64_t shard = -1;
            map_get(&x->weights, name, strlen(name), &shard);
            if (shard != (int64_t)i)
                return err_set(e, ERR_FORMAT,
                               "tensor '%s' is in shard %s, but the index %s: " ST_REMEDY,
                               st_name(name, shown), file_base(set->file[i].path),
                               shard < 0 ? "does not list it" : "puts it elsewhere");
        }
    }
    return 0;
}

/* Maps and parses all shards that the index names, from `dir`. */
static int open_shards(struct tensor_set *set, const struct map *shards, const char *dir,
                       struct err *e)
{
    char shown[ST_NAME_TEXT];
    int rc = 0;
    set->n_files = shards->n;
    set->file = mem_calloc(shards->n, sizeof *set->file);
    for (size_t i = 0; i < shards->n; i++)
        set->file[i].path = file_join(dir, shards->entry[i].key);
    for (size_t i = 0; i < set->n_files && rc == 0; i++) {
        if (!file_exists(set->file[i].path))
            return err_set(e, ERR_IO,
                           "%s: shard '%s' is named in " INDEX_NAME
                           " but is not there: fetch it into this folder",
                           dir, st_name(shards->entry[i].key, shown));
        rc = open_file(&set->file[i], (uint32_t)i, e);
    }
    return rc;
}

static int open_index(struct tensor_set *set, const char *dir, const char *path, struct err *e)
{
    struct index x = {0};
    char *text = NULL;
    size_t size = 0;
    int rc = 0;
    TRY(file_read(path, ST_HEADER_BYTES, &text, &size, e));
    rc = read_index(&x, text, size, e);
    TRY(err_in(e, rc, "%s", path));
    TRY(open_shards(set, &x.shards, dir, e));
    rc = check_index(set, &x, e);
    TRY(err_in(e, rc, "%s", path));
fail:
    mem_free(text);
    map_release(&x.weights);
    map_release(&x.shards);
    return rc;
}

static int open_dir(struct tensor_set *set, const char *dir, struct err *e)
{
    char *single = file_join(dir, SINGLE_NAME), *index = file_join(dir, INDEX_NAME);
    int rc;
    if (file_exists(single))
        rc = open_single(set, single, e);
    else if (file_exists(index))
        rc = open_index(set, dir, index, e);
    else
        rc =
            err_set(e, ERR_IO,
                    "%s: neither " SINGLE_NAME " nor " INDEX_NAME
                    " is in this folder: give a Hugging Face model folder with safetensors weights",
                    dir);
    mem_free(single);
    mem_free(index);
    return rc;
}

int tensor_open(struct tensor_set **set, const char *path, struct err *e)
{
    struct tensor_set *s = mem_calloc(1, sizeof *s);
    int rc;
    if (file_is_dir(path)) {
        rc = open_dir(s, path, e);
    } else if (str_ends(path, ".index.json")) {
        const char *base = file_base(path);
        char *dir = base == path ? mem_strdup(".") : mem_strndup(path, (size_t)(base - path));
        rc = open_index(s, dir, path, e);
        mem_free(dir);
    } else {
        rc = open_single(s, path, e);
    }
    if (rc < 0) {
        tensor_close(s);
        s = NULL;
    }
    *set = s;
    return rc;
}

void tensor_close(struct tensor_set *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < set->n_files; i++) {
        st_header_release(&set->file[i].header);
        file_unmap(&set->file[i].map);
        mem_free(set->file[i].path);
    }
    mem_free(set->file);
    mem_free(set);
}

size_t tensor_count(const struct tensor_set *set)
{
    size_t n = 0;
    for (size_t i = 0; i < set->n_files; i++)
        n += set->file[i].header.n;
    return n;
}

const struct tensor *tensor_at(const struct tensor_set *set, size_t i)
{
    const struct file *f = set->file;
    while (f < set->file + set->n_files && i >= f->header.n)
        i -= f++->header.n;
    ASSERT(f < set->file + set->n_files);
    return &f->header.tensor[i];
}

const struct tensor *tensor_find(const struct tensor_set *set, const char *name)
{
    int64_t i;
    for (size_t f = 0; f < set->n_files; f++)
        if (map_get(&set->file[f].header.names, name, strlen(name), &i))
            return &set->file[f].header.tensor[i];
    return NULL;
}

size_t tensor_file_count(const struct tensor_set *set)
{
    return set->n_files;
}

const char *tensor_file_name(const struct tensor_set *set, size_t file)
{
    return file_base(set->file[file].path);
}

const char *tensor_metadata(const struct tensor_set *set, const char *key)
{
    int64_t i;
    for (size_t f = 0; f < set->n_files; f++)
        if (map_get(&set->file[f].header.metadata, key, strlen(key), &i))
            return set->file[f].header.values[i];
    return NULL;
}

bool tensor_metadata_at(const struct tensor_set *set, size_t file, size_t i, const char **key,
                        const char **value)
{
    const struct st_header *h = &set->file[file].header;
    if (i >= h->metadata.n)
        return false;
    *key = h->metadata.entry[i].key;
    *value = h->values[h->metadata.entry[i].value];
    return true;
}

/* Catches a file cut short since it was mapped, before its pages are touched. */
static int check_unchanged(const struct file *f, struct err *e)
{
    uint64_t size = 0;
    int rc = file_size(f->path, &size, e);
    if (rc == 0 && size != f->map.size)
        rc = err_set(e, ERR_IO,
                     "%s: changed from %zu to %llu bytes while open: let no other program write it",
                     f->path, f->map.size, (unsigned long long)size);
    return rc;
}

/* "BF16, F16 or F32" */
static const char *list_dtypes(unsigned dtypes, struct buf *b)
{
    for (int i = 0; i < TENSOR_DTYPE_COUNT; i++) {
        if (!(dtypes & TENSOR_ONLY(i)))
            continue;
        bool is_last = dtypes >> i == 1;
        buf_printf(b, "%s%s", b->len == 0 ? "" : is_last ? " or " : ", ", tensor_dtype_name(i));
    }
    return buf_str(b);
}

int tensor_get(const struct tensor_set *set, const char *name, unsigned dtypes, int n_dims,
               const uint64_t *shape, const struct tensor **t, struct err *e)
{
    const struct tensor *found = tensor_find(set, name);
    if (!found)
        return err_set(
            e, ERR_FORMAT,
            "%s: tensor '%s' is missing: the weights do not belong to this configuration",
            set->file[0].path, name);
    const char *path = set->file[found->file].path;
    if (shape && (found->n_dims != n_dims ||
                  memcmp(found->shape, shape, (size_t)n_dims * sizeof *shape) != 0)) {
        char has[192], expected[192];
        return err_set(
            e, ERR_FORMAT,
            "%s: tensor '%s' has shape %s, expected %s: the weights do not belong to this "
            "configuration",
            path, name, tensor_shape_text(found->shape, found->n_dims, has, sizeof has),
            tensor_shape_text(shape, n_dims, expected, sizeof expected));
    }
    if (!(dtypes & TENSOR_ONLY(found->dtype))) {
        struct buf list = {0};
        err_set(e, ERR_UNSUPPORTED,
                "%s: tensor '%s' is %s, expected %s: convert the weights to one of these", path,
                name, tensor_dtype_name(found->dtype), list_dtypes(dtypes, &list));
        buf_release(&list);
        return ERR_UNSUPPORTED;
    }
    *t = found;
    return check_unchanged(&set->file[found->file], e);
}

int tensor_finite(const struct tensor_set *set, const struct tensor *t, struct err *e)
{
    const struct file *f = &set->file[t->file];
    int rc = check_unchanged(f, e);
    if (rc < 0)
        return rc;
    uint64_t i = st_first_nonfinite(t);
    if (i < t->n_elems)
        return err_set(
            e, ERR_NUMERIC,
            "%s: tensor '%s' is NaN or infinite at element %llu: these weights cannot be "
            "used, fetch them again or go back to an older checkpoint",
            f->path, t->name, (unsigned long long)i);
    return 0;
}
