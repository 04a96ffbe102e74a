/* Messages for a person, on stderr: stdout belongs to the command's result.
 *
 * log_warn prints each distinct text once. Text from models or data goes through buf_terminal
 * first.
 */
#pragma once

#include "base/err.h"

void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));  // "warning: ..."
void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2))); // "SPEAKER: error: ..."
void log_speaker(const char *name); // Who log_error speaks for: "loco" at first. Borrowed.
const char *log_speaker_name(void);
