/* Loads libraries for itself alone and has them look a HIP function up. Arguments: their paths. */
#include "hip.h"

int main(int count, char **arguments) {
    const char *ways[] = {"found_by_default", "found_by_handle", "found_next"};
    for (int i = 1; i < count; i++) {
        void *plugin = dlopen(arguments[i], RTLD_NOW | RTLD_LOCAL);
        if (!plugin) return puts(dlerror()), 1;
        for (int way = 0; way < 3; way++) {
            const char *(*find)(void);
            *(void **)&find = dlsym(plugin, ways[way]);
            printf("%s %s\n", ways[way], find());
        }
    }
    return 0;
}
