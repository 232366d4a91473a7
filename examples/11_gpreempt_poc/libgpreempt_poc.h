/* The four functions of the proof of concept by its names: gpreempt_poc_init, gpreempt_poc_suspend, gpreempt_poc_resume and
 * gpreempt_poc_cleanup. They act on all compute queues of a process. gpreempt_poc.h, which this includes, has what they return
 * and the functions for single queues; both kinds can be mixed. Link with -lgpreempt_poc. */
#ifndef LIBGPREEMPT_POC_H
#define LIBGPREEMPT_POC_H

#include "gpreempt_poc.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Opens the driver for a process (0: the calling one), for the other functions. Again it does nothing. */
int gpreempt_poc_init(int pid);

/** Takes all compute queues of a process off the hardware. When it returns 0 none of them runs. */
int gpreempt_poc_suspend(int pid);

/** Puts back everything that was suspended. Without a suspension it does nothing. */
int gpreempt_poc_resume(int pid);

/** Ends what gpreempt_poc_init began: everything that was suspended goes on. Where the driver refuses that, the result says why,
 * and this can be called again. Without gpreempt_poc_init it is GPREEMPT_EINVAL. */
int gpreempt_poc_cleanup(int pid);

#ifdef __cplusplus
}
#endif

#endif
