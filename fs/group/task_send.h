/* Turns a subtask into the message for its rank. */
#ifndef TASK_SEND_H
#define TASK_SEND_H
#include "group/task.h"

/* The type of the message that asks a rank for its part of the task: Trun, Tput … */
int task_request(const struct task *w);
/* Sends the subtask to its rank, with its tag. */
void task_send(struct subtask *j, struct agent *a);
/* Sends all subtasks of a task. Consecutive ranks on one host get the source of a cell together. */
void task_send_all(struct task *w);

#endif
