/* Turns a subtask into the message for its rank. */
#ifndef TASK_SEND_H
#define TASK_SEND_H
#include "group/task.h"

/* Sends what the subtask's task is to its rank, with the subtask's tag. */
void task_send(struct subtask *j, struct agent *a);

#endif
