// run: unlinked
/* Python calls HIP through ctypes, which looks names up by the library's handle. */
#include <hip/hip_version.h>
#include <stdio.h>
#include <unistd.h>

static const char SCRIPT[] = R"(
import ctypes
import sys
hip = ctypes.CDLL("libamdhip64.so." + sys.argv[1])
def call(name, *arguments):
    code = getattr(hip, name)(*arguments)
    if code: raise SystemExit(f"{name}: {code}")
P, N = ctypes.c_void_p, ctypes.c_size_t
device, host, stream, event = P(), P(), P(), P()
size = 4096
call("hipMalloc", ctypes.byref(device), N(size))
call("hipHostMalloc", ctypes.byref(host), N(size), 0)
call("hipStreamCreateWithFlags", ctypes.byref(stream), 1)
call("hipEventCreateWithFlags", ctypes.byref(event), 2)
words = (ctypes.c_ubyte * size).from_address(host.value)
total = 0
for i in range(20):
    for k in range(size): words[k] = (k * 7 + i) % 251
    call("hipMemcpyAsync", device, host, N(size), 1, stream)
    call("hipMemsetAsync", device, i, N(size // 4), stream)
    call("hipMemcpyAsync", host, device, N(size), 2, stream)
    call("hipEventRecord", event, stream)
    call("hipEventSynchronize", event)
    want = [i] * (size // 4) + [(k * 7 + i) % 251 for k in range(size // 4, size)]
    if list(words) != want: raise SystemExit("wrong contents")
    total += sum(words)
call("hipStreamSynchronize", stream)
print(total)
print("last error", hip.hipGetLastError())
print("ok")
)";

int main() {
  char major[16];
  snprintf(major, sizeof major, "%d", HIP_VERSION_MAJOR);
  execlp("python3", "python3", "-c", SCRIPT, major, nullptr);
  perror("python3");
  return 1;
}
