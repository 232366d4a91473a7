//! What frees, unmaps or maps memory, or runs on memory that a stream may still use.

use super::{Function, rows};

pub(super) const MEMORY: &[Function] = rows![Memory;
    Drain     TO_5_2         "_Z23hipDestroySurfaceObjectP13__hip_surface", // C++ only, up to 5.2
    Drain     ALL            "hipArrayDestroy",
    Drain     ALL            "hipBindTexture", // binding destroys the old texture object and copies the new one to the device
    Drain     ALL            "hipBindTexture2D",
    Drain     ALL            "hipBindTextureToArray",
    Drain     ALL            "hipBindTextureToMipmappedArray",
    Drain     ALL            "hipCtxDisablePeerAccess",
    Drain     ALL            "hipDestroyExternalMemory",
    Drain     FROM_5_7       "hipDestroySurfaceObject",
    Drain     ALL            "hipDestroyTextureObject",
    Drain     ALL            "hipDeviceDisablePeerAccess", // unmaps the peer's memory
    Drain     FROM_5_7       "hipDeviceGraphMemTrim",
    Drain     ALL            "hipFree",
    Drain     ALL            "hipFreeArray",
    Drain     ALL            "hipFreeAsync", // memory that is not from a pool is freed as by hipFree
    Drain     ALL            "hipFreeHost",
    Drain     ALL            "hipFreeMipmappedArray",
    Drain     ALL            "hipGraphicsGLRegisterImage", // enqueues on the default stream and waits
    Drain     ALL            "hipGraphicsMapResources",
    Drain     ALL            "hipGraphicsUnmapResources",
    Drain     ALL            "hipGraphicsUnregisterResource",
    Drain     ALL            "hipHostFree",
    Drain     ALL            "hipHostUnregister",
    Drain     ALL            "hipIpcCloseMemHandle",
    Drain     ALL            "hipMallocAsync", // the block may be one that this stream has freed
    Drain     ALL            "hipMallocFromPoolAsync",
    Drain     ALL            "hipMemAddressFree",
    Drain     ALL            "hipMemMap", // enqueues a mapping command on the default stream and waits for it
    Drain     ALL            "hipMemMapArrayAsync",
    Drain     ALL            "hipMemPoolDestroy",
    Drain     ALL            "hipMemPoolSetAccess", // can take access away
    Drain     ALL            "hipMemPoolSetAttribute", // a lower release threshold can give memory back
    Drain     ALL            "hipMemPoolTrimTo",
    Drain     ALL            "hipMemRelease",
    Drain     ALL            "hipMemSetAccess", // can take access away
    Drain     ALL            "hipMemUnmap",
    Drain     ALL            "hipMipmappedArrayDestroy",
    Drain     ALL            "hipStreamAttachMemAsync",
    Drain     ALL            "hipTexObjectDestroy",
    Drain     ALL            "hipTexRefSetAddress", // binds, as hipBindTexture does
    Drain     ALL            "hipTexRefSetAddress2D",
    Drain     ALL            "hipTexRefSetArray",
    Drain     ALL            "hipTexRefSetMipmappedArray",
    Drain     ALL            "hipUnbindTexture",
];
