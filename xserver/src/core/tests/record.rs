//! The records of what the core sees and decides.

use super::*;

/// Takes the records as JSON, without the texts of the reasons. Their times must be in order.
fn taken(fixture: &mut Fixture) -> Vec<String> {
    let records: Vec<_> = fixture.core.take_records().collect();
    assert!(records.is_sorted_by_key(|record| record.at));
    assert!(records.iter().all(|record| record.at <= fixture.now()));
    let json = records.iter().map(|record| serde_json::to_string(record).unwrap());
    json.map(|line| line.split(",\"why\"").next().unwrap().to_owned()).collect()
}

fn recording() -> Fixture {
    let mut fixture = two();
    fixture.core.start_recording();
    fixture
}

#[test]
fn only_changes_are_recorded_in_order() {
    let mut fixture = recording();
    let start = fixture.now().0;
    fixture.step();
    let permission = |at: u64, client: u64, run: bool| {
        let pid = 99 + client;
        format!(r#"{{"at_ns":{at},"kind":"permission","client":{client},"pid":{pid},"run":{run}"#)
    };
    assert_eq!(taken(&mut fixture), [permission(start, 1, true), permission(start, 2, true)]);
    fixture.step();
    assert_eq!(taken(&mut fixture), [""; 0], "nothing has changed");

    fixture.flip(0);
    fixture.world.now.set(start + 1_000);
    fixture.flip(1);
    let work = |at: u64, client: u64, works: bool, since: u64| {
        let pid = 99 + client;
        format!(
            r#"{{"at_ns":{at},"kind":"work","client":{client},"pid":{pid},"works":{works},"since_ns":{since}}}"#
        )
    };
    let want = [
        work(start, 1, true, start),
        work(start + 1_000, 2, true, start + 1_000),
        permission(start + 1_000, 1, false),
    ];
    assert_eq!(taken(&mut fixture), want);

    // The server hears later that the second client is idle.
    let idle = start + 2_000;
    fixture.world.now.set(idle);
    fixture.page(1).flip(0, fixture.now());
    fixture.world.now.set(idle + 70);
    fixture.step();
    let until = idle + LINGER.as_nanos() as u64;
    let linger =
        format!(r#"{{"at_ns":{},"kind":"linger","client":2,"pid":101,"until_ns":{until}}}"#, idle + 70);
    assert_eq!(taken(&mut fixture), [work(idle + 70, 2, false, idle), linger]);
    fixture.pass(2 * LINGER, |_| {});
    assert_eq!(taken(&mut fixture), [permission(until, 1, true)]);
}

#[test]
fn clients_that_come_and_go_are_recorded_with_the_next_step() {
    let mut fixture = recording();
    let _ = taken(&mut fixture);
    let page = PageOfWorld { world: fixture.world.clone(), page: Rc::new(FakePage::default()) };
    let client = fixture.core.join(newcomer(7, "c"), page);
    fixture.core.leave(fixture.clients[0]);
    fixture.world.now.set(fixture.now().0 + 5);
    let now = fixture.now().0;
    fixture.step();
    let lines = taken(&mut fixture);
    let want = [
        format!(r#"{{"at_ns":{now},"kind":"join","client":3,"pid":7}}"#),
        format!(r#"{{"at_ns":{now},"kind":"leave","client":1,"pid":100}}"#),
    ];
    assert_eq!(lines[..2], want);
    assert!(lines[2..].iter().all(|line| line.contains("\"kind\":\"permission\"")), "{lines:?}");
    assert_eq!(lines.len(), 4, "the first permissions of clients 2 and 3: {lines:?}");
    fixture.core.leave(client);
    fixture.core.stop_recording();
    fixture.step();
    assert_eq!(taken(&mut fixture), [""; 0]);
}

#[test]
fn guard_and_its_permissions_are_recorded() {
    let mut fixture = recording();
    fixture.flip(0);
    fixture.flip(1);
    let _ = taken(&mut fixture);
    fixture.pass(guard::PATIENCE + 2 * guard::STALL, |_| {});
    let records: Vec<_> = fixture.core.take_records().map(|record| record.change).collect();
    let low = (fixture.clients[0], Pid(100));
    let resumed =
        Change::Permission { client: low.0, pid: low.1, run: true, turned: true, reason: Reason::Guard };
    assert_eq!(records[..2], [Change::Guard { on: true }, resumed]);
    assert_eq!(records[2], Change::Guard { on: false });
    assert!(
        matches!(records[3], Change::Permission { client, run: false, reason: Reason::Outranked { .. }, .. } if client == low.0),
        "{records:?}"
    );
}

#[test]
fn end_of_the_server_is_recorded_as_permission_of_all() {
    let mut fixture = recording();
    fixture.flip(0);
    fixture.flip(1);
    let _ = taken(&mut fixture);
    fixture.core.release_all(fixture.now());
    let records: Vec<_> = fixture.core.take_records().collect();
    assert_eq!(records.len(), 2);
    assert!(
        records
            .iter()
            .all(|record| matches!(record.change, Change::Permission { run: true, reason: Reason::Off, .. }))
    );
}
