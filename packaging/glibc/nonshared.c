/*
 * What glibc 2.28 keeps in libc_nonshared.a, so that it becomes a part of whatever is linked: functions that libc.so.6 exports
 * only since 2.33 or 2.34, by means of older ones; and gettid, which came with 2.30. Compiled with hidden visibility by scripts/old-glibc.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <sys/syscall.h>

/* The layouts of struct stat and of dev_t that x86-64 has; the only ones. */
#define STAT_VERSION 1
#define MKNOD_VERSION 0

struct stat;

extern void *__dso_handle __attribute__((visibility("hidden")));

extern int __xstat(int version, const char *path, struct stat *result);
extern int __lxstat(int version, const char *path, struct stat *result);
extern int __fxstat(int version, int descriptor, struct stat *result);
extern int __fxstatat(int version, int directory, const char *path, struct stat *result, int flags);
extern int __xmknod(int version, const char *path, unsigned mode, unsigned long *device);
extern int __xmknodat(int version, int directory, const char *path, unsigned mode, unsigned long *device);
extern long syscall(long number, ...);
extern int __cxa_atexit(void (*function)(void *), void *argument, void *object);
extern int __cxa_at_quick_exit(void (*function)(void *), void *object);
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object);

int stat(const char *path, struct stat *result) { return __xstat(STAT_VERSION, path, result); }
int lstat(const char *path, struct stat *result) { return __lxstat(STAT_VERSION, path, result); }
int fstat(int descriptor, struct stat *result) { return __fxstat(STAT_VERSION, descriptor, result); }
int fstatat(int directory, const char *path, struct stat *result, int flags)
{
	return __fxstatat(STAT_VERSION, directory, path, result, flags);
}

/* On x86-64 struct stat64 is struct stat. */
int stat64(const char *path, struct stat *result) { return stat(path, result); }
int lstat64(const char *path, struct stat *result) { return lstat(path, result); }
int fstat64(int descriptor, struct stat *result) { return fstat(descriptor, result); }
int fstatat64(int directory, const char *path, struct stat *result, int flags)
{
	return fstatat(directory, path, result, flags);
}

int mknod(const char *path, unsigned mode, unsigned long device)
{
	return __xmknod(MKNOD_VERSION, path, mode, &device);
}
int mknodat(int directory, const char *path, unsigned mode, unsigned long device)
{
	return __xmknodat(MKNOD_VERSION, directory, path, mode, &device);
}

int atexit(void (*function)(void)) { return __cxa_atexit((void (*)(void *))function, NULL, __dso_handle); }
int at_quick_exit(void (*function)(void)) { return __cxa_at_quick_exit((void (*)(void *))function, __dso_handle); }
int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
	return __register_atfork(prepare, parent, child, __dso_handle);
}

/* It cannot fail. */
int gettid(void) { return (int)syscall(SYS_gettid); }

#ifdef DLFO_EH_SEGMENT_TYPE
/* The unwinder of a GCC that was built beside glibc 2.35 or newer asks only this for an address's unwind table. */
struct search {
	ElfW(Addr) address;
	struct dl_find_object *result;
};

static int look(struct dl_phdr_info *object, size_t size, void *data)
{
	struct search *search = data;
	const ElfW(Phdr) *table = NULL;
	ElfW(Addr) start = 0, end = 0;
	int inside = 0;
	(void)size;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		ElfW(Addr) first = object->dlpi_addr + segment->p_vaddr;
		if (segment->p_type == DLFO_EH_SEGMENT_TYPE)
			table = segment;
		if (segment->p_type != PT_LOAD)
			continue;
		if (end == 0)
			start = first;
		end = first + segment->p_memsz;
		inside |= search->address >= first && search->address < end;
	}
	if (!inside)
		return 0;
	if (table == NULL)
		return -1;
	*search->result = (struct dl_find_object){
		.dlfo_map_start = (void *)start,
		.dlfo_map_end = (void *)end,
		.dlfo_eh_frame = (void *)(object->dlpi_addr + table->p_vaddr),
	};
	return 1;
}

int _dl_find_object(void *address, struct dl_find_object *result)
{
	struct search search = {.address = (ElfW(Addr))address, .result = result};
	return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}
#endif
