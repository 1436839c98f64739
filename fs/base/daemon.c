/* The daemon's own state. */
#include "base/daemon.h"

struct daemon daemon_;
