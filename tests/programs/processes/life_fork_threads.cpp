// run: plain
/* Two threads launch without pause while a third one forks 40 children that touch memory and end. */
#include <atomic>
#include <thread>

#include "processes.h"
#include "work.h"

int main() {
  std::atomic<bool> over(false);
  std::vector<Sum> sums = {Sum(1), Sum(2)};
  CHECK(hipDeviceSynchronize());
  std::vector<std::thread> threads;
  std::vector<gw_u64> launched(2);
  for (size_t i = 0; i < 2; i++) {
    threads.emplace_back([&, i] {
      hipStream_t stream = new_stream();
      for (int round = 0; round < 20 || !over.load(); round++) {
        sums[i].launch(stream, 5);
        CHECK(hipStreamSynchronize(stream));
      }
    });
  }
  for (int i = 0; i < 40; i++) {
    pid_t child = fork();
    REQUIRE(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
      std::vector<char> memory(1 << 18, (char)i);
      _exit(memory[777] == (char)i ? 3 : 1);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) REQUIRE(errno == EINTR, "waitpid: %s", strerror(errno));
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 3, "child %d: status %x", i, status);
  }
  over = true;
  for (auto &thread : threads) thread.join();
  for (auto &sum : sums) sum.check("a thread's work");
  puts("40 children");
  return passed();
}
