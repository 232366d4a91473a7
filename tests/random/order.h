/* What is known to happen before what, by the rules that HIP documents and by nothing else. A step is valid only if all
 * conflicting accesses to its memory, and all uses of its handles, are known to come before it.
 *
 * Known are clocks: how many commands of each stream are complete, and how far each thread of the program is heard of.
 * The rules, in one place each:
 *   - a command begins when those before it in its stream are complete, and after what its thread knew when it was issued;
 *   - one on the null stream also after those of the device's blocking streams that were issued before, and one on a
 *     blocking stream after those of the null stream;
 *   - a wait orders its stream after what the event's last record then was behind; synchronizing lets the thread know;
 *   - hipFree is a synchronization of the device, and hipFreeAsync a command;
 *   - a copy to pageable memory returns when it is done, one from pageable memory when the source has been read;
 *   - the launches of one executable graph must be ordered by the program. */
#ifndef GIVEWAY_RANDOM_ORDER_H
#define GIVEWAY_RANDOM_ORDER_H

#include <algorithm>

#include "program.h"

static const int STREAMS = 20;

struct Clock {
  unsigned stream[STREAMS] = {};
  unsigned thread[THREADS] = {};
  void join(const Clock &other) {
    for (int i = 0; i < STREAMS; i++) stream[i] = std::max(stream[i], other.stream[i]);
    for (int i = 0; i < THREADS; i++) thread[i] = std::max(thread[i], other.thread[i]);
  }
};

/* What is missing before a step is valid. */
struct Need {
  enum What {
    NOTHING,
    HEARING,  /* its thread must first hear of `thread` */
    COMPLETE, /* command `index` of `stream` must be complete before it */
    WRONG,    /* it can never be valid here */
  } what = NOTHING;
  int thread = -1, stream = -1;
  unsigned index = 0;
  bool by_thread = false; /* known to the thread, not only to its stream */
};

class Order {
 public:
  struct Access {
    int thread = -1, stream = -1; /* stream -1: by the thread itself, or none if that is -1 too */
    unsigned index = 0;           /* of the command, or the thread's time */
  };
  struct Uses {
    unsigned at[THREADS] = {};
    bool alive = false;
  };
  struct Stream : Uses {
    int kind = 0;
    std::vector<Clock> done{Clock()}; /* what is complete with command i; the first one is number 1 */
    Uses relied;                      /* those who take it for granted that it exists */
  };
  struct Event : Uses {
    bool timing = false, recorded = false;
    int stream = -1;
    Clock clock;
    bool certain[THREADS] = {}; /* a thread has seen the last record complete, by a call about this event or stream */
  };
  struct Buffer : Uses {
    int kind = 0;
    gw_u32 count = 0;
    bool defined = false;
    Access made, write;
    std::vector<Access> reads;
  };
  struct Graph : Uses {
    std::vector<Step> inside;
    Access launch;
  };
  struct Thread {
    Clock known;
    unsigned issued[STREAMS] = {};
    unsigned &time(int self) { return known.thread[self]; }
  };

  std::vector<Stream> streams;
  std::vector<Event> events;
  std::vector<Buffer> buffers;
  std::vector<Graph> graphs;
  std::vector<Thread> threads;

  explicit Order(int count) : streams(FIRST_STREAM), threads((size_t)count) {
    for (int i = 0; i < FIRST_STREAM; i++) {
      streams[(size_t)i].alive = i <= count;
      streams[(size_t)i].kind = i == 0 ? NULL_STREAM : PER_THREAD;
    }
  }

  /* Whether a command's completion is known to this thread, or before its next command in this stream. */
  bool knows(int thread, int stream, unsigned index) const {
    return threads[(size_t)thread].known.stream[stream] >= index;
  }
  Clock before(int thread, int stream) const {
    const Thread &t = threads[(size_t)thread];
    Clock clock = t.known;
    clock.join(streams[(size_t)stream].done.back());
    if (stream == 0) {
      for (size_t i = 1; i < streams.size(); i++) {
        if (streams[i].alive && is_blocking(streams[i].kind)) clock.join(streams[i].done[t.issued[i]]);
      }
    } else if (is_blocking(streams[(size_t)stream].kind)) {
      clock.join(streams[0].done[t.issued[0]]);
    }
    return clock;
  }

  /* What a thread knows that has synchronized a stream: before HIP 6 as if a command had been put there. */
  Clock synchronized(int thread, int stream) const {
    if (stream == 0 || HIP_VERSION_MAJOR < 6) return before(thread, stream);
    Clock clock = threads[(size_t)thread].known;
    clock.join(streams[(size_t)stream].done.back());
    return clock;
  }

  /* What is missing before this step may come next. */
  Need need(const Step &step) const {
    Need need;
    const bool heard = step.op == POST || step.op == AWAIT;
    if (!heard && fence_thread >= 0) hears(step.thread, fence_thread, fence_time, need);
    switch (step.op) {
      case NEW_STREAM: wants(step.stream == (int)streams.size() && step.stream < STREAMS, need); break;
      case NEW_EVENT: wants(step.event == (int)events.size(), need); break;
      case NEW_BUFFER:
        wants(step.to == (int)buffers.size(), need);
        if (step.how == POOL) stream_use(step, need);
        break;
      case GONE_STREAM:
        stream_use(step, need);
        if (need.what == Need::NOTHING) {
          wants(step.stream >= FIRST_STREAM, need);
          after(step.thread, streams[(size_t)step.stream].relied, need);
        }
        break;
      case GONE_BUFFER: gone_buffer(step, need); break;
      case MIX:
      case BUSY:
      case FILL:
      case COPY:
      case CALLBACK:
      case LAUNCH_GRAPH:
        stream_use(step, need);
        if (step.op == LAUNCH_GRAPH) graph_use(step, need);
        wants(step.stream == 0 || !((step.op == FILL && step.how == FILL_NOW) || (step.op == COPY && step.how == COPY_NOW)), need);
        wants(step.op != MIX || step.how != SPT || step.stream != 0, need);
        /* HIP 5.2.3 takes the handle of the per-thread stream for an address there. */
        if (step.stream >= 1 && step.stream < FIRST_STREAM) wants((step.op != MIX && step.op != BUSY) || !is_by_module(step.how), need);
        if (step.event >= 0) event_use(step.thread, step.event, need);
        if (step.start >= 0) event_use(step.thread, step.start, need);
        memory(step, need);
        break;
      case HOST_MIX: memory(step, need); break;
      case RECORD:
      case WAIT:
        stream_use(step, need);
        event_use(step.thread, step.event, need);
        break;
      case GONE_EVENT:
      case SYNC_EVENT: event_use(step.thread, step.event, need); break;
      case ASK_EVENT:
        event_use(step.thread, step.event, need);
        if (need.what == Need::NOTHING && step.how) wants(is_certain(step.thread, step.event), need);
        break;
      case ELAPSED:
        for (int event : {step.start, step.event}) {
          event_use(step.thread, event, need);
          if (need.what != Need::NOTHING) break;
          const Event &e = events[(size_t)event];
          wants(e.recorded && e.timing && is_certain(step.thread, event), need);
        }
        break;
      case SYNC_STREAM:
      case ASK_STREAM:
      case REFUSED: stream_use(step, need); break;
      case SYNC_DEVICE: alone(step, need); break;
      case POST: wants(step.token >= (int)tokens.size() || !tokens[(size_t)step.token].posted, need); break;
      case AWAIT: wants(step.token < (int)tokens.size() && tokens[(size_t)step.token].posted, need); break;
      case NEW_GRAPH: new_graph(step, need); break;
      case GONE_GRAPH: graph_use(step, need); break;
    }
    return need;
  }

  /* At the end thread 0 has synchronized the device and reads everything. */
  Need need_at_end() const {
    Need need;
    for (size_t u = 1; u < threads.size(); u++) {
      hears(0, (int)u, threads[u].known.thread[u], need);
    }
    for (const Buffer &b : buffers) {
      if (b.alive) conflict(0, threads[0].known, b, true, need);
    }
    need.by_thread = true;
    return need;
  }

  bool is_certain(int thread, int event) const {
    const Event &e = events[(size_t)event];
    return !e.recorded || e.certain[thread];
  }

  /* The step comes next; nothing is missing. */
  void apply(const Step &step) {
    const int t = step.thread;
    Thread &thread = threads[(size_t)t];
    thread.time(t)++;
    auto use = [&](Uses &uses) { uses.at[t] = thread.time(t); };
    if (step.op == NEW_STREAM) streams.emplace_back();
    if (step.op == NEW_EVENT) events.emplace_back();
    if (step.op == NEW_BUFFER) buffers.emplace_back();
    if (step.op == NEW_GRAPH && graphs.size() <= (size_t)step.graph) graphs.resize((size_t)step.graph + 1);
    if (step.stream >= 0) use(streams[(size_t)step.stream]);
    if (step.event >= 0) use(events[(size_t)step.event]);
    if (step.start >= 0) use(events[(size_t)step.start]);
    if (step.to >= 0) use(buffers[(size_t)step.to]);
    if (step.from >= 0) use(buffers[(size_t)step.from]);
    if (step.graph >= 0) use(graphs[(size_t)step.graph]);
    if (forgets(step)) fence(t);
    Clock done;
    unsigned index = 0;
    if (is_command(step)) {
      done = before(t, step.stream);
      if (step.op == WAIT) done.join(events[(size_t)step.event].clock);
      if (step.stream == 0) rely(t);
      Stream &stream = streams[(size_t)step.stream];
      index = (unsigned)stream.done.size();
      done.stream[step.stream] = index;
      stream.done.push_back(done);
      thread.issued[step.stream] = index;
    }
    switch (step.op) {
      case NEW_STREAM:
        streams.back().alive = true;
        streams.back().kind = step.how;
        break;
      case GONE_STREAM: streams[(size_t)step.stream].alive = false; break;
      case NEW_EVENT:
        events.back().alive = true;
        events.back().timing = !(step.how & 2);
        break;
      case GONE_EVENT: events[(size_t)step.event].alive = false; break;
      case NEW_BUFFER: {
        Buffer &b = buffers.back();
        b.alive = true;
        b.kind = step.how;
        b.count = step.count;
        b.defined = is_on_host(step.how);
        b.made = {t, -1, thread.time(t)};
        break;
      }
      case GONE_BUFFER:
        buffers[(size_t)step.to].alive = false;
        if (buffers[(size_t)step.to].kind == DEVICE) {
          thread.known.join(whole_device(t));
          rely(t);
        }
        break;
      case MIX:
      case BUSY:
        if (step.event >= 0) recorded(step.event, step.stream, done);
        /* Of a start event no more is taken for granted than what the thread knew. */
        if (step.start >= 0) recorded(step.start, step.stream, thread.known);
        break;
      case RECORD: recorded(step.event, step.stream, done); break;
      case SYNC_EVENT:
        thread.known.join(events[(size_t)step.event].clock);
        events[(size_t)step.event].certain[t] = true;
        break;
      case SYNC_STREAM:
        thread.known.join(synchronized(t, step.stream));
        if (step.stream == 0) rely(t);
        for (Event &e : events) {
          if (e.stream == step.stream && knows(t, e.stream, e.clock.stream[e.stream])) e.certain[t] = true;
        }
        break;
      case SYNC_DEVICE:
        thread.known.join(whole_device(t));
        rely(t);
        break;
      case COPY:
        if (returns_when_done(step)) thread.known.join(done);
        break;
      case CALLBACK:
        if (step.token >= 0) post(step.token, done, thread);
        break;
      case POST: post(step.token, thread.known, thread); break;
      case AWAIT: {
        const Token &token = tokens[(size_t)step.token];
        thread.known.join(token.known);
        for (int i = 0; i < STREAMS; i++) {
          thread.issued[i] = std::max(thread.issued[i], token.issued[i]);
        }
        break;
      }
      case NEW_GRAPH:
        graphs[(size_t)step.graph].alive = true;
        graphs[(size_t)step.graph].inside = step.inside;
        if (step.how != BUILT) fence(t);
        break;
      case GONE_GRAPH: graphs[(size_t)step.graph].alive = false; break;
      default: break;
    }
    remember(step, index);
  }

 private:
  struct Token {
    bool posted = false;
    Clock known;
    unsigned issued[STREAMS] = {};
  };
  struct Use {
    int buffer;
    bool writes, by_thread;
  };
  std::vector<Token> tokens;
  int fence_thread = -1; /* everything else comes before or after such a step */
  unsigned fence_time = 0;

  static bool is_command(const Step &step) {
    switch (step.op) {
      case MIX: case BUSY: case FILL: case COPY: case CALLBACK: case RECORD: case WAIT: case LAUNCH_GRAPH:
        return true;
      case NEW_BUFFER: case GONE_BUFFER: return step.stream >= 0;
      default: return false;
    }
  }
  bool returns_when_done(const Step &step) const {
    const int to = buffers[(size_t)step.to].kind, from = buffers[(size_t)step.from].kind;
    if (to == PAGEABLE) return true;
    const bool waits = step.how == COPY_NOW || step.how == COPY_WITH_STREAM;
    return waits && (is_on_host(to) || is_on_host(from)) && from != PAGEABLE;
  }
  std::vector<Use> uses(const Step &step) const {
    std::vector<Use> all;
    auto add = [&](int buffer, bool writes, bool by_thread) {
      if (buffer >= 0) all.push_back({buffer, writes, by_thread});
    };
    auto pageable = [&](int buffer) { return buffers[(size_t)buffer].kind == PAGEABLE; };
    switch (step.op) {
      case NEW_BUFFER:
        if (step.how != DEVICE) add(step.to, true, step.stream < 0);
        break;
      case GONE_BUFFER:
        if (step.stream >= 0) add(step.to, true, false);
        break;
      case MIX:
      case CALLBACK:
      case FILL:
        add(step.to, true, false);
        add(step.from, false, false);
        break;
      case COPY:
        add(step.to, true, pageable(step.to));
        add(step.from, false, pageable(step.from));
        break;
      case HOST_MIX:
        add(step.to, true, true);
        add(step.from, false, true);
        break;
      case LAUNCH_GRAPH:
        for (const Step &inner : graphs[(size_t)step.graph].inside) {
          add(inner.to, true, false);
          add(inner.from, false, false);
        }
        break;
      default: break;
    }
    return all;
  }
  void remember(const Step &step, unsigned index) {
    const int t = step.thread;
    const Access here{t, -1, threads[(size_t)t].time(t)}, there{t, step.stream, index};
    for (const Use &use : uses(step)) {
      Buffer &b = buffers[(size_t)use.buffer];
      b.at[t] = threads[(size_t)t].time(t);
      if (use.writes) {
        b.write = use.by_thread ? here : there;
        b.reads.clear();
      } else {
        b.reads.push_back(use.by_thread ? here : there);
      }
    }
    if (step.op == LAUNCH_GRAPH) graphs[(size_t)step.graph].launch = there;
    const bool fills = step.op == FILL && step.how != FILL_2D, copies = step.op == COPY && step.how != COPY_2D;
    if ((fills || copies) && step.count == buffers[(size_t)step.to].count) {
      buffers[(size_t)step.to].defined = true;
    }
  }

  Clock whole_device(int thread) const {
    Clock clock;
    for (size_t i = 0; i < streams.size(); i++) {
      if (streams[i].alive) clock.join(streams[i].done[threads[(size_t)thread].issued[i]]);
    }
    return clock;
  }
  void fence(int thread) {
    fence_thread = thread;
    fence_time = threads[(size_t)thread].time(thread);
  }
  void rely(int thread) {
    for (Stream &stream : streams) stream.relied.at[thread] = threads[(size_t)thread].time(thread);
  }
  void recorded(int event, int stream, const Clock &clock) {
    Event &e = events[(size_t)event];
    e.recorded = true;
    e.clock = clock;
    e.stream = stream;
    for (bool &certain : e.certain) certain = false;
  }
  void post(int token, const Clock &known, const Thread &thread) {
    if (tokens.size() <= (size_t)token) tokens.resize((size_t)token + 1);
    Token &t = tokens[(size_t)token];
    t.posted = true;
    t.known = known;
    std::copy(thread.issued, thread.issued + STREAMS, t.issued);
  }

  static void wants(bool holds, Need &need) {
    if (need.what == Need::NOTHING && !holds) need.what = Need::WRONG;
  }
  void hears(int thread, int of, unsigned time, Need &need) const {
    if (need.what != Need::NOTHING || thread == of) return;
    if (threads[(size_t)thread].known.thread[of] >= time) return;
    need.what = Need::HEARING;
    need.thread = of;
  }
  void after(int thread, const Uses &uses, Need &need) const {
    for (int of = 0; of < (int)threads.size(); of++) hears(thread, of, uses.at[of], need);
  }
  void stream_use(const Step &step, Need &need) const {
    if (step.stream < 0) return;
    wants(step.stream < (int)streams.size() && streams[(size_t)step.stream].alive, need);
    if (need.what != Need::NOTHING) return;
    const Stream &stream = streams[(size_t)step.stream];
    wants(stream.kind != PER_THREAD || step.stream == 1 + step.thread, need);
    after(step.thread, stream, need);
  }
  void event_use(int thread, int event, Need &need) const {
    wants(event >= 0 && event < (int)events.size() && events[(size_t)event].alive, need);
    if (need.what == Need::NOTHING) after(thread, events[(size_t)event], need);
  }
  void graph_use(const Step &step, Need &need) const {
    const bool there = step.graph < (int)graphs.size() && graphs[(size_t)step.graph].alive;
    wants(there, need);
    if (need.what == Need::NOTHING) after(step.thread, graphs[(size_t)step.graph], need);
  }
  /* Nothing of another thread's comes while it is made. */
  void heard_all(int thread, Need &need) const {
    for (int u = 0; u < (int)threads.size(); u++) hears(thread, u, threads[(size_t)u].known.thread[u], need);
  }
  /* What waits for the device makes its streams forget their last command, and before HIP 5.3 also one that has just been
   * submitted by another thread (amd::HostQueue::finish): what should wait for that one no longer does. */
  bool forgets(const Step &step) const {
    if (HIP_VERSION_MAJOR * 100 + HIP_VERSION_MINOR >= 503) return false;
    if (step.op == SYNC_DEVICE) return true;
    return step.op == GONE_BUFFER && buffers[(size_t)step.to].kind != POOL;
  }
  void alone(const Step &step, Need &need) const {
    if (forgets(step)) heard_all(step.thread, need);
  }
  void new_graph(const Step &step, Need &need) const {
    stream_use(step, need);
    if (step.how != BUILT) heard_all(step.thread, need);
    for (const Step &inner : step.inside) {
      for (int buffer : {inner.to, inner.from}) {
        if (buffer >= 0) exists(step.thread, inner, buffer, need);
      }
    }
  }
  /* The buffer is there, and whoever made it was heard of. */
  void exists(int thread, const Step &step, int buffer, Need &need) const {
    wants(buffer < (int)buffers.size() && buffers[(size_t)buffer].alive, need);
    if (need.what != Need::NOTHING) return;
    const Buffer &b = buffers[(size_t)buffer];
    wants(step.count <= b.count, need);
    hears(thread, b.made.thread, b.made.index, need);
  }
  void conflict(int thread, const Clock &clock, const Buffer &b, bool writes, Need &need) const {
    covered(thread, clock, b.write, need);
    if (writes) {
      for (const Access &read : b.reads) covered(thread, clock, read, need);
    }
  }
  void covered(int thread, const Clock &clock, const Access &access, Need &need) const {
    if (need.what != Need::NOTHING || access.thread < 0) return;
    if (access.stream < 0) {
      if (clock.thread[access.thread] < access.index) hears(thread, access.thread, access.index, need);
      return;
    }
    if (clock.stream[access.stream] >= access.index) return;
    if (threads[(size_t)thread].issued[access.stream] < access.index) {
      need.what = Need::HEARING;
      need.thread = access.thread;
      wants(access.thread != thread, need);
      return;
    }
    need.what = Need::COMPLETE;
    need.stream = access.stream;
    need.index = access.index;
  }
  void memory(const Step &step, Need &need) const {
    if (need.what != Need::NOTHING) return;
    std::vector<const Step *> parts{&step};
    if (step.op == LAUNCH_GRAPH) {
      parts.clear();
      for (const Step &inner : graphs[(size_t)step.graph].inside) parts.push_back(&inner);
    }
    for (const Step *part : parts) {
      for (int buffer : {part->to, part->from}) {
        if (buffer < 0) continue;
        exists(step.thread, *part, buffer, need);
        if (need.what != Need::NOTHING) return;
        const Buffer &b = buffers[(size_t)buffer];
        const bool whole = (part->op == FILL && part->how != FILL_2D) || (part->op == COPY && part->how != COPY_2D);
        wants(b.defined || (buffer == part->to && whole && part->count == b.count), need);
        const bool by_host = part->op == CALLBACK || part->op == HOST_MIX;
        wants(by_host ? is_on_host(b.kind) : b.kind != PAGEABLE || part->op == COPY, need);
        if (part->op == FILL) wants(!is_on_host(b.kind), need);
      }
    }
    if (need.what != Need::NOTHING) return;
    const Clock clock = step.stream >= 0 ? before(step.thread, step.stream) : Clock();
    if (step.op == LAUNCH_GRAPH) {
      covered(step.thread, clock, graphs[(size_t)step.graph].launch, need);
    }
    for (const Use &use : uses(step)) {
      const Clock &by = use.by_thread ? threads[(size_t)step.thread].known : clock;
      conflict(step.thread, by, buffers[(size_t)use.buffer], use.writes, need);
      if (use.by_thread && need.what == Need::COMPLETE) need.by_thread = true;
      if (need.what != Need::NOTHING) return;
    }
  }
  void gone_buffer(const Step &step, Need &need) const {
    const bool there = step.to < (int)buffers.size() && buffers[(size_t)step.to].alive;
    wants(there, need);
    if (need.what != Need::NOTHING) return;
    const Buffer &b = buffers[(size_t)step.to];
    alone(step, need);
    wants((b.kind == POOL) == (step.stream >= 0), need);
    after(step.thread, b, need);
    for (const Graph &graph : graphs) {
      if (!graph.alive) continue;
      for (const Step &inner : graph.inside) wants(inner.to != step.to && inner.from != step.to, need);
    }
    Clock clock = threads[(size_t)step.thread].known;
    if (b.kind == POOL) {
      stream_use(step, need);
      if (need.what == Need::NOTHING) clock = before(step.thread, step.stream);
    }
    if (b.kind == DEVICE) clock.join(whole_device(step.thread));
    conflict(step.thread, clock, b, true, need);
    need.by_thread = b.kind != POOL;
  }
};

#endif
