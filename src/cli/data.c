/* loco data: a generated task as JSONL files. */
#include "cli/cli.h"

#include "data/data.h"

#include <inttypes.h>

int cli_data(const struct conf *conf, struct err *e)
{
    int rc = 0;
    struct buf out = {0};
    struct file_lock lock = {0};
    struct data_task_rows rows = {.train = (uint64_t)conf->train_rows,
                                  .test = (uint64_t)conf->test_rows,
                                  .sft = (uint64_t)conf->sft_rows};
    TRY(file_mkdirs(conf->out, e));
    TRY(file_lock_dir(&lock, conf->out, e));
    TRY(cli_refuse_used(conf->out, e));
    TRY(data_task_write(conf_choice_text(conf, "task"), conf->out, conf->seed, &rows, e));
    buf_printf(&out,
               "%s: train.jsonl %" PRIu64 " rows, test.jsonl %" PRIu64 " rows, sft.jsonl %" PRIu64
               " rows\n",
               conf->out, rows.train, rows.test, rows.sft);
    TRY(cli_flush(&out, e));
fail:
    file_unlock(&lock);
    buf_release(&out);
    return rc;
}
