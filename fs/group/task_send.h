/* A job as the message that its rank gets. */
#ifndef TASK_SEND_H
#define TASK_SEND_H
#include "group/task.h"

/* Sends what the job's task is to its rank, with the job's tag. */
void task_send(struct job *j, struct agent *a);

#endif
