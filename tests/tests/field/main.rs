//! One case for each finding of the field: ROCm as it is shipped, edges of the system, what the program could notice.
//!
//! `make test-field` runs them and prints `N passed, N failed` as its last line; `make test-field ARGS=b1` those with this in their names.
//! Cases were seen to fail without their mends, but for `f14_…` and `f2_each_…`, whose mends have several parts that stand in for
//! each other. What a small program can show by itself is a program of `tests/programs`, which runs
//! natively and in all modes; [`answers`] runs it in those modes in which it once failed.
//!
//! The names begin with the finding's letter and number, which stand for nothing here but an order:
//!
//! # What calls answer (`answers.rs`)
//! | what broke | case | program |
//! |---|---|---|
//! | a deadlock: a call waits in its turn behind what only its caller can end | `h1_…` | `host_opens`, `capture_behind_value` |
//! | a query said "not ready" after a synchronous copy or fill | `h2_…` | `query_behind_whole` |
//! | arguments that HIP refuses at once were taken when deferred (`docs/refusals.md`; destroyed events and failed kernels under HIP 7, `make test-rocm`) | `h3_…` | `refused_copies`, `refused_launches`, `refused_others`, `ext_launch_ended`, `error_sticky` |
//! | launches larger than the device takes were taken when deferred; local memory above 64 KiB was never deferred | `h4_f7_…` | `launch_limits` |
//! | a pool that follows events gave the second stream other memory (HIP 7) | | `pool_follows` |
//! | a destroyed graph was taken while a launch of it was deferred | `h5_…` | `graph_ended` |
//! | gpu-sim: registration of unmapped memory; virtual memory and IPC said to be there | `g1_g2_g3_…`; `smi`, `graph_memory` (HIP 7), `runs_of_one_name_…` in `hip_processes.rs` | `host_register_unmapped`, `virtual_memory`, `events_ipc`, `ipc_processes` |
//! | driver requests with a bad pointer crashed | `a8_…` | `kfd_bad_arguments` |
//!
//! # ROCm as it is shipped
//! | what broke | case |
//! |---|---|
//! | kernels for many architectures blocked their caller | `answers::f1_…` (`arguments_none`, `ext_launch`, built fat) |
//! | launches that are not deferred were not counted or explained (list, doctor, metrics, log) | `deferral::f1_…` |
//! | a renamed runtime was not scheduled, and `XSCHED_DISABLE=1` was not heeded | `answers::f2_a_renamed_…` (`path_renamed`, also inert) |
//! | two runtimes in one process | `answers::f2_each_…` (`path_two_runtimes`) |
//! | Linux before 5.11 | `server::f3_…` |
//! | a subset of partitions took the wrong device | `edges::f6_…` under HIP 7 (`make test-rocm ROCM=7`; 5.2.3 knows no partitions), unit test `match_nodes_identifies_partitions_…` of the shim |
//! | variables that a program or its forked child sets before it uses HIP; a spawned one has them from its start | `edges::f8_…` |
//! | a Python program was called `python3` (list, explain, metrics, the server's log) | `server::f9_f15_…` |
//! | a busy kernel was no fixed amount of work | `answers::f10_…` (`busy_clock`) |
//! | each start of a program held and released queues, and so disturbed those that ran | `levels::hold_cost_…`, `levels::a_wrong_cost_…` |
//! | nobody said why level 2 or 3 is not in force | `edges::f11_…` (a runtime without a driver) |
//! | a prefetch was deferred though the runtime refuses it | `managed` under HIP 7 (`make test-rocm`): 5.2.3 refuses none |
//! | a device without a KFD id had no name | unit test `device_id_is_shown_and_parsed_…` of `protocol` |
//! | an auditor (LD_AUDIT) beside the library recursed | `answers::f14_…` (`path_audit`) |
//! | what workers did that leave by `_exit` | `server::f9_f15_…` |
//! | a process reconnected behind its totals | `edges::f16_…` |
//! | a wrong choice of autotuners | unit test `remarks_explain_unusual_states` of `xcli explain` |
//!
//! # Every edge fails open
//! | what broke | case |
//! |---|---|
//! | our line in a file of the program's | `edges::a1_…` |
//! | a thread of ours, killed or blocked, kept the program suspended: under a server | `edges::a2_without_an_agent_…`, `edges::a2_without_a_listener_…` |
//! | the same under a policy in the process: who decides, who launches, who looks for completion | `edges::a2_no_thread_…` |
//! | a filter for system calls ended the program | `edges::a3_…` |
//! | no thread could be made | `edges::a4_…` |
//! | our descriptor's number, taken by the program | `edges::a5_…` |
//! | `xcli` in another pid namespace, or in a user namespace without a mapping | `server::a6_…`, `server::b11_…` |
//! | SIGXFSZ, a full pipe or FIFO as log, SIGPIPE | `edges::a7_…`, `edges::a9_…`, `edges::a_log_without_a_reader_…` |
//! | a low descriptor number taken | `edges::a10_…` |
//! | `xcli run` refused programs: read-only, full, missing or foreign directory; `--strict` exits with 125 each time | `server::b1_…`, `server::b2_…`, `server::b11_…` |
//! | the same where the server takes nobody more | `a_server_that_takes_nobody_more` in `xcli/tests/run.rs` |
//! | a library for a newer C library ended every program that it was preloaded into | `preloaded::f5_…` |
//! | the default directory was not checked | `server::b2_…` |
//! | a socket or lock that is gone, another server's socket | `server::b3_…` |
//! | a limit of file sizes ended the server | `server::b4_…` |
//! | root's commands followed links, FIFOs and devices of a program | `server::b5_…` |
//! | a started server inherited descriptors, nice value, scheduling class, affinity, limits, signals | `server::b6_…` |
//! | characters in names that turn lines around | `server::b12_…` |

/// Answers of calls, at once and deferred, compared with the native ones.
mod answers;
/// Counts of launches that cannot be deferred.
mod deferral;
/// Resources of the program: descriptors, signals, threads, limits, variables.
mod edges;
/// Levels above 1: what measuring them costs others.
mod levels;
/// `xcli run` and a library that cannot be loaded.
mod preloaded;
/// The server and the commands: directories, sockets, limits, namespaces, names.
mod server;
