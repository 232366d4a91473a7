/* Launches, and calls a function of the interposer's own that launches. */
#include "hip.h"

int interposer_test(void) __attribute__((weak));

int main(void) {
    int launched = launch();
    int tested = interposer_test ? interposer_test() : -1;
    printf("done %d %d\n", launched, tested);
    return 0;
}
