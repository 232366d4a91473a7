// run: no-work
/* What a stream says of itself: flags, priority, compute units, device; of the null stream and of wrong places as well. */
#include "check.h"

int main() {
  int least = 7, greatest = 7, device = 7;
  CHECK(hipDeviceGetStreamPriorityRange(&least, &greatest));
  printf("priorities %d to %d\n", least, greatest);
  hipStream_t plain, free_one, urgent, masked, none;
  const uint32_t mask[4] = {0xFFFF, 0, 0, 0};
  CHECK(hipStreamCreate(&plain));
  CHECK(hipStreamCreateWithFlags(&free_one, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithPriority(&urgent, hipStreamNonBlocking, greatest));
  CHECK(hipExtStreamCreateWithCUMask(&masked, 4, mask));
  struct Named {
    const char *name;
    hipStream_t stream;
  } all[] = {{"plain", plain}, {"non-blocking", free_one}, {"urgent", urgent}, {"masked", masked}, {"null", nullptr}};
  for (const Named &each : all) {
    unsigned flags = 77;
    int priority = 77;
    uint32_t units[4] = {7, 7, 7, 7};
    show("flags", hipStreamGetFlags(each.stream, &flags));
    show("priority", hipStreamGetPriority(each.stream, &priority));
    show("compute units", hipExtStreamGetCUMask(each.stream, 4, units));
    printf("%s: flags %u, priority %d, compute units %x %x %x %x, device %d\n", each.name, flags, priority, units[0],
           units[1], units[2], units[3], hipGetStreamDeviceId(each.stream));
  }
  show("flags into nothing", hipStreamGetFlags(plain, nullptr));
  show("priority into nothing", hipStreamGetPriority(plain, nullptr));
  show("compute units into nothing", hipExtStreamGetCUMask(plain, 4, nullptr));
  show("no compute units", hipExtStreamCreateWithCUMask(&none, 0, mask));
  show("priority below the range", hipStreamCreateWithPriority(&none, 0, 1000));
  int priority = 77;
  show("its priority", hipStreamGetPriority(none, &priority));
  printf("clamped to %d\n", priority);
  show("wrong flags with a priority", hipStreamCreateWithPriority(&none, 99, 0));
  show("destroying the null stream", hipStreamDestroy(nullptr));
  CHECK(hipGetDevice(&device));
  for (auto stream : {plain, free_one, urgent, masked}) CHECK(hipStreamDestroy(stream));
  return passed();
}
