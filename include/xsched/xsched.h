/* The whole C interface that does not depend on a platform; a HIP program includes xsched/hip/hal.h as well.
 * Part of giveway, an independent implementation of XSched's public interface. */
#ifndef XSCHED_XSCHED_H
#define XSCHED_XSCHED_H

#include "xsched/hint.h"
#include "xsched/types.h"
#include "xsched/xqueue.h"

#endif
