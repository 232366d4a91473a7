/* What the tests of the C++ header share: calls that throw, and threads that wait for each other. */
#ifndef THROWS_H
#define THROWS_H

#include "check.h"

#include <future>

#include "giveway/scheduler.hpp"

using namespace std::chrono_literals;
using giveway::Error;

static const size_t N = 256;

/* The call throws an Error with this result. */
template <typename F>
static void throws_at(int line, const char *what, XResult want, F f) {
  try {
    f();
  } catch (const Error &error) {
    if (error.result() != want) fail_at(__FILE_NAME__, line, what, "%s, expected result %d", error.what(), (int)want);
    return;
  }
  fail_at(__FILE_NAME__, line, what, "no Error, expected result %d", (int)want);
}
#define THROWS(call, want) throws_at(__LINE__, #call, (want), [&] { (void)(call); })

static inline hipStream_t new_stream() {
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  return stream;
}

/* Something that happens once, for which threads wait. */
class Signal {
 public:
  void set() { promise_.set_value(); }
  void wait() const { future_.wait(); }

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_{promise_.get_future().share()};
};

#endif
