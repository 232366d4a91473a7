/* Words for captures. */
#ifndef GIVEWAY_TESTS_CAPTURE_H
#define GIVEWAY_TESTS_CAPTURE_H

#include "work.h"

static const hipStreamCaptureMode MODES[] = {hipStreamCaptureModeGlobal, hipStreamCaptureModeThreadLocal,
                                             hipStreamCaptureModeRelaxed};

static inline const char *mode_name(hipStreamCaptureMode mode) {
  return mode == hipStreamCaptureModeGlobal ? "global"
         : mode == hipStreamCaptureModeRelaxed ? "relaxed"
                                               : "thread-local";
}

static inline const char *status_of(hipStream_t stream) {
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  if (hipStreamIsCapturing(stream, &status) != hipSuccess) return "unknown";
  return status == hipStreamCaptureStatusActive        ? "active"
         : status == hipStreamCaptureStatusInvalidated ? "invalidated"
                                                       : "none";
}

/* Ends a capture and says how. The graph goes. */
static inline void end_of_capture(hipStream_t stream) {
  hipGraph_t graph = nullptr;
  hipError_t code = hipStreamEndCapture(stream, &graph);
  size_t nodes = 0;
  if (code == hipSuccess && graph != nullptr) {
    CHECK(hipGraphGetNodes(graph, nullptr, &nodes));
    CHECK(hipGraphDestroy(graph));
  }
  printf("  end: %s, %zu nodes, then %s\n", hipGetErrorName(code), nodes, status_of(stream));
}

/* The stream for the next capture: this one, unless the last one is not over. Up to 5.x it always is. From 6 on one that
 * was invalidated, or lacks a branch, stays, and what is begun on the stream then is refused, or hangs on nodes of a graph
 * that is gone (hipStreamEndCapture_common leaves the stream's last nodes), so that hipGraphGetNodes fails. */
static inline hipStream_t next_for_capture(hipStream_t stream) {
  return strcmp(status_of(stream), "none") == 0 ? stream : new_stream();
}

static inline hipGraphExec_t instance_of(hipGraph_t graph) {
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  return exec;
}

#endif
