// loaded: library | build -Wl,-Bsymbolic
/* A library that is linked with HIP and has kernels of its own, as an extension module of Python is. */
#include "plugin_body.h"
