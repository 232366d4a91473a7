/* libgpreempt_poc.so: see the headers. Keeps one session of xsched/kfd.h for each process that it was opened for. */
#include "libgpreempt_poc.h"

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

/* The place of a process's entry in the list, or of the list's end. The caller holds the lock. */
static struct entry **place(int pid) {
  struct entry **place = &entries;
  while (*place != NULL && (*place)->pid != number(pid)) place = &(*place)->next;
  return place;
}

/* The session for a process; 0 if there is none. */
static XKfdSession find(int pid) {
  pthread_mutex_lock(&lock);
  const struct entry *entry = *place(pid);
  const XKfdSession found = entry == NULL ? 0 : entry->session;
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
  struct entry **there = place(pid);
  const int first = *there == NULL;
  if (first) {
    entry->next = NULL;
    *there = entry;
  }
  pthread_mutex_unlock(&lock);
  if (!first) {
    /* Another thread was faster. One session of a process is enough, so that its cleanup ends all. */
    XKfdClose(entry->session);
    free(entry);
  }
  return 0;
}

int gpreempt_poc_suspend(int pid) { return gpreempt_suspend_queues(pid, NULL, 0); }

int gpreempt_poc_resume(int pid) { return gpreempt_resume_queues(pid, NULL, 0); }

int gpreempt_poc_cleanup(int pid) {
  const XKfdSession session = find(pid);
  const XKfdResult result = XKfdClose(session);
  /* A session that could not be closed is still there, and so is its entry. */
  if (result != kXKfdSuccess) return code(result);
  struct entry *ended = NULL;
  pthread_mutex_lock(&lock);
  struct entry **there = place(pid);
  if (*there != NULL && (*there)->session == session) {
    ended = *there;
    *there = ended->next;
  }
  pthread_mutex_unlock(&lock);
  free(ended);
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
