//! Reduces the texts of a report to what is known to be safe.
//!
//! Figures and texts that giveway itself composes stay. Texts that can contain words of other programs, such
//! as the messages of a runtime or a loader, keep only words of a list (`words.txt`), numbers, versions, and
//! names of giveway's files; everything else becomes `…`, and a path `<path>`. So a name of a user, host,
//! project or file is left out without being known.

use super::format::Parts;
use crate::doctor::Findings;
use protocol::config::variables;
use protocol::report::{Conformance, Corun, Devices, Holds, Mode};
use std::collections::HashSet;

/// The variables of HIP and the layers below it, in addition to giveway's own.
pub(super) const ENVIRONMENT: [&str; 17] = [
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "GPU_MAX_HW_QUEUES",
    "AMD_DIRECT_DISPATCH",
    "AMD_SERIALIZE_KERNEL",
    "AMD_SERIALIZE_COPY",
    "DEBUG_HIP_DYNAMIC_QUEUES",
    "HIP_LAUNCH_BLOCKING",
    "HSA_OVERRIDE_GFX_VERSION",
    "HSA_XNACK",
    "HSA_CU_MASK",
    "HSA_ENABLE_SDMA",
    "HSA_ENABLE_INTERRUPT",
    "HSA_NO_SCRATCH_RECLAIM",
    "HSA_USERPTR_FOR_PAGED_MEM",
];

/// Replaces a word that is not listed.
const LEFT_OUT: &str = "…";
/// Replaces a path.
const PATH: &str = "<path>";
/// Paths that are the same on every machine. Only the first two can continue, with a number of a node or
/// process.
const PATHS: [&str; 7] =
    ["/dev/dri/renderD", "/proc/", "/dev/kfd", "/dev/dri", "/sys", "/proc", "/etc/os-release"];
/// Names of files that are kept without their folder.
const FILES: [&str; 6] = ["libshimhip.so", "libamdhip64.so", "xcli", "xbench", "xserver", "gpu-sim"];
/// Signs in front of a word, and behind it.
const OPENING: &str = "\"'`([{<";
const CLOSING: &str = "\"'`)]}>,;:.!?";
/// Digits of a number that is kept. Serial numbers and addresses in memory are longer.
const DIGITS: usize = 10;

/// The words that a report may contain.
#[derive(Debug)]
pub struct Words {
    /// In lower case.
    words: HashSet<String>,
    /// The driver's numbers of the GPUs, which are replaced by their index: they identify a machine.
    gpus: Vec<String>,
}

impl Words {
    /// The list, for a machine with these GPUs.
    pub fn new(gpus: impl IntoIterator<Item = u32>) -> Self {
        let listed = include_str!("words.txt").split_whitespace();
        let variables = variables().map(|variable| variable.name).chain(ENVIRONMENT);
        let gpus = gpus.into_iter().map(|gpu| gpu.to_string()).collect();
        Self { words: listed.chain(variables).chain(FILES).map(str::to_lowercase).collect(), gpus }
    }

    /// Reduces all texts of the parts. Each field of a type is named here, so that a new one has to be listed
    /// to be printed.
    pub fn redact(&self, parts: &mut Parts) {
        let Parts {
            versions,
            doctor,
            devices,
            calibration,
            launch_path,
            window,
            priority,
            unit_masks,
            holds,
            corun,
            conformance,
        } = parts;
        // The figures of `calibration` and `launch_path` and the rows of `priority` have fixed names; `window` and `unit_masks`
        // have numbers only. A part that is not possible says why in `skipped`.
        for error in [
            &mut versions.error,
            &mut doctor.error,
            &mut devices.error,
            &mut calibration.error,
            &mut launch_path.error,
            &mut window.error,
            &mut priority.error,
            &mut unit_masks.error,
            &mut unit_masks.skipped,
            &mut holds.error,
            &mut corun.error,
            &mut conformance.error,
        ] {
            self.reduce(error);
        }
        // `versions::look` keeps only listed values; the error of a GPU is an error of the driver.
        for gpu in versions.result.iter_mut().flat_map(|versions| &mut versions.gpus) {
            self.reduce(&mut gpu.error);
        }
        if let Some(Findings { ok: _, findings }) = &mut doctor.result {
            for finding in findings {
                finding.text = self.text(&finding.text);
            }
        }
        if let Some(Devices { runtime_version: _, devices }) = &mut devices.result {
            for device in devices {
                device.name = self.text(&device.name);
            }
        }
        if let Some(Holds { mechanisms }) = &mut holds.result {
            mechanisms.iter_mut().for_each(|row| self.reduce(&mut row.error));
        }
        // Both models are part of xbench, and so are their names.
        if let Some(Corun { levels, .. }) = &mut corun.result {
            levels.iter_mut().for_each(|level| self.reduce(&mut level.missing));
        }
        if let Some(Conformance { modes }) = &mut conformance.result {
            for Mode { error, programs, .. } in modes {
                self.reduce(error);
                programs.iter_mut().for_each(|program| self.reduce(&mut program.error));
            }
        }
    }

    fn reduce(&self, text: &mut Option<String>) {
        if let Some(text) = text {
            *text = self.text(text);
        }
    }

    /// Reduces a text to listed words.
    pub fn text(&self, text: &str) -> String {
        let mut words: Vec<String> = Vec::new();
        for word in text.split_whitespace() {
            let core = word.trim_start_matches(|c| OPENING.contains(c));
            let (before, rest) = word.split_at(word.len() - core.len());
            let core = rest.trim_end_matches(|c| CLOSING.contains(c));
            let safe = if core.is_empty() { String::new() } else { self.word(core) };
            let word = format!("{before}{safe}{}", &rest[core.len()..]);
            if word != LEFT_OUT || words.last().is_none_or(|last| last != LEFT_OUT) {
                words.push(word);
            }
        }
        words.join(" ")
    }

    fn word(&self, word: &str) -> String {
        if let Some(index) = self.gpus.iter().position(|gpu| gpu == word) {
            format!("#{index}")
        } else if self.is_known(word) {
            word.to_owned()
        } else if let Some((name, value)) = word.split_once('=').filter(|(name, _)| !name.contains('/')) {
            format!("{}={}", self.word(name), self.word(value))
        } else if word.contains('/') {
            path(word)
        } else if word.starts_with(|c: char| c.is_ascii_digit()) && !word.contains(':') {
            self.release(word)
        } else if word.contains('-') && word.split('-').all(|part| self.is_known(part)) {
            word.to_owned()
        } else {
            LEFT_OUT.to_owned()
        }
    }

    fn is_known(&self, word: &str) -> bool {
        self.words.contains(&word.to_lowercase()) || is_number(word) || is_model(word) || is_file(word)
    }

    /// Reduces a release such as `6.12.0-1-amd64` to its numbers and listed words: a kernel that a user has
    /// built can have any name.
    pub fn release(&self, release: &str) -> String {
        // Four numbers are an address of a network.
        if release.split('.').count() == 4 && release.chars().all(|c| c == '.' || c.is_ascii_digit()) {
            return LEFT_OUT.to_owned();
        }
        let part = |part: &str| {
            let is_short = part.len() <= DIGITS && part.chars().all(|c| c == '_' || c.is_ascii_digit());
            // `el9_4`, `fc41`, `rc1`
            let letters = part.trim_end_matches(|c: char| c == '_' || c.is_ascii_digit());
            let is_mark =
                letters.len() == 2 && letters.chars().all(|c| c.is_ascii_lowercase()) && letters != part;
            is_short || is_mark || self.words.contains(part)
        };
        let mut safe = String::new();
        for piece in release.split_inclusive(['.', '-', '+', '~']) {
            let name = piece.trim_end_matches(['.', '-', '+', '~']);
            safe.push_str(if part(name) { name } else { LEFT_OUT });
            safe.push_str(&piece[name.len()..]);
        }
        safe
    }
}

/// Returns true for numbers such as `12`, `-0.5`, `3.25%`, `85µs`, `0x1f` and `1/2`.
fn is_number(word: &str) -> bool {
    let digits = |text: &str, is_digit: fn(&char) -> bool| {
        !text.is_empty() && text.chars().count() <= DIGITS && text.chars().all(|c| is_digit(&c))
    };
    let decimal = |text: &str| {
        text.split('.').count() <= 3 && text.split('.').all(|part| digits(part, char::is_ascii_digit))
    };
    if let Some(hex) = word.strip_prefix("0x") {
        return digits(hex, char::is_ascii_hexdigit);
    }
    let word = word.trim_start_matches(['+', '-', '#']);
    let number = word.trim_end_matches(|c: char| c.is_ascii_alphabetic() || "µ%".contains(c));
    let is_unit =
        ["", "%", "s", "ms", "us", "µs", "ns", "B", "KiB", "MiB", "GiB"].contains(&&word[number.len()..]);
    is_unit && (decimal(number) || number.split('/').count() == 2 && number.split('/').all(decimal))
}

/// Returns true for targets, models and errors of AMD: `gfx90a:xnack-`, `MI300X`, `7900`, `hipErrorNoDevice`,
/// `GLIBC_2.34`.
fn is_model(word: &str) -> bool {
    let rest_is = |prefix: &str, allowed: fn(char) -> bool| {
        word.strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.len() <= 40 && rest.chars().all(allowed))
    };
    let target = word.split(':').next().unwrap_or_default();
    let is_target = target
        .strip_prefix("gfx")
        .is_some_and(|rest| (3..=5).contains(&rest.len()) && rest.chars().all(|c| c.is_ascii_hexdigit()));
    let features = word.split(':').skip(1);
    is_target && { features }
        .all(|feature| ["xnack+", "xnack-", "xnack", "sramecc+", "sramecc-", "sramecc"].contains(&feature))
        || ["MI", "W", "V"].iter().any(|prefix| {
            let digits = |c: char| c.is_ascii_digit() || "XAP".contains(c);
            rest_is(prefix, |c| c.is_ascii_digit() || "XAP".contains(c))
                && word.len() <= 7
                && word.ends_with(digits)
        })
        || rest_is("hipError", |c| c.is_ascii_alphanumeric())
        || rest_is("GLIBC_", |c| c == '.' || c.is_ascii_digit())
}

/// Returns true for a file of giveway or of HIP's runtime, possibly with a release.
pub fn is_file(name: &str) -> bool {
    let is_release =
        |rest: &str| rest.starts_with('.') && rest.chars().all(|c| c == '.' || c.is_ascii_digit());
    FILES.iter().any(|file| name.strip_prefix(file).is_some_and(|rest| rest.is_empty() || is_release(rest)))
}

/// A path that is the same everywhere, or `<path>` with the name of a known file.
fn path(path: &str) -> String {
    let is_plain = PATHS.contains(&path)
        || path.strip_prefix(PATHS[0]).is_some_and(is_number)
        || path.strip_prefix(PATHS[1]).is_some_and(|rest| is_number(rest.trim_end_matches("/root")));
    let name = path.rsplit('/').next().unwrap_or_default();
    match is_plain {
        true => path.to_owned(),
        false if is_file(name) => format!("{PATH}/{name}"),
        false => PATH.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        Words::new([51_234, 7])
    }

    #[test]
    fn sentences_of_giveway_stay() {
        for sentence in [
            "Linux 6.12.0-1-amd64, glibc 2.41",
            "Linux 5.14.0-427.13.1.el9_4.x86_64, glibc 2.34: before 6.5 `xcli suspend` and the mechanism debug-trap do not work",
            "/dev/kfd: xcli can open it",
            "/dev/dri/renderD128: permission denied: it belongs to the group render: run `usermod -aG render USER` as root, and log in again",
            "it did not end within 130 s",
            "2 of 3 words are wrong: word 1 is 0x6 and not 0x9",
            "level 3 works by update-queue, and by debug-trap",
            "the driver does not save running waves (cwsr_enable=0)",
            "version `GLIBC_2.34' not found",
            "hipErrorNoDevice: no ROCm-capable device is detected",
            "this HIP runtime has no function hipExtStreamCreateWithCUMask",
            "hipExtStreamCreateWithCUMask returned hipErrorNotSupported (801)",
            "update-queue: 3 of 512 results of keep_few with 16384 bytes of local memory are wrong after a restore",
            "level 3 is not in force, level 1 is: the server gives no reason",
            "level 3 was not used: no queue was evicted from the hardware in 1 of 1 blocks",
            "AMD Instinct MI300X",
            "AMD Radeon RX 7900 XTX",
        ] {
            assert_eq!(words().text(sentence), sentence);
        }
        assert_eq!(
            words().text("GPU 51234 (gfx90a:sramecc+:xnack-): KFD 1.14, HWS"),
            "GPU #0 (gfx90a:sramecc+:xnack-): KFD 1.14, HWS"
        );
    }

    #[test]
    fn unlisted_words_are_left_out() {
        for (text, want) in [
            ("zebra's channel, zebra zoo", "… …, …"),
            ("the group zebra: run `usermod -aG zebra USER`", "the group …: run `usermod -aG … USER`"),
            ("programs use the GPU: 42 (zebra.py), 43 (zoo)", "programs use the GPU: 42 (…), 43 (…)"),
            ("off (`xcli -p acme-night on` switches it on)", "off (`xcli -p … on` switches it on)"),
            ("ZEBRA_TOKEN=zebra XSCHED_POLICY=zebra", "…=… XSCHED_POLICY=…"),
            ("6.1.0-zebra 6.1.0-rc1+ at 10.0.0.1", "6.1.0-… 6.1.0-rc1+ at …"),
            ("GPU-12ab34cd56ef7890 at 0000:c3:00.0!", "… at …!"),
            ("at fe80::1", "at …"),
        ] {
            assert_eq!(words().text(text), want, "{text}");
        }
    }

    #[test]
    fn paths_are_left_out_as_a_whole() {
        for (text, want) in [
            ("no process listens on /home/zebra/s.sock.", "no process listens on <path>."),
            ("opens /home/zebra/My Zoo/x.sock: no", "… <path> <path>: no"),
            ("'/srv/Zebra Zoo' is not a directory", "'<path> …' is not a directory"),
            ("/home/zebra/lib/libshimhip.so: cannot open", "<path>/libshimhip.so: cannot open"),
            ("/opt/rocm-6.1.0/lib/libamdhip64.so.6.1.0", "<path>/libamdhip64.so.6.1.0"),
            ("/srv/libamdhip64.so.mine", "<path>"),
            ("ZEBRA=/x/y:/z -I/srv/x [/srv/x] ../zebra", "…=<path> <path> [<path>] <path>"),
            ("/proc/self/root/srv/x /proc/42/root /dev/shm/x /sys", "<path> /proc/42/root <path> /sys"),
        ] {
            assert_eq!(words().text(text), want, "{text}");
        }
    }

    #[test]
    fn numbers_are_short() {
        for number in ["1", "-0.5", "3.25%", "85µs", "1/2", "0x1f", "130", "12.5 ms"] {
            assert_eq!(words().text(number), number);
        }
        for other in ["12345678901", "1.2.3.4", "0x123456789ab", "1zebra", "1-zebra"] {
            assert_ne!(words().text(other), other);
        }
    }

    #[test]
    fn errors_of_every_part_are_reduced() {
        let mut parts = super::super::format::tests::example().parts;
        let text = Some("cannot open /home/zebra/x".to_owned());
        parts.versions.error.clone_from(&text);
        parts.doctor.error.clone_from(&text);
        parts.devices.error.clone_from(&text);
        parts.calibration.error.clone_from(&text);
        parts.launch_path.error.clone_from(&text);
        parts.window.error.clone_from(&text);
        parts.priority.error.clone_from(&text);
        parts.unit_masks.error.clone_from(&text);
        parts.unit_masks.skipped.clone_from(&text);
        parts.corun.error.clone_from(&text);
        parts.corun.result.as_mut().unwrap().levels[0].missing.clone_from(&text);
        parts.holds.error.clone_from(&text);
        parts.conformance.error.clone_from(&text);
        parts.versions.result.as_mut().unwrap().gpus[0].error.clone_from(&text);
        parts.doctor.result.as_mut().unwrap().findings[0].text = "of zebra".to_owned();
        parts.holds.result.as_mut().unwrap().mechanisms[0].error.clone_from(&text);
        let mode = &mut parts.conformance.result.as_mut().unwrap().modes[0];
        mode.error.clone_from(&text);
        mode.programs[0].error.clone_from(&text);
        words().redact(&mut parts);
        let json = serde_json::to_string(&parts).unwrap();
        assert!(!json.contains("zebra"), "{json}");
        assert_eq!(json.matches("cannot open <path>").count(), 17, "{json}");
    }
}
