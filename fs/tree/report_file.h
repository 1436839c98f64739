/* cells/N/report and report.json: of a cell that runs, its ranks are asked when they are opened. */
#ifndef REPORT_FILE_H
#define REPORT_FILE_H
#include "tree/tree.h"

extern const struct file_ops report_file_ops, report_file_json_ops;

#endif
