/* Every knob of every subcommand, once.
 *
 * A row is K(kind, name, default, word, lo, hi, commands, rule, doc); S(title) opens a section of
 * the help and of docs/CONFIG.md. From these rows come the struct, the parser, --help, validation,
 * docs/CONFIG.md, the saved config.yaml and the comparison on resume, so adding a knob is adding a
 * row (then tests/test_conf says how to write docs/CONFIG.md anew).
 *
 *   kind      TEXT   char *, owned; NULL when absent      CHOICE  enum conf_<name>
 *             INT    int64_t in [lo, hi]                  NAMES   struct conf_names
 *             REAL   double in [lo, hi)                   REALS   struct conf_reals
 *             SIZE   int64_t bytes in [lo, hi]            BOOL    bool
 *             SEED   uint64_t, any
 *   default   as a user would write it; NULL: a user must give it
 *   word      the word that stands for absence ("none", "auto") or NULL: stored as NULL, 0, NaN or
 *             an empty list, so lo is above 0 where an INT or SIZE has a word; a required knob has
 *             none
 *   commands  who takes it: sets of the names of CONF_COMMANDS
 *   rule      on resume: SAME must agree; SPAN may change where the learning rate does not depend
 *             on the run's length; FREE may change; CALL belongs to one invocation, is never saved
 *   doc       one line; facts that a default or range does not say
 */
#pragma once

#define MANY 1e15 // An upper limit that nobody meets: shown as "or more".

/* Bit name, name, what it does, the knob that takes the bare argument or "". */
#define CONF_COMMANDS(C)                                                                           \
    C(TRAIN, "train", "GRPO: learn from rewards", "")                                              \
    C(SFT, "sft", "supervised warm start", "")                                                     \
    C(GENERATE, "generate", "sample from a model", "")                                             \
    C(EVAL, "eval", "accuracy, pass@k and maj@k on a data set", "")                                \
    C(SCORE, "score", "apply rewards to saved completions", "rows")                                \
    C(LOGPROBS, "logprobs", "log-probabilities of given tokens or text", "rows")                   \
    C(TOKENIZE, "tokenize", "text to token ids and back", "rows")                                  \
    C(INIT, "init", "a fresh model folder", "")                                                    \
    C(DATA, "data", "generated tasks as JSONL", "task")                                            \
    C(INSPECT, "inspect", "what a model folder, checkpoint, run or file holds", "path")            \
    C(CHECK, "check", "every kernel level of this CPU against the oracle", "")                     \
    C(BENCH, "bench", "speed against this machine's ceiling", "part")

/* Values of the CHOICE knobs: enumerator, text. */
#define CONF_GOLD_RULES(X)                                                                         \
    X(CONF_GOLD_AUTO, "auto")                                                                      \
    X(CONF_GOLD_HASHES, "hashes")                                                                  \
    X(CONF_GOLD_BOXED, "boxed")                                                                    \
    X(CONF_GOLD_FIELD, "field")
#define CONF_LOSS_TYPES(X)                                                                         \
    X(CONF_LOSS_GRPO, "grpo")                                                                      \
    X(CONF_LOSS_DAPO, "dapo")                                                                      \
    X(CONF_LOSS_DR_GRPO, "dr_grpo")                                                                \
    X(CONF_LOSS_BNPO, "bnpo")
#define CONF_SCALINGS(X)                                                                           \
    X(CONF_SCALE_GROUP, "group")                                                                   \
    X(CONF_SCALE_NONE, "none")
#define CONF_SCHEDULES(X)                                                                          \
    X(CONF_LR_LINEAR, "linear")                                                                    \
    X(CONF_LR_COSINE, "cosine")                                                                    \
    X(CONF_LR_CONSTANT, "constant")                                                                \
    X(CONF_LR_CONSTANT_WITH_WARMUP, "constant_with_warmup")
#define CONF_ARCHS(X)                                                                              \
    X(CONF_ARCH_LLAMA, "llama")                                                                    \
    X(CONF_ARCH_QWEN2, "qwen2")                                                                    \
    X(CONF_ARCH_QWEN3, "qwen3")
#define CONF_TASKS(X)                                                                              \
    X(CONF_TASK_SORT_AMB, "sort-amb")                                                              \
    X(CONF_TASK_SUMS, "sums")                                                                      \
    X(CONF_TASK_ADD_NOISY, "add-noisy")                                                            \
    X(CONF_TASK_REVERSE_FIXED, "reverse-fixed")                                                    \
    X(CONF_TASK_FORMAT_THEN_ANSWER, "format-then-answer")
#define CONF_PARTS(X)                                                                              \
    X(CONF_PART_ALL, "all")                                                                        \
    X(CONF_PART_GEMM, "gemm")                                                                      \
    X(CONF_PART_DECODE, "decode")                                                                  \
    X(CONF_PART_PREFILL, "prefill")                                                                \
    X(CONF_PART_TRAIN, "train")

/* Each CHOICE knob and its values. */
#define CONF_CHOICES(X)                                                                            \
    X(gold_rule, CONF_GOLD_RULES)                                                                  \
    X(loss_type, CONF_LOSS_TYPES)                                                                  \
    X(scale_rewards, CONF_SCALINGS)                                                                \
    X(lr_scheduler_type, CONF_SCHEDULES)                                                           \
    X(arch, CONF_ARCHS)                                                                            \
    X(task, CONF_TASKS)                                                                            \
    X(part, CONF_PARTS)

/* Defaults that differ by command: command, name, default (NULL: required there). */
#define CONF_DEFAULTS(D)                                                                           \
    D(BENCH, model, "built-in")                                                                    \
    D(SFT, learning_rate, "2e-5")                                                                  \
    D(EVAL, num_generations, "1")                                                                  \
    D(GENERATE, num_generations, "1")

#define CONF_KNOBS(S, K)                                                                           \
    CONF_KNOBS_RUN(S, K)                                                                           \
    CONF_KNOBS_DATA(S, K)                                                                          \
    CONF_KNOBS_REWARD(S, K)                                                                        \
    CONF_KNOBS_SAMPLING(S, K)                                                                      \
    CONF_KNOBS_OBJECTIVE(S, K)                                                                     \
    CONF_KNOBS_OPTIMIZER(S, K)                                                                     \
    CONF_KNOBS_EVAL(S, K)                                                                          \
    CONF_KNOBS_SAVING(S, K)                                                                        \
    CONF_KNOBS_MACHINE(S, K)                                                                       \
    CONF_KNOBS_TOOLS(S, K)                                                                         \
    CONF_KNOBS_INIT(S, K)                                                                          \
    CONF_KNOBS_TASKS(S, K)

#define CONF_KNOBS_RUN(S, K)                                                                       \
    S("Run")                                                                                       \
    K(TEXT, config, "none", "none", 0, 0, EVERY, CALL,                                             \
      "YAML file of options; key=value arguments and flags win over it")                           \
    K(TEXT, model, NULL, NULL, 0, 0, LEARN | SAMPLE | LOGPROBS | TOKENIZE | BENCH, SAME,           \
      "Hugging Face model folder")                                                                 \
    K(TEXT, output_dir, NULL, NULL, 0, 0, LEARN, FREE, "run folder, made when absent")             \
    K(TEXT, resume_from_checkpoint, "none", "none", 0, 0, LEARN, CALL,                             \
      "checkpoint folder, or auto: the newest complete one in output_dir, if any")                 \
    K(BOOL, dry_run, "false", NULL, 0, 0, LEARN, CALL,                                             \
      "print the resolved configuration and the memory ledger, start nothing")                     \
    K(SEED, seed, "42", NULL, 0, 0, LEARN | GENERATE | EVAL | SCORE | INIT | DATA, SAME,           \
      "with the configuration it fixes every random choice")

#define CONF_KNOBS_DATA(S, K)                                                                      \
    S("Data")                                                                                      \
    K(TEXT, data, NULL, NULL, 0, 0, LEARN | EVAL, SAME, "JSONL file, one row a line")              \
    K(TEXT, prompt_field, "auto", "auto", 0, 0, LEARN | GENERATE | EVAL, SAME,                     \
      "column of the prompt; auto: prompt, question or problem")                                   \
    K(TEXT, answer_field, "auto", "auto", 0, 0, TRAIN | EVAL | SCORE, SAME,                        \
      "column of the right answer; auto: answer, solution or ground_truth")                        \
    K(TEXT, completion_field, "auto", "auto", 0, 0, SFT | SCORE, SAME,                             \
      "column of the completion; auto: completion (sft: else answer, solution)")                   \
    K(CHOICE, gold_rule, "auto", NULL, 0, 0, TRAIN | EVAL | SCORE, SAME,                           \
      "where the answer stands in its column: after the last #### (hashes), in the last box "      \
      "(boxed), "                                                                                  \
      "all of it (field); auto: of the first two the one that stands later, or else all")          \
    K(TEXT, prompt_template, "{prompt}", NULL, 0, 0, LEARN | GENERATE | EVAL, SAME,                \
      "text around {prompt}; special tokens in it are read as such")                               \
    K(INT, max_prompt_length, "512", NULL, 1, MANY, LEARN | EVAL, SAME,                            \
      "tokens; rows with longer prompts are dropped and counted, never cut")                       \
    K(BOOL, shuffle_dataset, "true", NULL, 0, 0, LEARN, SAME,                                      \
      "a new order each epoch, fixed by the seed")

#define CONF_KNOBS_REWARD(S, K)                                                                    \
    S("Reward")                                                                                    \
    K(NAMES, reward, NULL, NULL, 0, 0, TRAIN | EVAL | SCORE, SAME,                                 \
      "rewards by name: exact, format, math, random; several separated by commas")                 \
    K(REALS, reward_weights, "none", "none", -MANY, MANY, TRAIN | EVAL | SCORE, SAME,              \
      "one weight for each reward; none: 1 each")                                                  \
    K(BOOL, math_last_number, "false", NULL, 0, 0, TRAIN | EVAL | SCORE, SAME,                     \
      "math: without a box, ####, or 'answer is', take the completion's last number")

#define CONF_KNOBS_SAMPLING(S, K)                                                                  \
    S("Sampling")                                                                                  \
    K(INT, num_generations, "8", NULL, 1, 1024, TRAIN | SAMPLE, SAME, "samples for each prompt")   \
    K(INT, max_completion_length, "512", NULL, 1, MANY, LEARN | SAMPLE, SAME,                      \
      "tokens; sampling stops there, sft drops and counts longer rows")                            \
    K(REAL, temperature, "1.0", NULL, 0, 100, TRAIN | SAMPLE, SAME,                                \
      "divides the logits; 0 (not in train): always the most likely token")

#define CONF_KNOBS_OBJECTIVE(S, K)                                                                 \
    S("Objective")                                                                                 \
    K(CHOICE, loss_type, "dapo", NULL, 0, 0, TRAIN, SAME,                                          \
      "mean over: tokens of each sample, then samples (grpo); the step's tokens (dapo, bnpo); "    \
      "samples times max_completion_length (dr_grpo)")                                             \
    K(CHOICE, scale_rewards, "group", NULL, 0, 0, TRAIN, SAME,                                     \
      "divide advantages by the standard deviation of their group, or not")                        \
    K(REAL, epsilon, "0.2", NULL, 0, 1, TRAIN, SAME, "the ratio is clipped below 1 - epsilon")     \
    K(REAL, epsilon_high, "none", "none", 0, 100, TRAIN, SAME,                                     \
      "the ratio is clipped above 1 + epsilon_high; none: epsilon")                                \
    K(REAL, beta, "0.0", NULL, 0, 100, TRAIN, SAME,                                                \
      "weight of the KL to the reference, the model as it was; 0 loads none")                      \
    K(BOOL, use_bias_correction_kl, "true", NULL, 0, 0, TRAIN, SAME,                               \
      "multiply the KL term by the importance ratio")                                              \
    K(BOOL, mask_truncated_completions, "false", NULL, 0, 0, TRAIN, SAME,                          \
      "completions cut at max_completion_length do not count in the loss")

#define CONF_KNOBS_OPTIMIZER(S, K)                                                                 \
    S("Steps and optimizer")                                                                       \
    K(INT, prompts_per_step, "8", NULL, 1, 1048576, LEARN, SAME,                                   \
      "prompts (sft: rows) of one optimizer step, over all hosts and devices")                     \
    K(INT, reduction_leaves, "auto", "auto", 1, 4096, LEARN, SAME,                                 \
      "power of two; parts into which a step's gradient sum is cut, so the most hosts that can "   \
      "ever share it; results depend on it; auto: the largest up to 8 that prompts_per_step "      \
      "allows")                                                                                    \
    K(INT, max_steps, "none", "none", 1, MANY, LEARN, SPAN, "none: by num_train_epochs")           \
    K(REAL, num_train_epochs, "3.0", NULL, 0, MANY, LEARN, SPAN, "used when max_steps is none")    \
    K(REAL, learning_rate, "1e-6", NULL, 0, 10, LEARN, SAME, "AdamW's, after warm-up")             \
    K(CHOICE, lr_scheduler_type, "linear", NULL, 0, 0, LEARN, SAME,                                \
      "how the learning rate goes on after warm-up: to 0 at the last step, or constant")           \
    K(INT, warmup_steps, "0", NULL, 0, MANY, LEARN, SAME, "learning rate rises linearly from 0")   \
    K(REAL, warmup_ratio, "0.0", NULL, 0, 1, LEARN, SAME,                                          \
      "warm-up as a share of all steps, in place of warmup_steps")                                 \
    K(REAL, adam_beta1, "0.9", NULL, 0, 1, LEARN, SAME, "decay of the first moment")               \
    K(REAL, adam_beta2, "0.999", NULL, 0, 1, LEARN, SAME, "decay of the second moment")            \
    K(REAL, adam_epsilon, "1e-8", NULL, 1e-30, 1, LEARN, SAME,                                     \
      "added to the second moment's root")                                                         \
    K(REAL, weight_decay, "0.0", NULL, 0, 1, LEARN, SAME, "decoupled; not on norms and biases")    \
    K(REAL, max_grad_norm, "1.0", NULL, 0, MANY, LEARN, SAME,                                      \
      "the whole gradient is scaled down to this norm; 0: never")

#define CONF_KNOBS_EVAL(S, K)                                                                      \
    S("Evaluation while training")                                                                 \
    K(TEXT, eval_data, "none", "none", 0, 0, TRAIN, SAME, "JSONL file that is never trained on")   \
    K(INT, eval_steps, "none", "none", 1, MANY, TRAIN, SAME,                                       \
      "steps from one evaluation to the next")                                                     \
    K(BOOL, eval_on_start, "false", NULL, 0, 0, TRAIN, SAME,                                       \
      "evaluate before the first step, too; that is never the best evaluation")                    \
    K(INT, num_generations_eval, "none", "none", 1, 65536, TRAIN, SAME,                            \
      "samples for each evaluation prompt; none: num_generations")                                 \
    K(REAL, eval_temperature, "none", "none", 0, 100, TRAIN, SAME, "none: temperature")

#define CONF_KNOBS_SAVING(S, K)                                                                    \
    S("Saving and logging")                                                                        \
    K(INT, save_steps, "500", "none", 1, MANY, LEARN, FREE,                                        \
      "steps from one checkpoint to the next; the last step is always saved")                      \
    K(INT, save_total_limit, "2", "none", 1, MANY, LEARN, FREE,                                    \
      "checkpoints kept; an older one goes only after the new one is whole")                       \
    K(BOOL, load_best_model_at_end, "false", NULL, 0, 0, TRAIN, FREE,                              \
      "save after an evaluation that is the best so far, keep that checkpoint beyond "             \
      "save_total_limit and name it at the end")                                                   \
    K(INT, logging_steps, "1", NULL, 1, MANY, LEARN, FREE,                                         \
      "steps from one line on the terminal to the next; metrics.jsonl has every step")             \
    K(BOOL, log_completions, "false", NULL, 0, 0, TRAIN, FREE,                                     \
      "show a prompt with its completions at every logged step; samples/ has all of them")

#define CONF_KNOBS_MACHINE(S, K)                                                                   \
    S("Machine: speed and memory, never results")                                                  \
    K(INT, threads, "auto", "auto", 1, 4096, COMPUTE, FREE,                                        \
      "of all devices together; auto: the CPUs that this process may use")                         \
    K(INT, devices, "1", NULL, 1, 64, LEARN | SAMPLE, FREE, "groups of CPUs, each with its share") \
    K(INT, microbatch_tokens, "512", NULL, 1, MANY, LEARN | LOGPROBS, FREE,                        \
      "tokens that go through the model at once in training; one sample at least")                 \
    K(INT, decode_slots, "auto", "auto", 1, 65536, TRAIN | SAMPLE, FREE,                           \
      "samples decoded at once; auto: all of a step, up to what kv_memory holds")                  \
    K(SIZE, kv_memory, "auto", "auto", 1048576, MANY, TRAIN | SAMPLE, FREE,                        \
      "for keys and values; auto: what all samples of a step need, or what memory_budget leaves")  \
    K(SIZE, memory_budget, "auto", "auto", 1048576, MANY, LEARN | SAMPLE | LOGPROBS, FREE,         \
      "a plan above it is refused at the start; auto: what the system and cgroup leave")

#define CONF_KNOBS_TOOLS(S, K)                                                                     \
    S("Input and output")                                                                          \
    K(TEXT, prompt, "none", "none", 0, 0, GENERATE, CALL, "one prompt")                            \
    K(TEXT, prompts, "none", "none", 0, 0, GENERATE, CALL, "JSONL file of prompts")                \
    K(TEXT, rows, "none", "none", 0, 0, SCORE | LOGPROBS | TOKENIZE, CALL,                         \
      "JSONL file (tokenize without --jsonl: a text file); none: standard input")                  \
    K(TEXT, path, NULL, NULL, 0, 0, INSPECT, CALL, "folder or file to look at")                    \
    K(TEXT, out, NULL, NULL, 0, 0, INIT | DATA, CALL, "folder to write")                           \
    K(CHOICE, part, "all", NULL, 0, 0, BENCH, CALL, "what is measured")                            \
    K(BOOL, decode, "false", NULL, 0, 0, TOKENIZE, CALL, "ids to text instead")                    \
    K(BOOL, jsonl, "false", NULL, 0, 0, TOKENIZE, CALL,                                            \
      "a row a line: {\"text\"} in, {\"ids\"} out; with --decode the other way")                   \
    K(BOOL, add_special_tokens, "true", NULL, 0, 0, TOKENIZE | LOGPROBS, CALL,                     \
      "put the tokens around a text that its tokenizer asks for, such as <|begin_of_text|>")       \
    K(BOOL, skip_special_tokens, "false", NULL, 0, 0, TOKENIZE, CALL,                              \
      "with --decode: leave special tokens out")                                                   \
    K(BOOL, argmax, "false", NULL, 0, 0, LOGPROBS, CALL,                                           \
      "also the most likely token at each position")                                               \
    K(INT, rows_max, "none", "none", 1, MANY, EVAL, CALL, "use the first rows only; none: all")    \
    K(BOOL, json, "false", NULL, 0, 0, GENERATE | EVAL | INSPECT | BENCH, CALL,                    \
      "print JSON instead of text")

#define CONF_KNOBS_INIT(S, K)                                                                      \
    S("Fresh model")                                                                               \
    K(CHOICE, arch, "qwen3", NULL, 0, 0, INIT, CALL, "model family")                               \
    K(TEXT, tokenizer, "bytes", NULL, 0, 0, INIT, CALL,                                            \
      "bytes: one token for each byte; or a folder with tokenizer.json")                           \
    K(INT, hidden_size, "256", NULL, 1, 65536, INIT, CALL, "width")                                \
    K(INT, num_hidden_layers, "4", NULL, 1, 1024, INIT, CALL, "layers")                            \
    K(INT, num_attention_heads, "4", NULL, 1, 1024, INIT, CALL, "query heads")                     \
    K(INT, num_key_value_heads, "auto", "auto", 1, 1024, INIT, CALL, "auto: num_attention_heads")  \
    K(INT, head_dim, "auto", "auto", 2, 1024, INIT, CALL,                                          \
      "auto: hidden_size / num_attention_heads")                                                   \
    K(INT, intermediate_size, "auto", "auto", 1, 1048576, INIT, CALL, "auto: 4 * hidden_size")     \
    K(INT, max_position_embeddings, "2048", NULL, 1, 16777216, INIT, CALL, "longest context")      \
    K(REAL, rope_theta, "10000", NULL, 1, MANY, INIT, CALL, "base of the rotary angles")           \
    K(REAL, rms_norm_eps, "1e-6", NULL, 1e-30, 1, INIT, CALL, "added to the mean square in norms") \
    K(REAL, initializer_range, "0.02", NULL, 0, 10, INIT, CALL,                                    \
      "standard deviation of the random weights")                                                  \
    K(BOOL, tie_word_embeddings, "true", NULL, 0, 0, INIT, CALL, "one matrix for input and output")

#define CONF_KNOBS_TASKS(S, K)                                                                     \
    S("Generated task")                                                                            \
    K(CHOICE, task, NULL, NULL, 0, 0, DATA, CALL,                                                  \
      "sort-amb: sort six digits, from a teacher of three minds; sums: one-digit additions; "      \
      "add-noisy: two-digit additions, from a teacher who errs; reverse-fixed: reverse six "       \
      "letters; format-then-answer: remainders, from a teacher who rarely marks the answer")       \
    K(INT, train_rows, "4096", NULL, 1, MANY, DATA, CALL, "rows of train.jsonl, at most")          \
    K(INT, test_rows, "256", NULL, 1, MANY, DATA, CALL,                                            \
      "rows of test.jsonl, at most a fifth of the task's prompts, in no other file")               \
    K(INT, sft_rows, "16384", NULL, 1, MANY, DATA, CALL, "rows of sft.jsonl, at most")

/* Where LoCo leaves TRL 1.16, for docs/CONFIG.md: what TRL has, what LoCo does and why. */
#define CONF_TRL_NOTES(N)                                                                          \
    N("`per_device_train_batch_size`, `gradient_accumulation_steps`, `generation_batch_size`",     \
      "`prompts_per_step` times `num_generations` name the work of a step without naming hosts, "  \
      "so a "                                                                                      \
      "run means the same on any number of them; `microbatch_tokens` only bounds memory.")         \
    N("`max_prompt_length` (removed)",                                                             \
      "Kept, 512: the memory ledger needs a bound before the start, and a longer prompt is "       \
      "dropped and counted, never cut.")                                                           \
    N("`max_steps` -1, `eval_steps`, `save_total_limit` null",                                     \
      "Absence is one word, `none`, and a number is always a number.")                             \
    N("`warmup_steps` below 1 as a share",                                                         \
      "`warmup_ratio` says it by name; both at once are refused.")                                 \
    N("an epoch's last, smaller batch is dropped",                                                 \
      "A step may straddle epochs, so no row is left out; `num_train_epochs` is rounded up to "    \
      "whole steps.")                                                                              \
    N("`logging_steps` 10", "1: a line costs nothing here, and it only concerns the terminal.")    \
    N("`save_total_limit` null (keeps all)",                                                       \
      "2: with float masters and moments a checkpoint is seven times the model.")                  \
    N("`reward_funcs`", "`reward`: names of built-in rewards, since nothing is imported.")         \
    N("`eval_strategy`, `save_strategy`",                                                          \
      "`eval_steps` and `save_steps` alone say it; `none` is off.")                                \
    N("`eval_temperature` (absent)",                                                               \
      "Added, so that an evaluation may be greedy while training samples.")                        \
    N("`top_p`, `top_k`, `min_p`, `num_iterations`, `delta`, `importance_sampling_level`",         \
      "Not there yet, hence unknown: a name that is accepted is in force.")                        \
    N("`prompt` as a list of messages",                                                            \
      "Taken when it is one user message of text, else the row is dropped and counted; the turns " \
      "around it are `prompt_template`'s, which is text with `{prompt}` in it.")
