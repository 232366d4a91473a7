// run: exit 21
/* exit() in one thread while three others have launched, have more pending than has run, and sleep for ever. */
#include <unistd.h>

#include <atomic>
#include <thread>

#include "work.h"

int main() {
  std::atomic<int> ready(0);
  for (int i = 0; i < 3; i++) {
    std::thread([&] {
      hipStream_t stream = new_stream();
      for (int k = 0; k < 30; k++) launch_busy(stream, 100000);
      ready++;
      for (;;) pause();
    }).detach();
  }
  until([&] { return ready == 3; });
  puts("ok");
  exit(21);
}
