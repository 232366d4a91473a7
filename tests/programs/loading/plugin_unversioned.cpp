// loaded: library
/* A library that names no HIP runtime: it refers to functions without a version, and to the kernels of the program that
 * loads it. */
#include "plugin_body.h"
