/* Turns a subtask into the message for its rank. */
#ifndef TASK_SEND_H
#define TASK_SEND_H
#include "group/task.h"

/* Sends what the subtask's task is to its rank, with the subtask's tag. */
void task_send(struct subtask *j, struct agent *a);
/* The same for all subtasks of a task: what it says goes once to each host, whatever its ranks. */
void task_send_all(struct task *w);

#endif
