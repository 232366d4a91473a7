//! Functions that load code or look up functions, and the last error.

use crate::function::{Function, rows};

pub(crate) const RESOLVE: &[Function] = rows![Resolve;
    Direct    ALL            "__hipRegisterFatBinary",
    Direct    ALL            "__hipRegisterFunction",
    Drain     ALL            "__hipRegisterManagedVar" SET_UP, // copies the initial value on the default stream once HIP has started
    Direct    ALL            "__hipUnregisterFatBinary", // drains, then forgets the binary's functions
    Direct    FROM_7_2       "hipGetDriverEntryPoint",
    Direct    FROM_7_2       "hipGetDriverEntryPoint_spt",
    Direct    FROM_6_4       "hipGetFuncBySymbol",
    Direct    FROM_6_4       "hipGetProcAddress",
    Drain     FROM_7_2       "hipLibraryLoadData" SET_UP, // loading can initialise managed variables on the default stream
    Drain     FROM_7_2       "hipLibraryLoadFromFile" SET_UP,
    Drain     FROM_7_2       "hipLibraryUnload" FREES,
    Direct    ALL            "hipModuleGetFunction",
    Direct    ALL            "hipModuleLoad",
    Direct    ALL            "hipModuleLoadData",
    Direct    ALL            "hipModuleLoadDataEx",
    Direct    FROM_7_2       "hipModuleLoadFatBinary",
    Direct    ALL            "hipModuleUnload", // drains, then forgets the module's functions
];

pub(crate) const ERROR: &[Function] = rows![Error;
    Direct    FROM_6_4       "hipExtGetLastError",
    Direct    ALL            "hipGetLastError",
    Direct    ALL            "hipPeekAtLastError",
];
