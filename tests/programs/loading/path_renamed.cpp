// run: plain
/* A runtime under a name of its own, as wheels bring it (libamdhip64-1a2b3c4d.so.6), that the program is linked with: the program
 * is copied and made to need it. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

#include "work.h"

static std::string contents(const char *path) {
  std::string all;
  std::vector<char> part(1 << 20);
  int from = open(path, O_RDONLY | O_CLOEXEC);
  for (ssize_t n; (n = read(from, part.data(), part.size())) > 0;) all.append(part.data(), (size_t)n);
  REQUIRE(from >= 0 && !all.empty(), "%s", path);
  close(from);
  return all;
}

static void make(const std::string &path, const std::string &all) {
  int to = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
  REQUIRE(to >= 0 && write(to, all.data(), all.size()) == (ssize_t)all.size(), "%s", path.c_str());
  close(to);
}

/* Gives the library another name of the same length everywhere. */
static std::string renamed(std::string all, const std::string &from, const std::string &to) {
  bool any = false;
  for (size_t at = 0; (at = all.find(from, at)) != std::string::npos; at += to.size(), any = true)
    all.replace(at, from.size(), to);
  REQUIRE(any, "no %s", from.c_str());
  return all;
}

int main(int argc, char **) {
  if (argc > 1) {
    printf("%016llx\n", whole_work(new_stream(), 3));
    /* Nobody has brought another runtime in. */
    REQUIRE(contents("/proc/self/maps").find("/libamdhip64") == std::string::npos, "a second runtime");
    return passed();
  }
  Dl_info info;
  REQUIRE(dladdr(dlsym(RTLD_NEXT, "hipGetDevice"), &info) != 0, "no path");
  char folder[] = "/tmp/giveway-renamed-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr, "mkdtemp");
  const std::string name = std::string(RUNTIME).replace(3, 8, "hipamd46"), there = std::string(folder) + "/";
  make(there + name, renamed(contents(info.dli_fname), RUNTIME, name));
  make(there + "self", renamed(contents("/proc/self/exe"), RUNTIME, name));
  setenv("LD_LIBRARY_PATH", folder, 1);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    execl((there + "self").c_str(), "self", "renamed", nullptr);
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) REQUIRE(errno == EINTR, "waitpid");
  for (const char *made : {name.c_str(), "self"}) unlink((there + made).c_str());
  rmdir(folder);
  REQUIRE(status == 0, "it ended with %d", status);
  return 0;
}
