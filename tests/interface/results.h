/* What the interface's functions say. */
#ifndef RESULTS_H
#define RESULTS_H

#include "check.h"
#include "xsched/xsched.h"

static void fine_at(XResult got, int line, const char *what) {
  if (got != kXSchedSuccess) fail_at(__FILE_NAME__, line, what, "result %d", (int)got);
}
#define FINE(call) fine_at((call), __LINE__, #call)

#endif
