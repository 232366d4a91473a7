//! The exporter of metrics, and a real Prometheus that reads it, with the alerts and the queries of the dashboard.

use crate::http::{escaped, get, json};
use crate::place::{ALICE, BOB, Place, built, has, is_of, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tests::{Running, until};

const CONFIGURATION: &str = r#"
    [[rule]]
    name = "serving"
    users = [40001]
    max_priority = 100
    [[rule]]
    name = "monitoring"
    users = [40003]
    observe = true
"#;
const MONITOR: u32 = 40_003;

/// The files that an installation has in `share/giveway/prometheus`.
fn share() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/prometheus")
}

/// A program of Prometheus.
fn tool(name: &str) -> Command {
    let folder = std::env::var_os("PROMETHEUS").expect("PROMETHEUS: run scripts/test-operations");
    Command::new(PathBuf::from(folder).join(name))
}

/// Starts an exporter inside the simulated machine, where the driver shows memory. Returns its address.
fn export(place: &Place, uid: u32, options: &[&str]) -> (Running, SocketAddr) {
    let run = place.run(uid).arg("sh").arg("-c").arg("exec \"$@\" 2>&1").arg("sh");
    let run = run.arg(text(&built("xcli"))).arg("metrics").arg("--listen").arg("127.0.0.1:0");
    let mut running = options.iter().fold(run, |run, option| run.arg(*option)).start();
    let line = running.line();
    let address =
        line.strip_prefix("xcli: serves metrics at http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address.unwrap_or_else(|| panic!("{line}"));
    (running, address.parse().expect("an address"))
}

/// A Prometheus that reads one exporter. Killed when dropped.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn start(exporter: SocketAddr, token: &Path) -> Prometheus {
        let folder = tempfile::tempdir().expect("a folder");
        let example = std::fs::read_to_string(share().join("prometheus.yml")).expect("the example");
        let configuration = example
            .replace("127.0.0.1:9477", &exporter.to_string())
            .replace("scrape_interval: 5s", "scrape_interval: 250ms\n  evaluation_interval: 250ms")
            .replace("    # authorization:", "    authorization:")
            .replace(
                "    #   credentials_file: /etc/prometheus/giveway.token",
                &format!("      credentials_file: {}", token.display()),
            );
        assert!(configuration.contains("\n    authorization:\n      credentials_file: /"), "{configuration}");
        std::fs::write(folder.path().join("prometheus.yml"), configuration).expect("the configuration");
        std::fs::copy(share().join("giveway.rules.yml"), folder.path().join("giveway.rules.yml"))
            .expect("the rules");
        // Free a moment ago. Prometheus does not say which port it has taken.
        let address =
            TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
        let child = tool("prometheus")
            .arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus");
        Prometheus { child, address, _folder: folder }
    }

    /// The samples of a query.
    fn query(&self, query: &str) -> Vec<Value> {
        let path = format!("/api/v1/query?query={}", escaped(query));
        let answer = until("Prometheus answers", || json(self.address, &path));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }
}

/// The queries of the dashboard, with its variables replaced.
fn queries() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(share().join("grafana.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().expect("a query");
            let query =
                query.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$name", ".*");
            assert!(!query.contains('$'), "{query}");
            all.push((panel["title"].as_str().expect("a title").to_owned(), query));
        }
    }
    assert!(all.len() > 20);
    all
}

#[test]
fn alerts_fire_for_what_they_are_for() {
    for (folder, arguments) in [
        (share(), &["test", "rules", "giveway.rules.test.yml"][..]),
        (share(), &["check", "config", "prometheus.yml"]),
    ] {
        let output = tool("promtool").args(arguments).current_dir(folder).output().expect("promtool");
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
    // Each alert has a case.
    let read = |name: &str| std::fs::read_to_string(share().join(name)).expect("a file");
    let names = |text: &str, key: &str| -> BTreeSet<String> {
        text.lines().filter_map(|line| Some(line.split_once(key)?.1.trim().to_owned())).collect()
    };
    let alerts = names(&read("giveway.rules.yml"), "- alert:");
    assert_eq!(alerts, names(&read("giveway.rules.test.yml"), "alertname:"));
    assert!(alerts.len() > 5);
}

#[test]
fn prometheus_reads_the_metrics_and_the_dashboard_has_something_to_show() {
    let mut place = Place::new(CONFIGURATION);
    let token = place.daemon.folder().join("token");
    std::fs::write(&token, "secret\n").expect("the token");
    let (exporter, address) = export(&place, 0, &["--token-file", &text(&token)]);
    let prometheus = Prometheus::start(address, &token);
    place.said(0, &["policy", "set", "SLO"]);
    until("Prometheus reads", || (!prometheus.query("giveway_up == 1").is_empty()).then_some(()));
    let mut low = place.rounds(BOB, &["--priority", "-5"], &["400", "20"]);
    let mut high = place.rounds(ALICE, &["--priority", "50"], &["300", "5", "each"]);
    low.let_go();
    place.until(0, "the low program works", |client| is_of(client, BOB) && has(client, "running"));
    high.let_go();
    place.until(0, "it is suspended", |client| is_of(client, BOB) && has(client, "suspended"));
    // What the programs do while Prometheus looks. They run at level 1, and each of their launches can be deferred.
    let empty_by_right = ["giveway_eviction_seconds", "giveway_process_slow_launches"];
    for (title, query) in queries() {
        if empty_by_right.iter().any(|name| query.contains(name)) {
            prometheus.query(&query);
        } else {
            until(&format!("{title}: {query} has samples"), || {
                let samples = prometheus.query(&query);
                (!samples.is_empty()).then_some(())
            });
        }
    }
    let groups = until("the rules are loaded", || json(prometheus.address, "/api/v1/rules"));
    let rules = groups["data"]["groups"][0]["rules"].as_array().expect("rules");
    assert!(rules.len() == 9 && rules.iter().all(|rule| rule["health"] != "err"), "{groups}");
    // Numbers of the two programs.
    until("the memory of both is known", || {
        let samples = prometheus.query("giveway_process_memory_peak_bytes > 0");
        (samples.len() >= 2).then_some(())
    });
    until("the suspension is counted", || {
        let samples = prometheus.query("giveway_preemptions_total{level=\"1\"} > 0");
        (!samples.is_empty()).then_some(())
    });
    for running in [high, low] {
        running.finish().expect_success();
    }
    // Without the server the exporter goes on.
    place.daemon.end();
    until("the server is down", || {
        let samples = prometheus.query("giveway_up == 0");
        (!samples.is_empty()).then_some(())
    });
    drop(exporter);
}

#[test]
fn readers_see_what_they_may_see() {
    let place = Place::new(CONFIGURATION);
    let token = place.daemon.folder().join("token");
    std::fs::write(&token, "secret\n").expect("the token");
    let program = place.rounds(ALICE, &["--priority", "50"], &["3", "5"]);
    let client = place.until(0, "the program is connected", |client| is_of(client, ALICE));
    let pid = format!("pid=\"{}\"", client["pid"]);
    let read = |address, fields: &str| until("the exporter answers", || get(address, "/metrics", fields));
    let (_private, address) = export(&place, 0, &["--token-file", &text(&token)]);
    assert_eq!(read(address, "").0, 401);
    assert_eq!(read(address, "Authorization: Bearer wrong\r\n").0, 401);
    let (status, body) = read(address, "Authorization: Bearer secret\r\n");
    assert!(status == 200 && body.contains(&pid), "{body}");
    // The token is read at each request.
    std::fs::write(&token, "other\n").expect("the token");
    assert_eq!(read(address, "Authorization: Bearer secret\r\n").0, 401);
    // Without a token the address is for everybody.
    let (_public, address) = export(&place, 0, &[]);
    let (_, body) = read(address, "");
    assert!(!body.contains("pid=") && body.contains("giveway_server_programs{} 1.0"), "{body}");
    // An exporter shows what its user may see.
    let (_observer, address) = export(&place, MONITOR, &["--public"]);
    assert!(read(address, "").1.contains(&pid));
    let (_other, address) = export(&place, BOB, &["--public"]);
    let (_, body) = read(address, "");
    assert!(!body.contains(&pid) && !body.contains("giveway_decision_seconds"), "{body}");
    assert_eq!(until("the exporter answers", || get(address, "/else", "")).0, 404);
    program.finish().expect_success();
}
