//! Events, synchronization, queries, capture, and the life of streams and devices.

use crate::function::{Function, rows};

pub(crate) const EVENT: &[Function] = rows![Event;
    Direct    ALL            "hipEventCreate",
    Direct    ALL            "hipEventCreateWithFlags",
    Direct    ALL            "hipEventDestroy",
    Direct    ALL            "hipEventElapsedTime",
    Direct    ALL            "hipEventQuery",
    Direct    ALL            "hipEventRecord",
    Direct    FROM_6_4       "hipEventRecordWithFlags",
    Direct    FROM_5_7       "hipEventRecord_spt",
    Direct    ALL            "hipEventSynchronize",
    Direct    ALL            "hipIpcGetEventHandle", // another process can wait for a record that is still pending here
    Direct    ALL            "hipIpcOpenEventHandle", // its records come from another process: unknown to the shim's event states
    Direct    ALL            "hipStreamWaitEvent",
    Direct    ALL            "hipStreamWaitEvent_spt",
];

pub(crate) const SYNC: &[Function] = rows![Sync;
    Drain     ALL            "hipCtxSynchronize" WAITS, // not implemented by the runtime so far
    Drain     ALL            "hipDestroyExternalSemaphore" FREES,
    Direct    ALL            "hipDeviceSynchronize",
    Drain     ALL            "hipSignalExternalSemaphoresAsync" OWN_STREAM,
    Direct    FROM_6_4       "hipStreamBatchMemOp", // can hold waits
    Direct    ALL            "hipStreamSynchronize",
    Direct    ALL            "hipStreamSynchronize_spt",
    Direct    ALL            "hipStreamWaitValue32", // can block a hardware queue that other streams share
    Direct    ALL            "hipStreamWaitValue64",
    Direct    ALL            "hipStreamWriteValue32",
    Direct    ALL            "hipStreamWriteValue64",
    Drain     ALL            "hipWaitExternalSemaphoresAsync" BLOCKS, // can block a hardware queue that other streams share
];

pub(crate) const QUERY: &[Function] = rows![Query;
    Translate ALL            "hipExtStreamGetCUMask",
    Translate ALL            "hipGetStreamDeviceId",
    Translate FROM_7_2       "hipStreamGetAttribute",
    Translate FROM_5_7       "hipStreamGetDevice",
    Translate ALL            "hipStreamGetFlags",
    Translate ALL            "hipStreamGetFlags_spt",
    Translate FROM_7_2       "hipStreamGetId",
    Translate ALL            "hipStreamGetPriority",
    Translate ALL            "hipStreamGetPriority_spt",
    Direct    ALL            "hipStreamQuery",
    Direct    ALL            "hipStreamQuery_spt",
];

pub(crate) const CAPTURE: &[Function] = rows![Capture;
    Drain     ALL            "hipStreamBeginCapture" CAPTURE, // earlier work must not land in the graph
    Drain     FROM_6_4       "hipStreamBeginCaptureToGraph" CAPTURE,
    Drain     FROM_5_7       "hipStreamBeginCapture_spt" CAPTURE,
    Drain     ALL            "hipStreamEndCapture" CAPTURE,
    Drain     FROM_5_7       "hipStreamEndCapture_spt" CAPTURE,
    Translate ALL            "hipStreamGetCaptureInfo",
    Translate FROM_5_7       "hipStreamGetCaptureInfo_spt",
    Translate ALL            "hipStreamGetCaptureInfo_v2",
    Translate FROM_5_7       "hipStreamGetCaptureInfo_v2_spt",
    Translate ALL            "hipStreamIsCapturing",
    Translate FROM_5_7       "hipStreamIsCapturing_spt",
    Drain     ALL            "hipStreamUpdateCaptureDependencies" CAPTURE,
];

pub(crate) const LIFECYCLE: &[Function] = rows![Lifecycle;
    Drain     ALL            "hipCtxDestroy" RESETS,
    Drain     ALL            "hipDevicePrimaryCtxRelease" RESETS,
    Drain     ALL            "hipDevicePrimaryCtxReset" RESETS,
    Drain     ALL            "hipDeviceReset" RESETS,
    Drain     FROM_5_7       "hipDeviceSetLimit" SETTING, // the stack size is read when a kernel is enqueued
    Direct    ALL            "hipExtStreamCreateWithCUMask",
    Drain     FROM_7_2       "hipStreamCopyAttributes" SETTING,
    Direct    ALL            "hipStreamCreate",
    Direct    ALL            "hipStreamCreateWithFlags",
    Direct    ALL            "hipStreamCreateWithPriority",
    Direct    ALL            "hipStreamDestroy",
    Drain     FROM_7_2       "hipStreamSetAttribute" SETTING, // read when a later command is enqueued
];
