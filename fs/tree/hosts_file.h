/* G/hosts: a record for each host. Each read measures the round trips again, for the next one. */
#ifndef HOSTS_FILE_H
#define HOSTS_FILE_H
#include "tree/tree.h"

text_fn hosts_file_text, hosts_file_json;

#endif
