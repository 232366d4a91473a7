//! The reasons why a function may pass without the library, and those why the conservative handler is right: two
//! short lists.
//!
//! A function that passes enqueues nothing, waits for nothing, and frees, unmaps or unloads nothing.

/// The function reads state that does not depend on pending work.
pub const READS_STATE: &str = "reads state only";
/// The function changes state that only the calling thread sees and that the library reads back from the
/// runtime.
pub const THREAD_STATE: &str = "state of the calling thread";
/// The function changes a setting that pending commands do not read when they are launched.
pub const SETS_STATE: &str = "changes a setting that pending commands do not read";
/// The function returns new memory, or a new name of memory. No pending command can use it yet.
pub const ALLOCATES: &str = "allocates, imports or registers memory; waits for nothing";
/// The function creates or changes an object on the host.
pub const HOST_OBJECT: &str = "host-side object, touches no stream";
/// The function builds a graph, which runs only after it is instantiated and launched.
pub const GRAPH_TEMPLATE: &str = "graph template, touches no stream";
/// The function compiles or links.
pub const COMPILES: &str = "compiles on the host";
/// The function converts a code to text.
pub const ERROR_TEXT: &str = "error text";
/// For profilers and debuggers.
pub const TOOLS: &str = "interface for tools";
/// Compiler support.
pub const ARITHMETIC: &str = "arithmetic on the host";

/// The reasons why a function may pass.
pub const ALL: &[&str] = &[
    READS_STATE,
    THREAD_STATE,
    SETS_STATE,
    ALLOCATES,
    HOST_OBJECT,
    GRAPH_TEMPLATE,
    COMPILES,
    ERROR_TEXT,
    TOOLS,
    ARITHMETIC,
];

/// The function returns only when its work and everything before it is done. The conservative handler calls
/// it in its order.
pub const WAITS: &str = "waits for its work by itself; made in its turn";
/// The call is made on the calling thread after everything earlier of its own stream is launched. It waits
/// for no other stream.
pub const OWN_STREAM: &str = "made in its own stream's turn: only the runtime can tell whether it is valid";
/// The function can run on the default streams of other devices.
pub const OTHER_DEVICES: &str =
    "can run on other devices' default streams: everything earlier is launched first";
/// The function removes, or redefines, something that any pending command may use. Most of these functions
/// also wait for the device.
pub const FREES: &str = "takes away what pending commands may use";
/// Programs call the function only during their set-up, if at all.
pub const SET_UP: &str = "a rare call of a program's set-up that copies on the default stream";
/// Commands read the setting when they are launched.
pub const SETTING: &str = "changes a setting that commands read when they are launched";
/// The function can block a hardware queue, which other streams share.
pub const BLOCKS: &str =
    "can block a hardware queue that streams share: everything earlier is launched first";
/// Calls are captured on the calling thread, and no other work may become part of the graph.
pub const CAPTURE: &str = "capture: the stream must be quiet";
/// The function destroys streams, memory and code.
pub const RESETS: &str = "takes everything of a device with it";
/// The function can run a callback of the program, which may free anything, inside the runtime.
pub const USER_CODE: &str = "can run the program's own destructor inside the runtime";

/// The reasons for the conservative handler.
pub const CONSERVATIVE: &[&str] =
    &[WAITS, OWN_STREAM, OTHER_DEVICES, FREES, SET_UP, SETTING, BLOCKS, CAPTURE, RESETS, USER_CODE];
