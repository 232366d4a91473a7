/* Carries a program out, by HIP and by Image, and compares. */
#ifndef GIVEWAY_RANDOM_RUN_H
#define GIVEWAY_RANDOM_RUN_H

#include <hip/hip_ext.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "order.h"

extern "C" hipError_t hipLaunchKernel_spt(const void *, dim3, dim3, void **, size_t, hipStream_t);

/* Copies of mix, which are other functions to the runtime. */
#define COPY_OF_MIX(n)                                                                               \
  extern "C" __global__ void mix__##n(gw_u64 *dst, const gw_u64 *src, gw_u32 count, gw_u64 value) { \
    gw_u32 i = blockIdx.x * blockDim.x + threadIdx.x;                                                \
    if (i < count) dst[i] = gw_mix_step(dst[i], src[i], i, value);                                   \
  }
COPY_OF_MIX(0)
COPY_OF_MIX(1)
COPY_OF_MIX(2)
COPY_OF_MIX(3)

/* What outlives a program: the kernels of a module, and streams that the next programs use again. */
struct Reused {
  hipModule_t module;
  hipFunction_t mix_function, busy_function;
  std::map<int, std::vector<hipStream_t>> streams;
  /* For captures with a fork only, and kept: HIP 5.2.3 remembers, long after the capture, which events and streams took
   * part in one, and treats what comes later at the same address as if it still did. */
  hipEvent_t fork, join;
  hipStream_t captured[2];
  hipStream_t quiet; /* has only events to wait for handlers */
  std::mutex lock;

  explicit Reused(const char *code_object) {
    CHECK(hipModuleLoad(&module, code_object));
    CHECK(hipModuleGetFunction(&mix_function, module, "mix"));
    CHECK(hipModuleGetFunction(&busy_function, module, "busy"));
    CHECK(hipEventCreateWithFlags(&fork, hipEventDisableTiming));
    CHECK(hipEventCreateWithFlags(&join, hipEventDisableTiming));
    CHECK(hipStreamCreateWithFlags(&quiet, hipStreamNonBlocking));
    for (hipStream_t &stream : captured) CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  }
};

static inline hipError_t new_stream(int kind, hipStream_t *stream) {
  int least, greatest;
  switch (kind) {
    case BLOCKING: return hipStreamCreate(stream);
    case NON_BLOCKING: return hipStreamCreateWithFlags(stream, hipStreamNonBlocking);
    default:
      CHECK(hipDeviceGetStreamPriorityRange(&least, &greatest));
      return hipStreamCreateWithPriority(stream, kind == URGENT ? hipStreamDefault : hipStreamNonBlocking, greatest);
  }
}

class Runner {
 public:
  Runner(Reused &reused_, const Program &program_)
      : reused(reused_), program(program_), order(program_.threads), codes(program_.steps.size()) {
    int token_count = 0;
    for (const Step &step : program.steps) {
      order.apply(step);
      image.apply(step);
      token_count = std::max(token_count, step.token + 1);
    }
    streams.resize(order.streams.size());
    for (int t = 0; t < THREADS; t++) streams[(size_t)(1 + t)] = hipStreamPerThread;
    events.resize(order.events.size());
    of_launch.resize(order.events.size());
    buffers.resize(order.buffers.size());
    graphs.resize(order.graphs.size());
    tokens.reset(new std::atomic<bool>[(size_t)token_count]());
  }

  /* The digest of all memory and all results; `wrong` says what differs from the image. */
  gw_u64 run() {
    std::atomic<bool> over(false);
    std::vector<std::thread> others;
    for (int t = 1; t < program.threads; t++) {
      others.emplace_back([this, t, &over] {
        steps_of(t);
        /* Its default stream goes with the thread, and others may still wait for what is in there. */
        while (!over) std::this_thread::yield();
      });
    }
    steps_of(0);
    Digest digest;
    compare(digest);
    over = true;
    for (auto &other : others) other.join();
    for (size_t i = 0; i < codes.size(); i++) {
      if (codes[i]) results += "," + std::to_string(i) + "=" + std::to_string(codes[i] >> 16) + "/" + std::to_string(codes[i] & 0xFFFF);
    }
    clean_up();
    return digest.value;
  }

  std::string wrong;
  /* Of every step that has failed, as ",STEP=CODE/LAST ERROR". */
  std::string results;
  /* Says each step before it is made, to stderr. */
  bool trace = getenv("RANDOM_TRACE") != nullptr;

 private:
  struct Memory {
    gw_u64 *at = nullptr, *device = nullptr; /* for the host if it is the host's, and for kernels */
  };
  struct Executable {
    hipGraph_t graph = nullptr;
    hipGraphExec_t exec = nullptr;
  };
  struct MixArguments {
    gw_u64 *to;
    const gw_u64 *from;
    gw_u32 count, unused;
    gw_u64 value;
  };
  struct BusyArguments {
    gw_u64 duration_ns;
    gw_u32 rounds, unused;
  };
  struct Callback {
    Runner *runner;
    const Step *step;
  };

  Reused &reused;
  const Program &program;
  Order order; /* as it is at the end */
  Image image;
  std::vector<unsigned> codes;
  std::vector<hipStream_t> streams;
  std::vector<hipEvent_t> events;
  std::vector<char> of_launch; /* whether an event was last recorded by a launch */
  std::vector<Memory> buffers;
  std::vector<Executable> graphs;
  std::unique_ptr<std::atomic<bool>[]> tokens;
  std::mutex wrong_lock;

  void report(const std::string &what) {
    std::lock_guard<std::mutex> guard(wrong_lock);
    if (wrong.empty()) wrong = what;
  }
  hipStream_t stream(int number) { return number < 0 ? nullptr : streams[(size_t)number]; }
  hipEvent_t event(int number) { return number < 0 ? nullptr : events[(size_t)number]; }

  void steps_of(int t) {
    for (size_t i = 0; i < program.steps.size(); i++) {
      const Step &step = program.steps[i];
      if (step.thread != t) continue;
      if (trace) fprintf(stderr, "%zu  %s\n", i, text(step).c_str());
      const hipError_t code = step_once(step);
      const bool asks = (step.op == ASK_EVENT && !step.how) || step.op == ASK_STREAM;
      const bool right = step.op == REFUSED ? code != hipSuccess : code == hipSuccess;
      if (!right && !(asks && code == hipErrorNotReady)) {
        report("step " + std::to_string(i) + " (" + text(step) + ") returned " + hipGetErrorName(code));
      }
      /* Of a queue that may or may not be busy the answer says nothing. */
      codes[i] = asks ? 0 : (unsigned)code;
      if (step.op == REFUSED) codes[i] = codes[i] << 16 | (unsigned)hipGetLastError();
    }
  }

  hipError_t step_once(const Step &s) {
    switch (s.op) {
      case NEW_STREAM: {
        std::lock_guard<std::mutex> guard(reused.lock);
        auto &kept = reused.streams[s.how];
        if (kept.empty() || (program.seed + (gw_u64)s.stream) % 3 == 0) return new_stream(s.how, &streams[(size_t)s.stream]);
        streams[(size_t)s.stream] = kept.back();
        kept.pop_back();
        return hipSuccess;
      }
      case GONE_STREAM: return end_stream(stream(s.stream));
      case NEW_EVENT: return hipEventCreateWithFlags(&events[(size_t)s.event], (unsigned)s.how);
      case GONE_EVENT: return hipEventDestroy(event(s.event));
      case NEW_BUFFER: return new_buffer(s);
      case GONE_BUFFER: return gone_buffer(s, stream(s.stream));
      case MIX:
      case FILL:
      case COPY:
      case BUSY: return command(s, stream(s.stream));
      case CALLBACK: return hipStreamAddCallback(stream(s.stream), call_back, new Callback{this, &s}, 0);
      case HOST_MIX: host_mix(s); return hipSuccess;
      case RECORD:
        of_launch[(size_t)s.event] = false;
        return hipEventRecord(event(s.event), stream(s.stream));
      case WAIT: return hipStreamWaitEvent(stream(s.stream), event(s.event), 0);
      case SYNC_EVENT:
        return s.how ? poll([&] { return hipEventQuery(event(s.event)); }) : hipEventSynchronize(event(s.event));
      case ASK_EVENT: {
        auto ask = [&] { return hipEventQuery(event(s.event)); };
        return s.how && of_launch[(size_t)s.event] ? poll(ask) : ask();
      }
      case ELAPSED: {
        /* A launch's own events may be complete for a while before the runtime knows. */
        const bool strict = !of_launch[(size_t)s.start] && !of_launch[(size_t)s.event];
        float ms = -1;
        auto ask = [&] { return hipEventElapsedTime(&ms, event(s.start), event(s.event)); };
        return strict ? ask() : poll(ask);
      }
      case SYNC_STREAM:
        return s.how ? poll([&] { return hipStreamQuery(stream(s.stream)); }) : hipStreamSynchronize(stream(s.stream));
      case ASK_STREAM: return hipStreamQuery(stream(s.stream));
      case SYNC_DEVICE: return hipDeviceSynchronize();
      case POST: tokens[(size_t)s.token] = true; return hipSuccess;
      case AWAIT:
        while (!tokens[(size_t)s.token]) std::this_thread::yield();
        return hipSuccess;
      case NEW_GRAPH: return new_graph(s);
      case GONE_GRAPH: return gone_graph(s.graph);
      case LAUNCH_GRAPH: return hipGraphLaunch(graphs[(size_t)s.graph].exec, stream(s.stream));
      case REFUSED: return refused(s);
    }
    return hipErrorUnknown;
  }

  /* The runtime's own thread deals with completed events in any order, and does so with the stream's signals. Before HIP 6.2
   * hipStreamDestroy waits for the last of them only, as does the end of a graph for its streams, and the thread may find
   * signals that are gone. That thread looks at everything that is complete before it takes anything new, so what was
   * complete before the first pair is dealt with when the second one is. hipEventElapsedTime waits until both of its
   * events are. */
  static void settle(hipStream_t on) {
    hipEvent_t start, stop;
    float ms;
    CHECK(hipEventCreate(&start));
    CHECK(hipEventCreate(&stop));
    for (int round = 0; round < 2; round++) {
      CHECK(hipEventRecord(start, on));
      CHECK(hipEventRecord(stop, on));
      CHECK(hipEventSynchronize(stop));
      CHECK(hipEventElapsedTime(&ms, start, stop));
    }
    CHECK(hipEventDestroy(start));
    CHECK(hipEventDestroy(stop));
  }
  static hipError_t end_stream(hipStream_t on) {
    CHECK(hipStreamSynchronize(on));
    settle(on);
    return hipStreamDestroy(on);
  }

  template <typename Ask>
  static hipError_t poll(Ask ask) {
    hipError_t code;
    while ((code = ask()) == hipErrorNotReady) std::this_thread::yield();
    return code;
  }

  hipError_t new_buffer(const Step &s) {
    Memory &memory = buffers[(size_t)s.to];
    const size_t bytes = s.count * sizeof(gw_u64);
    void *at = nullptr;
    hipError_t code = hipSuccess;
    switch (s.how) {
      case DEVICE: code = hipMalloc(&at, bytes); break;
      case POOL: code = hipMallocAsync(&at, bytes, stream(s.stream)); break;
      case PINNED: code = hipHostMalloc(&at, bytes, hipHostMallocDefault); break;
      default:
        at = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        if (s.how == REGISTERED) code = hipHostRegister(at, bytes, hipHostRegisterDefault);
    }
    memory.at = memory.device = (gw_u64 *)at;
    if (code == hipSuccess && s.how == PINNED) code = hipHostGetDevicePointer((void **)&memory.device, at, 0);
    if (is_on_host(s.how)) fill_pattern(at, bytes, s.value);
    return code;
  }
  hipError_t gone_buffer(const Step &s, hipStream_t on) {
    void *at = buffers[(size_t)s.to].at;
    hipError_t code = hipSuccess;
    switch (order.buffers[(size_t)s.to].kind) {
      case DEVICE: return hipFree(at);
      case POOL: return hipFreeAsync(at, on);
      case PINNED: return hipHostFree(at);
      case REGISTERED: code = hipHostUnregister(at); [[fallthrough]];
      default: free(at);
    }
    return code;
  }

  /* --- commands --- */

  hipError_t command(const Step &s, hipStream_t on, const void *host_mix = (const void *)mix) {
    switch (s.op) {
      case MIX: {
        MixArguments arguments{buffers[(size_t)s.to].device, buffers[(size_t)s.from].device, s.count, 0, s.value};
        void *list[] = {&arguments.to, &arguments.from, &arguments.count, &arguments.value};
        const hipError_t code = launch(s, on, host_mix, reused.mix_function, (s.count + 255) / 256, 256, list,
                                       &arguments, sizeof arguments);
        memset(list, 0xA5, sizeof list);
        return code;
      }
      case BUSY: {
        BusyArguments arguments{s.value, 1, 0};
        void *list[] = {&arguments.duration_ns, &arguments.rounds};
        const hipError_t code =
            launch(s, on, (const void *)busy, reused.busy_function, 1, 64, list, &arguments, sizeof arguments);
        memset(list, 0xA5, sizeof list);
        return code;
      }
      case FILL: return fill(s, on);
      case COPY: return copy(s, on);
      default: return hipErrorUnknown;
    }
  }

  /* Everything that a launch was given is overwritten as soon as it has returned. */
  hipError_t launch(const Step &s, hipStream_t on, const void *host, hipFunction_t function, gw_u32 blocks, gw_u32 threads,
                    void **list, void *arguments, size_t size) {
    static thread_local unsigned char buffer[64];
    static thread_local size_t buffer_size;
    hipError_t code = hipErrorUnknown;
    for (int given : {s.start, s.event}) {
      if (given >= 0) of_launch[(size_t)given] = true;
    }
    switch (s.how) {
      case PLAIN: code = hipLaunchKernel(host, dim3(blocks), dim3(threads), list, 0, on); break;
      case SPT:
        code = hipLaunchKernel_spt(host, dim3(blocks), dim3(threads), list, 0, s.stream == 1 + s.thread ? nullptr : on);
        break;
      case MODULE:
        code = hipModuleLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, on, list, nullptr);
        break;
      case MODULE_EXTRA: {
        memcpy(buffer, arguments, buffer_size = size);
        void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, buffer, HIP_LAUNCH_PARAM_BUFFER_SIZE, &buffer_size,
                         HIP_LAUNCH_PARAM_END};
        code = hipModuleLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, on, nullptr, extra);
        memset(extra, 0xA5, sizeof extra);
        memset(buffer, 0xA5, sizeof buffer);
        buffer_size = 0;
        break;
      }
      case EXT:
        code = hipExtLaunchKernel(host, dim3(blocks), dim3(threads), list, 0, on, event(s.start), event(s.event), 0);
        break;
      case EXT_MODULE:
        code = hipExtModuleLaunchKernel(function, blocks * threads, 1, 1, threads, 1, 1, 0, on, list, nullptr,
                                        event(s.start), event(s.event));
    }
    memset(arguments, 0xA5, size);
    return code;
  }

  hipError_t fill(const Step &s, hipStream_t on) {
    void *at = buffers[(size_t)s.to].device;
    const size_t bytes = s.count * sizeof(gw_u64);
    switch (s.how) {
      case FILL_16: return hipMemsetD16Async(at, (unsigned short)s.value, bytes / 2, on);
      case FILL_32: return hipMemsetD32Async(at, (int)s.value, bytes / 4, on);
      case FILL_2D:
        return hipMemset2DAsync(at, PITCH * 8, (int)(s.value & 0xFF), WIDTH * 8, s.count / PITCH, on);
      case FILL_NOW: return hipMemset(at, (int)(s.value & 0xFF), bytes);
      default: return hipMemsetAsync(at, (int)(s.value & 0xFF), bytes, on);
    }
  }

  hipError_t copy(const Step &s, hipStream_t on) {
    const int to_kind = order.buffers[(size_t)s.to].kind, from_kind = order.buffers[(size_t)s.from].kind;
    const size_t bytes = s.count * sizeof(gw_u64);
    void *to = buffers[(size_t)s.to].at;
    const void *from = buffers[(size_t)s.from].at;
    const hipMemcpyKind kind = is_on_host(to_kind)     ? hipMemcpyDeviceToHost
                               : is_on_host(from_kind) ? hipMemcpyHostToDevice
                                                       : hipMemcpyDeviceToDevice;
    Bytes pageable;
    if (from_kind == PAGEABLE) {
      pageable.assign((const unsigned char *)from, (const unsigned char *)from + bytes);
      from = pageable.data();
    }
    hipError_t code = hipErrorUnknown;
    switch (s.how) {
      case COPY_NOW: code = hipMemcpy(to, from, bytes, kind); break;
      case COPY_WITH_STREAM: code = hipMemcpyWithStream(to, from, bytes, kind, on); break;
      case COPY_2D:
        code = hipMemcpy2DAsync(to, PITCH * 8, from, PITCH * 8, WIDTH * 8, s.count / PITCH, kind, on);
        break;
      case COPY_TYPED:
        code = kind == hipMemcpyDeviceToHost   ? hipMemcpyDtoHAsync(to, (hipDeviceptr_t)from, bytes, on)
               : kind == hipMemcpyHostToDevice ? hipMemcpyHtoDAsync(to, (void *)from, bytes, on)
                                               : hipMemcpyDtoDAsync(to, (hipDeviceptr_t)from, bytes, on);
        break;
      default: code = hipMemcpyAsync(to, from, bytes, s.count & 1 ? hipMemcpyDefault : kind, on);
    }
    std::fill(pageable.begin(), pageable.end(), 0xA5);
    return code;
  }

  void host_mix(const Step &s) {
    gw_u64 *to = buffers[(size_t)s.to].at;
    const gw_u64 *from = buffers[(size_t)s.from].at;
    for (gw_u32 i = 0; i < s.count; i++) to[i] = gw_mix_step(to[i], from[i], i, s.value);
  }
  static void call_back(hipStream_t on, hipError_t status, void *data) {
    std::unique_ptr<Callback> call((Callback *)data);
    const Step &step = *call->step;
    const hipStream_t want = call->runner->stream(step.stream);
    if (status != hipSuccess || (want && want != hipStreamPerThread && on != want)) {
      call->runner->report("callback (" + text(step) + ") got " + hipGetErrorName(status) + " or another stream");
    }
    if (step.to >= 0) call->runner->host_mix(step);
    if (step.token >= 0) call->runner->tokens[(size_t)step.token] = true;
  }

  hipError_t refused(const Step &s) {
    hipStream_t on = stream(s.stream);
    switch (s.how) {
      case NO_EVENT: return hipStreamWaitEvent(on, nullptr, 0);
      case NO_BLOCK: {
        gw_u64 ns = 1;
        gw_u32 rounds = 1;
        void *list[] = {&ns, &rounds};
        return hipLaunchKernel((const void *)busy, dim3(1), dim3(2048), list, 0, on);
      }
      case BAD_KIND: {
        gw_u64 word = 0;
        return hipMemcpyAsync(&word, &word, 8, (hipMemcpyKind)77, on);
      }
      default: {
        hipEvent_t one;
        float ms = 0;
        CHECK(hipEventCreateWithFlags(&one, hipEventDisableTiming));
        const hipError_t code = hipEventElapsedTime(&ms, one, one);
        CHECK(hipEventDestroy(one));
        return code;
      }
    }
  }

  /* --- graphs --- */

  hipError_t new_graph(const Step &s) {
    Executable &made = graphs[(size_t)s.graph];
    if (s.how == BUILT) {
      CHECK(hipGraphCreate(&made.graph, 0));
      hipGraphNode_t last = nullptr;
      for (const Step &inner : s.inside) last = add_node(made.graph, last, inner, mix_of_graph(s.graph));
    } else {
      hipStream_t origin = s.how == FORKED ? reused.captured[0] : stream(s.stream), side = reused.captured[1];
      CHECK(hipStreamBeginCapture(origin, hipStreamCaptureModeRelaxed));
      bool forked = false;
      for (const Step &inner : s.inside) {
        if (inner.op == RECORD) {
          CHECK(hipEventRecord(reused.join, side));
          CHECK(hipStreamWaitEvent(origin, reused.join, 0));
          continue;
        }
        if (inner.stream == 1 && !forked) {
          forked = true;
          CHECK(hipEventRecord(reused.fork, origin));
          CHECK(hipStreamWaitEvent(side, reused.fork, 0));
        }
        const hipError_t code = command(inner, inner.stream == 1 ? side : origin, mix_of_graph(s.graph));
        if (code != hipSuccess) return code;
      }
      CHECK(hipStreamEndCapture(origin, &made.graph));
    }
    return hipGraphInstantiate(&made.exec, made.graph, nullptr, nullptr, 0);
  }
  /* Before HIP 6.3 all launches of a function take their arguments through one buffer, which those of graphs do not lock: where
   * several threads launch, each graph has a function of its own. A single thread must find no difference. */
  const void *mix_of_graph(int graph) const {
    static void (*const copies[])(gw_u64 *, const gw_u64 *, gw_u32, gw_u64) = {mix__0, mix__1, mix__2, mix__3};
    /* There are at most three at a time, and those have different places. */
    return program.threads == 1 ? (const void *)mix : (const void *)copies[graph % 4];
  }
  hipGraphNode_t add_node(hipGraph_t graph, hipGraphNode_t last, const Step &s, const void *host_mix) {
    hipGraphNode_t node = nullptr;
    const size_t bytes = s.count * sizeof(gw_u64), before = last ? 1 : 0;
    if (s.op == MIX) {
      MixArguments arguments{buffers[(size_t)s.to].device, buffers[(size_t)s.from].device, s.count, 0, s.value};
      void *list[] = {&arguments.to, &arguments.from, &arguments.count, &arguments.value};
      hipKernelNodeParams params = {};
      params.func = (void *)host_mix;
      params.gridDim = dim3((s.count + 255) / 256);
      params.blockDim = dim3(256);
      params.kernelParams = list;
      CHECK(hipGraphAddKernelNode(&node, graph, &last, before, &params));
      memset(&arguments, 0xA5, sizeof arguments);
    } else if (s.op == COPY) {
      CHECK(hipGraphAddMemcpyNode1D(&node, graph, &last, before, buffers[(size_t)s.to].at, buffers[(size_t)s.from].at,
                                    bytes, hipMemcpyDeviceToDevice));
    } else {
      hipMemsetParams params = {};
      params.dst = buffers[(size_t)s.to].at;
      params.elementSize = s.how == FILL_32 ? 4 : 1;
      params.value = (unsigned)(s.how == FILL_32 ? s.value : s.value & 0xFF);
      params.width = bytes / params.elementSize;
      params.height = 1;
      CHECK(hipGraphAddMemsetNode(&node, graph, &last, before, &params));
    }
    return node;
  }
  hipError_t gone_graph(int number) {
    Executable &graph = graphs[(size_t)number];
    settle(reused.quiet);
    const hipError_t code = hipGraphExecDestroy(graph.exec);
    return code != hipSuccess ? code : hipGraphDestroy(graph.graph);
  }

  /* --- the end --- */

  void compare(Digest &digest) {
    for (size_t i = 0; i < buffers.size(); i++) {
      const auto &b = order.buffers[i];
      if (!b.alive || !b.defined) continue;
      const Words &want = image.buffers[i];
      const Words got = is_on_host(b.kind) ? Words(buffers[i].at, buffers[i].at + b.count)
                                           : read_words(buffers[i].at, b.count);
      digest.add(got);
      if (got == want) continue;
      size_t first = 0, count = 0;
      for (size_t w = want.size(); w-- > 0;) {
        if (got[w] != want[w]) first = w, count++;
      }
      report("b" + std::to_string(i) + " differs in " + std::to_string(count) + " of " + std::to_string(want.size()) +
             " words, from " + std::to_string(first));
    }
  }
  void clean_up() {
    for (size_t i = 0; i < graphs.size(); i++) {
      if (order.graphs[i].alive) CHECK(gone_graph((int)i));
    }
    for (size_t i = 0; i < buffers.size(); i++) {
      Step gone(GONE_BUFFER);
      gone.to = (int)i;
      if (order.buffers[i].alive) CHECK(gone_buffer(gone, reused.captured[0]));
    }
    CHECK(hipStreamSynchronize(reused.captured[0]));
    for (size_t i = 0; i < events.size(); i++) {
      if (order.events[i].alive) CHECK(hipEventDestroy(events[i]));
    }
    for (size_t i = FIRST_STREAM; i < streams.size(); i++) {
      if (!order.streams[i].alive) continue;
      auto &kept = reused.streams[order.streams[i].kind];
      if (kept.size() < 3) {
        kept.push_back(streams[i]);
      } else {
        CHECK(end_stream(streams[i]));
      }
    }
  }
};

#endif
