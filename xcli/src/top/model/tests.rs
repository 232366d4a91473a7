use super::*;
use crate::top::rows::tests::{SECOND, two_lists};
use protocol::bounds::Priority;
use protocol::control::{HintUpdate, Target};
use protocol::outside::Held;
use protocol::time::Time;

/// A view of the three programs of the example, whose order by share is train.py, infer, fresh.
fn model() -> Model {
    let mut model = Model::new(Endpoint::default(), Users::new());
    for list in two_lists() {
        model.update(list);
    }
    model
}

fn pids(model: &Model) -> Vec<u32> {
    let pid = |(_, line): &(RowId, Line<'_>)| match line {
        Line::Client(row) => row.pid.0,
        Line::Queue(_) => 0,
        Line::Held(pid, _) => pid.0,
    };
    model.lines().iter().map(pid).collect()
}

fn keys(model: &mut Model, text: &str) -> Vec<Action> {
    text.chars()
        .filter_map(|letter| match letter {
            '\n' => model.key(Key::Enter),
            '\x1b' => model.key(Key::Escape),
            letter => model.key(Key::Character(letter)),
        })
        .collect()
}

fn requests(action: Option<Action>) -> Vec<Request> {
    match action {
        Some(Action::Order(order)) => order.requests,
        other => panic!("{other:?}"),
    }
}

fn hint(pid: u32, queue: Option<u64>, priority: i64) -> Request {
    let of = Target { pid: Some(Pid(pid)), queue: queue.map(QueueId) };
    Request::Hint { of, said: vec![HintUpdate::Priority(Priority::try_from(priority).unwrap())] }
}

#[test]
fn selection_follows_its_program_when_the_order_changes() {
    let mut model = model();
    assert_eq!((pids(&model), model.selected()), (vec![31_337, 4242, 5], Some(0)));
    keys(&mut model, "j");
    assert_eq!((model.selected(), model.title().as_deref()), (Some(1), Some("4242 infer")));
    keys(&mut model, "r");
    assert_eq!((pids(&model), model.selected()), (vec![5, 4242, 31_337], Some(1)));
    for _ in 0..SORTED.iter().position(|column| *column == Column::Priority).unwrap() {
        keys(&mut model, "s");
    }
    keys(&mut model, "r");
    assert_eq!((pids(&model), model.selected()), (vec![4242, 31_337, 5], Some(0)));
    model.key(Key::End);
    assert_eq!(model.selected(), Some(2));
    model.key(Key::PageUp);
    model.key(Key::Up);
    assert_eq!(model.selected(), Some(0));
}

#[test]
fn selection_stays_in_place_when_its_program_ends() {
    let mut model = model();
    model.key(Key::Down);
    let [_, mut list] = two_lists();
    list.clients.remove(0);
    model.update(list.clone());
    assert_eq!(model.title().as_deref(), Some("31337 train.py"), "the last one of two that are equal");
    list.clients.clear();
    model.update(list);
    assert_eq!((model.selected(), model.title(), model.why()), (None, None, vec![]));
    for key in [Key::Up, Key::Down, Key::End, Key::Enter] {
        assert_eq!(model.key(key), None);
    }
    assert!(keys(&mut model, "+-zZp").is_empty());
}

#[test]
fn queues_are_shown_below_their_program() {
    let mut model = model();
    model.key(Key::Down);
    model.key(Key::Enter);
    assert_eq!(pids(&model), [31_337, 4242, 0, 0, 5]);
    model.key(Key::Down);
    model.key(Key::Down);
    assert_eq!(requests(model.key(Key::Character('+'))), [hint(4242, Some(8), 11)]);
    assert!(model.why()[0].starts_with("queue 8: idle"), "{:?}", model.why());
    // A program is suspended as a whole.
    assert_eq!(requests(model.key(Key::Character('z'))), [hint(4242, None, -256)]);
    model.key(Key::Enter);
    assert_eq!((pids(&model), model.selected()), (vec![31_337, 4242, 5], Some(1)));
}

#[test]
fn filter_is_typed_and_cleared() {
    let mut model = model();
    keys(&mut model, "/TRAI");
    assert_eq!((pids(&model), &model.mode), (vec![31_337], &Mode::Filter));
    model.key(Key::Backspace);
    keys(&mut model, "\n");
    assert_eq!((model.filter.as_str(), &model.mode), ("TRA", &Mode::Browse));
    keys(&mut model, "\x1b/idle\n");
    assert_eq!(pids(&model), [5]);
    keys(&mut model, "/zzz\x1b");
    assert_eq!(pids(&model), [31_337, 4242, 5]);
    model.users = [(7, "alice".to_owned())].into();
    model.rows[0].uid = Some(7);
    keys(&mut model, "/alice\n");
    assert_eq!(pids(&model), [31_337]);
}

#[test]
fn priority_is_typed() {
    let mut model = model();
    assert!(keys(&mut model, "p-12").is_empty());
    assert_eq!(requests(model.key(Key::Enter)), [hint(31_337, None, -12)]);
    assert!(keys(&mut model, "p300\n").is_empty());
    let message = model.message.clone().unwrap();
    assert!(message.is_error && message.text.contains("is not a priority"), "{message:?}");
    assert!(keys(&mut model, "p1\x1b").is_empty());
    assert_eq!((&model.mode, model.message.as_ref()), (&Mode::Browse, None));
    // The program ends while its priority is typed.
    keys(&mut model, "p1");
    let [_, mut list] = two_lists();
    list.clients.remove(1);
    model.update(list);
    assert_eq!(model.key(Key::Enter), None);
    assert!(model.message.as_ref().unwrap().text.contains("has ended"), "{:?}", model.message);
}

#[test]
fn suspended_program_is_resumed_with_its_priority() {
    let mut model = model();
    assert_eq!(requests(model.key(Key::Character('z'))), [hint(31_337, None, -256)]);
    let [_, mut list] = two_lists();
    let queue = &mut list.clients[1].queues[0];
    (queue.status.priority, queue.own_priority) = (Priority::NO_EXECUTE, Some(Priority::DEFAULT));
    list.server.now = Time(103 * SECOND);
    model.update(list.clone());
    // It was -255, which the program has not set itself.
    assert_eq!(requests(model.key(Key::Character('Z'))), [hint(31_337, None, -255)]);
    // Another server does not know it.
    list.server.pid = Pid(1);
    model.update(list);
    assert_eq!(requests(model.key(Key::Character('Z'))), [hint(31_337, None, 0)]);
}

#[test]
fn process_that_is_no_client_can_be_resumed() {
    let mut model = model();
    let [_, mut list] = two_lists();
    list.held = vec![Held { pid: Pid(77), name: "old".to_owned(), queues: vec![] }];
    model.update(list);
    model.key(Key::End);
    assert_eq!((pids(&model), model.title().as_deref()), (vec![5, 4242, 31_337, 77], Some("77 old")));
    assert_eq!(model.why(), ["suspended by `xcli suspend` until `xcli resume 77`"]);
    let release = Request::Release { pid: Pid(77), queues: vec![] };
    assert_eq!(requests(model.key(Key::Character('Z'))), [release]);
    assert_eq!(model.key(Key::Character('z')), None);
    assert!(model.message.as_ref().unwrap().text.contains("suspended already"));
}

#[test]
fn policy_is_typed_or_chosen() {
    let mut model = model();
    let named = |action| match &requests(action)[..] {
        [Request::SetPolicy(order)] => order.policy.clone(),
        other => panic!("{other:?}"),
    };
    keys(&mut model, "Pfair");
    assert_eq!(named(model.key(Key::Enter)), "FAIR");
    keys(&mut model, "P");
    model.key(Key::Down);
    assert_eq!(model.mode, Mode::Policy("HPF".to_owned()));
    assert_eq!(named(model.key(Key::Enter)), "HPF");
    assert!(keys(&mut model, "PFIFO\n").is_empty());
    assert!(model.message.as_ref().unwrap().text.starts_with("no policy \"FIFO\""));
}

#[test]
fn off_asks_and_on_does_not() {
    let mut model = model();
    assert!(keys(&mut model, "on").is_empty());
    assert_eq!(model.message.as_ref().unwrap().text, "scheduling stays on");
    keys(&mut model, "o");
    assert_eq!(requests(model.key(Key::Character('y'))), [Request::Off]);
    let [_, mut list] = two_lists();
    list.server.on = false;
    model.update(list);
    assert_eq!(requests(model.key(Key::Character('o'))), [Request::On]);
}

#[test]
fn lost_server_leaves_nothing_to_change() {
    let mut model = model();
    model.lose("no xserver\nruns".to_owned());
    assert_eq!((model.lost.as_deref(), model.server()), (Some("no xserver?runs"), None));
    assert!(pids(&model).is_empty() && keys(&mut model, "+zZpo\n").is_empty());
    let [_, list] = two_lists();
    model.update(list);
    assert_eq!((&model.lost, model.shares()), (&None, vec![None]), "the history is gone");
    assert_eq!(model.key(Key::Character('q')), Some(Action::Quit));
}

#[test]
fn history_of_shares_is_bounded() {
    let mut model = model();
    assert_eq!(model.shares(), [None, Some(50.0)]);
    let [_, mut list] = two_lists();
    for second in 0..HISTORY as u64 {
        list.server.now = Time((103 + second) * SECOND);
        model.update(list.clone());
    }
    assert_eq!(model.shares().len(), HISTORY);
    assert_eq!(model.shares().first(), Some(&Some(0.0)));
}

#[test]
fn help_scrolls_and_closes() {
    let mut model = model();
    keys(&mut model, "?");
    model.key(Key::Down);
    model.key(Key::PageDown);
    assert_eq!(model.mode, Mode::Help(11));
    model.key(Key::Up);
    model.key(Key::PageUp);
    assert_eq!(model.mode, Mode::Help(0));
    model.key(Key::Escape);
    assert_eq!(model.mode, Mode::Browse);
    keys(&mut model, "?");
    assert_eq!(model.key(Key::Character('q')), Some(Action::Quit));
}
