//! The part of a report about releases, driver and devices.
//!
//! A report contains only the properties, parameters and variables that are listed here, and only numbers,
//! releases and known settings as their values.

use super::format::{Gpu, Versions};
use super::redact::{ENVIRONMENT, Words, is_file};
use crate::doctor::Machine;
use hal_kfd::MechanismKind;
use hal_kfd::capabilities::{self, Choice};
use protocol::config::variables;
use std::collections::BTreeMap;
use std::path::Path;

/// The numbers from a GPU's `properties`.
const PROPERTIES: [&str; 29] = [
    "simd_count",
    "simd_per_cu",
    "max_waves_per_simd",
    "wave_front_size",
    "array_count",
    "simd_arrays_per_engine",
    "cu_per_simd_array",
    "lds_size_in_kb",
    "num_xcc",
    "num_gws",
    "num_cp_queues",
    "num_sdma_engines",
    "num_sdma_xgmi_engines",
    "num_sdma_queues_per_engine",
    "max_slots_scratch_cu",
    "gfx_target_version",
    "vendor_id",
    "device_id",
    "family_id",
    "fw_version",
    "sdma_fw_version",
    "capability",
    "capability2",
    "debug_prop",
    "cwsr_size",
    "ctl_stack_size",
    "eop_buffer_size",
    "max_engine_clk_fcompute",
    "max_engine_clk_ccompute",
];

/// The parameters of the driver.
const PARAMETERS: [&str; 13] = [
    "cwsr_enable",
    "sched_policy",
    "mes",
    "mes_kiq",
    "uni_mes",
    "hws_max_conc_proc",
    "hws_gws_support",
    "queue_preemption_timeout_ms",
    "halt_if_hws_hang",
    "max_num_of_queues_per_device",
    "noretry",
    "gpu_recovery",
    "lockup_timeout",
];

/// Settings that are kept in addition to numbers and the documented values of giveway's variables.
const SETTINGS: [&str; 6] = ["on", "off", "true", "false", "yes", "no"];

/// Makes the part. Returns an error with it if something is missing.
pub fn look(machine: &Machine) -> (Versions, Option<String>) {
    let uname = rustix::system::uname();
    let words = Words::new([]);
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let module = Path::new("/sys/module/amdgpu");
    let kfd = machine.gpus.iter().find_map(|gpu| gpu.facts.as_ref().ok()).map(|facts| facts.version);
    let versions = Versions {
        giveway: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: words.release(&text(uname.release())),
        machine: text(uname.machine()),
        distribution: field(&release, "ID"),
        distribution_version: field(&release, "VERSION_ID"),
        runtimes: names(machine),
        kfd: kfd.map(|(major, minor)| format!("{major}.{minor}")),
        amdgpu: line(&module.join("version")).map(|version| words.release(&version)),
        parameters: PARAMETERS
            .iter()
            .filter_map(|name| {
                Some(((*name).to_owned(), setting(&line(&module.join("parameters").join(name))?, "")))
            })
            .collect(),
        environment: environment(|name| std::env::var(name).ok()),
        gpus: machine.gpus.iter().map(gpu).collect(),
    };
    let error = match &machine.device {
        Err(error) => Some(format!("/dev/kfd cannot be opened: {error}")),
        Ok(()) if machine.gpus.is_empty() => Some("the driver shows no GPU".to_owned()),
        Ok(()) => versions.gpus.iter().find_map(|gpu| gpu.error.clone()),
    };
    (versions, error)
}

/// The names of the runtime's files, which contain the release.
fn names(machine: &Machine) -> Vec<String> {
    let name =
        |path: &std::path::PathBuf| Some(path.file_name()?.to_str().filter(|name| is_file(name))?.to_owned());
    let mut names: Vec<String> = machine.runtimes.iter().filter_map(name).collect();
    names.sort();
    names.dedup();
    names
}

/// Reads a value of os-release without its quotes.
fn field(release: &str, name: &str) -> Option<String> {
    let value = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim().trim_matches(['"', '\'']).to_owned())
}

fn line(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The variables that are set. A path is left out.
fn environment(value: impl Fn(&str) -> Option<String>) -> BTreeMap<String, String> {
    let ours = variables().map(|variable| (variable.name, variable.values));
    let known = ours.chain(ENVIRONMENT.iter().map(|name| (*name, "")));
    let set = known.filter_map(|(name, documented)| {
        let value = value(name).filter(|value| !value.is_empty())?;
        let is_path = documented.starts_with("a path");
        Some((name.to_owned(), if is_path { "(a path)".to_owned() } else { setting(&value, documented) }))
    });
    set.collect()
}

/// Returns a value of numbers, known settings and documented values; of any other value only that it is set.
fn setting(value: &str, documented: &str) -> String {
    let parts = |text: &str| -> Vec<String> {
        let parts = text.split([',', ':', ';', '=', '-', '.', ' ']).filter(|part| !part.is_empty());
        parts.map(str::to_lowercase).collect()
    };
    let documented = parts(documented);
    let is_number = |part: &str| match part.strip_prefix("0x") {
        Some(hex) => hex.chars().all(|c| c.is_ascii_hexdigit()),
        None => part.chars().all(|c| c.is_ascii_digit()),
    };
    let is_known =
        |part: &String| is_number(part) || SETTINGS.contains(&part.as_str()) || documented.contains(part);
    match value.len() <= 64 && parts(value).iter().all(is_known) {
        true => value.to_owned(),
        false => "(set)".to_owned(),
    }
}

fn gpu(gpu: &crate::doctor::Gpu) -> Gpu {
    let properties =
        PROPERTIES.iter().filter_map(|name| Some(((*name).to_owned(), gpu.property(name)?))).collect();
    let mut made = Gpu {
        target: gpu.target(),
        properties,
        scheduler: None,
        cwsr: None,
        debugger: None,
        mechanisms: BTreeMap::new(),
        error: None,
    };
    match &gpu.facts {
        Ok(facts) => {
            made.scheduler = Some(facts.scheduler.to_string());
            (made.cwsr, made.debugger) = (facts.cwsr, Some(facts.debugger));
            for kind in [MechanismKind::UpdateQueue, MechanismKind::DebugTrap] {
                let answer = match capabilities::choose(Choice::Only(kind), facts, false) {
                    Ok(_) => "yes".to_owned(),
                    Err(refusal) => refusal.to_string(),
                };
                made.mechanisms.insert(kind.name().to_owned(), answer);
            }
        }
        Err(why) => made.error = Some(format!("the driver does not describe a GPU: {why}")),
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_known_values_only() {
        let all = environment(|_| Some("1".to_owned()));
        assert_eq!((all["HSA_XNACK"].as_str(), all["XSCHED_AUTO_XQUEUE_LEVEL"].as_str()), ("1", "1"));
        for path in ["XSCHED_SOCKET", "XSCHED_LOG_FILE", "XSCHED_HIP_LIB"] {
            assert_eq!(all[path], "(a path)");
        }
        assert_eq!(all.len(), variables().count() + ENVIRONMENT.len());
        assert!(environment(|_| Some(String::new())).is_empty());
        for known in ["11.0.0", "0:0-7", "0,1", "0xff", "ON", "GLB", "chaos:1"] {
            assert_eq!(setting(known, "APP, LCL, GLB, chaos:N"), known);
        }
        for other in ["GPU-12ab34cd56ef7890", "zebra", "0,zebra", "/home/zebra", "GLB"] {
            assert_eq!(setting(other, "APP, LCL"), "(set)");
        }
    }

    #[test]
    fn no_property_identifies_a_device() {
        for name in ["unique_id", "location_id", "domain", "hive_id", "drm_render_minor"] {
            assert!(!PROPERTIES.contains(&name), "{name}");
        }
    }

    #[test]
    fn os_release_is_parsed() {
        let release = "PRETTY_NAME=\"X 1\"\nID=debian\nVERSION_ID=\"12\"\n";
        assert_eq!(field(release, "ID").as_deref(), Some("debian"));
        assert_eq!(field(release, "VERSION_ID").as_deref(), Some("12"));
        assert_eq!(field(release, "VARIANT"), None);
    }
}
