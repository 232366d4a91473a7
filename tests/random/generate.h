/* Makes a valid program from a seed: it draws what it wants to do next, asks what is missing for that (order.h), and
 * adds exactly what is missing, by one of HIP's rules drawn at random. So the result rests on each of them. */
#ifndef GIVEWAY_RANDOM_GENERATE_H
#define GIVEWAY_RANDOM_GENERATE_H

#include "order.h"

/* Whether programs do what HIP 5.2.3 fails in by itself (docs/random-programs.md). */
static const bool EVERYTHING = getenv("RANDOM_EVERYTHING") != nullptr;

/* Captures that go over two streams, which it fails in as well. */
static const bool FORKS = EVERYTHING || HIP_VERSION_MAJOR >= 6;

class Generator {
 public:
  explicit Generator(gw_u64 seed)
      : random(Random(seed ^ 0xD1B54A32D192ED03ull).next()), threads(draw_threads()), order(threads) {
    program.seed = seed;
    /* The kept seeds are odd, and stay the programs that they were. */
    graphs = EVERYTHING || seed % 2 == 0;
    program.threads = threads;
  }

  Program make() {
    begin();
    const size_t most = 40 + random.below(60);
    for (int round = 0; round < 400 && program.steps.size() < most; round++) next();
    end();
    return std::move(program);
  }

 private:
  Random random;
  int threads;
  Order order;
  Program program;
  int tokens = 0;
  bool moved = false;
  /* The flavour of this program. */
  size_t on_host = 0, on_null = 0, slow = 0;
  bool large = false, graphs = false;

  bool chance(size_t percent) { return random.below(100) < percent; }
  int draw_threads() {
    const size_t draw = random.below(100);
    return draw < 60 ? 1 : draw < 85 ? 2 : 3;
  }
  int any_thread() { return (int)random.below((size_t)threads); }

  void append(const Step &step) {
    order.apply(step);
    program.steps.push_back(step);
  }
  /* Emits the step with all that is missing before it. False: it cannot be. */
  bool emit(Step step, int depth = 0) {
    for (int i = 0; i < 40; i++) {
      const Need need = order.need(step);
      switch (need.what) {
        case Need::NOTHING: append(step); return true;
        case Need::WRONG: return false;
        case Need::HEARING: hear(step.thread, need.thread); break;
        case Need::COMPLETE:
          if (depth > 3 || !depend(step, need, depth)) return false;
      }
    }
    return false;
  }
  void hear(int thread, int of) {
    Step post(POST, of), await(AWAIT, thread);
    post.token = await.token = tokens++;
    append(post);
    append(await);
  }

  /* --- the rules that a step can be ordered by --- */

  int actor(int stream, int otherwise) const {
    return order.streams[(size_t)stream].kind == PER_THREAD ? stream - 1 : otherwise;
  }
  bool is_usable(int stream, int thread) const {
    const auto &s = order.streams[(size_t)stream];
    return s.alive && (s.kind != PER_THREAD || stream == 1 + thread);
  }
  bool blocks(int stream) const { return is_blocking(order.streams[(size_t)stream].kind); }

  bool depend(Step &step, const Need &need, int depth) {
    std::vector<int> sources, events;
    for (int i = 0; i < (int)order.streams.size(); i++) {
      const auto &stream = order.streams[(size_t)i];
      if (stream.alive && stream.done.back().stream[need.stream] >= need.index) sources.push_back(i);
    }
    for (int i = 0; i < (int)order.events.size(); i++) {
      const auto &event = order.events[(size_t)i];
      if (event.alive && event.recorded && event.clock.stream[need.stream] >= need.index) events.push_back(i);
    }
    if (sources.empty() && events.empty()) return false;
    const int source = sources.empty() ? -1 : sources[random.below(sources.size())];
    const int event = events.empty() || (source >= 0 && chance(60)) ? -1 : events[random.below(events.size())];
    if (need.by_thread || step.stream < 0 || chance(on_host)) return by_host(step.thread, source, event, depth);
    return by_device(step, source, event, depth);
  }

  bool by_device(Step &step, int source, int event, int depth) {
    const int t = step.thread, to = step.stream;
    if (event >= 0) return wait(t, to, event, depth);
    if (to != 0 && source != 0 && blocks(to) && blocks(source) && chance(35)) return launch_on_null(t, depth);
    const bool may_move = (step.op == MIX && step.how == PLAIN) || (step.op == FILL && step.how != FILL_NOW) ||
                          (step.op == COPY && step.how != COPY_NOW);
    if (!moved && may_move && is_usable(source, t) && chance(20)) {
      moved = true;
      step.stream = source;
      return true;
    }
    if (chance(15)) {
      /* By way of a third stream. */
      const int between = some_stream(t);
      const int first = pending_event(source, t, depth);
      if (first < 0 || !wait(t, between, first, depth)) return false;
      const int second = pending_event(between, t, depth);
      return second >= 0 && wait(t, to, second, depth);
    }
    const int fresh = pending_event(source, t, depth);
    return fresh >= 0 && wait(t, to, fresh, depth);
  }

  bool by_host(int t, int source, int event, int depth) {
    if (event >= 0) return sync_event(t, event, depth);
    const int by = actor(source, t);
    switch (random.below(8)) {
      case 0: {
        Step all(SYNC_DEVICE, t);
        return emit(all, depth + 1);
      }
      case 1:
      case 2: {
        /* A callback tells the thread. */
        Step callback(CALLBACK, by), await(AWAIT, t);
        callback.stream = source;
        callback.token = await.token = tokens++;
        return emit(callback, depth + 1) && emit(await, depth + 1);
      }
      case 3:
      case 4: {
        const int fresh = pending_event(source, t, depth);
        return fresh >= 0 && sync_event(t, fresh, depth);
      }
      case 5:
        if (gone_buffer(t, DEVICE)) return true;
        [[fallthrough]];
      default: {
        Step sync(SYNC_STREAM, by);
        sync.stream = source;
        sync.how = chance(30);
        if (!emit(sync, depth + 1)) return false;
        if (by != t) hear(t, by);
        return true;
      }
    }
  }

  bool wait(int t, int stream, int event, int depth) {
    Step wait(WAIT, t);
    wait.stream = stream;
    wait.event = event;
    return emit(wait, depth + 1);
  }
  bool sync_event(int t, int event, int depth) {
    Step sync(SYNC_EVENT, t);
    sync.event = event;
    sync.how = chance(30);
    return emit(sync, depth + 1);
  }
  /* Records an event behind what is in the stream, or has a launch record it. -1: none can be. */
  int pending_event(int stream, int t, int depth) {
    int event = some_event();
    if (event < 0 || chance(10)) event = new_event(t);
    Step record(RECORD, actor(stream, t));
    if (chance(15)) {
      record = Step(BUSY, record.thread);
      record.value = 20000 + random.below(60000);
      record.how = chance(50) ? EXT : EXT_MODULE;
      if (order.streams[(size_t)stream].kind == PER_THREAD) record.op = RECORD;
    }
    record.stream = stream;
    record.event = event;
    return emit(record, depth + 1) ? event : -1;
  }
  bool launch_on_null(int t, int depth) {
    Step busy(BUSY, t);
    busy.stream = 0;
    busy.value = 5000 + random.below(40000);
    busy.how = (int)random.below(3);
    return emit(busy, depth + 1);
  }

  /* --- what there is --- */

  int some_stream(int t) {
    if (chance(on_null)) return 0;
    std::vector<int> all;
    for (int i = 1; i < (int)order.streams.size(); i++) {
      if (!is_usable(i, t)) continue;
      /* Streams that the thread has used last, so that threads seldom have to wait for each other. */
      const auto &s = order.streams[(size_t)i];
      bool own = true;
      for (int u = 0; u < threads; u++) own = own && (u == t || order.threads[(size_t)t].known.thread[u] >= s.at[u]);
      if (own || chance(20)) all.push_back(i);
    }
    return all.empty() ? 1 + t : all[random.below(all.size())];
  }
  int some_event() {
    std::vector<int> all;
    for (int i = 0; i < (int)order.events.size(); i++) {
      if (order.events[(size_t)i].alive) all.push_back(i);
    }
    return all.empty() ? -1 : all[random.below(all.size())];
  }
  template <typename Is>
  int some_buffer(Is is) {
    std::vector<int> all;
    for (int i = 0; i < (int)order.buffers.size(); i++) {
      if (order.buffers[(size_t)i].alive && is(order.buffers[(size_t)i])) all.push_back(i);
    }
    return all.empty() ? -1 : all[random.below(all.size())];
  }
  /* A buffer that kernels reach: seldom one of the host. */
  int kernel_buffer() {
    const bool host = chance(8);
    return some_buffer([&](const Order::Buffer &b) {
      return b.defined && (b.kind <= POOL || (host && b.kind == PINNED));
    });
  }
  bool host_pair(int &to, int &from) {
    auto is_host = [](const Order::Buffer &b) { return is_on_host(b.kind); };
    to = some_buffer(is_host), from = some_buffer(is_host);
    return to >= 0 && from >= 0;
  }
  gw_u32 words(int to, int from) {
    gw_u32 most = order.buffers[(size_t)to].count;
    if (from >= 0) most = std::min(most, order.buffers[(size_t)from].count);
    return chance(70) ? most : 1 + (gw_u32)random.below(most);
  }

  /* --- what a program does --- */

  int new_event(int t) {
    Step made(NEW_EVENT, t);
    made.event = (int)order.events.size();
    made.how = chance(50) ? hipEventDisableTiming : chance(30) ? hipEventBlockingSync : hipEventDefault;
    return emit(made) ? made.event : -1;
  }
  void new_stream(int t) {
    Step made(NEW_STREAM, t);
    made.stream = (int)order.streams.size();
    made.how = BLOCKING + (int)random.below(STREAM_KINDS - BLOCKING);
    emit(made);
  }
  /* With content for the host; that of the device comes by a copy or a fill. */
  int new_buffer(int t, int kind, gw_u32 count) {
    Step made(NEW_BUFFER, t);
    made.to = (int)order.buffers.size();
    made.how = kind;
    made.count = count;
    made.value = random.next();
    if (kind == POOL) {
      made.stream = some_stream(t);
      if (made.stream < FIRST_STREAM) return -1; /* HIP 5.2.3 takes the handles of default streams for addresses */
    }
    if (!emit(made)) return -1;
    if (is_on_host(kind)) return made.to;
    Step first(FILL, t);
    first.to = made.to;
    first.count = count;
    first.value = random.next();
    first.stream = kind == POOL ? made.stream : some_stream(t);
    first.how = random.below(3);
    const int from = some_buffer([&](const Order::Buffer &b) { return is_on_host(b.kind) && b.count >= count; });
    if (from >= 0 && chance(80)) {
      first.op = COPY;
      first.from = from;
      first.how = (int)random.below(4);
      if (first.how == COPY_NOW) first.stream = 0;
    }
    emit(first);
    return made.to;
  }
  gw_u32 draw_count() { return chance(85) ? 64 + (gw_u32)random.below(2000) : 4096 + (gw_u32)random.below(20000); }
  bool gone_buffer(int t, int kind) {
    size_t alive = 0;
    for (const auto &b : order.buffers) alive += b.alive && b.kind == kind;
    if (alive < 2) return false;
    Step gone(GONE_BUFFER, t);
    gone.to = some_buffer([&](const Order::Buffer &b) { return b.kind == kind; });
    if (kind == POOL) {
      gone.stream = some_stream(t);
      if (gone.stream < FIRST_STREAM) return false;
    }
    return emit(gone);
  }

  int launch_kind(int stream) {
    if (order.streams[(size_t)stream].kind == PER_THREAD) return chance(50) ? PLAIN : SPT;
    /* For SPT the null handle is the per-thread stream. */
    return (int)random.below(stream == 0 ? SPT : LAUNCH_KINDS);
  }
  void mix(int t) {
    Step step(MIX, t);
    step.to = kernel_buffer();
    step.from = chance(30) ? step.to : kernel_buffer();
    if (step.to < 0 || step.from < 0) return;
    step.stream = some_stream(t);
    step.count = words(step.to, step.from);
    step.value = random.next();
    step.how = launch_kind(step.stream);
    if (step.how == EXT || step.how == EXT_MODULE) {
      if (chance(60)) step.event = some_event();
      if (chance(30)) step.start = some_event();
      if (step.start == step.event) step.start = -1;
    }
    if (chance(slow)) busy(t, step.stream);
    emit(step);
  }
  void busy(int t, int stream) {
    Step step(BUSY, t);
    step.stream = stream;
    step.value = 20000 + random.below(300000);
    step.how = launch_kind(stream);
    emit(step);
  }
  void fill(int t) {
    Step step(FILL, t);
    step.to = some_buffer([](const Order::Buffer &b) { return b.kind <= POOL; });
    if (step.to < 0) return;
    step.how = (int)random.below(FILL_NOW + 1);
    step.stream = step.how == FILL_NOW ? 0 : some_stream(t);
    step.count = words(step.to, -1);
    /* No row would be no command, and order nothing. */
    if (step.how == FILL_2D && step.count < PITCH) step.how = FILL_BYTES;
    step.value = random.next();
    emit(step);
  }
  void copy(int t) {
    Step step(COPY, t);
    step.to = some_buffer([](const Order::Buffer &) { return true; });
    step.from = some_buffer([](const Order::Buffer &b) { return b.defined; });
    if (step.to < 0 || step.from < 0 || step.to == step.from) return;
    const int to = order.buffers[(size_t)step.to].kind, from = order.buffers[(size_t)step.from].kind;
    if (is_on_host(to) && is_on_host(from)) return;
    step.how = (int)random.below(COPY_2D + 1);
    if (step.how == COPY_2D && (to == PAGEABLE || from == PAGEABLE)) step.how = COPY_ASYNC;
    step.stream = step.how == COPY_NOW ? 0 : some_stream(t);
    step.count = words(step.to, step.from);
    if (step.how == COPY_2D && step.count < PITCH) step.how = COPY_ASYNC;
    /* A synchronous one orders too much to be frequent. */
    if (to == PAGEABLE && chance(60)) return;
    if (step.how == COPY_NOW && chance(50)) return;
    emit(step);
  }
  void callback(int t) {
    Step step(CALLBACK, t);
    step.stream = some_stream(t);
    if (!host_pair(step.to, step.from)) return;
    step.count = words(step.to, step.from);
    step.value = random.next();
    emit(step);
  }
  void host_mix(int t) {
    Step step(HOST_MIX, t);
    if (!host_pair(step.to, step.from)) return;
    step.count = words(step.to, step.from);
    step.value = random.next();
    emit(step);
  }
  /* Its work is complete when another stream's is; it is destroyed with work pending. */
  void gone_stream(int t) {
    const int stream = some_stream(t), other = some_stream(t);
    if (stream < FIRST_STREAM || other == stream || other == 0) return;
    const int event = pending_event(stream, t, 0);
    const bool waits_before = chance(50);
    if (event < 0 || (waits_before && !wait(t, other, event, 0))) return;
    Step gone(GONE_STREAM, t);
    gone.stream = stream;
    if (waits_before || wait(t, other, event, 0)) emit(gone);
  }

  Step inner(int stream, std::vector<int> buffers) {
    Step step(random.below(10) < 7 ? MIX : FILL, 0);
    step.stream = stream;
    step.to = buffers[random.below(buffers.size())];
    step.value = random.next();
    step.how = step.op == FILL ? (chance(50) ? FILL_32 : FILL_BYTES) : PLAIN;
    const int from = buffers[random.below(buffers.size())];
    if (step.op == FILL && from != step.to && chance(60)) {
      step.op = COPY;
      step.how = COPY_ASYNC;
    }
    if (step.op != FILL) step.from = from;
    step.count = words(step.to, step.from);
    return step;
  }
  void new_graph(int t) {
    Step step(NEW_GRAPH, t);
    step.graph = (int)order.graphs.size();
    step.how = (int)random.below(3);
    if (step.how == FORKED && !FORKS) step.how = BUILT;
    std::vector<int> buffers;
    for (int i = 0; i < 6; i++) {
      const int buffer = some_buffer([&](const Order::Buffer &b) { return b.kind == DEVICE && b.defined; });
      if (buffer >= 0 && std::find(buffers.begin(), buffers.end(), buffer) == buffers.end()) buffers.push_back(buffer);
    }
    if (buffers.size() < 2) return;
    if (step.how == CAPTURED) {
      step.stream = some_stream(t);
      if (step.stream < FIRST_STREAM) return;
    }
    auto some = [&](int stream, const std::vector<int> &of, size_t most) {
      for (size_t i = 0, n = 1 + random.below(most); i < n; i++) step.inside.push_back(inner(stream, of));
    };
    some(0, buffers, 3);
    if (step.how == FORKED) {
      /* Between fork and join the two streams, numbers 0 and 1 in here, touch different buffers. */
      const std::vector<int> one(buffers.begin(), buffers.begin() + 1), rest(buffers.begin() + 1, buffers.end());
      some(1, one, 2);
      some(0, rest, 2);
      Step join(RECORD);
      join.stream = 0;
      step.inside.push_back(join);
      some(0, buffers, 2);
    }
    emit(step);
  }
  int some_graph() {
    std::vector<int> all;
    for (int i = 0; i < (int)order.graphs.size(); i++) {
      if (order.graphs[(size_t)i].alive) all.push_back(i);
    }
    return all.empty() ? -1 : all[random.below(all.size())];
  }
  void use_graph(int t) {
    const int graph = some_graph();
    if (graph < 0 || (order.graphs.size() < 3 && chance(20))) return new_graph(t);
    Step step(chance(15) ? GONE_GRAPH : LAUNCH_GRAPH, t);
    step.graph = graph;
    if (step.op == LAUNCH_GRAPH) step.stream = some_stream(t);
    emit(step);
  }
  void about_events(int t) {
    Step step(RECORD, t);
    step.event = some_event();
    switch (random.below(8)) {
      case 0: new_event(t); return;
      case 1: step.op = GONE_EVENT; break;
      case 2: step.op = ASK_EVENT; break;
      case 3:
        step.op = ASK_EVENT;
        step.how = step.event >= 0 && order.is_certain(t, step.event);
        break;
      case 4:
        step.op = ELAPSED;
        step.start = some_event();
        break;
      case 5:
        step.op = WAIT;
        [[fallthrough]];
      default: step.stream = some_stream(t);
    }
    if (step.event >= 0) emit(step);
  }
  void about_streams(int t) {
    Step step(ASK_STREAM, t);
    switch (random.below(6)) {
      case 0:
        if (order.streams.size() < STREAMS - 1) new_stream(t);
        return;
      case 1: gone_stream(t); return;
      case 2:
        if (chance(on_host)) step.op = SYNC_STREAM;
        break;
      case 3:
        step.op = REFUSED;
        step.how = (int)random.below(REFUSED_KINDS);
        break;
      default: break;
    }
    step.stream = some_stream(t);
    emit(step);
  }
  void about_memory(int t) {
    int kind = chance(50) ? DEVICE : (int)random.below(PAGEABLE + 1);
    if (kind == POOL && !EVERYTHING) kind = DEVICE;
    if (chance(50) || !gone_buffer(t, kind)) new_buffer(t, kind, draw_count());
  }

  void begin() {
    on_host = random.below(30);
    on_null = chance(25) ? 0 : random.below(30);
    slow = random.below(30);
    large = chance(2);
    for (size_t i = 0, n = 2 + random.below(5); i < n; i++) new_stream(0);
    for (size_t i = 0, n = 1 + random.below(4); i < n; i++) new_event(0);
    new_buffer(0, PAGEABLE, 24100);
    for (size_t i = 0, n = 1 + random.below(2); i < n; i++) new_buffer(0, PINNED + (int)random.below(2), draw_count());
    for (size_t i = 0, n = 2 + random.below(4); i < n; i++) new_buffer(0, DEVICE, draw_count());
    if (EVERYTHING && chance(40)) new_buffer(0, POOL, draw_count());
    /* The runtime stages copies from pageable memory only up to 4 MiB. */
    if (large) new_buffer(0, PAGEABLE, 700000), new_buffer(0, DEVICE, 600000);
  }
  void next() {
    const int t = any_thread();
    moved = false;
    const size_t draw = random.below(100);
    if (draw < 40) mix(t);
    else if (draw < 56) copy(t);
    else if (draw < 64) fill(t);
    else if (draw < 69) busy(t, some_stream(t));
    else if (draw < 73) callback(t);
    else if (draw < 75) host_mix(t);
    else if (draw < 83) about_events(t);
    else if (draw < 88) about_streams(t);
    else if (draw < 93) about_memory(t);
    else if (graphs) use_graph(t);
    else mix(t);
  }
  void end() {
    for (int t = 1; t < threads; t++) hear(0, t);
    emit(Step(SYNC_DEVICE, 0));
    for (int i = 0; i < 40; i++) {
      const Need need = order.need_at_end();
      Step nothing(SYNC_DEVICE, 0);
      if (need.what == Need::HEARING) hear(0, need.thread);
      if (need.what == Need::COMPLETE) depend(nothing, need, 0);
      if (need.what == Need::NOTHING || need.what == Need::WRONG) break;
    }
  }
};

/* Whether the steps are a valid program; a shorter program may not be. */
static inline bool is_valid(const Program &program) {
  Order order(program.threads);
  for (const Step &step : program.steps) {
    if (order.need(step).what != Need::NOTHING) return false;
    order.apply(step);
  }
  return order.need_at_end().what == Need::NOTHING;
}

#endif
