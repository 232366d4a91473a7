/* Many threads, more than there are blocks of counters, each with its own launches; some come and go. */
#include "hip.h"
#include <pthread.h>

static void *launches(void *argument) {
    for (int i = 0; i < 100; i++) launch();
    return argument;
}

int main(void) {
    pthread_t threads[40];
    launch(); /* so that the library is ready before there is more than one thread */
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 40; i++) pthread_create(&threads[i], NULL, launches, NULL);
        for (int i = 0; i < 40; i++) pthread_join(threads[i], NULL);
    }
    puts("done");
    return 0;
}
