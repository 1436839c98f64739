/* The texts of small files, generated when they are opened. */
#ifndef TEXT_H
#define TEXT_H
#include "tree/tree.h"

extern const char skill_text[]; /* scripts/ddip-skill.md */

text_fn text_readme, text_skill, text_version, text_ctl, text_status, text_ranks, text_error;
text_fn text_status_json, text_ranks_json, text_queue, text_queue_json, text_error_json,
    text_cell_status_json, text_cell_error_json;
text_fn text_report, text_report_json;
text_fn text_selftest;
text_fn text_rank_status, text_last_result, text_last_traceback, text_last_cell;
text_fn text_cell_source, text_cell_status, text_cell_result, text_cell_error, text_cell_traceback;
text_fn text_subtask_result, text_subtask_traceback, text_subtask_status;

extern const struct file_ops text_error_ops; /* G/error: truncating clears it */

#endif
