//! Functions that free, unmap or map memory, or run on memory that a stream may still use.

use crate::function::{Function, rows};

pub(crate) const MEMORY: &[Function] = rows![Memory;
    Drain     TO_5_2         "_Z23hipDestroySurfaceObjectP13__hip_surface" FREES, // C++ only, up to 5.2
    Drain     ALL            "hipArrayDestroy" FREES,
    Drain     ALL            "hipBindTexture" SET_UP, // binding destroys the old texture object and copies the new one to the device
    Drain     ALL            "hipBindTexture2D" SET_UP,
    Drain     ALL            "hipBindTextureToArray" SET_UP,
    Drain     ALL            "hipBindTextureToMipmappedArray" SET_UP,
    Drain     ALL            "hipCtxDisablePeerAccess" FREES,
    Drain     ALL            "hipDestroyExternalMemory" FREES,
    Drain     FROM_5_7       "hipDestroySurfaceObject" FREES,
    Drain     ALL            "hipDestroyTextureObject" FREES,
    Drain     ALL            "hipDeviceDisablePeerAccess" FREES, // unmaps the peer's memory
    Drain     FROM_5_7       "hipDeviceGraphMemTrim" FREES,
    Direct    ALL            "hipExtMallocWithFlags",
    Drain     ALL            "hipFree" FREES,
    Drain     ALL            "hipFreeArray" FREES,
    Direct    ALL            "hipFreeAsync", // memory that is not from a pool is freed as by hipFree
    Drain     ALL            "hipFreeHost" FREES,
    Drain     ALL            "hipFreeMipmappedArray" FREES,
    Drain     ALL            "hipGraphicsGLRegisterImage" SET_UP, // enqueues on the default stream and waits
    Drain     ALL            "hipGraphicsMapResources" OWN_STREAM,
    Drain     ALL            "hipGraphicsUnmapResources" OWN_STREAM,
    Drain     ALL            "hipGraphicsUnregisterResource" FREES,
    Drain     ALL            "hipHostFree" FREES,
    Drain     ALL            "hipHostUnregister" FREES,
    Drain     ALL            "hipIpcCloseMemHandle" FREES,
    Direct    ALL            "hipMalloc", // waits only if there is no memory but what is about to be given back
    Direct    ALL            "hipMallocAsync", // the block may be one that this stream has freed
    Direct    ALL            "hipMallocFromPoolAsync",
    Direct    ALL            "hipMallocManaged",
    Direct    ALL            "hipMallocPitch",
    Drain     ALL            "hipMemAddressFree" FREES,
    Drain     ALL            "hipMemMap" WAITS, // enqueues a mapping command on the default stream and waits for it
    Drain     ALL            "hipMemMapArrayAsync" FREES,
    Direct    ALL            "hipMemPoolDestroy",
    Direct    ALL            "hipMemPoolGetAttribute", // tells how much has been given back
    Drain     ALL            "hipMemPoolSetAccess" FREES, // can take access away
    Direct    ALL            "hipMemPoolSetAttribute", // a lower release threshold can give memory back
    Direct    ALL            "hipMemPoolTrimTo",
    Drain     ALL            "hipMemRelease" FREES,
    Drain     ALL            "hipMemSetAccess" FREES, // can take access away
    Drain     ALL            "hipMemUnmap" FREES,
    Drain     ALL            "hipMipmappedArrayDestroy" FREES,
    Drain     ALL            "hipStreamAttachMemAsync" OWN_STREAM,
    Drain     ALL            "hipTexObjectDestroy" FREES,
    Drain     ALL            "hipTexRefSetAddress" SET_UP, // binds, as hipBindTexture does
    Drain     ALL            "hipTexRefSetAddress2D" SET_UP,
    Drain     ALL            "hipTexRefSetArray" SET_UP,
    Drain     ALL            "hipTexRefSetMipmappedArray" SET_UP,
    Drain     ALL            "hipUnbindTexture" FREES,
];
