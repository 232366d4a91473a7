/* A libamd_comgr.so.2 that keeps results. AMD's runtime compiles its own copy kernels in every process, which takes about a
 * third of the processor time of a short test. This library keeps the results in the folder GIVEWAY_COMGR_CACHE. All other functions are those of
 * the real library, on which it depends (REAL is its path).
 *
 * Only the runtime's own kernels are kept: they are OpenCL, and programs compile HIP. A file has the whole request and then the
 * results, so a result is used only for the same request. Failures are not kept. */
#include <amd_comgr.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace {

/* The kinds of data that a request can have. */
const int inputs[] = {
    AMD_COMGR_DATA_KIND_SOURCE, AMD_COMGR_DATA_KIND_INCLUDE,     AMD_COMGR_DATA_KIND_PRECOMPILED_HEADER,
    AMD_COMGR_DATA_KIND_BC,     AMD_COMGR_DATA_KIND_RELOCATABLE, AMD_COMGR_DATA_KIND_EXECUTABLE,
    AMD_COMGR_DATA_KIND_BYTES,  AMD_COMGR_DATA_KIND_FATBIN};
/* Results have these as well. */
const int messages[] = {AMD_COMGR_DATA_KIND_LOG, AMD_COMGR_DATA_KIND_DIAGNOSTIC};

bool fine(amd_comgr_status_t status) { return status == AMD_COMGR_STATUS_SUCCESS; }

void put(std::string &to, const void *bytes, size_t size) {
  const uint64_t length = size;
  to.append((const char *)&length, sizeof length);
  to.append((const char *)bytes, size);
}

/* Takes the next piece off `from`. */
bool take(const std::string &from, size_t &at, std::string &piece) {
  uint64_t length;
  if (from.size() - at < sizeof length) return false;
  memcpy(&length, &from[at], sizeof length);
  at += sizeof length;
  if (from.size() - at < length) return false;
  piece.assign(from, at, length);
  at += length;
  return true;
}

/* Appends the names and bytes of what a set has of these kinds. */
template <size_t N> bool put_set(std::string &to, amd_comgr_data_set_t set, const int (&kinds)[N]) {
  for (int kind : kinds) {
    size_t count = 0;
    if (!fine(amd_comgr_action_data_count(set, (amd_comgr_data_kind_t)kind, &count))) continue;
    for (size_t i = 0; i < count; i++) {
      amd_comgr_data_t data;
      if (!fine(amd_comgr_action_data_get_data(set, (amd_comgr_data_kind_t)kind, i, &data))) return false;
      size_t size = 0, name_size = 0;
      bool read = fine(amd_comgr_get_data(data, &size, nullptr));
      std::string bytes(size, '\0'), name;
      read = read && (size == 0 || fine(amd_comgr_get_data(data, &size, &bytes[0])));
      if (fine(amd_comgr_get_data_name(data, &name_size, nullptr)) && name_size > 0) {
        name.resize(name_size);
        read = read && fine(amd_comgr_get_data_name(data, &name_size, &name[0]));
      }
      amd_comgr_release_data(data);
      if (!read) return false;
      put(to, &kind, sizeof kind);
      put(to, name.c_str(), strlen(name.c_str()));
      put(to, bytes.data(), bytes.size());
    }
  }
  return true;
}

/* Adds data that put_set() wrote, from a place on: all of it, or nothing. */
bool add_set(const std::string &from, size_t at, amd_comgr_data_set_t set) {
  std::vector<amd_comgr_data_t> all;
  bool made = true;
  while (made && at < from.size()) {
    std::string kind, name, bytes;
    made = take(from, at, kind) && kind.size() == sizeof(int) && take(from, at, name) && take(from, at, bytes);
    if (!made) break;
    int number;
    memcpy(&number, kind.data(), sizeof number);
    amd_comgr_data_t data;
    made = fine(amd_comgr_create_data((amd_comgr_data_kind_t)number, &data));
    if (!made) break;
    all.push_back(data);
    /* An empty log has bytes, and none cannot be set; its reader takes a zero for its end. */
    if (bytes.empty()) bytes.push_back('\0');
    made = fine(amd_comgr_set_data(data, bytes.size(), bytes.data())) && fine(amd_comgr_set_data_name(data, name.c_str()));
  }
  for (amd_comgr_data_t data : all) {
    if (made) amd_comgr_data_set_add(set, data);
    amd_comgr_release_data(data);
  }
  return made;
}

/* True while this thread compiles the runtime's own kernels: only the first steps tell the language. */
bool is_own(amd_comgr_action_kind_t kind, amd_comgr_action_info_t info) {
  static thread_local bool own = false;
  amd_comgr_language_t language;
  if (!fine(amd_comgr_action_info_get_language(info, &language))) return own = false;
  const bool first = kind <= AMD_COMGR_ACTION_COMPILE_SOURCE_TO_BC;
  const bool open_cl = language == AMD_COMGR_LANGUAGE_OPENCL_1_2 || language == AMD_COMGR_LANGUAGE_OPENCL_2_0;
  if (first || language != AMD_COMGR_LANGUAGE_NONE) own = open_cl;
  return own;
}

/* Appends the request. */
bool put_request(std::string &to, amd_comgr_action_kind_t kind, amd_comgr_action_info_t info, amd_comgr_data_set_t input) {
  struct stat real;
  if (stat(REAL, &real) != 0) return false;
  put(to, &real.st_size, sizeof real.st_size);
  put(to, &real.st_mtim, sizeof real.st_mtim);
  put(to, &kind, sizeof kind);
  size_t size = 0, count = 0;
  std::string text;
  if (fine(amd_comgr_action_info_get_isa_name(info, &size, nullptr)) && size > 0) {
    text.resize(size);
    if (!fine(amd_comgr_action_info_get_isa_name(info, &size, &text[0]))) return false;
  }
  put(to, text.data(), text.size());
  amd_comgr_language_t language = AMD_COMGR_LANGUAGE_NONE;
  bool logging = false;
  if (!fine(amd_comgr_action_info_get_language(info, &language)) || !fine(amd_comgr_action_info_get_logging(info, &logging))) return false;
  put(to, &language, sizeof language);
  put(to, &logging, sizeof logging);
  if (!fine(amd_comgr_action_info_get_option_list_count(info, &count))) return false;
  for (size_t i = 0; i < count; i++) {
    if (!fine(amd_comgr_action_info_get_option_list_item(info, i, &size, nullptr))) return false;
    text.assign(size, '\0');
    if (!fine(amd_comgr_action_info_get_option_list_item(info, i, &size, &text[0]))) return false;
    put(to, text.data(), text.size());
  }
  return put_set(to, input, inputs);
}

std::string read_all(const std::string &path) {
  std::string all;
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat seen;
  if (file >= 0 && fstat(file, &seen) == 0) {
    all.resize((size_t)seen.st_size);
    size_t had = 0;
    ssize_t got;
    while (had < all.size() && (got = read(file, &all[had], all.size() - had)) > 0) had += (size_t)got;
    all.resize(had);
  }
  if (file >= 0) close(file);
  return all;
}

/* Complete or absent: written beside and renamed. Not under a limit on files, which would end the process. */
void write_all(const std::string &path, const std::string &all) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return;
  std::string beside = path + "." + std::to_string(getpid());
  int file = open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return;
  size_t done = 0;
  ssize_t put;
  while (done < all.size() && (put = write(file, &all[done], all.size() - done)) > 0) done += (size_t)put;
  close(file);
  if (done < all.size() || rename(beside.c_str(), path.c_str()) != 0) unlink(beside.c_str());
}

} // namespace

extern "C" amd_comgr_status_t amd_comgr_do_action(amd_comgr_action_kind_t kind, amd_comgr_action_info_t info,
                                                  amd_comgr_data_set_t input, amd_comgr_data_set_t result) {
  static const auto real = (decltype(&amd_comgr_do_action))dlsym(dlopen(REAL, RTLD_NOW | RTLD_LOCAL), "amd_comgr_do_action");
  const char *folder = getenv("GIVEWAY_COMGR_CACHE");
  std::string request;
  if (folder == nullptr || !is_own(kind, info) || !put_request(request, kind, info, input)) return real(kind, info, input, result);
  /* FNV-1a of words. */
  uint64_t hash = 14695981039346656037u;
  for (size_t at = 0; at < request.size(); at += sizeof hash) {
    uint64_t word = 0;
    memcpy(&word, &request[at], std::min(sizeof word, request.size() - at));
    hash = (hash ^ word) * 1099511628211u;
  }
  char name[24];
  snprintf(name, sizeof name, "/%016llx", (unsigned long long)hash);
  const std::string path = folder + std::string(name);
  const std::string kept = read_all(path);
  std::string same;
  size_t at = 0;
  if (take(kept, at, same) && same == request && add_set(kept, at, result)) return AMD_COMGR_STATUS_SUCCESS;
  amd_comgr_status_t status = real(kind, info, input, result);
  std::string found;
  put(found, request.data(), request.size());
  if (fine(status) && put_set(found, result, inputs) && put_set(found, result, messages)) write_all(path, found);
  return status;
}
