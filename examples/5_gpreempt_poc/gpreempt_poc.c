/* libgpreempt_poc.so: see the header. Keeps one session of xsched/kfd.h for each process that it was opened for. */
#include "gpreempt_poc.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "xsched/kfd.h"

struct entry {
  int pid;
  XKfdSession session;
  struct entry *next;
};

static struct entry *entries;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int code(XKfdResult result) {
  switch (result) {
    case kXKfdSuccess: return 0;
    case kXKfdErrorInvalidValue:
    case kXKfdErrorNotFound: return GPREEMPT_EINVAL;
    case kXKfdErrorNoPermission: return GPREEMPT_EPERM;
    case kXKfdErrorNotSupported: return GPREEMPT_ENOTSUP;
    case kXKfdErrorInvalidState: return GPREEMPT_EAGAIN;
    case kXKfdErrorTimeout: return GPREEMPT_ETIMEDOUT;
    default: return GPREEMPT_EIO;
  }
}

static int number(int pid) { return pid == 0 ? (int)getpid() : pid; }

/* The session for a process; 0 if there is none. */
static XKfdSession find(int pid) {
  XKfdSession found = 0;
  pthread_mutex_lock(&lock);
  for (struct entry *entry = entries; entry != NULL && found == 0; entry = entry->next) {
    if (entry->pid == number(pid)) found = entry->session;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

int gpreempt_poc_init(int pid) {
  if (find(pid) != 0) return 0;
  struct entry *entry = malloc(sizeof *entry);
  if (entry == NULL) return GPREEMPT_EIO;
  entry->pid = number(pid);
  XKfdResult result = XKfdOpen(&entry->session, entry->pid);
  if (result != kXKfdSuccess) {
    free(entry);
    return code(result);
  }
  pthread_mutex_lock(&lock);
  entry->next = entries;
  entries = entry;
  pthread_mutex_unlock(&lock);
  return 0;
}

int gpreempt_suspend_queues(int pid, const uint32_t *queue_ids, uint32_t count) {
  return code(XKfdSuspend(find(pid), queue_ids, queue_ids == NULL ? 0 : count));
}

int gpreempt_resume_queues(int pid, const uint32_t *queue_ids, uint32_t count) {
  return code(XKfdResume(find(pid), queue_ids, queue_ids == NULL ? 0 : count));
}

int gpreempt_get_queue_status(int pid, struct gpreempt_queue_status *queues, uint32_t *count) {
  if (count == NULL || (queues == NULL && *count != 0)) return GPREEMPT_EINVAL;
  const uint32_t room = *count;
  XKfdQueue *all = calloc(room == 0 ? 1 : room, sizeof *all);
  if (all == NULL) return GPREEMPT_EIO;
  uint32_t there = room;
  const int result = code(XKfdListQueues(find(pid), all, &there));
  if (result == 0) {
    for (uint32_t i = 0; i < there && i < room; i++) {
      queues[i].queue_id = all[i].queue_id;
      queues[i].gpu_id = all[i].gpu_id;
      queues[i].is_compute = all[i].type == kXKfdQueueCompute;
      queues[i].suspended = all[i].state == kXKfdQueueStateSuspended ? 1
                            : all[i].state == kXKfdQueueStateMapped  ? 0
                                                                     : -1;
      queues[i].ring_address = all[i].ring_address;
      queues[i].ring_size = all[i].ring_size;
    }
    *count = there;
  }
  free(all);
  return result;
}
