//! Kernel launches and host functions.

use crate::function::{Function, rows};

pub(crate) const LAUNCH: &[Function] = rows![Launch;
    Direct    ALL            "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j", // the export that rocBLAS and others link against
    Direct    ALL            "_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_",
    Direct    TO_5_2         "_ZN8hip_impl22hipLaunchKernelGGLImplEmRK4dim3S2_jP12ihipStream_tPPv", // C++ only, up to 5.2
    Direct    FROM_7_2       "hipDrvLaunchKernelEx", // the stream is in the launch configuration
    Direct    ALL            "hipExtLaunchKernel",
    Direct    ALL            "hipExtLaunchMultiKernelMultiDevice", // one stream for each entry of the list
    Direct    FROM_6_4       "hipExtModuleLaunchKernel",
    Direct    FROM_6_4       "hipHccModuleLaunchKernel",
    Direct    ALL            "hipLaunchByPtr", // the stream was given to hipConfigureCall or pushed, and sits in the runtime
    Direct    ALL            "hipLaunchCooperativeKernel",
    Direct    ALL            "hipLaunchCooperativeKernelMultiDevice", // one stream for each entry of the list
    Direct    ALL            "hipLaunchCooperativeKernel_spt",
    Direct    FROM_5_7       "hipLaunchHostFunc",
    Direct    FROM_5_7       "hipLaunchHostFunc_spt",
    Direct    ALL            "hipLaunchKernel",
    Direct    FROM_7_2       "hipLaunchKernelExC", // the stream is in the launch configuration
    Direct    ALL            "hipLaunchKernel_spt",
    Direct    FROM_5_7       "hipModuleLaunchCooperativeKernel",
    Direct    FROM_5_7       "hipModuleLaunchCooperativeKernelMultiDevice", // one stream for each entry of the list
    Direct    ALL            "hipModuleLaunchKernel",
    Direct    ALL            "hipStreamAddCallback",
    Direct    FROM_5_7       "hipStreamAddCallback_spt",
];
