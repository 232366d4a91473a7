// run: --gpus 2 | no-work
/* AMD's management library finds the devices that HIP finds: by the files that it reads, and by itself where it is installed
 * (librocm-smi64-1 of Debian, librocm-smi64-7 beside HIP 7). */
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>

#include <fstream>

#include "check.h"

static std::string text(const std::string &path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

/* A property of a node of the KFD. */
static gw_u64 property(int node, const char *name) {
  std::ifstream file("/sys/class/kfd/kfd/topology/nodes/" + std::to_string(node) + "/properties");
  std::string key;
  for (gw_u64 value; file >> key >> value;) {
    if (key == name) return value;
  }
  return 0;
}

/* The last folder of the path that a card's link leads through and that is a PCI address: domain, bus, device, function. */
static bool address_of(const std::string &link, gw_u64 *id) {
  bool found = false;
  for (size_t at = 0; at < link.size();) {
    size_t end = link.find('/', at);
    if (end == std::string::npos) end = link.size();
    unsigned domain, bus, device, function;
    int length = 0;
    const std::string part = link.substr(at, end - at);
    if (sscanf(part.c_str(), "%4x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &length) == 4 &&
        (size_t)length == part.size()) {
      *id = (gw_u64)domain << 32 | bus << 8 | device << 3 | function;
      found = true;
    }
    at = end + 1;
  }
  return found;
}

/* As the library does it: from the cards to PCI devices, and from those to nodes of the KFD. */
static void by_files(int devices) {
  int matched = 0;
  for (int card = 0; card < devices; card++) {
    const std::string path = "/sys/class/drm/card" + std::to_string(card);
    REQUIRE(text(path + "/device/vendor") == "0x1002", "%s is no device of AMD's", path.c_str());
    char link[PATH_MAX] = {0};
    gw_u64 id = 0;
    REQUIRE(readlink(path.c_str(), link, sizeof link - 1) > 0 && address_of(link, &id), "%s: %s", path.c_str(), link);
    std::string render;
    DIR *folder = opendir((path + "/device/drm").c_str());
    REQUIRE(folder != nullptr, "%s has no nodes", path.c_str());
    while (const dirent *entry = readdir(folder)) {
      if (strncmp(entry->d_name, "renderD", 7) == 0) render = entry->d_name + 7;
    }
    closedir(folder);
    for (int node = 1; node <= devices; node++) {
      if (property(node, "location_id") != id) continue;
      matched++;
      REQUIRE(std::to_string(property(node, "drm_render_minor")) == render, "%s: node %d, %s", path.c_str(), node, render.c_str());
      const gw_u64 unique = strtoull(text(path + "/device/unique_id").c_str(), nullptr, 16);
      REQUIRE(property(node, "unique_id") == unique, "%s: %llx", path.c_str(), unique);
      size_t least = 0, most = 0;
      CHECK(hipSetDevice(node - 1));
      CHECK(hipMemGetInfo(&least, &most));
      REQUIRE(text(path + "/device/mem_info_vram_total") == std::to_string(most), "%s: %zu bytes", path.c_str(), most);
    }
  }
  REQUIRE(matched == devices, "%d of %d devices", matched, devices);
}

template <typename F> static F entry(void *library, const char *name) {
  F function = (F)dlsym(library, name);
  REQUIRE(function != nullptr, "no %s", name);
  return function;
}

/* The library itself: rsmi_status_t is an int, RSMI_STATUS_SUCCESS and RSMI_MEM_TYPE_VRAM are 0. */
static bool by_library(int devices) {
  void *library = nullptr;
  for (const char *name : {"librocm_smi64.so.7", "librocm_smi64.so.1"}) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) return false;
  int code = entry<int (*)(gw_u64)>(library, "rsmi_init")(0);
  REQUIRE(code == 0, "rsmi_init: %d", code);
  uint32_t count = 0;
  REQUIRE(entry<int (*)(uint32_t *)>(library, "rsmi_num_monitor_devices")(&count) == 0 && (int)count == devices, "%u devices", count);
  for (uint32_t device = 0; device < count; device++) {
    gw_u64 address = 0, total = 0;
    code = entry<int (*)(uint32_t, gw_u64 *)>(library, "rsmi_dev_pci_id_get")(device, &address);
    REQUIRE(code == 0 && address == property((int)device + 1, "location_id"), "%d, %llx", code, address);
    code = entry<int (*)(uint32_t, int, gw_u64 *)>(library, "rsmi_dev_memory_total_get")(device, 0, &total);
    size_t least = 0, most = 0;
    CHECK(hipSetDevice((int)device));
    CHECK(hipMemGetInfo(&least, &most));
    REQUIRE(code == 0 && total == most, "%d, %llu bytes", code, total);
  }
  REQUIRE(entry<int (*)()>(library, "rsmi_shut_down")() == 0, "no end");
  return true;
}

int main() {
  int devices = 0;
  CHECK(hipGetDeviceCount(&devices));
  by_files(devices);
  /* On stderr: what is installed is no difference between two runs. */
  fprintf(stderr, by_library(devices) ? "librocm_smi64 found %d devices\n" : "librocm_smi64 is not installed: only the files were looked at\n", devices);
  return passed();
}
