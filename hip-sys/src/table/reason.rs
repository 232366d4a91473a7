//! Why a function may pass without the shim, and why the conservative handler is the right one for another: two fixed,
//! short lists.
//!
//! What all that pass have in common: the function enqueues nothing, waits for nothing, frees, unmaps or unloads nothing.

/// Reads something that does not depend on pending work.
pub const READS_STATE: &str = "reads state only";
/// Changes what only the calling thread sees, and what the shim reads back from the runtime.
pub const THREAD_STATE: &str = "state of the calling thread";
/// Changes a setting that pending commands do not read when they are launched.
pub const SETS_STATE: &str = "changes a setting that pending commands do not read";
/// Gives new memory, or a new name of it. No pending command can use it yet.
pub const ALLOCATES: &str = "allocates, imports or registers memory; waits for nothing";
/// Makes or changes an object on the host.
pub const HOST_OBJECT: &str = "host-side object, touches no stream";
/// Builds a graph that runs only once it is instantiated and launched.
pub const GRAPH_TEMPLATE: &str = "graph template, touches no stream";
/// Compiles or links.
pub const COMPILES: &str = "compiles on the host";
/// Turns a code into text.
pub const ERROR_TEXT: &str = "error text";
/// For profilers and debuggers.
pub const TOOLS: &str = "interface for tools";
/// Compiler support.
pub const ARITHMETIC: &str = "arithmetic on the host";

/// All reasons.
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

/// It returns only when its work is done, and with it all in front of it. The conservative handler makes it in its turn.
pub const WAITS: &str = "waits for its work by itself; made in its turn";
/// It is made on the calling thread, when everything earlier of its own stream is launched, and waits for no other stream.
pub const OWN_STREAM: &str = "made in its own stream's turn: only the runtime can tell whether it is valid";
/// It can run on the default streams of other devices.
pub const OTHER_DEVICES: &str =
    "can run on other devices' default streams: everything earlier is launched first";
/// It takes away, or gives another meaning to, what any pending command may use. Most of them wait for the device too.
pub const FREES: &str = "takes away what pending commands may use";
/// It is called while a program sets up, if at all.
pub const SET_UP: &str = "a rare call of a program's set-up that copies on the default stream";
/// Commands read the setting when they are launched.
pub const SETTING: &str = "changes a setting that commands read when they are launched";
/// It can block a hardware queue, which other streams share.
pub const BLOCKS: &str =
    "can block a hardware queue that streams share: everything earlier is launched first";
/// What is captured is captured on the calling thread, and nothing else may become a part of the graph.
pub const CAPTURE: &str = "capture: the stream must be quiet";
/// It takes streams, memory and code with it.
pub const RESETS: &str = "takes everything of a device with it";
/// It can run a function of the program's that may free anything, inside the runtime.
pub const USER_CODE: &str = "can run the program's own destructor inside the runtime";

/// Why a function has the conservative handler.
pub const CONSERVATIVE: &[&str] =
    &[WAITS, OWN_STREAM, OTHER_DEVICES, FREES, SET_UP, SETTING, BLOCKS, CAPTURE, RESETS, USER_CODE];
