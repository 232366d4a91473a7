//! The C headers: each compiles alone as C and C++, together they declare exactly the built functions with
//! their types, and every number equals the library's.

use protocol::bounds::{Priority, Timeslice, Utilization};
use protocol::codes::{
    HintSet, KEEP_PRIORITY, KfdQueue, KfdQueueState, KfdQueueType, KfdResult, OF_NEW_STREAMS, PreemptLevel,
    QueueClass, QueueState, QueueStatistics, XResult, create_flag, resume_flag, suspend_flag,
};
use protocol::config::SchedulerKind;
use protocol::hint::table::HINTS;
use protocol::policy::PolicyKind;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const HEADERS: [&str; 7] = [
    "xsched/types.h",
    "xsched/xqueue.h",
    "xsched/hint.h",
    "xsched/hip/hal.h",
    "xsched/hip/hal/hal.h",
    "xsched/xsched.h",
    "xsched/kfd.h",
];

/// The functions of the interface except the hints: name, arguments.
const FUNCTIONS: &[(&str, &str)] = &[
    ("XQueueCreate", "XQueueHandle *, HwQueueHandle, int64_t, int64_t"),
    ("XQueueDestroy", "XQueueHandle"),
    ("XQueueGet", "XQueueHandle *, HwQueueHandle"),
    ("XQueueGetForStream", "XQueueHandle *, struct ihipStream_t *"),
    ("XQueueStats", "XQueueHandle, XQueueStatistics *, size_t"),
    ("XQueueList", "XQueueHandle *, size_t *"),
    ("XQueueSetPreemptLevel", "XQueueHandle, XPreemptLevel"),
    ("XQueueSetLaunchConfig", "XQueueHandle, int64_t, int64_t"),
    ("XQueueSubmit", "XQueueHandle, HwCommandHandle"),
    ("XQueueWait", "XQueueHandle, HwCommandHandle"),
    ("XQueueWaitAll", "XQueueHandle"),
    ("XQueueProfileHwCommandCount", "XQueueHandle, int64_t *"),
    ("HwQueueLaunch", "HwQueueHandle, HwCommandHandle"),
    ("HwCommandCreateCallback", "HwCommandHandle *, LaunchCallback, void *"),
    ("HwCommandDestroy", "HwCommandHandle"),
    ("XQueueQuery", "XQueueHandle, XQueueState *"),
    ("XQueueSuspend", "XQueueHandle, int64_t"),
    ("XQueueResume", "XQueueHandle, int64_t"),
    ("HwQueueDestroy", "HwQueueHandle"),
    ("HwQueueSynchronize", "HwQueueHandle"),
    ("XHintSetScheduler", "XSchedulerType, XPolicyType"),
    ("XHintSlo", "XQueueHandle, Deadline"),
    ("XHintBegin", "XQueueHandle, const XHintSet *, uint64_t *"),
    ("XHintEnd", "XQueueHandle, uint64_t"),
    ("HipQueueCreate", "HwQueueHandle *, struct ihipStream_t *"),
    ("XKfdOpen", "XKfdSession *, int32_t"),
    ("XKfdClose", "XKfdSession"),
    ("XKfdListQueues", "XKfdSession, XKfdQueue *, uint32_t *"),
    ("XKfdSuspend", "XKfdSession, const uint32_t *, uint32_t"),
    ("XKfdResume", "XKfdSession, const uint32_t *, uint32_t"),
    ("XKfdStatus", "XKfdSession, uint32_t, XKfdQueueState *"),
];

/// All functions: those above and those of the hints.
fn functions() -> impl Iterator<Item = (&'static str, &'static str)> {
    FUNCTIONS.iter().copied().chain(HINTS.iter().filter_map(|spec| spec.function))
}

/// Returns the result type of a function.
fn result(name: &str) -> &'static str {
    if name.starts_with("XKfd") { "XKfdResult" } else { "XResult" }
}

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../include")
}

/// Runs a compiler on a program; returns its messages if it fails.
fn compile(compiler: &str, arguments: &[&str], program: &str) -> Result<(), String> {
    let mut child = Command::new(compiler)
        .args(arguments)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"])
        .arg(include())
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{compiler} cannot be started: {error}"));
    child.stdin.take().expect("piped").write_all(program.as_bytes()).expect("the compiler reads");
    let output = child.wait_with_output().expect("the compiler ends");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

const C: (&str, &[&str]) = ("cc", &["-std=c99", "-x", "c"]);
const CXX: (&str, &[&str]) = ("c++", &["-std=c++11", "-x", "c++"]);

fn in_both(what: &str, program: &str) {
    for (compiler, arguments) in [C, CXX] {
        if let Err(said) = compile(compiler, arguments, program) {
            panic!("{what}: {compiler} {arguments:?} says\n{said}");
        }
    }
}

/// Returns a program that compiles only if each of these constants has its number. It needs nothing newer
/// than C99.
fn comparison(constants: &[(String, i128)]) -> String {
    let mut program = String::from("#include <xsched/xsched.h>\n#include <xsched/kfd.h>\n");
    for (name, number) in constants {
        let suffix = if i64::try_from(*number).is_ok() { "" } else { "ULL" };
        writeln!(
            program,
            "extern char {name}_is_{}[({name}) == ({number}{suffix}) ? 1 : -1];",
            number.unsigned_abs()
        )
        .expect("a String takes all");
    }
    program
}

fn constants() -> Vec<(String, i128)> {
    let mut all: Vec<(&str, i64)> = vec![
        ("PRIORITY_NO_EXECUTE", Priority::NO_EXECUTE.into()),
        ("PRIORITY_MIN", Priority::MIN.into()),
        ("PRIORITY_DEFAULT", Priority::DEFAULT.into()),
        ("PRIORITY_MAX", Priority::MAX.into()),
        ("UTILIZATION_MIN", Utilization::MIN.into()),
        ("UTILIZATION_DEFAULT", Utilization::DEFAULT.into()),
        ("UTILIZATION_MAX", Utilization::MAX.into()),
        ("TIMESLICE_MIN", Timeslice::MIN.into()),
        ("TIMESLICE_DEFAULT", Timeslice::DEFAULT.into()),
        ("TIMESLICE_MAX", Timeslice::MAX.into()),
        ("NO_LAXITY", -1),
        ("NO_DEADLINE", -1),
        ("XHINT_KEEP", KEEP_PRIORITY.into()),
        ("kPreemptLevelUnknown", 0),
        ("kPreemptLevelMax", 4),
        ("kQueueFeatureNone", 0),
        ("kQueueFeatureMaskAll", -1),
        ("kQueueCreateFlagMaskAll", -1),
        ("kQueueSuspendFlagMaskAll", -1),
        ("kQueueResumeFlagMaskAll", -1),
        ("kSchedulerUnknown", 0),
        ("kSchedulerMax", 4),
        ("kPolicyUnknown", 0),
        ("kPolicyMax", 12),
        ("kQueueFeatureAsyncSubmit", 1),
        ("kQueueFeatureDynamicLevel", 2),
        ("kQueueFeatureDynamicThreshold", 4),
        ("kQueueFeatureDynamicBatchSize", 8),
        ("kQueueFeatureSyncSuspend", 0x10),
        ("kQueueFeatureResumeDropCommands", 0x20),
        ("kQueueCreateFlagNone", 0),
        ("kQueueCreateFlagBlockingSubmit", create_flag::BLOCKING_SUBMIT),
        ("kQueueSuspendFlagNone", 0),
        ("kQueueSuspendFlagSyncHwQueue", suspend_flag::SYNC_HW_QUEUE),
        ("kQueueSuspendFlagWaitAll", suspend_flag::WAIT_ALL),
        ("kQueueSuspendFlagWaitIdle", suspend_flag::WAIT_IDLE),
        ("kQueueResumeFlagNone", 0),
        ("kQueueResumeFlagDropCommands", resume_flag::DROP_COMMANDS),
        ("kPlatformUnknown", 0),
        ("kPlatformVPI", 1),
        ("kPlatformCUDA", 2),
        ("kPlatformCUDLA", 3),
        ("kPlatformHIP", 4),
        ("kPlatformAscend", 5),
        ("kPlatformOpenCL", 6),
        ("kPlatformLevelZero", 7),
        ("kDeviceTypeUnknown", 0),
        ("kDeviceTypeCPU", 1),
        ("kDeviceTypeGPU", 2),
        ("kDeviceTypeNPU", 3),
        ("kDeviceTypeFPGA", 4),
        ("kDeviceTypeASIC", 5),
        ("kDeviceTypeMCA", 6),
    ];
    all.extend(KfdResult::ALL.iter().map(|value| (value.c_name(), value.number().into())));
    all.extend(KfdQueueType::ALL.iter().map(|value| (value.c_name(), value.number().into())));
    all.extend(KfdQueueState::ALL.iter().map(|value| (value.c_name(), value.number().into())));
    all.extend(XResult::ALL.iter().map(|value| (value.c_name(), value.number().into())));
    all.extend(PreemptLevel::ALL.iter().map(|value| (value.c_name(), value.number().into())));
    all.push(("kQueueClassNone", 0));
    all.extend(QueueClass::ALL.iter().map(|value| (value.c_name(), value.number().into())));
    all.extend(QueueState::ALL.iter().map(|value| (value.c_name(), value.number().into())));
    all.extend(SchedulerKind::ALL.iter().map(|value| (value.c_name(), value.number().into())));
    all.extend(PolicyKind::ALL.iter().map(|value| (value.long_name(), value.number().into())));
    let unlimited = ("TIMESLICE_UNLIMITED".to_owned(), u64::MAX.into());
    let of_new_streams = ("XQUEUE_OF_NEW_STREAMS".to_owned(), OF_NEW_STREAMS.into());
    all.into_iter()
        .map(|(name, number)| (name.to_owned(), number.into()))
        .chain([unlimited, of_new_streams])
        .collect()
}

/// Returns the words of a header outside its comments.
fn words(header: &str) -> Vec<String> {
    let text = std::fs::read_to_string(include().join(header)).expect(header);
    let mut code = String::new();
    for (index, part) in text.split("/*").enumerate() {
        code.push_str(if index == 0 { part } else { part.split_once("*/").expect("a comment ends").1 });
    }
    code.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != '(')
        .map(str::to_owned)
        .collect()
}

/// Compares the layout of a structure of the header `from` with the library's.
fn compare_layout(from: &str, structure: &str, places: &[(&str, usize)], size: usize) {
    let mut program = format!("#include <stddef.h>\n#include <{from}>\n");
    for (name, offset) in places {
        writeln!(program, "extern char at_{name}[offsetof({structure}, {name}) == {offset} ? 1 : -1];")
            .expect("a String takes all");
    }
    writeln!(program, "extern char size[sizeof({structure}) == {size} ? 1 : -1];")
        .expect("a String takes all");
    in_both(structure, &program);
}

#[test]
fn structures_have_the_layout_of_the_headers() {
    let hints = [
        ("priority", offset_of!(HintSet, priority)),
        ("cls", offset_of!(HintSet, class)),
        ("deadline", offset_of!(HintSet, deadline)),
    ];
    compare_layout("xsched/hint.h", "XHintSet", &hints, size_of::<HintSet>());
    macro_rules! at {
        ($($field:ident)*) => { [$((stringify!($field), offset_of!(QueueStatistics, $field))),*] };
    }
    let statistics = at! {
        direct deferred pending launched in_flight suspensions suspended_ns device_ns threshold batch_size priority level
        state running
    };
    compare_layout("xsched/xqueue.h", "XQueueStatistics", &statistics, size_of::<QueueStatistics>());
    let queue = [
        ("queue_id", offset_of!(KfdQueue, queue_id)),
        ("gpu_id", offset_of!(KfdQueue, gpu_id)),
        ("type", offset_of!(KfdQueue, kind)),
        ("state", offset_of!(KfdQueue, state)),
        ("ring_address", offset_of!(KfdQueue, ring_address)),
        ("ring_size", offset_of!(KfdQueue, ring_size)),
        ("write_pointer_address", offset_of!(KfdQueue, write_pointer_address)),
        ("read_pointer_address", offset_of!(KfdQueue, read_pointer_address)),
    ];
    compare_layout("xsched/kfd.h", "XKfdQueue", &queue, size_of::<KfdQueue>());
}

#[test]
fn header_included_alone_and_twice_compiles() {
    for header in HEADERS {
        in_both(header, &format!("#include <{header}>\n#include <{header}>\n"));
    }
}

#[test]
fn headers_declare_exactly_the_built_functions() {
    let mut program =
        String::from("#include <xsched/xsched.h>\n#include <xsched/kfd.h>\n#include <xsched/hip/hal.h>\n");
    for (name, arguments) in functions() {
        let result = result(name);
        writeln!(program, "extern {result} (*const type_of_{name})({arguments});")
            .expect("a String takes all");
        writeln!(program, "{result} (*const type_of_{name})({arguments}) = {name};")
            .expect("a String takes all");
    }
    in_both("the functions", &program);

    let declared: BTreeSet<String> = HEADERS
        .iter()
        .flat_map(|header| words(header))
        .filter_map(|word| word.split_once('(').map(|(name, _)| name.to_owned()))
        .filter(|name| ["X", "Hw", "Hip"].iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    assert_eq!(declared, functions().map(|(name, _)| name.to_owned()).collect());
}

#[test]
fn constants_have_the_numbers_of_the_library() {
    let constants = constants();
    in_both("the constants", &comparison(&constants));

    // The list contains every constant that the headers define.
    let defined: BTreeSet<String> = HEADERS
        .iter()
        .flat_map(|header| words(header))
        .filter(|word| {
            let constant = ["PRIORITY_", "UTILIZATION_", "TIMESLICE_", "NO_", "XHINT_", "XQUEUE_"];
            let enumerator =
                word.starts_with('k') && word.chars().nth(1).is_some_and(|c| c.is_ascii_uppercase());
            enumerator || constant.iter().any(|prefix| word.starts_with(prefix))
        })
        .collect();
    assert_eq!(defined, constants.into_iter().map(|(name, _)| name).collect());
}

#[test]
fn comparison_with_a_wrong_number_fails() {
    for (compiler, arguments) in [C, CXX] {
        let said =
            compile(compiler, arguments, &comparison(&[("PRIORITY_MAX".to_owned(), 256)])).unwrap_err();
        assert!(said.contains("PRIORITY_MAX_is_256"), "{said}");
    }
}

#[test]
fn program_compiles_with_headers_in_either_order() {
    // HIP's own header if it is installed, else the declaration of the stream that all releases share.
    let hip = "#define __HIP_PLATFORM_AMD__ 1\n\
        #if defined(__has_include)\n#if __has_include(<hip/hip_runtime_api.h>)\n\
        #include <hip/hip_runtime_api.h>\n#define FOUND\n#endif\n#endif\n\
        #ifndef FOUND\ntypedef struct ihipStream_t *hipStream_t;\n#endif\n";
    let ours = "#include <xsched/xsched.h>\n#include <xsched/hip/hal.h>\n";
    let usage = "extern XResult wrap(HwQueueHandle *hwq, hipStream_t stream);\n\
        XResult wrap(HwQueueHandle *hwq, hipStream_t stream) { return HipQueueCreate(hwq, stream); }\n\
        extern XQueueHandle create(HwQueueHandle hwq);\n\
        XQueueHandle create(HwQueueHandle hwq) {\n\
          XQueueHandle xq = 0;\n\
          if (XQueueCreate(&xq, hwq, kPreemptLevelBlock, kQueueCreateFlagNone) != kXSchedSuccess) return 0;\n\
          XHintPriority(xq, PRIORITY_MAX);\n\
          XHintSetScheduler(kSchedulerLocal, kPolicyHighestPriorityFirst);\n\
          return xq;\n\
        }\n";
    in_both("HIP first", &format!("{hip}{ours}{usage}"));
    in_both("HIP last", &format!("{ours}{hip}{usage}"));
}
