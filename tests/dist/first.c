/*
 * A first HIP program: fills memory of the device on a stream, copies it back and checks it. It needs no HIP headers and no compiler
 * but cc, and takes the HIP runtime of any release that it finds.
 *
 *     cc -o first first.c -ldl
 *     sudo xcli run --gpu-sim -- ./first
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 1 << 20, VALUE = 0x5a, DEVICE_TO_HOST = 2 };

static void *hip;

/* The function of this name, which the runtime must have. */
static void *function(const char *name)
{
	void *found = dlsym(hip, name);
	if (found == NULL) {
		fprintf(stderr, "first: the HIP runtime has no %s\n", name);
		exit(1);
	}
	return found;
}

static void check(int error, const char *what)
{
	if (error != 0) {
		fprintf(stderr, "first: %s: HIP error %d\n", what, error);
		exit(1);
	}
}

int main(void)
{
	static const char *const libraries[] = {"libamdhip64.so", "libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7"};
	void *stream = NULL, *device = NULL;
	unsigned char *host = malloc(SIZE);
	for (size_t i = 0; i < sizeof libraries / sizeof *libraries && hip == NULL; i++)
		hip = dlopen(libraries[i], RTLD_NOW);
	if (hip == NULL || host == NULL) {
		fprintf(stderr, "first: there is no HIP runtime: install libamdhip64\n");
		return 1;
	}
	check(((int (*)(void **))function("hipStreamCreate"))(&stream), "hipStreamCreate");
	check(((int (*)(void **, size_t))function("hipMalloc"))(&device, SIZE), "hipMalloc");
	for (int i = 0; i < 100; i++)
		check(((int (*)(void *, int, size_t, void *))function("hipMemsetAsync"))(device, i == 99 ? VALUE : i, SIZE, stream), "hipMemsetAsync");
	check(((int (*)(void *, const void *, size_t, int, void *))function("hipMemcpyAsync"))(host, device, SIZE, DEVICE_TO_HOST, stream), "hipMemcpyAsync");
	check(((int (*)(void *))function("hipStreamSynchronize"))(stream), "hipStreamSynchronize");
	for (size_t i = 0; i < SIZE; i++) {
		if (host[i] != VALUE) {
			fprintf(stderr, "first: byte %zu is %d and not %d\n", i, host[i], VALUE);
			return 1;
		}
	}
	check(((int (*)(void *))function("hipFree"))(device), "hipFree");
	check(((int (*)(void *))function("hipStreamDestroy"))(stream), "hipStreamDestroy");
	printf("first: %d bytes are right\n", SIZE);
	return 0;
}
