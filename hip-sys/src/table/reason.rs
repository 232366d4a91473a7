//! Why a function may pass without the shim: a fixed, short list.
//!
//! What all of them have in common: the function enqueues nothing, waits for nothing, frees, unmaps or unloads nothing.

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
