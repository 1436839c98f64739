/* The verbs of `ctl`: words, the table, settings. */
#ifndef CTL_H
#define CTL_H
#include "group.h"

enum { WORDS_MAX = 64 };

/* Splits a line into words: blanks separate, '…' quotes ('' inside is one '), # begins a comment. The words lie in
 * line, which is changed. How many, or -EINVAL. */
int ctl_words(char *line, char **words, int max, struct err *e);

/* What an action leaves to wait for: a work (e.g. reset), or the group's state. */
struct ctl_result {
	bool waits;
	struct work *work;
};

/* One line: 0 or -errno; a verb that fails changes nothing. */
int ctl_line(struct group *g, const char *line, struct ctl_result *res, struct err *e);
/* The same for rankK/ctl. */
int ctl_rank_line(struct rank *k, const char *line, struct err *e);
/* The settings as the verbs that set them. */
void ctl_print(const struct group *g, struct buf *out);
/* The verbs with what they mean, for README and man page. */
void ctl_help(struct buf *out);

/* Is there a setting of this name? */
bool ctl_is_setting(const char *name);

void settings_default(struct settings *s);
void settings_free(struct settings *s);

#endif
