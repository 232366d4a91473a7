/* A random program as data: the steps of its threads in one order, which is a possible order of execution. */
#ifndef GIVEWAY_RANDOM_PROGRAM_H
#define GIVEWAY_RANDOM_PROGRAM_H

#include "check.h"

/* What a step does. Streams, events, buffers, graphs and tokens are numbers that are never used again. */
enum Op {
  NEW_STREAM,   /* stream; how: StreamKind */
  GONE_STREAM,  /* stream */
  NEW_EVENT,    /* event; how: flags */
  GONE_EVENT,   /* event */
  NEW_BUFFER,   /* to, count; how: BufferKind; stream for POOL */
  GONE_BUFFER,  /* to; stream for POOL */
  MIX,          /* stream, to, from, count, value; how: LaunchKind; event and start for EXT */
  BUSY,         /* stream, value in ns; how: LaunchKind */
  FILL,         /* stream, to, count, value; how: FillKind */
  COPY,         /* stream, to, from, count; how: CopyKind */
  CALLBACK,     /* stream, to, from, count, value; token or -1 */
  HOST_MIX,     /* to, from, count, value: the thread itself, in host memory */
  RECORD,       /* stream, event */
  WAIT,         /* stream, event */
  SYNC_EVENT,   /* event; how: 1 polls */
  ASK_EVENT,    /* event; how: 1 is certain to be complete */
  ELAPSED,      /* start, event; both are complete */
  SYNC_STREAM,  /* stream; how: 1 polls */
  ASK_STREAM,   /* stream; the answer is not used */
  SYNC_DEVICE,
  POST,         /* token */
  AWAIT,        /* token */
  NEW_GRAPH,    /* graph, inside; stream for CAPTURED; how: GraphKind */
  GONE_GRAPH,   /* graph */
  LAUNCH_GRAPH, /* graph, stream */
  REFUSED,      /* stream; how: a call that HIP refuses */
};

enum StreamKind { NULL_STREAM, PER_THREAD, BLOCKING, NON_BLOCKING, URGENT, URGENT_NON_BLOCKING, STREAM_KINDS };
enum BufferKind { DEVICE, POOL, PINNED, REGISTERED, PAGEABLE };
/* SPT: the entry point of programs whose default stream is per thread. */
enum LaunchKind { PLAIN, MODULE, MODULE_EXTRA, EXT, EXT_MODULE, SPT, LAUNCH_KINDS };
static inline bool is_by_module(int launch) { return launch != PLAIN && launch != SPT; }
/* FILL_2D leaves every fourth word of the range alone. FILL_NOW is hipMemset, which returns before it is done. */
enum FillKind { FILL_BYTES, FILL_16, FILL_32, FILL_2D, FILL_NOW };
/* COPY_NOW is hipMemcpy; COPY_2D leaves every fourth word alone. */
enum CopyKind { COPY_ASYNC, COPY_TYPED, COPY_NOW, COPY_WITH_STREAM, COPY_2D };
enum GraphKind { CAPTURED, FORKED, BUILT };
enum RefusedKind { NO_EVENT, NO_BLOCK, BAD_KIND, NO_TIMING, REFUSED_KINDS };

struct Step {
  Op op;
  int thread = 0;
  int stream = -1, to = -1, from = -1, event = -1, start = -1, token = -1, graph = -1;
  int how = 0;
  gw_u32 count = 0; /* 64-bit words */
  gw_u64 value = 0;
  std::vector<Step> inside;
  explicit Step(Op op_, int thread_ = 0) : op(op_), thread(thread_) {}
};

struct Program {
  gw_u64 seed = 0;
  int threads = 1;
  std::vector<Step> steps;
};

/* Streams that need no making: number 0 is the null stream, 1 + t the per-thread stream of thread t. */
static const int THREADS = 3, FIRST_STREAM = 1 + THREADS;

static inline bool is_blocking(int kind) { return kind != NON_BLOCKING && kind != URGENT_NON_BLOCKING; }
static inline bool is_on_host(int kind) { return kind >= PINNED; }
/* Words in a row of the two-dimensional copies and fills, and those of them that are written. */
static const gw_u32 PITCH = 16, WIDTH = 12;

/* The words that a step writes, and reads from the same places of its source. */
template <typename Visit>
static inline void each_word(const Step &step, Visit visit) {
  bool rows = (step.op == FILL && step.how == FILL_2D) || (step.op == COPY && step.how == COPY_2D);
  for (gw_u32 i = 0; i < step.count; i++) {
    if (!rows || (i % PITCH < WIDTH && i / PITCH < step.count / PITCH)) visit(i);
  }
}

/* What a step does to memory, one step after the other: the image that every run must leave. */
struct Image {
  std::vector<Words> buffers;
  std::vector<const Step *> graphs;

  static void mix(Words &to, const Words &from, const Step &step) {
    for (gw_u32 i = 0; i < step.count; i++) to[i] = gw_mix_step(to[i], from[i], i, step.value);
  }
  static gw_u64 fill_word(const Step &step) {
    switch (step.how) {
      case FILL_16: return (step.value & 0xFFFF) * 0x0001000100010001ull;
      case FILL_32: return (step.value & 0xFFFFFFFF) * 0x0000000100000001ull;
      default: return (step.value & 0xFF) * 0x0101010101010101ull;
    }
  }
  Words &at(int buffer) { return buffers[(size_t)buffer]; }
  void apply(const Step &step) {
    switch (step.op) {
      case NEW_BUFFER:
        if (buffers.size() <= (size_t)step.to) buffers.resize((size_t)step.to + 1);
        at(step.to) = is_on_host(step.how) ? pattern_words(step.count, step.value) : Words(step.count);
        break;
      case MIX:
      case CALLBACK:
      case HOST_MIX:
        if (step.to >= 0) mix(at(step.to), at(step.from), step);
        break;
      case FILL: each_word(step, [&](gw_u32 i) { at(step.to)[i] = fill_word(step); }); break;
      case COPY: each_word(step, [&](gw_u32 i) { at(step.to)[i] = at(step.from)[i]; }); break;
      case NEW_GRAPH:
        if (graphs.size() <= (size_t)step.graph) graphs.resize((size_t)step.graph + 1);
        graphs[(size_t)step.graph] = &step;
        break;
      case LAUNCH_GRAPH:
        for (const Step &inner : graphs[(size_t)step.graph]->inside) apply(inner);
        break;
      default: break;
    }
  }
};

/* For people. */
static inline std::string text(const Step &s) {
  static const char *streams[] = {"null", "per-thread", "blocking", "non-blocking", "urgent", "urgent non-blocking"};
  static const char *buffers[] = {"device", "pool", "pinned", "registered", "pageable"};
  static const char *launches[] = {"",       " by module",      " by module, extra",
                                   " by ext", " by ext, module", " by spt"};
  static const char *fills[] = {"memset", "memset D16", "memset D32", "memset 2D", "hipMemset"};
  static const char *copies[] = {"copy", "typed copy", "hipMemcpy", "hipMemcpyWithStream", "copy 2D"};
  static const char *graphs[] = {"captured", "captured and forked", "built"};
  static const char *refused[] = {"wait for no event", "launch without threads", "copy of an unknown kind",
                                  "time of an event without timing"};
  char line[256];
  auto put = [&](const char *format, auto... values) { snprintf(line, sizeof line, format, values...); };
  unsigned long long value = s.value;
  std::string events = s.start >= 0 ? ", start e" + std::to_string(s.start) : "";
  if (s.event >= 0) events += ", stop e" + std::to_string(s.event);
  switch (s.op) {
    case NEW_STREAM: put("s%d = new stream, %s", s.stream, streams[s.how]); break;
    case GONE_STREAM: put("destroy s%d", s.stream); break;
    case NEW_EVENT: put("e%d = new event%s", s.event, s.how & 2 ? " without timing" : ""); break;
    case GONE_EVENT: put("destroy e%d", s.event); break;
    case NEW_BUFFER:
      put("b%d = %u words, %s%s", s.to, s.count, buffers[s.how],
          s.how == POOL ? (" in s" + std::to_string(s.stream)).c_str() : "");
      break;
    case GONE_BUFFER: put(s.stream >= 0 ? "free b%d in s%d" : "free b%d", s.to, s.stream); break;
    case MIX:
      put("s%d: mix b%d <- b%d, %u words, %llx%s%s", s.stream, s.to, s.from, s.count, value & 0xFFFF,
          launches[s.how], events.c_str());
      break;
    case BUSY: put("s%d: busy for %llu us%s%s", s.stream, value / 1000, launches[s.how], events.c_str()); break;
    case FILL: put("s%d: %s b%d, %u words, %llx", s.stream, fills[s.how], s.to, s.count, value & 0xFFFF); break;
    case COPY: put("s%d: %s b%d <- b%d, %u words", s.stream, copies[s.how], s.to, s.from, s.count); break;
    case CALLBACK:
      put("s%d: callback%s%s", s.stream,
          s.to >= 0 ? (" mix b" + std::to_string(s.to) + " <- b" + std::to_string(s.from)).c_str() : "",
          s.token >= 0 ? (", posts " + std::to_string(s.token)).c_str() : "");
      break;
    case HOST_MIX: put("mix b%d <- b%d on the host", s.to, s.from); break;
    case RECORD: put("s%d: record e%d", s.stream, s.event); break;
    case WAIT: put("s%d: wait for e%d", s.stream, s.event); break;
    case SYNC_EVENT: put("%s e%d", s.how ? "poll" : "synchronize", s.event); break;
    case ASK_EVENT: put("query e%d%s", s.event, s.how ? ", which is complete" : ""); break;
    case ELAPSED: put("time from e%d to e%d", s.start, s.event); break;
    case SYNC_STREAM: put("%s s%d", s.how ? "poll" : "synchronize", s.stream); break;
    case ASK_STREAM: put("query s%d", s.stream); break;
    case SYNC_DEVICE: put("synchronize the %s", "device"); break;
    case POST: put("post %d", s.token); break;
    case AWAIT: put("await %d", s.token); break;
    case NEW_GRAPH: put("g%d = graph, %s%s", s.graph, graphs[s.how],
                        s.stream >= 0 ? (" in s" + std::to_string(s.stream)).c_str() : ""); break;
    case GONE_GRAPH: put("destroy g%d", s.graph); break;
    case LAUNCH_GRAPH: put("s%d: launch g%d", s.stream, s.graph); break;
    case REFUSED: put("s%d: %s, which is refused", s.stream, refused[s.how]); break;
  }
  std::string all = "thread " + std::to_string(s.thread) + ": " + line;
  for (const Step &inner : s.inside) all += "\n                " + text(inner);
  return all;
}

#endif
