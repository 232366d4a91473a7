/* The headers are C as well, each of them by itself. */
#include "xsched/xsched.h"
#include "xsched/hip/hal.h"

int main(void) {
  XQueueHandle xq = 0;
  HwQueueHandle hwq = 0;
  XQueueState state = kQueueStateUnknown;
  if (HipQueueCreate(&hwq, 0) == kXSchedSuccess) return XQueueCreate(&xq, hwq, kPreemptLevelBlock, 0);
  if (XQueueQuery(xq, &state) == kXSchedSuccess) return XHintPriority(xq, PRIORITY_DEFAULT);
  return 0;
}
