//! Executable graphs, and functions that can destroy what a graph holds.

use crate::function::{Function, rows};

pub(crate) const GRAPH: &[Function] = rows![Graph;
    Direct    FROM_6_4       "hipDrvGraphExecMemcpyNodeSetParams",
    Direct    FROM_6_4       "hipDrvGraphExecMemsetNodeSetParams",
    Direct    ALL            "hipGraphAddKernelNode", // sets the kernel's own arguments before 6.3
    Direct    FROM_6_4       "hipGraphAddNode", // likewise, and it is in 6.2 as well
    Direct    ALL            "hipGraphDestroy", // memory nodes and user objects go with it
    Direct    ALL            "hipGraphDestroyNode",
    Direct    FROM_6_4       "hipGraphExecBatchMemOpNodeSetParams",
    Direct    ALL            "hipGraphExecChildGraphNodeSetParams",
    Direct    ALL            "hipGraphExecDestroy",
    Direct    ALL            "hipGraphExecEventRecordNodeSetEvent",
    Direct    ALL            "hipGraphExecEventWaitNodeSetEvent",
    Direct    FROM_7_2       "hipGraphExecExternalSemaphoresSignalNodeSetParams",
    Direct    FROM_7_2       "hipGraphExecExternalSemaphoresWaitNodeSetParams",
    Direct    ALL            "hipGraphExecHostNodeSetParams",
    Direct    ALL            "hipGraphExecKernelNodeSetParams",
    Direct    ALL            "hipGraphExecMemcpyNodeSetParams",
    Direct    ALL            "hipGraphExecMemcpyNodeSetParams1D",
    Direct    ALL            "hipGraphExecMemcpyNodeSetParamsFromSymbol",
    Direct    ALL            "hipGraphExecMemcpyNodeSetParamsToSymbol",
    Direct    ALL            "hipGraphExecMemsetNodeSetParams",
    Direct    FROM_6_4       "hipGraphExecNodeSetParams",
    Direct    ALL            "hipGraphExecUpdate",
    Direct    ALL            "hipGraphInstantiate", // allocates kernel arguments and internal streams
    Direct    ALL            "hipGraphInstantiateWithFlags",
    Direct    FROM_6_4       "hipGraphInstantiateWithParams", // the parameters can name a stream to upload on
    Direct    ALL            "hipGraphKernelNodeSetParams", // sets the kernel's own arguments before 6.3
    Direct    ALL            "hipGraphLaunch",
    Direct    FROM_5_7       "hipGraphLaunch_spt",
    Direct    FROM_5_7       "hipGraphNodeSetEnabled", // changes the executable graph, not the template
    Direct    FROM_6_4       "hipGraphNodeSetParams",
    Drain     FROM_5_7       "hipGraphReleaseUserObject" USER_CODE,
    Direct    FROM_5_7       "hipGraphUpload",
    Direct    FROM_5_7       "hipUserObjectCreate", // its destructor is the program's code
    Drain     FROM_5_7       "hipUserObjectRelease" USER_CODE, // can call the user's destructor, inside the runtime
];
