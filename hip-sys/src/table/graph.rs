//! Graphs once they are executable, and what can destroy something that a graph holds.

use super::{Function, rows};

pub(super) const GRAPH: &[Function] = rows![Graph;
    Drain     FROM_6_4       "hipDrvGraphExecMemcpyNodeSetParams",
    Drain     FROM_6_4       "hipDrvGraphExecMemsetNodeSetParams",
    Drain     ALL            "hipGraphDestroy", // memory nodes and user objects go with it
    Drain     ALL            "hipGraphDestroyNode",
    Drain     FROM_6_4       "hipGraphExecBatchMemOpNodeSetParams",
    Drain     ALL            "hipGraphExecChildGraphNodeSetParams",
    Drain     ALL            "hipGraphExecDestroy",
    Drain     ALL            "hipGraphExecEventRecordNodeSetEvent",
    Drain     ALL            "hipGraphExecEventWaitNodeSetEvent",
    Drain     FROM_7_2       "hipGraphExecExternalSemaphoresSignalNodeSetParams",
    Drain     FROM_7_2       "hipGraphExecExternalSemaphoresWaitNodeSetParams",
    Drain     ALL            "hipGraphExecHostNodeSetParams",
    Drain     ALL            "hipGraphExecKernelNodeSetParams",
    Drain     ALL            "hipGraphExecMemcpyNodeSetParams",
    Drain     ALL            "hipGraphExecMemcpyNodeSetParams1D",
    Drain     ALL            "hipGraphExecMemcpyNodeSetParamsFromSymbol",
    Drain     ALL            "hipGraphExecMemcpyNodeSetParamsToSymbol",
    Drain     ALL            "hipGraphExecMemsetNodeSetParams",
    Drain     FROM_6_4       "hipGraphExecNodeSetParams",
    Drain     ALL            "hipGraphExecUpdate",
    Drain     ALL            "hipGraphInstantiate", // allocates kernel arguments and internal streams
    Drain     ALL            "hipGraphInstantiateWithFlags",
    Drain     FROM_6_4       "hipGraphInstantiateWithParams", // the parameters can name a stream to upload on
    Drain     ALL            "hipGraphLaunch",
    Drain     FROM_5_7       "hipGraphLaunch_spt",
    Drain     FROM_5_7       "hipGraphNodeSetEnabled", // changes the executable graph, not the template
    Drain     FROM_5_7       "hipGraphReleaseUserObject",
    Drain     FROM_5_7       "hipGraphUpload",
    Drain     FROM_5_7       "hipUserObjectRelease", // can call the user's destructor, inside the runtime
];
